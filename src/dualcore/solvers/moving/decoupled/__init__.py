"""Polyhedral losses where the adversary moves features independently of each other at a fixed slope of the loss."""

from __future__ import annotations

from dualcore.solvers.moving.decoupled.polyhedral import can_use_pieces, run_pieces

__all__ = ["can_use_pieces", "run_pieces"]
