"""The rows that may flip, in the form in which the minimum over the multiplier needs them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from dualcore.data.arrays import FloatArray

# Rows beyond kappa are kept one by one up to this many, then as a histogram.
_MOST_TAIL = 65536
_BINS_PER_OCTAVE = 1024
_UNIT = 2.0**-60


@dataclass(frozen=True)
class FlipTail:
    r"""The rows whose flip gain ``Delta_i`` exceeds ``kappa``, for the minimum over the multiplier.

    .. math:: \min_{\lambda \ge \kappa} \sigma \lambda + \bar L + \gamma \sum_i w_i (\Delta_i - \lambda)_+

    Up to 65,536 rows are stored individually, and the minimum is exact. More become a histogram with 1,024 bins per
    octave, which stores for each bin its mass and the sum of ``w_i (Delta_i - low)``. The objective is then evaluated
    only at the edges of bins, where it is known exactly. The smallest value is an upper bound on the minimum, above it
    by at most ``gamma`` times the mass of one bin times its width.

    The sums of a histogram are whole numbers of ``2**-60`` (rounded so that the bound stays one), so they do not
    depend on the order of addition either.
    """

    delta: FloatArray
    mass: FloatArray
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    counts: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((3, 0), dtype=np.int64))
    scale: float = 1.0  # the mass of one unit in the histogram

    @classmethod
    def empty(cls) -> FlipTail:
        """Return the tail of no rows."""
        return cls(np.empty(0), np.empty(0))

    @property
    def n_rows(self) -> int:
        """How many rows are in it."""
        return int(self.delta.size + self.counts[0].sum())

    @classmethod
    def join(cls, parts: Iterable[FlipTail]) -> FlipTail:
        """Return the tail of all rows of the parts, which may be in any order."""
        parts = [part for part in parts if part.delta.size or part.bins.size]
        if len(parts) <= 1:
            return parts[0]._bounded() if parts else cls.empty()
        if sum(part.n_rows for part in parts) > _MOST_TAIL:  # part by part: all rows at once would take far more memory
            parts = [part._binned() for part in parts]
        joined = cls(
            np.concatenate([part.delta for part in parts]),
            np.concatenate([part.mass for part in parts]),
            *_add_bins(
                np.concatenate([part.bins for part in parts]), np.concatenate([part.counts for part in parts], axis=1)
            ),
        )
        return joined._bounded()

    def _bounded(self) -> FlipTail:
        return self if self.n_rows <= _MOST_TAIL else self._binned()

    def _binned(self) -> FlipTail:
        """Return the tail with every row in the histogram."""
        if not self.delta.size:
            return self
        mantissa, exponent = np.frexp(self.delta)
        index = np.floor((2.0 * mantissa - 1.0) * _BINS_PER_OCTAVE)
        bins = exponent.astype(np.int64) * _BINS_PER_OCTAVE + index.astype(np.int64)
        low, width = _bin_edges(bins)
        mass = self.mass / _UNIT
        excess = np.ceil(mass * ((self.delta - low) / width))
        # Masses that sum to less than four do not overflow; of others a stream makes no use, see `CoresetStream`.
        counts = np.minimum(np.stack([np.ones(bins.size), np.floor(mass), excess]), 2.0**62).astype(np.int64)
        return FlipTail(
            np.empty(0),
            np.empty(0),
            *_add_bins(np.concatenate([self.bins, bins]), np.concatenate([self.counts, counts], axis=1)),
        )

    def scaled(self, factor: float) -> FlipTail:
        """Return the tail with all masses multiplied by a factor; it must not be joined afterwards."""
        return replace(self, mass=self.mass * factor, scale=self.scale * factor)

    def brackets(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return values, masses and smallest masses, shape (n,) each, that bound sums over all rows.

        For every convex, non-negative function ``mass @ f(value)`` is at least the sum over the rows: the mass of a bin
        is placed at its two edges so that the mean is preserved. Individual rows come first, the largest first. For
        every non-increasing function ``least @ f(value)`` is at most the sum over the rows.
        """
        order = np.lexsort((self.mass, -self.delta))
        delta, mass = self.delta[order], self.mass[order]
        low, width = _bin_edges(self.bins)
        rows, floor, excess = (part.astype(np.float64) for part in self.counts)
        unit, nothing = _UNIT * self.scale, np.zeros(low.size)
        at_low = np.maximum(floor + 2.0 * rows - excess, 0.0)  # mass and excess are known to a unit a row
        return (
            np.concatenate([delta, low, low + width]),
            np.concatenate([mass, at_low * unit, excess * unit]),
            np.concatenate([mass, nothing, floor * unit]),
        )


def _bin_edges(bins: npt.NDArray[np.int64]) -> tuple[FloatArray, FloatArray]:
    """Return the lower edge and the width of bins; both are exact numbers."""
    exponent, index = np.divmod(bins, _BINS_PER_OCTAVE)
    low = np.ldexp(0.5 + 0.5 * index / _BINS_PER_OCTAVE, exponent)
    return low, np.ldexp(np.full(bins.size, 0.5 / _BINS_PER_OCTAVE), exponent)


def _add_bins(
    bins: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Add up entries of the same bin; integers, so in any order."""
    names, index = np.unique(bins, return_inverse=True)
    out = np.zeros((3, names.size), dtype=np.int64)
    for row, part in zip(out, counts, strict=True):
        np.add.at(row, index, part)
    return names, out
