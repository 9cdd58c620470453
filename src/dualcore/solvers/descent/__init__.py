"""First-order and quasi-Newton methods, whose work is products of the data with vectors: see `DescentSolver`."""

from __future__ import annotations

from dualcore.solvers.descent.solver import DescentSolver, is_wide

__all__ = ["DescentSolver", "is_wide"]
