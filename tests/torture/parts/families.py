"""Who referees which family: the exact risk, CVXPY, descent, and the width of a documented enclosure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from .boxrisk import BoxReferee
from .boxsearch import descend_box, solve_box
from .cases import Case
from .categories import CategoriesReferee, solve_categories
from .cones import solve_plain
from .referees import PlainReferee, Point, Referee
from .search import descend
from .smooth import PlainObjective, SoftmaxObjective
from .softrisk import SoftmaxReferee, solve_softmax_cones


class Party(NamedTuple):
    """The referee of a family and its sources of models."""

    referee: Callable[[Case], Any]
    cones: Callable[[Any, int], Iterator[tuple[str, Point]]]
    descend: Callable[[Any, list[Point], float], Iterator[tuple[str, Point]]]
    spread: Callable[[Case], float]


def _nothing(case: Case) -> float:
    return 0.0


def descend_plain(referee: Referee, starts: list[Point], seconds: float) -> Iterator[tuple[str, Point]]:
    """Descent on the smoothed risk without walls."""
    y = referee.y if referee.case.is_classification else referee.target
    objective = PlainObjective(referee.case, referee.w.astype(np.float64), y.astype(np.float64))
    return descend(referee, objective, starts, seconds)


def descend_softmax(referee: Referee, starts: list[Point], seconds: float) -> Iterator[tuple[str, Point]]:
    """Descent on the smoothed risk of many classes."""
    return descend(referee, SoftmaxObjective(referee.case, referee.w.astype(np.float64), referee.y), starts, seconds)


def _enclosure(case: Case) -> float:
    """On a box with l2 a curved loss is enclosed to 1e-9, relative above 1: `Problem.h` says so."""
    curved = case.loss in ("logistic", "smooth_hinge", "huber")
    return 1e-9 if case.norm == "l2" and curved else 0.0


PARTIES: dict[str, Party] = {
    "plain": Party(PlainReferee, solve_plain, descend_plain, _nothing),
    "box": Party(BoxReferee, solve_box, descend_box, _enclosure),
    "categories": Party(CategoriesReferee, solve_categories, descend_box, _nothing),
    "softmax": Party(SoftmaxReferee, solve_softmax_cones, descend_softmax, _nothing),
}
