"""Primal-dual interior point with the rows eliminated.

A general conic solver factors a matrix with n rows at every step. Here the rows eliminate in closed form
(`rowmodel`), so an iteration is one weighted Gram matrix of the features, four products with X and O(n) work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.solvers.barrier import MaxCone, SumCone, ThinBlock, norm_cone, ratio
from dualcore.solvers.base import Iterate, RawSolution, tell
from dualcore.solvers.design import Design
from dualcore.solvers.factor import DampedFactor
from dualcore.solvers.newtonsystem import ThinNewton
from dualcore.solvers.rowmodel import Pieces, RowCurvature, RowState, RowStep

# Share of the step to the boundary that is taken.
_KEEP = 0.99
# Limit on the second-order correction of a product, in units of the mean product. Without it a few rows with very large
# predicted products dominate the direction: with label flips the number of iterations doubles.
_MODEST = 3.0


class FixedRows(NamedTuple):
    """Linear and quadratic terms in (coef, intercept, lam) of rows that are not in the data of the program.

    ``scales`` (m,) are the root mean squares of the columns over all rows, these included.
    """

    coef: FloatArray
    intercept: float
    multiplier: float
    constant: float
    hessian: FloatArray | None  # (m + 1, m + 1)
    scales: FloatArray


class _Direction(NamedTuple):
    """A Newton direction: variables, signals, slacks and multipliers of the rows and of the norm constraint."""

    x: FloatArray
    z: FloatArray
    s: FloatArray
    p: FloatArray
    cone_s: FloatArray
    cone_z: FloatArray
    rows: RowStep | None


class _State(NamedTuple):
    """Residuals at the current iterate."""

    gradient: FloatArray
    rows: FloatArray | None
    cone: FloatArray
    gap: float
    error: float
    value: float
    merit: float


class _Point(NamedTuple):
    """An iterate: variables, and signals and multipliers of the rows."""

    x: FloatArray
    z: FloatArray
    p: FloatArray


class InteriorPoint:
    """Mehrotra's predictor-corrector for ``min sigma lam + sum_i w_i h_i + ridge`` over the norm cone, of order 1.

    ``fixed`` are the terms of rows outside the data. If it has a Hessian, it includes the smooth part of every row of
    the data too, and the data contribute only their linear pieces.
    """

    def __init__(
        self,
        problem: Problem,
        data: Data,
        start: tuple[FloatArray, float] | None = None,
        fixed: FixedRows | None = None,
    ) -> None:
        self.problem = problem
        self.design = design = Design(problem, data, None if fixed is None else fixed.scales)
        self.w, self.m, self.lam_at = design.weights, design.m, design.m + 1
        self.cone = norm_cone(problem, design.scales)
        quadratic = fixed is not None and fixed.hessian is not None
        self.pieces = Pieces(problem, pieces_only=quadratic, envelopes=not quadratic)
        self.linear = np.zeros(self.cone.dimension)
        self.linear[self.lam_at] = problem.radius
        self.constant, self.hessian = 0.0, None
        if fixed is not None:
            self.linear[: self.m] += fixed.coef / design.scales
            self.linear[self.m] += fixed.intercept if problem.fit_intercept else 0.0
            self.linear[self.lam_at] += fixed.multiplier
            self.constant = fixed.constant
            if fixed.hessian is not None:
                scales = np.append(design.scales, 1.0)
                self.hessian = fixed.hessian / np.outer(scales, scales)
        mass = max(float(self.w.sum()), np.finfo(float).tiny)
        self._set_out(start, mass)
        self.ridge = np.zeros(self.cone.dimension)
        self.ridge[: self.m] = problem.ridge / design.scales**2
        lines_only = self.pieces.polyhedral is not None and not self.pieces.envelope
        # Primal and dual step lengths may differ only in a linear program.
        self.split = lines_only and problem.ridge == 0.0
        # Values below `least`, a tiny share of the risk of the zero model, count as zero in relative errors.
        at_rest = np.zeros_like(design.y) if problem.is_classification else -design.y
        self._ready: _State | None = None
        # Set once a Newton step was too long; curvatures are then those of secants.
        self.cautious = False
        # With few rows and a norm whose block of the Newton matrix is diagonal plus low rank, eliminate the features.
        held = bool((self.cone.rates > 0.0).all()) and 2 * self.w.size < self.m and self.hessian is None
        can = isinstance(self.cone, MaxCone) or (isinstance(self.cone, SumCone) and problem.ridge == 0.0)
        self.few = self._in_cone(design.dense_rows()) if held and can else None
        self.least = 1e-15 * float(self.w @ problem.loss.value(at_rest)) / mass + 1e-300

    def _set_out(self, start: tuple[FloatArray, float] | None, mass: float) -> None:
        """Start from the zero model or a given one, in the interior of all constraints."""
        x = np.zeros(self.m + 2)
        if start is not None:
            x[: self.m], x[self.m] = start[0] * self.design.scales, start[1] if self.problem.fit_intercept else 0.0
        z = self.design.signal(x[: self.m + 1])
        spread = max(1.0, float(self.w @ np.abs(z)) / mass)
        if start is not None:  # closer to the optimum, so closer to the boundary, but not so close that steps are short
            spread = max(1e-2, 0.3 * float(self.w @ np.abs(z - self.w @ z / mass)) / mass)
        left = float(self.linear[self.lam_at])  # the radius minus what the flips of fixed rows spend
        self.x = self.cone.start(x, 0.5 * spread, left if left > 0.0 else self.problem.radius)
        self.rows = RowState(self.pieces, self.w, z)
        self.rows.start_above(self.lam, spread)

    @property
    def lam(self) -> float:
        """The multiplier."""
        return float(self.x[self.lam_at])

    def run(self, tol: float, max_iter: int) -> RawSolution:
        """Iterate until gap and residuals, in units of the objective, are well below ``tol``."""
        history: list[Iterate] = []
        best, best_error, best_merit, best_at = self._point(), np.inf, np.inf, 0
        early = True
        # Without radius and ridge the dual point must satisfy its equations up to rounding to prove a lower bound.
        enough = 0.05 * tol if self.problem.radius > 0.0 or self.problem.ridge > 0.0 else 1e-6 * tol
        for iteration in range(max_iter + 1):
            state, self._ready = self._ready or self._measure(), None
            history.append(Iterate(iteration, state.value, state.gap))
            tell(history[-1])
            # The best point is that of least absolute error: relative errors do not become small where the risk goes to
            # zero. Without constraints every point is feasible, and that of least value is best.
            error = state.gap + state.error if self._degree() else state.value
            if error < best_error or state.merit <= enough:
                best, best_at = self._point(), iteration
                best_error, best_merit = error, state.merit
            # Iterations without progress after which the best point is returned.
            stuck = iteration - best_at > 30 or not np.isfinite(state.merit)
            # Losses are not negative, so a negative value shows that the linear terms of `fixed` are unbounded below.
            stuck = stuck or state.value < -abs(history[0].value)
            done = best_merit <= enough
            if done or stuck:
                early = not done
                break
            if iteration == max_iter or not self._iterate(state):
                break
        x, z, p = best
        dual = self.design.all_rows(self.rows.dual(z, p))
        return RawSolution(
            x[: self.m] / self.design.scales, float(x[self.m]), dual, iteration, tuple(history), stopped_early=early
        )

    def _point(self) -> _Point:
        return _Point(self.x, self.rows.z, self.rows.p)

    def _degree(self) -> float:
        """Return the number of complementarity products, each weighted by the mass of its row."""
        return self.rows.count * float(self.rows.w.sum()) + self.cone.weight * self.cone.degree

    def _measure(self) -> _State:
        rows, cone = self.rows, self.cone
        gradient = self._gradient()
        # Slacks of linear pieces have no residual: they, the heights and the signals are linear along a step.
        residual = None if self.pieces.lines is not None else rows.residual(self.lam)
        drift = cone.s - cone.slack(self.x)
        gap = rows.gap() + cone.gap()
        value = self.constant + float(self.linear @ self.x) + 0.5 * float(self.ridge @ (self.x * self.x))
        value += rows.mean_value()
        if self.hessian is not None:
            model = self.x[: self.m + 1]
            value += 0.5 * float(model @ self.hessian @ model)
        error = self._worth(gradient) + float(np.abs(drift).max(initial=0.0))
        if residual is not None:
            error += float((np.abs(residual) @ rows.w).sum())
        if rows.v is not None:
            error += float(self.w @ np.abs(rows.v - rows.combine(rows.p)))
        return _State(gradient, residual, drift, gap, error, value, (gap + error) / max(abs(value), self.least))

    def _gradient(self) -> FloatArray:
        """Return the gradient of the Lagrangian in the variables."""
        slopes = self.rows.total_slopes()
        out = self.linear + self.ridge * self.x - self.cone.adjoint(self.cone.z)
        out[self.lam_at] -= self.rows.priced(self.rows.p)
        out[: self.m + 1] += self.design.adjoint(slopes)
        if self.hessian is not None:
            out[: self.m + 1] += self.hessian @ self.x[: self.m + 1]
        if not self.problem.fit_intercept:
            out[self.m] = 0.0
        return out

    def _worth(self, gradient: FloatArray) -> float:
        """Return ``sum_j |gradient_j| r_j``, in units of the objective, where ``r_j`` is the range of variable j."""
        size = np.abs(self.x)
        if self.cone.degree:
            held = self.cone.rates > 0.0
            size[: self.m][held] = np.maximum(size[: self.m][held], self.lam / self.cone.rates[held])
        else:
            size = np.maximum(size, 1.0)
        size[self.m] += 1.0
        return float(np.abs(gradient) @ size)

    def _iterate(self, state: _State) -> bool:
        """Take one step; False where no direction could be found."""
        self.cone.scale()
        curvature = self.rows.curvature(cautious=self.cautious)
        system = self._system(curvature)
        degree = self._degree()
        centre = state.gap / degree if degree else 0.0
        if self.pieces.curved and self.rows.count:
            return self._step_exactly(state, system, curvature, 0.1 * centre)

        step = self._direction(state, system, curvature, 0.0, 0.0)
        primal, dual = self._step_lengths(step, 1.0)
        ahead = self.rows.gap(primal * step.s, dual * step.p)
        ahead += float((self.cone.s + primal * step.cone_s) @ (self.cone.z + dual * step.cone_z))
        sigma = min(1.0, max(ahead / state.gap, 0.0)) ** 3 if state.gap > 0.0 else 0.0
        if state.error > 10.0 * state.gap:  # centre only: complementarity must not fall faster than infeasibility
            sigma = max(sigma, 1.0)
        mu = sigma * centre
        cones = step.cone_s, step.cone_z
        target = mu - np.clip(step.s * step.p, -_MODEST * centre, _MODEST * centre)
        step = self._direction(state, system, curvature, mu, target, cones)
        primal, dual = self._step_lengths(step, _KEEP)
        # Up to four corrections (Gondzio) for products far from their target; each costs two products with X.
        for _ in range(4 if self.rows.count else 0):
            if min(primal, dual) > 0.9:
                break
            further = min(1.0, 1.3 * primal + 0.1), min(1.0, 1.3 * dual + 0.1)
            target = target + self.rows.outliers(step.s, step.p, *further, mu)
            trial = self._direction(state, system, curvature, mu, target, cones)
            longer = self._step_lengths(trial, _KEEP)
            if min(longer) < 1.01 * min(primal, dual):
                break
            step, (primal, dual) = trial, longer
        if min(primal, dual) < 0.1:  # the second-order correction shortened the step: centre without it
            mu = max(sigma, 0.5) * centre
            step = self._direction(state, system, curvature, mu, mu)
            primal, dual = self._step_lengths(step, _KEEP)
        if not np.isfinite(step.x).all():
            return False
        if self.pieces.curved:
            self._backtrack(step, min(primal, dual), state)
        else:
            self._advance(step, primal, dual)
        return True

    def _in_cone(self, rows: FloatArray) -> FloatArray:
        """Return rows (n, m) in the coordinates of the cone, (n, d)."""
        whole = np.zeros((rows.shape[0], self.cone.dimension))
        whole[:, : self.m] = rows
        return self.cone.inward(whole)[:, :-2]

    def _thin_system(self, block: ThinBlock, rows: FloatArray, curvature: RowCurvature) -> ThinNewton:
        """Factor the Newton system with the features eliminated, for far fewer rows than features."""
        bent = curvature.zz * self.w
        mixed = np.zeros_like(bent)
        if curvature.z_lam is not None:
            mixed = curvature.z_lam * self.w * (1.0 if self.design.sign is None else self.design.sign)
        border = np.column_stack([rows.T @ bent, block.in_lam + rows.T @ mixed])
        corner = np.array([[bent.sum(), mixed.sum()], [mixed.sum(), block.lam_lam + curvature.lam_lam]])
        if not self.problem.fit_intercept:
            border[:, 0], corner[0] = 0.0, (1.0, 0.0)
            corner[1, 0] = 0.0
        diagonal = block.diagonal + self.ridge[: self.m] if self.problem.ridge > 0.0 else block.diagonal
        rows, bent = np.concatenate([rows, block.rows]), np.concatenate([bent, block.weights])
        return ThinNewton(diagonal, rows, bent, border, corner, self.cone)

    def _system(self, curvature: RowCurvature) -> DampedFactor | ThinNewton:
        """Factor the Newton matrix, of order m + 2 or more; with few rows by `_thin_system`."""
        m, lam_at, design = self.m, self.lam_at, self.design
        if self.few is not None:
            return self._thin_system(self.cone.thin(), self.few, curvature)
        out = self.cone.hessian()
        out.flat[:: out.shape[0] + 1] += self.ridge
        if self.hessian is not None:
            out[: m + 1, : m + 1] += self.hessian
        if curvature.z_lam is not None:
            column = design.adjoint(curvature.z_lam)
            out[: m + 1, lam_at] += column
            out[lam_at, : m + 1] += column
            out[lam_at, lam_at] += curvature.lam_lam
        out[: m + 1, : m + 1] += design.gram(curvature.zz)
        if not self.problem.fit_intercept:
            out[m, :] = out[:, m] = 0.0
            out[m, m] = 1.0
        return DampedFactor(out, undefined=np.nan)

    def _direction(
        self,
        state: _State,
        system: DampedFactor | ThinNewton,
        curvature: RowCurvature,
        mu: float,
        target: FloatArray | float,
        cones: tuple[FloatArray, FloatArray] | None = None,
    ) -> _Direction:
        """Solve for the step to ``p s = target`` in the rows and to ``mu`` in the norm constraint.

        ``cones`` are the predicted changes of its slack and multiplier, for the second-order correction.
        """
        rows, cone, design, m = self.rows, self.cone, self.design, self.m
        centred = cone.target(mu, cones)
        right = cone.adjoint(centred + cone.weigh(state.cone)) - state.gradient
        answer = None
        if rows.count:
            answer = rows.respond(state.rows, target, curvature.compliance)
            right[: m + 1] -= design.adjoint(answer.slope)
            right[self.lam_at] += rows.priced(answer.p)
        if not self.problem.fit_intercept:
            right[m] = 0.0
        dx = system.solve(right)
        dz = design.product(dx[: m + 1])
        cone_s = cone.product(dx) - state.cone
        cone_z = centred - cone.weigh(cone_s)
        if answer is None:
            return _Direction(dx, dz, rows.s, rows.p, cone_s, cone_z, None)
        ds, dp = rows.finish(answer, state.rows, dz, float(dx[self.lam_at]))
        return _Direction(dx, dz, ds, dp, cone_s, cone_z, answer)

    def _step_lengths(self, step: _Direction, keep: float) -> tuple[float, float]:
        """Return the primal and dual step lengths."""
        primal, dual = self.cone.max_step(step.cone_s, step.cone_z)
        primal, dual = min(primal, ratio(self.rows.s, step.s)), min(dual, ratio(self.rows.p, step.p))
        primal, dual = min(1.0, keep * primal), min(1.0, keep * dual)
        return (primal, dual) if self.split else (min(primal, dual), min(primal, dual))

    def _advance(self, step: _Direction, primal: float, dual: float) -> None:
        self.x = self.x + primal * step.x
        self.rows.advance(step.rows, step.z, step.s, step.p, float(step.x[self.lam_at]), (primal, dual))
        self.cone.s, self.cone.z = self.cone.s + primal * step.cone_s, self.cone.z + dual * step.cone_z

    def _backtrack(self, step: _Direction, length: float, state: _State) -> None:
        """Halve a step until gap and residuals at most double: Newton may overshoot where a loss's curvature jumps."""
        cone = self.cone
        x, z, cone_s, cone_z = self.x, self.rows.z, cone.s, cone.z
        for _ in range(20):
            self._advance(step, length, length)
            self._ready = self._measure()
            if self._ready.gap + self._ready.error <= 2.0 * (state.gap + state.error):
                return
            self.x, cone.s, cone.z = x, cone_s, cone_z
            self.rows.at(z)
            length *= 0.5
            self.cautious = True
        self._ready = None

    def _step_exactly(
        self, state: _State, system: DampedFactor | ThinNewton, curvature: RowCurvature, mu: float
    ) -> bool:
        """Step with exact slacks, backtracking until the residuals fall: for pieces that are curved.

        Linear slacks drift away from curved constraints, so here the slacks are recomputed at every trial and
        the step is the classical primal-dual one (no second-order correction).
        """
        rows, cone = self.rows, self.cone
        step = self._direction(state, system, curvature, mu, mu)
        length = min(self._step_lengths(step, _KEEP))
        start = self._residual_size(state.gradient, mu)
        assert step.rows is not None
        dt = rows.height_step(step.rows, step.z, float(step.x[self.lam_at]))
        x, z, t, s, p, cone_s, cone_z = self.x, rows.z, rows.t, rows.s, rows.p, cone.s, cone.z
        for _ in range(40):
            self.x = x + length * step.x
            rows.t, rows.p = t + length * dt, p + length * step.p
            cone.s, cone.z = cone_s + length * step.cone_s, cone_z + length * step.cone_z
            rows.at(z + length * step.z)
            rows.s = rows.t - rows.heights(self.lam)
            if (rows.s > 0.0).all() and self._residual_size(self._gradient(), mu) <= (1.0 - 0.01 * length) * start:
                return True
            length *= 0.6
        self.x, rows.t, rows.s, rows.p, cone.s, cone.z = x, t, s, p, cone_s, cone_z
        rows.at(z)
        return False

    def _residual_size(self, gradient: FloatArray, mu: float) -> float:
        rows, cone = self.rows, self.cone
        size = float(gradient @ gradient) + float(rows.w @ (1.0 - rows.p.sum(axis=0)) ** 2)
        size += float((((rows.p * rows.s - mu) ** 2) @ rows.w).sum())
        return float(np.sqrt(size + (cone.gap() - mu * cone.weight * cone.degree) ** 2))
