"""The risk of one model against CVXPY's own minimum over the multiplier."""

from __future__ import annotations

from itertools import product
from zlib import crc32

import numpy as np
import pytest

pytest.importorskip("cvxpy")

from hypothesis import Phase, given, seed, settings

from peers.cvxpy_referee import cvxpy_risk
from reference.cases import LABEL_COSTS, LOSS_NAMES, MARGIN_LOSSES, NORMS, SECOND_ORDER, Case, cases

pytestmark = pytest.mark.slow

AGREEMENT = 1e-6


def difference(case: Case) -> float:
    """Relative difference of our risk and CVXPY's; to 1e-2 where the risk is less, for its tolerances are absolute."""
    arguments = (*case.model, *case.data, case.weights)
    risk = case.problem.replace(ridge=0.1).risk(*arguments)
    referee = cvxpy_risk(case.problem.replace(ridge=0.1), *arguments)
    return abs(risk - referee) / max(abs(referee), 1e-2)


def has_flips(case: Case) -> bool:
    """Whether taking the flips away changes the risk."""
    if case.loss not in MARGIN_LOSSES:
        return False
    arguments = (*case.model, *case.data, case.weights)
    without = case.replace(label_cost=np.inf).problem.risk(*arguments)
    return case.problem.risk(*arguments) > without * (1.0 + 1e-9)


def check_referee(loss: str, examples: int) -> None:
    flips = []
    for norm, cost in product(NORMS, LABEL_COSTS):

        @seed(crc32(f"{loss} {norm} {cost}".encode()))
        @settings(max_examples=examples, deadline=None, phases=(Phase.generate,))
        @given(cases(loss, norm, cost))
        def run(case):
            assert difference(case) <= AGREEMENT
            flips.append(has_flips(case))

        run()
    assert len(flips) >= examples * len(NORMS) * len(LABEL_COSTS)
    if loss in MARGIN_LOSSES:
        assert sum(flips) >= len(flips) / 3.0, f"only {sum(flips)} of {len(flips)} problems have active flips"


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_the_risk_is_what_a_modelling_language_makes_of_the_dual(loss):
    """Over all losses 7 * 12 * 5 + 2 * 12 * 4 = 516 problems; those of order 2 are semidefinite and slower."""
    check_referee(loss, 4 if loss in SECOND_ORDER else 5)


@pytest.mark.slow
@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_the_risk_is_what_a_modelling_language_makes_of_many_more_duals(loss):
    check_referee(loss, 40)


def test_the_referee_notices_a_wrong_radius():
    X, y = np.array([[1.0, 2.0], [-1.0, 0.5], [3.0, 0.0]]), np.array([1.0, -1.0, 1.0])
    case = Case("hinge", "l2", 2.0, 0.5, np.array([0.7, -0.2]), 0.1, X, y)
    assert difference(case) <= AGREEMENT
    wrong = cvxpy_risk(case.replace(radius=0.501).problem, *case.model, *case.data)
    assert abs(case.problem.risk(*case.model, *case.data) - wrong) > 1e-4
