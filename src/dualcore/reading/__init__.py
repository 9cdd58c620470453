"""Reads of the data at a model: risk, gradient, and a lower bound on the optimum, from sums over rows."""

from __future__ import annotations

from dualcore.reading import closed, rowwise  # noqa: F401  (they register themselves)
from dualcore.reading.reading import Reading, read

__all__ = ["Reading", "read"]
