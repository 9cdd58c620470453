"""Whether the machine has the memory that a solver needs: said before any work, not by a machine that swaps."""

from __future__ import annotations

import os

from dualcore.data.rows import SparseRows
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L2Norm
from dualcore.solvers.descent.proximal import MOST_FEATURES, sample_size

_NUMBER = 8
# Matrices of features x features that an interior point holds at a time: system, factor, and what they are made from.
_MATRICES = 4
# Bytes for an entry of X in a cone programme: constraint matrix with its indices, and the factor of the system.
_CONE_ENTRY = 48
# Vectors with a number for every row that training over reads holds.
_ROW_VECTORS = 12


class TooLargeError(ValueError, MemoryError):
    """What was asked for needs more memory than the machine has; the message says what would do."""


def physical_memory() -> float:
    """Return the machine's memory in bytes; infinite where the system does not say."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def needed_bytes(problem: Problem, data: Data, solver: str) -> float:
    """Return about how much memory a solver takes beside the rows."""
    n, m = float(data.rows.n), float(data.rows.m)
    stored = float(data.rows.X.nnz) if isinstance(data.rows, SparseRows) else n * m
    if solver == "structured":
        norm = problem.geometry.norm
        in_row_space = isinstance(norm, L2Norm) and norm.weights is None and n < m
        side, written_out = (n, 2.0 * n * m) if in_row_space else (m, 0.0)
        return _NUMBER * (_MATRICES * side * side + written_out)
    if solver == "conic":
        return _CONE_ENTRY * stored
    if solver == "descent" and m <= MOST_FEATURES:
        return _NUMBER * m * (2.0 * m + min(n, sample_size(int(m))))
    return 0.0


def check_capacity(problem: Problem, data: Data, solver: str) -> None:
    """Raise TooLargeError where a solver needs more memory than there is."""
    needed, there = needed_bytes(problem, data, solver), physical_memory()
    if needed > there:
        closed = problem.family.is_closed and solver != "descent"
        other = "Use solver='descent', whose memory is that of the rows, or a coreset." if closed else "Use a coreset."
        raise TooLargeError(
            f"solver={solver!r} would need about {_shown(needed)} for {data.rows.n} rows of {data.rows.m} features; "
            f"this machine has {_shown(there)}. {other}"
        )


def check_reads_capacity(n_rows: int) -> None:
    """Raise TooLargeError where a few numbers a row are more than the memory holds."""
    needed, there = float(_NUMBER * _ROW_VECTORS) * n_rows, physical_memory()
    if needed > there:
        raise TooLargeError(
            f"Training over reads keeps about {_ROW_VECTORS} numbers a row, {_shown(needed)} for {n_rows} rows; this "
            f"machine has {_shown(there)}. Use a coreset, whose memory does not grow with the rows."
        )


def _shown(size: float) -> str:
    return f"{size / 1e9:.3g} GB"
