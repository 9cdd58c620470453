"""Families of problems: what the adversary does to a row, one file each."""

from __future__ import annotations

from dualcore.problem.families.base import Family, RowDual, RowGradient
from dualcore.problem.families.box import BoxFamily
from dualcore.problem.families.categories import Categories, CategoriesFamily
from dualcore.problem.families.closed import ClosedFamily
from dualcore.problem.families.moving import Bracket, Moves, MovingFamily
from dualcore.problem.families.softmax import SoftmaxFamily
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss, Softmax

__all__ = [
    "BoxFamily",
    "Bracket",
    "Categories",
    "CategoriesFamily",
    "ClosedFamily",
    "Family",
    "Moves",
    "MovingFamily",
    "RowDual",
    "RowGradient",
    "SoftmaxFamily",
    "get_family",
]


def get_family(loss: Loss, geometry: Geometry, radius: float) -> Family:
    """Return the family of a problem, or raise ValueError where its worst-case risk is infinite."""
    if geometry.categories is not None:
        return CategoriesFamily(loss, geometry, radius)
    if isinstance(loss, Softmax):
        return SoftmaxFamily(loss, geometry, radius)
    closed = ClosedFamily(loss, geometry, radius)
    return closed if geometry.support is None else BoxFamily(loss, geometry, radius)
