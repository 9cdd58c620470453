"""Training softmax models: many scores of a row, one problem."""

from __future__ import annotations

from dualcore.solvers.softmax.solveclasses import solve_classes

__all__ = ["solve_classes"]
