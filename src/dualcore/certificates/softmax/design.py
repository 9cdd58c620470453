"""Softmax data in units that suit a solver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates.rounding import sum_error
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import Norm
from dualcore.problem.normal import dense

__all__ = ["ClassDesign"]

# Columns this far from dependent are only scaled for Newton's method; nearer ones are turned to their principal axes,
# but for axes on which the rows have no extent up to rounding.
_INDEPENDENT, _DEPENDENT = 1e-2, 1e-12


@dataclass(frozen=True)
class ClassDesign:
    """The rows with features centred (where there is an intercept) and of size one.

    With ``x' = (x - shift) / scale`` a model ``W`` of shape (K, width) stands for ``theta = W / scale``. Where there is
    an intercept, the last column of ``W`` is ``b + shift . theta``. The norm is repriced to match, so risks and bounds
    are those of the data as they came.
    """

    problem: Problem
    data: Data
    shift: FloatArray
    scale: FloatArray
    norm: Norm

    @classmethod
    def of(cls, problem: Problem, data: Data) -> ClassDesign:
        """Measure the columns."""
        w = data.masses
        shift = data.rows.transpose_dot(w) if problem.fit_intercept else np.zeros(data.rows.m)
        squares = np.zeros(data.rows.m)
        for part, block in data.rows.blocks():
            squares += w[part] @ (dense(block) - shift) ** 2
        spread = np.sqrt(squares)
        # A column whose spread is this small a part of its mean is constant up to rounding.
        scale = np.where(spread <= 1e-13 * np.abs(shift), 1.0, spread)
        scale[scale == 0.0] = 1.0
        norm = problem.geometry.norm
        return cls(problem, data, shift, scale, type(norm)(scale if norm.weights is None else scale * norm.weights))

    @cached_property
    def code(self) -> npt.NDArray[np.int64]:
        """Class numbers of the rows."""
        return self.data.y.astype(np.int64)

    @property
    def intercept(self) -> bool:
        """Whether the last column of a model holds intercepts."""
        return self.problem.fit_intercept

    @property
    def shape(self) -> tuple[int, int]:
        """Shape of a model: classes, numbers per class."""
        return self.problem.family.n_outputs, self.scale.size + int(self.intercept)

    @cached_property
    def ridge(self) -> FloatArray:
        """Ridge on every number of a model, shape (K, width)."""
        per_class = np.append(self.problem.ridge / self.scale**2, np.zeros(int(self.intercept)))
        return np.tile(per_class, (self.problem.family.n_outputs, 1))

    @cached_property
    def basis(self) -> FloatArray:
        """Coordinates for Newton's method, shape (width, width): ``W = V @ basis.T`` with well-conditioned ``V``.

        Columns far from the origin without an intercept are all but parallel, and a ridge or a radius can be far larger
        than the curvature of a column. In these coordinates the rows, the ridge and the radius together have about unit
        size in every direction.
        """
        width = self.shape[1]
        held = np.zeros(width)
        if self.norm.weights is not None:
            # What the radius charges for a coefficient counts as that much curvature.
            held[: self.scale.size] = 0.1 * self.problem.radius / self.norm.weights
        factor = np.diag(np.sqrt(4.0 * self.ridge[0] + held**2))
        for part, block in self.blocks():
            weighted = block * np.sqrt(self.data.masses[part])[:, None]
            factor = np.asarray(np.linalg.qr(np.vstack([factor, weighted]), "r"))
        sizes = np.linalg.norm(factor, axis=0)
        sizes[sizes == 0.0] = 1.0
        _, values, axes = np.linalg.svd(factor / sizes)
        if values.size == width and values[values > _DEPENDENT].min(initial=1.0) > _INDEPENDENT:
            return np.diag(1.0 / sizes)
        values = np.append(values, np.zeros(width - values.size))
        return np.asarray(axes.T / sizes[:, None] / np.where(values > _DEPENDENT, values, 1.0))

    def rows(self, block: Any) -> FloatArray:
        """Return rows in units of the design, with a column of ones where there is an intercept."""
        out = np.ones((block.shape[0], self.shape[1]))
        np.divide(dense(block) - self.shift, self.scale, out=out[:, : self.scale.size])
        return out

    def blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, block)``, blocks dense and in units of the design."""
        for part, block in self.data.rows.blocks():
            yield part, self.rows(block)

    def model(self, W: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return coefficients and intercepts in the units of the data, relative to the mean over classes."""
        W = W - W.mean(axis=0)  # only differences between classes count
        coef = W[:, : self.scale.size] / self.scale
        return coef, (W[:, -1] - coef @ self.shift if self.intercept else np.zeros(W.shape[0]))

    def risk_error(self, coef: FloatArray, intercept: FloatArray, value: float) -> float:
        """Return the error granted to the risk of a model: that of its scores, and that of their sum."""
        sizes = np.hypot(self.shift, self.scale)
        scores = float(np.abs(coef).max(axis=0) @ sizes) + float(np.abs(intercept).max(initial=0.0))
        # Of a loss below one only the probabilities of other classes feel an error of the scores.
        felt = min(1.0, 2.0 * value) if self.problem.radius == 0.0 else 1.0
        return 2.0 * sum_error(coef.shape[1]) * scores * felt + sum_error(self.data.rows.n) * value

    def weights(self, coef: FloatArray, intercept: FloatArray) -> FloatArray:
        """Return a model in units of the design."""
        W = coef * self.scale
        return np.column_stack([W, intercept + coef @ self.shift]) if self.intercept else W
