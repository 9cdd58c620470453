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

    def spread(self, case: Case) -> float:
        """On a box with l2 a curved loss is enclosed to 1e-9, relative above 1: `Problem.h` says so."""
        curved = case.loss in ("logistic", "smooth_hinge", "huber")
        return 1e-9 if case.family == "box" and case.norm == "l2" and curved else 0.0


def descend_smooth(referee: Referee, starts: list[Point], seconds: float) -> Iterator[tuple[str, Point]]:
    """Descent on the smoothed risk where all rows move alike."""
    kind = SoftmaxObjective if referee.case.family == "softmax" else PlainObjective
    y = referee.y if referee.case.is_classification else referee.target.astype(np.float64)
    return descend(referee, kind(referee.case, referee.w.astype(np.float64), y), starts, seconds)


PARTIES: dict[str, Party] = {
    "plain": Party(PlainReferee, solve_plain, descend_smooth),
    "box": Party(BoxReferee, solve_box, descend_box),
    "categories": Party(CategoriesReferee, solve_categories, descend_box),
    "softmax": Party(SoftmaxReferee, solve_softmax_cones, descend_smooth),
}
