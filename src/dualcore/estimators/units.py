"""Units of the features: ``feature_weights="std"`` trains on standardised columns and returns a model in raw units.

Standardising is a price. With the deviation ``s_j`` of a column and ``z_j = (x_j - m_j) / s_j``, a model ``theta`` of z
is the model ``theta_j / s_j`` of x; moving ``z_j`` by one is moving ``x_j`` by ``s_j``, so the price of a unit of x is
``1 / s_j``; and a ridge ``rho`` on theta is one of ``rho s_j^2`` on each coefficient of x.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import as_rows
from dualcore.data.sources import ArraySource, Source, TransformedSource
from dualcore.data.sources.transform import scale_rows
from dualcore.problem import Problem
from dualcore.problem.geometry import Box
from dualcore.reading.moments import ColumnMoments


def checked(X: Any, problem: Problem) -> Any:
    """Return raw rows, of which one outside the support is an error, or a source that is checked as it is read."""
    if isinstance(X, Source):
        return TransformedSource(X, check=problem.family.check_rows)
    problem.family.check_rows(as_rows(X))
    return X


@dataclass(frozen=True)
class Units:
    r"""Columns in units of their standard deviations, for training: ``(x - centre) / scale``.

    .. math:: m_j = \sum_i p_i x_{ij}, \qquad s_j^2 = \sum_i p_i (x_{ij} - m_j)^2

    with the masses :math:`p_i` of the rows. Sparse columns are not centred, which would fill them; nor are columns of a
    model without an intercept: their centre is 0. The scale of a constant column is infinite: it becomes 0, and so does
    its coefficient; its centre is the constant, by which rows are found again.

    Examples
    --------
    >>> units = Units.of(np.array([[0.0, 5.0], [2.0, 5.0]]), None)
    >>> units.rows(np.array([[4.0, 5.0]])), units.prices
    (array([[3., 0.]]), array([1., 1.]))
    """

    centre: FloatArray
    scale: FloatArray

    @classmethod
    def of(cls, X: Any, weights: FloatArray | None, keep: Sequence[int] = (), *, centred: bool = True) -> Units:
        """Measure the columns of rows in memory, or of a source by one read; columns in ``keep`` stay as they are."""
        if not isinstance(X, Source):
            rows = as_rows(X)
            X = ArraySource(rows, np.zeros(rows.n), weights)
        found = ColumnMoments.read(X)
        deviation = np.sqrt(found.squares / found.weight)
        # Below this a deviation is what rounding left of equal values.
        noise = 32.0 * np.finfo(np.float64).eps * np.abs(found.mean)
        scale = np.where(deviation > noise, deviation, np.inf)
        centre = np.where(np.isinf(scale) | (centred and not found.sparse), found.mean, 0.0)
        centre[list(keep)], scale[list(keep)] = 0.0, 1.0
        return cls(centre, scale)

    @property
    def prices(self) -> FloatArray:
        """What moving each column by one costs, shape (n_features,): one over its deviation; 1 where it is constant."""
        return np.where(np.isfinite(self.scale), 1.0 / self.scale, 1.0)

    def rows(self, X: Any) -> Any:
        """Return rows, or a source of them, in these units."""
        if isinstance(X, Source):
            return TransformedSource(X, centre=self.centre, scale=self.scale)
        return scale_rows(X, self.centre, self.scale)

    def problem(self, problem: Problem) -> Problem:
        """Return a problem, whose support is in raw units, for rows in these units."""
        box = problem.geometry.support
        if box is None:
            return problem
        # By the operations of `rows`, so that a row on the box stays on it. A constant column may give NaN here.
        with np.errstate(invalid="ignore"):
            sides = [scale_rows(side, self.centre, self.scale) for side in box.spread(self.scale.size)]
        low, high = (np.where(np.isfinite(self.scale), side, 0.0) for side in sides)
        return problem.replace(support=Box(low, high))

    def stated(self, problem: Problem) -> Problem:
        """Return the same problem for raw rows: the deviations are prices, and factors of the ridge."""
        norm, known = problem.geometry.norm.name, np.isfinite(self.scale)
        ridge = problem.ridge * np.where(known, self.scale, 1.0) ** 2 if problem.ridge > 0.0 else 0.0
        return problem.replace(norm=norm, feature_weights=self.prices, ridge=ridge)

    def inside(self, coef: FloatArray, intercept: Any) -> tuple[FloatArray, Any]:
        """Return a raw model in these units."""
        return coef * self._factors, intercept + coef @ self.centre

    def outside(self, model: Any) -> Any:
        """Return something with ``coef`` and ``intercept`` of these units in raw ones."""
        coef = model.coef / self.scale
        intercept = model.intercept - coef @ self.centre
        return replace(model, coef=coef, intercept=intercept if np.ndim(intercept) else float(intercept))

    def coreset_outside(self, coreset: Any) -> Any:
        """Return a coreset with its rows, and the model it was drawn around, in raw units."""
        if sp.issparse(coreset.X):
            constants = sp.csr_matrix(np.ones((len(coreset), 1))) @ sp.csr_matrix(self.centre[None])
            X: Any = (sp.csr_matrix(coreset.X.multiply(self._factors)) + constants).tocsr()
        else:
            X = coreset.X * self._factors + self.centre
        return replace(coreset, X=X, anchor=None if coreset.anchor is None else self.outside(coreset.anchor))

    @property
    def _factors(self) -> FloatArray:
        """The scale of every column, 0 where it is constant."""
        return np.where(np.isfinite(self.scale), self.scale, 0.0)
