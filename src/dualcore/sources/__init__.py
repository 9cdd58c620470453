"""Where rows come from."""

from __future__ import annotations

from dualcore.sources.arrays import ArraySource
from dualcore.sources.base import Smallest, Source
from dualcore.sources.chunk import Chunk, RowError, SourceError

__all__ = ["ArraySource", "Chunk", "RowError", "Smallest", "Source", "SourceError"]
