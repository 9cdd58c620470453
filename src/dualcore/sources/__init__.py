"""Where rows come from."""

from __future__ import annotations

from dualcore.sources.arrays import ArraySource
from dualcore.sources.base import Chunk, Smallest, Source

__all__ = ["ArraySource", "Chunk", "Smallest", "Source"]
