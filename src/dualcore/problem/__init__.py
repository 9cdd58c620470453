"""The problem: loss, transport geometry, and the worst-case moves of the adversary (families)."""

from __future__ import annotations

from dualcore.problem.anchor import Anchor
from dualcore.problem.families import Data, Gradient
from dualcore.problem.problem import Constants, Problem

__all__ = ["Anchor", "Constants", "Data", "Gradient", "Problem"]
