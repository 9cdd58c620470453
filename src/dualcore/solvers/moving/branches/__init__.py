"""Newton's method on boxes, with a smoothed maximum over the branches (local maxima among the moves) of every row."""

from __future__ import annotations

from dualcore.solvers.moving.branches.newton import can_use_branches, run_branches

__all__ = ["can_use_branches", "run_branches"]
