"""An engine whose cost is products with the data: see `DescentSolver`."""

from __future__ import annotations

from dualcore.solvers.descent.solver import DescentSolver, is_wide

__all__ = ["DescentSolver", "is_wide"]
