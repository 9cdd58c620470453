"""Problems whose adversary moves features independently of each other where the slope of the loss is fixed."""

from __future__ import annotations

from dualcore.solvers.moving.decoupled.curved import can_use_curves, run_curves
from dualcore.solvers.moving.decoupled.polyhedral import can_use_pieces, run_pieces

__all__ = ["can_use_curves", "can_use_pieces", "run_curves", "run_pieces"]
