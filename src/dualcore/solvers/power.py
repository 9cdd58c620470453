"""Training for powers of the residual, order p: Newton's method, with cones for the norm alone.

With ``N`` the mean of order p of the residuals the risk is ``(N + sigma K)^p``. ``N`` is smooth and its derivatives
take one pass over the rows; what is not smooth, ``K >= ||theta||_*``, has the size of a model. So every step minimises
the quadratic model of the one on the exact description of the other. (Power cones, one a row, would describe the whole
problem, but Clarabel stalls on many of those.)
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dualcore.geometry import FloatArray
from dualcore.losses import Power
from dualcore.problem import Data, Problem
from dualcore.solvers.base import Iterate, RawSolution, Solver, able_solver
from dualcore.solvers.cones import DUAL_BOUNDS, UNIT_SIZES, Affine, ScaledRows, Scene

__all__ = ["PowerSolver"]

# Residuals below this share of their mean count as this: with p < 2 the curvature has a pole at zero.
_LEAST = 1e-6
_HALVINGS = 30


class _Place(NamedTuple):
    """A scaled model: coefficients, then the level where there is one, and what is minimised there."""

    x: FloatArray
    residual: FloatArray
    mean: float
    steepness: float
    cost: float


class PowerSolver(Solver):
    """Newton's method for ``|r|^p``: a pass over the rows and a cone program of the size of a model for each step."""

    name = "power"

    def obstacle(self, problem: Problem, data: Data) -> str | None:
        if not isinstance(problem.loss, Power):
            return (
                f"PowerSolver cannot solve {type(problem.loss).__name__}: it takes powers of the residual. "
                f"Use solver='{able_solver(problem)}'."
            )
        if type(problem.geometry.norm) not in DUAL_BOUNDS:
            known = sorted(cls.__name__ for cls in DUAL_BOUNDS)
            return f"PowerSolver knows no cone for the norm {type(problem.geometry.norm).__name__}: use one of {known}."
        return None

    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, float] | None
    ) -> RawSolution:
        descent = _Descent(problem, ScaledRows.of(problem, data))
        here = descent.at(descent.origin(start))
        history: list[Iterate] = []
        done = False
        while not done and len(history) < max_iter and here.mean > 0.0:
            change, promised = descent.newton(here)
            there = here
            for halving in range(_HALVINGS):
                there = descent.at(here.x + 0.5**halving * change)
                if there.cost <= here.cost:
                    break
            # One step more than the tolerance needs: the last one doubles the digits of the coefficients.
            done = promised <= 1e-3 * tol * here.cost or not there.cost < here.cost
            here = there if there.cost <= here.cost else here
            factor = descent.design.unit**problem.geometry.order
            history.append(Iterate(len(history) + 1, factor * descent.risk(here), factor * promised))
        coef, intercept = descent.model(here.x)
        return RawSolution(coef, intercept, None, len(history), tuple(history), stopped_early=not done)


class _Descent:
    """The problem in scaled units. Without ridge the root of the risk is minimised, which has the same minimiser."""

    def __init__(self, problem: Problem, design: ScaledRows) -> None:
        self.problem, self.design, self.p = problem, design, problem.geometry.order
        self.m = design.scale.size
        self.ridge = problem.ridge * design.unit ** (2.0 - self.p) / design.scale**2

    def origin(self, start: tuple[FloatArray, float] | None) -> FloatArray:
        x = np.zeros(self.m + int(self.problem.fit_intercept))
        if start is not None:
            coef, intercept = start
            x[: self.m] = coef * self.design.scale / self.design.unit
            if self.problem.fit_intercept:
                x[self.m] = (intercept - self.design.centre + self.design.shift @ coef) / self.design.unit
        return x

    def model(self, x: FloatArray) -> tuple[FloatArray, float]:
        return self.design.model(x[: self.m], float(x[self.m]) if self.problem.fit_intercept else 0.0)

    def at(self, x: FloatArray) -> _Place:
        problem, design = self.problem, self.design
        level = x[self.m] if problem.fit_intercept else 0.0
        residual = np.asarray(design.matrix @ x[: self.m]) + level - design.target
        top = float(np.abs(residual).max(initial=0.0))
        # Divided by the largest, or high powers would overflow.
        mean = top * float(design.masses @ (np.abs(residual) / top) ** self.p) ** (1.0 / self.p) if top > 0.0 else 0.0
        size = max(problem.size(self.model(x)[0]), problem.geometry.target_slope) / design.unit
        root = mean + problem.radius * size
        extra = 0.5 * float(self.ridge @ x[: self.m] ** 2)
        return _Place(x, residual, mean, size, root if problem.ridge == 0.0 else root**self.p + extra)

    def risk(self, place: _Place) -> float:
        """Return the worst-case risk, without its ridge, in scaled units."""
        return float((place.mean + self.problem.radius * place.steepness) ** self.p)

    def newton(self, place: _Place) -> tuple[FloatArray, float]:
        """Return the step to the minimum of the model at a place, and how much less the model is there."""
        curve, slope = self._expand(place)
        x = np.append(place.x, place.steepness)
        scene = Scene.of(self.problem, self.design, UNIT_SIZES)
        program, width = scene.program, place.x.size
        values, vectors = np.linalg.eigh(curve)
        factor = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        blocks = [
            (scene.coef, slice(0, self.m)),
            (scene.level, slice(self.m, width)),
            (scene.steepness, slice(width, None)),
        ]
        moved, linear = Affine(-factor @ x), Affine(np.zeros(1))
        for part, columns in blocks:
            if part is not None:
                moved = moved + part.mapped(factor[:, columns])
                linear = linear + part.mapped(slope[None, columns])
        bent = program.variables(len(moved))
        program.zero(bent - moved)
        program.minimise_squares(np.ones(len(moved)), bent)
        program.minimise(linear)
        found = program.solve(tol=1e-11, loose_tol=1e-8, max_iter=100)
        parts = [np.asarray(found.value(part)) for part, _ in blocks if part is not None]
        ahead = np.concatenate(parts)
        if scene.steepness is None:
            ahead = np.append(ahead, place.steepness)
        change = ahead - x
        if not np.isfinite(change).all():
            return np.zeros(width), 0.0
        drop = -float(slope @ change + 0.5 * change @ curve @ change)
        old, new = place.x[: self.m], ahead[: self.m]
        drop -= 0.5 * float(self.ridge @ (new**2 - old**2)) if self.problem.ridge > 0.0 else 0.0
        return change[:width], max(drop, 0.0)

    def _expand(self, place: _Place) -> tuple[FloatArray, FloatArray]:
        """Return second and first derivatives in model and steepness of what is minimised, without the ridge."""
        p, design, width = self.p, self.design, place.x.size
        share = np.abs(place.residual) / place.mean
        pull = design.masses * np.sign(place.residual) * share ** (p - 1.0)
        bend = design.masses * np.maximum(share, _LEAST if p < 2.0 else 0.0) ** (p - 2.0)
        slope = np.zeros(width + 1)
        slope[: self.m], slope[-1] = design.matrix.T @ pull, self.problem.radius
        curve = np.zeros((width + 1, width + 1))
        scaled = (
            design.matrix.multiply(bend[:, None])
            if hasattr(design.matrix, "multiply")
            else bend[:, None] * design.matrix
        )
        inner = design.matrix.T @ scaled
        curve[: self.m, : self.m] = inner.toarray() if hasattr(inner, "toarray") else inner
        if self.problem.fit_intercept:
            slope[self.m] = pull.sum()
            curve[: self.m, self.m] = curve[self.m, : self.m] = design.matrix.T @ bend
            curve[self.m, self.m] = bend.sum()
        flat = slope.copy()
        flat[-1] = 0.0
        curve = (p - 1.0) / place.mean * (curve - np.outer(flat, flat))
        if self.problem.ridge > 0.0:
            root = place.mean + self.problem.radius * place.steepness
            steep = p * root ** (p - 1.0)
            curve = steep * curve + p * (p - 1.0) * root ** (p - 2.0) * np.outer(slope, slope)
            slope = steep * slope
        return curve, slope
