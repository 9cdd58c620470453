"""Families of problems by the moves that the adversary may make, one file each."""

from __future__ import annotations

from collections.abc import Callable

from dualcore.problem.families.base import Data, Family, Gradient, RowDual
from dualcore.problem.families.box import BoxFamily
from dualcore.problem.families.boxpath import Moves
from dualcore.problem.families.categories import Categories, CategoriesFamily
from dualcore.problem.families.closed import ClosedFamily
from dualcore.problem.families.softmax import SoftmaxFamily
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss, Softmax

__all__ = [
    "BoxFamily",
    "Categories",
    "CategoriesFamily",
    "ClosedFamily",
    "Data",
    "Family",
    "Gradient",
    "Moves",
    "RowDual",
    "SoftmaxFamily",
    "get_family",
]


# One line for every family: what it takes. The first that takes a problem has it.
FAMILIES: tuple[tuple[type[Family], Callable[[Loss, Geometry], bool]], ...] = (
    (CategoriesFamily, lambda loss, geometry: geometry.categories is not None),
    (SoftmaxFamily, lambda loss, geometry: isinstance(loss, Softmax)),
    (BoxFamily, lambda loss, geometry: geometry.support is not None),
    (ClosedFamily, lambda loss, geometry: True),
)


def get_family(loss: Loss, geometry: Geometry, radius: float) -> Family:
    """Return the family of a problem, or raise ValueError where its worst-case risk is infinite."""
    return next(family(loss, geometry, radius) for family, takes in FAMILIES if takes(loss, geometry))
