"""Missing values: which rows to drop, and the numbers that fill the others."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.arrow import import_arrow
from dualcore.data.sources.chunk import SourceError
from dualcore.data.sums import RowSum

# A number for all features, "mean" or "median", or one of these for each feature.
Fill = float | str | Mapping[str, float | str]

RULES = ("mean", "median")
# Numbers kept at a time to find medians: 160 MB.
_MOST_KEPT = 20_000_000


def check_fill(fill: Fill | None) -> None:
    """Raise ValueError unless every entry is a finite number, "mean" or "median"."""
    for value in fill.values() if isinstance(fill, Mapping) else [fill]:
        known = value in RULES if isinstance(value, str) else value is None or math.isfinite(value)
        if not known:
            raise ValueError(f'fill must be a finite number, "mean" or "median", got {value!r}.')


def rule_of(fill: Fill | None, name: str) -> float | str | None:
    """Return what is put for missing values of one feature."""
    return fill.get(name) if isinstance(fill, Mapping) else fill


def is_missing(column: Any) -> npt.NDArray[np.bool_]:
    """Return which entries of an Arrow column are null or NaN."""
    return np.asarray(column.is_null(nan_is_null=True).to_numpy(zero_copy_only=False), dtype=bool)


def without_missing(batch: Any, names: list[str]) -> Any:
    """Return the rows of a record batch in which none of these columns is missing."""
    missing = np.zeros(batch.num_rows, dtype=bool)
    for name in names:
        missing |= is_missing(batch.column(name))
    if not missing.any():
        return batch
    return batch.filter(import_arrow("pyarrow").array(~missing))


class FillStatistics:
    """Means and medians of the values that are there, gathered batch by batch.

    The mean does not depend on how the rows are cut into batches.

    Parameters
    ----------
    rules : dict of str to str
        "mean" or "median" for each feature.
    """

    def __init__(self, rules: dict[str, str]) -> None:
        self.rules = rules
        self._counts = dict.fromkeys(rules, 0)
        self._sums: dict[str, RowSum] = {}
        self._kept: dict[str, list[FloatArray]] = {name: [] for name, rule in rules.items() if rule == "median"}
        self._n_kept = self._n_rows = 0

    def add(self, batch: Any) -> None:
        """Take in the next rows."""
        for name, rule in self.rules.items():
            values = _floats(batch.column(name))
            missing = np.isnan(values)
            self._counts[name] += int(values.size - np.count_nonzero(missing))
            if rule == "median":
                self._keep(name, values[~missing])
                continue
            part = RowSum.of(self._n_rows, np.where(missing, 0.0, values))
            self._sums[name] = RowSum.join([self._sums[name], part]) if name in self._sums else part
        self._n_rows += batch.num_rows

    def _keep(self, name: str, values: FloatArray) -> None:
        self._n_kept += values.size
        if self._n_kept > _MOST_KEPT:
            raise SourceError(
                f'fill="median" needs all values at once, more than {_MOST_KEPT:,} of them here: use fill="mean" or '
                "numbers."
            )
        self._kept[name].append(values)

    def numbers(self) -> dict[str, float]:
        """Return the number for each feature."""
        found = {}
        for name, rule in self.rules.items():
            if not self._counts[name]:
                raise SourceError(
                    f"Column {name!r} holds no value, so it has no {rule}: leave it out, or give fill= a number for it."
                )
            if rule == "median":
                found[name] = float(np.median(np.concatenate(self._kept[name])))
            else:
                found[name] = self._sums[name].total() / self._counts[name]
            if not math.isfinite(found[name]):
                raise SourceError(f"Column {name!r} holds infinite or huge values: its {rule} is {found[name]}.")
        return found


def _floats(column: Any) -> FloatArray:
    """Return a numeric column with NaN for nulls."""
    pa = import_arrow("pyarrow")
    return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False), dtype=np.float64)
