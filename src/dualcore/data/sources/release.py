"""Pages of a mapped file that were read are given back: else a read of a large map fills the memory of the process."""

from __future__ import annotations

import mmap
from typing import Any

import numpy as np


def release_pages(array: Any) -> None:
    """Give back the pages that hold an array, where it shows a file mapped for reading only.

    Only the process lets go: the system may keep the file in its cache, and what is asked for again is there again.
    Maps that can be written to are left alone, and so is everything else.

    Examples
    --------
    >>> release_pages(np.ones(3))
    """
    root = _map_of(array)
    if root is None or not array.size:
        return
    beginning = root.ctypes.data - root.offset % mmap.ALLOCATIONGRANULARITY
    first, last = np.lib.array_utils.byte_bounds(array)
    start = (first - beginning) // mmap.PAGESIZE * mmap.PAGESIZE
    root._mmap.madvise(mmap.MADV_DONTNEED, start, min(last - beginning, len(root._mmap)) - start)


def is_mapped(array: Any) -> bool:
    """Whether an array shows a file mapped for reading only, whose pages can be given back."""
    return _map_of(array) is not None


def _map_of(array: Any) -> Any:
    """Return the map that an array is a view of; None where it is none, or one that can be written to."""
    root = array
    while isinstance(getattr(root, "base", None), np.ndarray):
        root = root.base
    known = isinstance(root, np.memmap) and root.mode == "r" and isinstance(getattr(root, "_mmap", None), mmap.mmap)
    return root if known and hasattr(mmap, "MADV_DONTNEED") else None
