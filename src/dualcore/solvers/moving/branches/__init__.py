"""Newton's method on boxes: the branches of rows, how their moves follow the model, and the descent."""

from __future__ import annotations

from dualcore.solvers.moving.branches.newton import can_use_branches, run_branches

__all__ = ["can_use_branches", "run_branches"]
