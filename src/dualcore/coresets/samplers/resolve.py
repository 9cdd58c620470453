"""What a user means by ``size``."""

from __future__ import annotations

import numpy as np


def resolve_size(size: float | int, n_rows: int) -> int:
    """Return a number of rows from a count or a fraction.

    Examples
    --------
    >>> resolve_size(0.05, 1000), resolve_size(7, 1000), resolve_size(5000, 1000)
    (50, 7, 1000)
    """
    if isinstance(size, bool) or not isinstance(size, (int, float, np.integer, np.floating)):
        raise TypeError(f"size must be a number of rows or a fraction of them, got {type(size).__name__}.")
    if isinstance(size, (int, np.integer)):
        if size < 1:
            raise ValueError(f"size must be at least one row, got {size!r}.")
        return min(int(size), n_rows)
    if not 0.0 < size <= 1.0:
        raise ValueError(
            f"size as a fraction must be in (0, 1], got {size!r}. Give a whole number for a count of rows."
        )
    return max(1, min(n_rows, round(float(size) * n_rows)))
