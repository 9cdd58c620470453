"""The exact reformulation as a cone program, solved by Clarabel: the reference for every other solver.

Of order 1, with the multiplier ``lam >= Lip max(||theta||_*, 2 / gamma)`` (the second only where targets move),

    minimise  sigma lam + sum_i w_i t_i + rho / 2 ||theta||^2   subject to   t_i >= h_i(signal_i, lam) ,

and each loss says in cones what ``t_i >= h_i`` means: linear for polyhedral losses, exponential for the logistic, and
so on. Of order 2 the closed forms of `dualcore.problem.forms` are second-order cones. Every row's part in the dual
point is read off the multipliers of its cones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from dualcore.certificates import DualPoint, lower_bound
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.losses import Huber, Logistic, Loss, Power, SmoothHinge, Squared, SquaredHinge
from dualcore.solvers.base import IncompatibleError, Iterate, RawSolution, Solver, able_solver, tell
from dualcore.solvers.coneprogram import Affine, ConeSolution, Rows
from dualcore.solvers.cones import DUAL_BOUNDS, ScaledRows, Scene, Sizes, spread_dual

RowReading = Callable[[ConeSolution], DualPoint]
"""Reads the dual point of the rows that carry mass off the multipliers."""


def polyhedral_rows(scene: Scene) -> RowReading:
    """``L(t) = max_k slope_k t + offset_k``: one linear row per piece, and one more where it pays to flip."""
    program, signal, t = scene.program, scene.signal(), scene.epigraph()
    pieces = scene.problem.loss.pieces or ()
    stay = [(s, program.nonnegative(t - s * signal - o / scene.design.unit)) for s, o in pieces]
    flip = []
    if scene.flips:
        dear = t + scene.flip_price()
        # A flat piece is no higher after a flip than before it.
        flip = [(-s, program.nonnegative(dear + s * signal - o)) for s, o in pieces if s != 0.0]

    def read(solution: ConeSolution) -> DualPoint:
        z, w = solution.multipliers, scene.design.masses
        slope = sum((s * z[place] for s, place in stay), np.zeros(scene.n)) / w
        if not flip:
            return DualPoint(slope)
        gain = sum((s * z[place] for s, place in flip), np.zeros(scene.n)) / w
        return DualPoint(slope, gain, sum((z[place] for _, place in flip), np.zeros(scene.n)) / w)

    return read


def logistic_rows(scene: Scene) -> RowReading:
    """``t >= log(1 + exp(-z))`` says ``exp(-z - t) + exp(-t) <= 1``.

    As ``L(-z) - L(z) = z`` a flip only adds ``(z - lam gamma)_+`` and needs no exponential of its own.
    """
    program, signal, t = scene.program, scene.signal(), scene.epigraph()
    wrong, right = program.variables(scene.n), program.variables(scene.n)
    exponent, _, _ = program.exponential(-signal - t, wrong)
    program.exponential(-t, right)
    program.nonnegative(1.0 - wrong - right)
    gains = None
    if scene.flips:
        extra = scene.epigraph()
        program.nonnegative(extra)
        gains = program.nonnegative(extra - signal + scene.flip_price())

    def read(solution: ConeSolution) -> DualPoint:
        z, w = solution.multipliers, scene.design.masses
        slope = z[exponent] / w
        if gains is None:
            return DualPoint(slope)
        share = np.clip(z[gains] / w, 0.0, 1.0)
        return DualPoint((1.0 - share) * slope, share * (1.0 + slope), share)

    return read


def smooth_hinge_rows(scene: Scene) -> RowReading:
    """``L(z) = min e^2 / 2 + f`` over ``e + f >= 1 - z, f >= 0``.

    A flip can pay only where ``z > 0``. There ``L(-z)`` is the line ``1/2 + z``, which elsewhere lies below ``L(z)``.
    """
    program, signal = scene.program, scene.signal()
    curved, straight = program.variables(scene.n), program.variables(scene.n)
    short = program.nonnegative(curved + straight + signal - 1.0)
    program.nonnegative(straight)
    gains = None
    if scene.flips:
        t = scene.epigraph()
        program.rotated(2.0 * (t - straight), Affine(np.ones(scene.n)), curved)
        gains = program.nonnegative(t + scene.flip_price() - signal - 0.5)
    else:
        program.minimise(straight.mapped(scene.design.masses))
        program.minimise_squares(scene.design.masses, curved)

    def read(solution: ConeSolution) -> DualPoint:
        z, w = solution.multipliers, scene.design.masses
        if gains is None:
            return DualPoint(-z[short] / w)
        return DualPoint(-z[short] / w, z[gains] / w, z[gains] / w)

    return read


def huber_rows(scene: Scene) -> RowReading:
    """``L(r) = min e^2 / 2 + delta |r - e|``: the quadratic and the absolute loss share the residual."""
    loss = scene.problem.loss
    if not isinstance(loss, Huber):
        raise TypeError(f"these cones describe Huber, not {type(loss).__name__}.")
    program, design = scene.program, scene.design
    inner, over, under = (program.variables(scene.n) for _ in range(3))
    balance = program.zero(scene.residual() - inner - over + under)
    program.nonnegative(over)
    program.nonnegative(under)
    program.minimise_squares(design.unit * design.masses, inner)
    program.minimise((over + under).mapped(loss.delta * design.masses))

    def read(solution: ConeSolution) -> DualPoint:
        return DualPoint(-solution.multipliers[balance] / design.masses)

    return read


def _root_cost(scene: Scene, mean: Affine) -> Callable[[ConeSolution], float]:
    """Minimise ``(mean + sigma K)^2`` and return how its slope in the mean relates to the multipliers.

    Where nothing else is minimised the root is as good as its square, and far better conditioned near zero.
    """
    root = mean if scene.slope_bound is None else mean + scene.problem.radius * scene.slope_bound
    if scene.minimises_root:
        scene.program.minimise(root)
        return lambda solution: 2.0 * max(float(solution.value(root)[0]), 0.0)
    square = scene.program.variables(1)
    scene.program.nonnegative(square - root)
    scene.program.minimise_squares(np.array([2.0]), square)
    return lambda solution: 1.0


def squared_rows(scene: Scene) -> RowReading:
    """``R = (rms(r) + sigma K)^2``: one second-order cone, of the triangular factor of ``[X 1 y]`` where rows are many.

    The factor also keeps columns apart that differ in their last digits only.
    """
    program, design = scene.program, scene.design
    rms, roots = program.variables(1), np.sqrt(design.masses)
    n, m = design.matrix.shape
    table, factor, residual = np.empty((0, 0)), None, roots * scene.residual()
    if n > m + 2 and not sp.issparse(design.matrix):
        table = np.column_stack([design.matrix, np.ones(n), design.target])
        factor = np.asarray(np.linalg.qr(roots[:, None] * table, mode="r"))
        residual = scene.predictor(factor[:, :m], factor[:, m]) - factor[:, m + 1]
    _, inside = program.second_order(rms, residual)
    steep = _root_cost(scene, rms)

    def read(solution: ConeSolution) -> DualPoint:
        direction = -design.unit * steep(solution) * solution.multipliers[inside]
        # The slopes lie in the span of the columns; the factor gives their coordinates.
        return DualPoint(direction / roots if factor is None else table @ np.linalg.lstsq(factor, direction)[0])

    return read


def squared_hinge_rows(scene: Scene) -> RowReading:
    """``R = (rms([1 - z]_+) + sigma K)^2`` where labels stay; see `_squared_hinge_flips` where they flip."""
    program, design, signal = scene.program, scene.design, scene.signal()
    short = program.variables(scene.n)
    lifted = program.nonnegative(short + signal - 1.0)
    program.nonnegative(short)
    if scene.flips:
        return _squared_hinge_flips(scene, signal, short, lifted)
    rms = program.variables(1)
    program.second_order(rms, np.sqrt(design.masses) * short)
    steep = _root_cost(scene, rms)

    def read(solution: ConeSolution) -> DualPoint:
        return DualPoint(-steep(solution) * solution.multipliers[lifted] / design.masses)

    return read


def _squared_hinge_flips(scene: Scene, signal: Affine, short: Affine, lifted: Rows) -> RowReading:
    """Stay and flip branches of the squared hinge, in second-order cones.

    ``lam u^2 / (lam - K^2) <= t`` says ``u^2 <= t p`` with ``K^2 <= lam (1 - p)``. The flip branch is the least of
    ``lam (v - k gamma)_+^2 / (lam - k^2)`` over ``k >= K``: at ``k = K`` where the flipped row also moves, and where it
    does not at ``k = lam gamma / v``, which makes it ``v^2 - lam gamma^2``. So each row has its own ``k`` and ``p``.
    """
    program, problem, w, n = scene.program, scene.problem, scene.design.masses, scene.n
    if scene.slope_bound is None:
        raise ValueError("no row flips at radius 0")
    risk, lam, steep = scene.sizes
    # A flipped row of margin 1 that does not move has k = lam gamma / 2; none has more than the root of lam.
    row_steep = min(max(steep, 0.5 * lam * problem.geometry.label_cost), lam**0.5)
    rest, row_rest = lam / steep**2, lam / row_steep**2
    multiplier, left, t = program.variables(1), program.variables(1), scene.epigraph()
    program.minimise(problem.price * lam * multiplier)
    program.rotated(multiplier, rest * (1.0 - left), (1.0 / steep) * scene.slope_bound)
    program.rotated((1.0 / risk) * t, left.spread(n), risk**-0.5 * short)
    row_slope_bound, row_left, gain = (program.variables(n) for _ in range(3))
    program.nonnegative(row_slope_bound - scene.slope_bound.spread(n))
    program.rotated(multiplier.spread(n), row_rest * (1.0 - row_left), (1.0 / row_steep) * row_slope_bound)
    earned = program.nonnegative(gain - signal - 1.0 + problem.geometry.label_cost * row_slope_bound)
    program.nonnegative(gain)
    total, difference, _ = program.rotated((1.0 / risk) * t, row_left, risk**-0.5 * gain)

    def read(solution: ConeSolution) -> DualPoint:
        z = solution.multipliers
        flip = z[earned] / w
        v = np.maximum(1.0 + solution.value(signal), 1e-12)
        # A flipped share q has slope 2 q v, or more if it moves. Where t = 0 the cones do not
        # determine q, so the slope decides.
        share = np.minimum((z[total] + z[difference]) / (risk * w), 0.5 * flip / v)
        return DualPoint(-z[lifted] / w, flip, share)

    return read


ROW_CONES: dict[type[Loss], Callable[[Scene], RowReading]] = {
    Logistic: logistic_rows,
    SmoothHinge: smooth_hinge_rows,
    Huber: huber_rows,
    Squared: squared_rows,
    Power: squared_rows,
    SquaredHinge: squared_hinge_rows,
}
"""Losses described in cones of their own; polyhedral ones need only their pieces."""


class ConicSolver(Solver):
    """Hands the cone program of the whole data to Clarabel.

    The reference: exact for every loss with a description in cones, and slower than a method that knows the structure.
    An interior-point method cannot use a starting point: ``start`` is returned where Clarabel stops short of it.

    Examples
    --------
    >>> problem = Problem("hinge", radius=0.5)
    >>> data = problem.validate(np.array([[1.0], [-1.0]]), np.array([1.0, -1.0]))
    >>> found = ConicSolver().run(problem, data, tol=1e-6, max_iter=100, start=None)
    >>> round(problem.evaluate(found.coef, found.intercept, data).value, 6)
    0.5
    """

    name = "conic"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        loss, norm = problem.loss, problem.geometry.norm
        if not problem.family.is_closed:
            return (
                f"ConicSolver knows no programme for {type(loss).__name__} on a support or with categories. "
                "Use solver='box'."
            )
        # Only this very class will do: a subclass may mean another loss.
        if type(loss) is Power and problem.geometry.order != 2:
            return f"ConicSolver knows no cones for {loss!r}, only for power 2. Use solver='{able_solver(problem)}'."
        if type(loss) not in ROW_CONES and loss.pieces is None:
            return (
                f"ConicSolver knows no cones for the loss {type(loss).__name__}: it needs one of "
                f"{sorted(cls.__name__ for cls in ROW_CONES)} or a loss with `pieces`. "
                f'Use solver="{able_solver(problem)}".'
            )
        if type(norm) not in DUAL_BOUNDS:
            return (
                f"ConicSolver knows no cone for the norm {type(norm).__name__}: it needs one of "
                f'{sorted(cls.__name__ for cls in DUAL_BOUNDS)}. Use solver="structured".'
            )
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        obstacle = self.obstacle(problem, data)
        if obstacle is not None:
            raise IncompatibleError(obstacle)
        data.rows.check_finite()
        design = ScaledRows.of(problem, data)
        attempt = partial(self._attempt, data=data, design=design, tol=tol, max_iter=max_iter)
        # A model that is best where labels stay, and at which no flip pays, is best where they may flip.
        curved_flips = problem.family.flips and not problem.family.linear_in_multiplier
        first = problem.replace(label_cost=np.inf) if curved_flips else problem
        found, gap = _best_of([attempt(first)], problem, data)
        # Clarabel's digits are absolute: ask again in units of what was found, and then for one digit less.
        for less in (1.0, 10.0) if curved_flips else (10.0,):
            if gap > tol and found.iterations < max_iter:
                again = attempt(problem, sizes=Sizes.at(problem, found, data, design), tol=less * tol)
                found, gap = _best_of([found, again], problem, data)
        return _no_worse_than(start, found, problem, data)

    def _attempt(
        self,
        problem: Problem,
        *,
        data: Data,
        design: ScaledRows,
        tol: float,
        max_iter: int,
        sizes: Sizes | None = None,
    ) -> RawSolution:
        """Build and solve one program, and read a primal and a dual point off it."""
        sizes = sizes or Sizes()
        scene = Scene.of(problem, design, sizes)
        read = ROW_CONES.get(type(problem.loss), polyhedral_rows)(scene)
        # With many light rows the multipliers are small, and Clarabel's regularisation is not: see `ConeProgram.solve`.
        stretch = 10.0 * float(np.sqrt(scene.n)) if problem.family.linear_in_multiplier else 1.0
        expected = sizes.risk ** (1.0 / scene.order) if scene.minimises_root else sizes.risk
        # Measured on problems of every loss, badly scaled ones included: at 1e-10 the risk is within 1e-7 of the best
        # and the certified gap within 1e-6, both relative; at 1e-11 rounding begins to spoil the second-order cones.
        found = scene.program.solve(
            tol=max(1e-4 * tol, 1e-10),
            loose_tol=tol,
            max_iter=max_iter,
            stretch=stretch / expected,
            callback=lambda *line: tell(_iterate(scene, *line)),
        )
        if not (np.isfinite(found.x).all() and np.isfinite(found.multipliers).all()):
            return RawSolution(np.zeros(data.rows.m), 0.0, None, found.iterations)
        level = np.zeros(0) if scene.level is None else found.value(scene.level)
        coef, intercept = design.model(np.append(found.value(scene.coef), level))
        return RawSolution(
            coef,
            intercept,
            spread_dual(problem, data, design, read(found)),
            found.iterations,
            tuple(_iterate(scene, *line) for line in found.trace),
        )


def _best_of(solutions: list[RawSolution], problem: Problem, data: Data) -> tuple[RawSolution, float]:
    """Return the model of least risk with the dual point of highest bound, and their relative gap."""
    risks = [problem.evaluate(each.coef, each.intercept, data).value for each in solutions]
    upper = min(risks)
    bounds = [
        -np.inf if each.dual is None else lower_bound(problem, data, each.dual, upper, repair=False)
        for each in solutions
    ]
    best, tightest = int(np.argmin(risks)), int(np.argmax(bounds))
    merged = replace(
        solutions[best],
        dual=solutions[tightest].dual,
        iterations=sum(each.iterations for each in solutions),
        history=solutions[-1].history,
    )
    return merged, (upper - bounds[tightest]) / max(upper, np.finfo(np.float64).tiny)


def _no_worse_than(
    start: tuple[FloatArray, float] | None, found: RawSolution, problem: Problem, data: Data
) -> RawSolution:
    """Return the solution, or the start or the empty model where the programme lost more digits than they cost."""
    models = [(found.coef, found.intercept), (np.zeros(data.rows.m), 0.0), *([] if start is None else [start])]
    coef, intercept = min(models, key=lambda model: problem.evaluate(model[0], model[1], data).value)
    return replace(found, coef=coef, intercept=intercept)


def _iterate(scene: Scene, number: int, cost: float, gap: float) -> Iterate:
    """Return an iterate of Clarabel in the units of the risk."""
    factor, p = scene.design.unit**scene.order, scene.order if scene.minimises_root else 1.0
    return Iterate(number, factor * abs(cost) ** p, factor * p * abs(cost) ** (p - 1.0) * gap)
