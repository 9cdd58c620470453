r"""What the adversary earns, a feature or a group at a time, where the slope of the loss is fixed.

At a slope of size ``a`` that pushes the score along ``d`` (+1 or -1) the moves of a row decouple. With l1 between walls

    sum_j (hi_j - x_j) p_j[d] + (x_j - lo_j) p_j[-d] ,    p_j[s] = (s a theta_j - lam price_j)_+ ,

and with categories ``e_jk[+] = (a (max_l theta_jl - theta_jk) - lam c_j)_+`` for a row of category ``k``, ``e_jk[-]``
alike with the minimum. Neither depends on the row, so with variables above them a row's worst case is linear. The
multipliers of ``p >= s a theta - lam price`` say which share of the way the rows go: a distribution of moved rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray

__all__ = ["Entries", "FormMass", "GroupMoves", "MoveVariables", "NumberMoves"]


class Entries:
    """Entries of a sparse matrix, collected."""

    def __init__(self) -> None:
        self.row: list[npt.NDArray[np.intp]] = []
        self.column: list[npt.NDArray[np.intp]] = []
        self.value: list[FloatArray] = []

    def add(self, row: npt.ArrayLike, column: npt.ArrayLike, value: npt.ArrayLike) -> None:
        """Add entries; the three are broadcast."""
        each = np.broadcast_arrays(np.asarray(row, dtype=np.intp), np.asarray(column, dtype=np.intp), value)
        self.row.append(each[0].ravel())
        self.column.append(each[1].ravel())
        self.value.append(np.asarray(each[2], dtype=np.float64).ravel())


class FormMass(NamedTuple):
    """Rows whose score is pushed along ``push`` at the slope with the number ``size``: their mass and moment."""

    size: int
    push: int
    total: float
    moment: FloatArray


class MoveVariables(ABC):
    """Moves of some features: variables behind the coefficients, limits, and what the multipliers say.

    Parameters
    ----------
    sizes : ndarray of shape (n_sizes,)
        Sizes of the slopes.
    """

    n_variables: int

    def __init__(self, sizes: FloatArray) -> None:
        self.sizes = sizes

    @abstractmethod
    def limit(self, first: int, last: int, limits: Entries, row: int) -> int:
        """Write the limits of the variables from ``first`` on; ``last`` is the multiplier. Return the next row."""

    @abstractmethod
    def shape(self, first: int, size: int, push: int, form: Entries, n_features: int) -> None:
        """Write what the moves add to a form: rows of features, and the constant in the last."""

    @abstractmethod
    def values(self, coef: FloatArray, multiplier: float) -> FloatArray:
        """Return the least variables at a model, shape (n_variables,)."""

    @abstractmethod
    def start(self, multiplier: float, unit: float) -> FloatArray:
        """Return variables inside their limits at coefficients of zero, where moves earn about ``unit``."""

    @abstractmethod
    def moved(self, multipliers: FloatArray, masses: list[FormMass]) -> tuple[list[FloatArray], float]:
        """Return the moments of the rows after their moves, one for each mass, and what they cost."""


class NumberMoves(MoveVariables):
    """Features between walls, with l1.

    Parameters
    ----------
    columns : ndarray of shape (k,)
    low, high, prices : ndarray of shape (k,)
    sizes : ndarray of shape (n_sizes,)
    """

    def __init__(
        self, columns: npt.NDArray[np.intp], low: FloatArray, high: FloatArray, prices: FloatArray, sizes: FloatArray
    ) -> None:
        super().__init__(sizes)
        self.columns, self.low, self.high, self.prices = columns, low, high, prices
        self.n_variables = 2 * sizes.size * columns.size

    def _at(self, size: int, side: int) -> npt.NDArray[np.intp]:
        """Return the numbers of ``p[side]`` among the variables."""
        return np.arange(self.columns.size) + (2 * size + (side < 0)) * self.columns.size

    def limit(self, first: int, last: int, limits: Entries, row: int) -> int:
        k = self.columns.size
        for size, slope in enumerate(self.sizes.tolist()):
            for side in (1, -1):
                at, number = first + self._at(size, side), np.arange(k)
                limits.add(row + number, at, 1.0)
                limits.add(row + number, self.columns, -side * slope)
                limits.add(row + number, last, self.prices)
                limits.add(row + k + number, at, 1.0)
                row += 2 * k
        return row

    def shape(self, first: int, size: int, push: int, form: Entries, n_features: int) -> None:
        up, down = first + self._at(size, push), first + self._at(size, -push)
        form.add(self.columns, up, -1.0)
        form.add(self.columns, down, 1.0)
        form.add(n_features, up, self.high)
        form.add(n_features, down, -self.low)

    def values(self, coef: FloatArray, multiplier: float) -> FloatArray:
        out = np.empty(self.n_variables)
        for size, slope in enumerate(self.sizes.tolist()):
            for side in (1, -1):
                gain = side * slope * coef[self.columns] - multiplier * self.prices
                out[self._at(size, side)] = np.maximum(gain, 0.0)
        return out

    def start(self, multiplier: float, unit: float) -> FloatArray:
        each = unit / ((self.high - self.low) * max(self.columns.size, 1))
        return np.tile(each, 2 * self.sizes.size)

    def moved(self, multipliers: FloatArray, masses: list[FormMass]) -> tuple[list[FloatArray], float]:
        k, at = self.columns.size, self.columns
        multipliers = multipliers.reshape(self.sizes.size, 2, 2, k)[
            :, :, 0
        ]  # by size, side, feature; not those of p >= 0
        farthest = np.zeros((self.sizes.size, 2, k))
        caps = []
        for size, push, total, moment in masses:
            up = np.maximum(self.high * total - moment[at], 0.0)
            down = np.maximum(moment[at] - self.low * total, 0.0)
            farthest[size, int(push < 0)] += up
            farthest[size, int(push > 0)] += down
            caps.append((up, down))
        share = np.clip(np.divide(multipliers, farthest, out=np.zeros_like(farthest), where=farthest > 0.0), 0.0, 1.0)
        out, spent = [], 0.0
        for (size, push, _, moment), (up, down) in zip(masses, caps, strict=True):
            up, down = share[size, int(push < 0)] * up, share[size, int(push > 0)] * down
            new = moment.copy()
            new[at] += up - down
            out.append(new)
            spent += float(self.prices @ (up + down))
        return out, spent


class GroupMoves(MoveVariables):
    """Groups of categories; the least and the largest coefficient of each are variables too.

    Parameters
    ----------
    columns : list of ndarray
        Of every group.
    is_dropped : list of bool
        Whether a row of zeros is a category.
    costs : ndarray of shape (n_groups,)
    sizes : ndarray of shape (n_sizes,)
    """

    def __init__(
        self, columns: list[npt.NDArray[np.intp]], is_dropped: list[bool], costs: FloatArray, sizes: FloatArray
    ) -> None:
        super().__init__(sizes)
        self.costs, self.n_groups = costs, costs.size
        every = [np.append(own, -1) if dropped else own for own, dropped in zip(columns, is_dropped, strict=True)]
        # Column and group of every category; -1 is the one without a column.
        self.column = np.concatenate(every).astype(np.intp)
        self.group = np.repeat(np.arange(self.n_groups), [own.size for own in every])
        self.real = self.column >= 0
        self.n_variables = 2 * self.n_groups + 2 * sizes.size * self.column.size

    def _at(self, size: int, side: int) -> npt.NDArray[np.intp]:
        """Return the numbers of ``e[side]`` among the variables."""
        count = self.column.size
        return 2 * self.n_groups + np.arange(count) + (2 * size + (side < 0)) * count

    def _end(self, side: int) -> npt.NDArray[np.intp]:
        """Return the number of the largest (+1) or least (-1) coefficient of every category's group."""
        return self.group + (side < 0) * self.n_groups

    def limit(self, first: int, last: int, limits: Entries, row: int) -> int:
        count, number, real = self.column.size, np.arange(self.column.size), self.real
        for side in (1, -1):
            limits.add(row + number, first + self._end(side), float(side))
            limits.add(row + number[real], self.column[real], -float(side))
            row += count
        for size, slope in enumerate(self.sizes.tolist()):
            for side in (1, -1):
                at = first + self._at(size, side)
                limits.add(row + number, at, 1.0)
                limits.add(row + number, first + self._end(side), -side * slope)
                limits.add(row + number[real], self.column[real], side * slope)
                limits.add(row + number, last, self.costs[self.group])
                limits.add(row + count + number, at, 1.0)
                row += 2 * count
        return row

    def shape(self, first: int, size: int, push: int, form: Entries, n_features: int) -> None:
        at, real = first + self._at(size, push), self.real
        form.add(self.column[real], at[real], 1.0)
        # A category without a column: there unless one of the others is.
        for missing in np.flatnonzero(~real).tolist():
            same = real & (self.group == self.group[missing])
            form.add(self.column[same], at[missing], -1.0)
            form.add(n_features, at[missing], 1.0)

    def _coef(self, coef: FloatArray) -> FloatArray:
        return np.where(self.real, coef[np.maximum(self.column, 0)], 0.0)

    def values(self, coef: FloatArray, multiplier: float) -> FloatArray:
        out, own = np.empty(self.n_variables), self._coef(coef)
        high, low = np.full(self.n_groups, -np.inf), np.full(self.n_groups, np.inf)
        np.maximum.at(high, self.group, own)
        np.minimum.at(low, self.group, own)
        out[: self.n_groups], out[self.n_groups : 2 * self.n_groups] = high, low
        for size, slope in enumerate(self.sizes.tolist()):
            for side, end in ((1, high), (-1, low)):
                gain = side * slope * (end[self.group] - own) - multiplier * self.costs[self.group]
                out[self._at(size, side)] = np.maximum(gain, 0.0)
        return out

    def start(self, multiplier: float, unit: float) -> FloatArray:
        far = 0.1 * multiplier * self.costs / self.sizes.max()
        each = np.full(self.column.size, unit / max(self.n_groups, 1))
        return np.concatenate([far, -far, np.tile(each, 2 * self.sizes.size)])

    def moved(self, multipliers: FloatArray, masses: list[FormMass]) -> tuple[list[FloatArray], float]:
        count, real = self.column.size, self.real
        ends, changes = multipliers[: 2 * count].reshape(2, count), multipliers[2 * count :]
        changes = changes.reshape(self.sizes.size, 2, 2, count)[:, :, 0]
        # In which proportions a changed group has its categories; those of the last where nothing says.
        targets = np.empty((2, count))
        for side in range(2):
            total = np.bincount(self.group, ends[side], self.n_groups)[self.group]
            last = np.append(self.group[1:] != self.group[:-1], True)
            targets[side] = np.divide(ends[side], total, out=last.astype(np.float64), where=total > 0.0)
        held = np.zeros((self.sizes.size, 2, count))
        own = []
        for size, push, mass, moment in masses:
            here = np.where(real, moment[np.maximum(self.column, 0)], 0.0)
            left = mass - np.bincount(self.group, here, self.n_groups)
            here = np.where(real, here, np.maximum(left[self.group], 0.0))
            held[size, int(push < 0)] += here
            own.append(here)
        share = np.clip(np.divide(changes, held, out=np.zeros_like(held), where=held > 0.0), 0.0, 1.0)
        out, spent = [], 0.0
        for (size, push, _, moment), here in zip(masses, own, strict=True):
            side = int(push < 0)
            gone = share[size, side] * here
            changed = np.bincount(self.group, gone, self.n_groups)
            new = moment.copy()
            new[self.column[real]] += (changed[self.group] * targets[side] - gone)[real]
            out.append(new)
            spent += float(self.costs @ changed)
        return out, spent
