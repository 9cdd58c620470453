"""The exact reformulation as a cone program, solved by Clarabel: the reference for every other solver.

For order 1, with the multiplier ``lam >= Lip max(||theta||_*, 2 / gamma)`` (the second only where targets move),

    minimise  sigma lam + sum_i w_i t_i + rho / 2 ||theta||^2   subject to   t_i >= h_i(signal_i, lam) ,

and each loss states ``t_i >= h_i`` in cones: linear ones for polyhedral losses, exponential ones for the logistic loss,
and so on. For order 2 the closed forms of `dualcore.problem.forms` are second-order cones. The dual point of a row is
computed from the multipliers of its cones.
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
"""Computes the dual point of the rows of positive mass from the multipliers."""


def polyhedral_rows(scene: Scene) -> RowReading:
    """``L(t) = max_k slope_k t + offset_k``: one linear constraint per piece, and one more per piece with flips."""
    program, signal, t = scene.program, scene.signal(), scene.epigraph()
    pieces = scene.problem.loss.pieces or ()
    stay = [(s, program.nonnegative(t - s * signal - o / scene.design.unit)) for s, o in pieces]
    flip = []
    if scene.flips:
        dear = t + scene.flip_price()
        # A piece of slope zero has the same value after a flip, so the constraint of the flip is implied.
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
    """``t >= log(1 + exp(-z))`` is ``exp(-z - t) + exp(-t) <= 1``.

    Since ``L(-z) - L(z) = z``, a flip adds ``(z - lam gamma)_+`` to the loss, which needs no exponential cone.
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

    A flip can increase the loss only where ``z > 0``. There ``L(-z) = 1/2 + z``; for ``z <= 0`` this line is below
    ``L(z)``.
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
    """``L(r) = min over e of e^2 / 2 + delta |r - e|``."""
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
    """Minimise ``(mean + sigma K)^2``; return a function that computes the factor from multipliers to slopes.

    If the objective has no other term, the root has the same minimiser as its square and is far better conditioned near
    zero. The factor is then ``2 (mean + sigma K)``, else 1.
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
    """``R = (rms(r) + sigma K)^2``: one second-order cone; with many rows, of the triangular factor of ``[X 1 y]``.

    The factor also preserves small differences between nearly equal columns.
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
        # The slopes lie in the span of the columns; their coordinates solve a system with the factor.
        return DualPoint(direction / roots if factor is None else table @ np.linalg.lstsq(factor, direction)[0])

    return read


def squared_hinge_rows(scene: Scene) -> RowReading:
    """``R = (rms([1 - z]_+) + sigma K)^2`` without label flips; with them see `_squared_hinge_flips`."""
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

    ``lam u^2 / (lam - K^2) <= t`` holds if and only if ``u^2 <= t p`` and ``K^2 <= lam (1 - p)`` for some ``p``. With
    ``v = 1 + z`` the flip branch is the minimum of ``lam (v - k gamma)_+^2 / (lam - k^2)`` over ``k >= K``. It is
    attained at ``k = K`` where the flipped row also moves; where it does not, at ``k = lam gamma / v``, with the value
    ``v^2 - lam gamma^2``. So each row has a variable ``k`` and a variable ``p``.
    """
    program, problem, w, n = scene.program, scene.problem, scene.design.masses, scene.n
    if scene.slope_bound is None:
        raise ValueError("no row flips at radius 0")
    risk, lam, steep = scene.sizes
    # A flipped row of margin 1 that does not move has k = lam gamma / 2; k^2 < lam for all rows.
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
        # A row that flips with probability q has slope 2 q v, or more if it also moves. Where t = 0 the cones do not
        # determine q, and q is bounded by the slope.
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
"""The constraints of losses that are not polyhedral; polyhedral losses need only their `pieces`."""


class ConicSolver(Solver):
    """Solves the cone program of all rows with Clarabel.

    It is the reference for the other solvers: exact for every loss with constraints in `ROW_CONES`, and slower than
    solvers that use the structure. An interior-point method cannot use a starting point; ``start`` is returned if its
    risk is below that of Clarabel's solution.

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
        # Subclasses are excluded: they may be other losses.
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
        # A model that is optimal without flips, and at which no flip increases the risk, is optimal with flips too.
        curved_flips = problem.family.flips and not problem.family.linear_in_multiplier
        first = problem.replace(label_cost=np.inf) if curved_flips else problem
        found, gap = _best_of([attempt(first)], problem, data)
        # Clarabel's tolerances are absolute: solve again in units of the first solution, then with ten times the
        # tolerance.
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
        """Build and solve one program; return its primal and dual point."""
        sizes = sizes or Sizes()
        scene = Scene.of(problem, design, sizes)
        read = ROW_CONES.get(type(problem.loss), polyhedral_rows)(scene)
        # Many rows have small masses and small multipliers, below Clarabel's regularisation: see `ConeProgram.solve`.
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
    """Return the model of smallest risk with the dual point of the largest bound, and their relative gap."""
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
    """Return the solution with the best of three models: its own, the zero model and ``start``.

    On badly scaled data rounding in the program may cost more than these differ.
    """
    models = [(found.coef, found.intercept), (np.zeros(data.rows.m), 0.0), *([] if start is None else [start])]
    coef, intercept = min(models, key=lambda model: problem.evaluate(model[0], model[1], data).value)
    return replace(found, coef=coef, intercept=intercept)


def _iterate(scene: Scene, number: int, cost: float, gap: float) -> Iterate:
    """Return an iterate of Clarabel in the units of the risk."""
    factor, p = scene.design.unit**scene.order, scene.order if scene.minimises_root else 1.0
    return Iterate(number, factor * abs(cost) ** p, factor * p * abs(cost) ** (p - 1.0) * gap)
