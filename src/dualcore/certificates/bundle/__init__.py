"""A bundle of planes below the worst-case risk on a box: its minimum is a rigorous lower bound."""

from __future__ import annotations

from dualcore.certificates.bundle.planes import Bundle
from dualcore.certificates.bundle.region import BoxLevelSet, find_region, unbounded_features

__all__ = ["BoxLevelSet", "Bundle", "find_region", "unbounded_features"]
