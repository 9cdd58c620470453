"""A cone program, assembled block by block into the matrices of Clarabel.

Minimise ``x' P x / 2 + q' x`` subject to ``M x + c`` in a product of cones. Clarabel states the same as
``A x + s = b, s in K``, hence ``A = -M`` and ``b = c``. Its multiplier ``z`` of a cone is the usual one: where ``c``
grows by a small ``d``, the minimum falls by ``z . d``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import clarabel
import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray

Rows = npt.NDArray[np.int64]
"""Positions of the rows of one cone component among all rows, by which their multipliers are found."""


@dataclass(frozen=True, eq=False)
class Affine:
    """``offset + sum_k matrix_k x[start_k : start_k + width_k]``: a vector of affine functions of the variables."""

    offset: FloatArray  # (length,)
    terms: tuple[tuple[int, Any], ...] = ()  # starts, and sparse arrays of shape (length, width)

    # Makes `array * affine` call `__rmul__`; numpy would multiply element by element.
    __array_ufunc__ = None

    def __len__(self) -> int:
        return self.offset.size

    def __add__(self, other: Affine | FloatArray | float) -> Affine:
        if isinstance(other, Affine):
            return Affine(self.offset + other.offset, self.terms + other.terms)
        return Affine(self.offset + other, self.terms)

    __radd__ = __add__

    def __neg__(self) -> Affine:
        return -1.0 * self

    def __sub__(self, other: Affine | FloatArray | float) -> Affine:
        return self + (-other)

    def __rsub__(self, other: FloatArray | float) -> Affine:
        return other + (-self)

    def __rmul__(self, factor: FloatArray | float) -> Affine:
        """Multiply all entries by one number, or each by its own."""
        if isinstance(factor, np.ndarray):
            return self.mapped(sp.diags_array(factor))
        return Affine(factor * self.offset, tuple((start, factor * matrix) for start, matrix in self.terms))

    def mapped(self, matrix: Any) -> Affine:
        """Return ``matrix @ self`` for a dense or sparse matrix."""
        left = matrix if sp.issparse(matrix) else sp.csc_array(np.atleast_2d(matrix))
        return Affine(left @ self.offset, tuple((start, left @ part) for start, part in self.terms))

    def spread(self, length: int) -> Affine:
        """Return a single entry repeated ``length`` times."""
        return self.mapped(np.ones((length, 1)))

    def __getitem__(self, keep: npt.NDArray[np.bool_]) -> Affine:
        return Affine(self.offset[keep], tuple((start, matrix.tocsr()[keep]) for start, matrix in self.terms))


class ConeSolution(NamedTuple):
    """Result of Clarabel: variables, multipliers, status, and (iteration, objective, gap) of each iteration."""

    x: FloatArray
    multipliers: FloatArray
    status: str
    iterations: int
    trace: tuple[tuple[int, float, float], ...]

    def value(self, expression: Affine) -> FloatArray:
        """Return the value of an affine expression at the solution."""
        out = expression.offset.copy()
        for start, matrix in expression.terms:
            out += matrix @ self.x[start : start + matrix.shape[1]]
        return out


def _entries(matrix: Any) -> tuple[Rows, Rows, FloatArray]:
    """Return rows, columns and values of the entries.

    For small matrices scipy's conversion takes longer than solving the program.
    """
    if matrix.format not in ("csc", "csr"):
        matrix = matrix.tocsc()
    first, second = np.repeat(np.arange(matrix.indptr.size - 1), np.diff(matrix.indptr)), matrix.indices
    down, along = (second, first) if matrix.format == "csc" else (first, second)
    return down.astype(np.int64), along.astype(np.int64), matrix.data


class ConeProgram:
    """Collects variables, costs and cones; `solve` assembles them once."""

    def __init__(self) -> None:
        self._n_variables = 0
        self._n_rows = 0
        self._costs: list[Affine] = []
        self._squares: list[tuple[int, FloatArray]] = []
        self._blocks: list[tuple[Rows, Affine]] = []
        self._cones: list[Any] = []

    def variables(self, size: int) -> Affine:
        """Return ``size`` new free variables."""
        start = self._n_variables
        self._n_variables += size
        one = sp.csc_array((np.ones(size), np.arange(size), np.arange(size + 1)), (size, size))
        return Affine(np.zeros(size), ((start, one),))

    def minimise(self, cost: Affine) -> None:
        """Add a single affine entry to the objective."""
        self._costs.append(cost)

    def minimise_squares(self, weights: FloatArray, variables: Affine) -> None:
        """Add ``sum_j weights_j x_j^2 / 2`` to the objective; ``variables`` as returned by `variables`."""
        self._squares.append((variables.terms[0][0], weights))

    def zero(self, expression: Affine) -> Rows:
        """Demand ``expression = 0``."""
        return self._one_cone(clarabel.ZeroConeT(len(expression)), expression)[0]

    def nonnegative(self, expression: Affine) -> Rows:
        """Demand ``expression >= 0``."""
        return self._one_cone(clarabel.NonnegativeConeT(len(expression)), expression)[0]

    def second_order(self, length: Affine, vector: Affine) -> tuple[Rows, Rows]:
        """Demand ``length >= ||vector||_2``."""
        bound, inside = self._one_cone(clarabel.SecondOrderConeT(1 + len(vector)), length, vector)
        return bound, inside

    def rotated(self, left: Affine, right: Affine, middle: Affine) -> tuple[Rows, Rows, Rows]:
        """Demand ``left * right >= middle^2, left >= 0, right >= 0``, entry by entry.

        As a second-order cone ``left + right >= ||(left - right, 2 middle)||``. The positions returned are those of the
        sum, the difference and the double. The multiplier of ``left`` is that of the sum plus that of the difference.
        """
        cones = [clarabel.SecondOrderConeT(3)] * len(left)
        total, difference, double = self._each_cone(cones, left + right, left - right, 2.0 * middle)
        return total, difference, double

    def exponential(self, exponent: Affine, bound: Affine) -> tuple[Rows, Rows, Rows]:
        """Demand ``exp(exponent) <= bound``, entry by entry."""
        cones = [clarabel.ExponentialConeT()] * len(exponent)
        one = Affine(np.ones(len(exponent)))
        first, middle, last = self._each_cone(cones, exponent, one, bound)
        return first, middle, last

    def _one_cone(self, cone: Any, *parts: Affine) -> list[Rows]:
        """Stack the parts in one cone."""
        places = []
        for part in parts:
            place = np.arange(self._n_rows, self._n_rows + len(part))
            self._n_rows += len(part)
            self._blocks.append((place, part))
            places.append(place)
        self._cones.append(cone)
        return places

    def _each_cone(self, cones: list[Any], *parts: Affine) -> list[Rows]:
        """Add one small cone per entry, with one row from every part."""
        count, step = len(cones), len(parts)
        places = [np.arange(self._n_rows + k, self._n_rows + k + step * count, step) for k in range(step)]
        self._n_rows += step * count
        self._blocks.extend(zip(places, parts, strict=True))
        self._cones.extend(cones)
        return places

    def _assemble(self) -> tuple[Any, FloatArray, Any, FloatArray]:
        """Return Clarabel's ``P, q, A, b``."""
        linear = np.zeros(self._n_variables)
        for cost in self._costs:
            for start, matrix in cost.terms:
                linear[start : start + matrix.shape[1]] += matrix.toarray()[0]
        diagonal = np.zeros(self._n_variables)
        for start, weights in self._squares:
            diagonal[start : start + weights.size] += weights
        right = np.zeros(self._n_rows)
        rows, columns, values = [], [], []
        for place, part in self._blocks:
            right[place] = part.offset
            for start, matrix in part.terms:
                down, along, data = _entries(matrix)
                rows.append(place[down])
                columns.append(along + start)
                values.append(-data)
        places = (np.concatenate(rows), np.concatenate(columns))
        left = sp.csc_matrix((np.concatenate(values), places), shape=(self._n_rows, self._n_variables))
        curved = np.flatnonzero(diagonal)
        quadratic = sp.csc_matrix((diagonal[curved], (curved, curved)), shape=(self._n_variables,) * 2)
        return quadratic, linear, left, right

    def solve(
        self,
        *,
        tol: float,
        loose_tol: float,
        max_iter: int,
        stretch: float = 1.0,
        callback: Callable[[int, float, float], None] | None = None,
    ) -> ConeSolution:
        """Hand the program to Clarabel.

        Parameters
        ----------
        tol : float
            Gap and feasibility asked for, relative where the objective exceeds 1.
        loose_tol : float
            Gap that still counts as almost solved where rounding keeps Clarabel from reaching ``tol``.
        max_iter : int
        stretch : float, default=1.0
            Factor on the objective passed to Clarabel. Clarabel measures gaps absolutely where the objective is below
            1, and its regularisation hides the small multipliers of many rows. A larger objective helps with both.
        callback : callable, optional
            Called while Clarabel works, with the number of an iteration, its objective and its gap.
        """
        settings = clarabel.DefaultSettings()
        settings.verbose = False
        settings.max_iter = max_iter
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tol
        settings.reduced_tol_gap_abs = settings.reduced_tol_gap_rel = loose_tol
        settings.max_threads = 1
        quadratic, linear, left, right = self._assemble()
        solver = clarabel.DefaultSolver(stretch * quadratic, stretch * linear, left, right, self._cones, settings)
        trace: list[tuple[int, float, float]] = []
        raised: list[BaseException] = []

        def record(info: Any) -> bool:
            trace.append((int(info.iterations), float(info.cost_primal) / stretch, float(info.gap_abs) / stretch))
            try:
                if callback is not None:
                    callback(*trace[-1])
            except BaseException as error:  # Clarabel would print it and continue
                raised.append(error)
            return bool(raised)

        solver.set_termination_callback(record)
        found = solver.solve()
        if raised:
            raise raised[0]
        gap = abs(float(found.obj_val - found.obj_val_dual))
        last = (int(found.iterations), float(found.obj_val) / stretch, gap / stretch)
        multipliers = np.asarray(found.z) / stretch
        return ConeSolution(np.asarray(found.x), multipliers, str(found.status), last[0], tuple(trace) or (last,))
