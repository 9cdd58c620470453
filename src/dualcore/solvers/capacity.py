"""Checks before training: that the memory suffices for the solver, and that every class has rows."""

from __future__ import annotations

import os

import numpy as np

from dualcore.data.rows import SparseRows
from dualcore.problem import Data, Problem
from dualcore.problem.geometry import L2Norm
from dualcore.solvers.descent.proximal import MOST_FEATURES, sample_size


class TooLargeError(ValueError, MemoryError):
    """The request needs more memory than the machine has; the message names an alternative."""


def physical_memory() -> float:
    """Return the machine's memory in bytes; infinity where the system does not report it."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * float(os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return float("inf")


def needed_bytes(problem: Problem, data: Data, solver: str) -> float:
    """Return about how many bytes a solver needs in addition to the rows, 8 for each number."""
    n, m = float(data.rows.n), float(data.rows.m)
    stored = float(data.rows.X.nnz) if isinstance(data.rows, SparseRows) else n * m
    if solver == "structured":
        norm = problem.geometry.norm
        in_row_space = isinstance(norm, L2Norm) and norm.weights is None and n < m
        side, written_out = (n, 2.0 * n * m) if in_row_space else (m, 0.0)
        # Four square matrices at a time: the system, its factor, and the two matrices they are computed from.
        return 8.0 * (4.0 * side * side + written_out)
    if solver == "conic":
        # Every entry of X is stored in the constraint matrix, with its index, and in the factor of the system.
        return 48.0 * stored
    if solver == "descent" and m <= MOST_FEATURES:
        return 8.0 * m * (2.0 * m + min(n, sample_size(int(m))))
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


def check_reads_capacity(n_rows: int, *, vectors: int = 12) -> None:
    """Raise TooLargeError if ``vectors`` arrays of shape (n_rows,) do not fit into memory."""
    needed, there = 8.0 * vectors * n_rows, physical_memory()
    if needed > there:
        raise TooLargeError(
            f"Training over reads keeps about {vectors} numbers a row, {_shown(needed)} for {n_rows} rows; this "
            f"machine has {_shown(there)}. Use a coreset, whose memory does not grow with the rows."
        )


def _shown(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def check_classes(problem: Problem, data: Data) -> None:
    """Raise ValueError if a class has no mass: all of its rows may have weight zero."""
    if problem.family.n_outputs > 1:
        masses = np.bincount(data.y.astype(np.int64), data.masses, problem.family.n_outputs)
        if not (masses > 0.0).all():
            raise ValueError(f"Class {int(np.argmin(masses))} has no row of positive weight; every class needs one.")
    elif problem.is_classification and data.weights is not None:
        for label in (-1.0, 1.0):
            if not (data.weights[data.y == label] > 0.0).any():
                raise ValueError(f"Every row of class {label:+g} has zero weight; a classifier needs both classes.")
