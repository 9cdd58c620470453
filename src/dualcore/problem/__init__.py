"""The problem that is solved: loss, transport geometry, and what the adversary does to a row."""

from __future__ import annotations

from dualcore.problem.anchor import Anchor
from dualcore.problem.families import Data, Gradient
from dualcore.problem.problem import Constants, Problem

__all__ = ["Anchor", "Constants", "Data", "Gradient", "Problem"]
