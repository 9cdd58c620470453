"""A bundle of planes below the worst-case risk on a box: its minimum is a rigorous lower bound."""

from __future__ import annotations

from dualcore.solvers.moving.bundle.planes import Bundle

__all__ = ["Bundle"]
