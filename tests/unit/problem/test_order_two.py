"""Order 2 from end to end: the closed form, the certificate, coresets and estimators."""

import numpy as np
import pytest

from dualcore import (
    Problem,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    certify,
    solve,
)
from expected import warns_of_gap
from pairs import every_pair

NORMS = ("l1", "l2", "linf")


def sample(loss, n=200, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    score = X @ rng.normal(size=4) + rng.normal(size=n)
    return X, score if loss == "squared" else np.where(score > 0.0, 1.0, -1.0)


@every_pair(norm=NORMS, label_cost=[0.5, 1.0], radius=[0.01, 0.1], ridge=[0.0, 0.1])
def test_squared_hinges_that_flip_are_certified(norm, label_cost, radius, ridge):
    X, y = sample("squared_hinge", seed=1)
    problem = Problem("squared_hinge", radius=radius, norm=norm, label_cost=label_cost, ridge=ridge)
    solution = solve(problem, X, y)
    assert solution.converged
    assert certify(problem, solution, X, y).relative_gap <= 1e-6


@warns_of_gap
def test_the_estimators_of_order_two_train_whole_and_through_coresets():
    X, y = sample("squared", n=600)
    whole = WassersteinLinearRegression(radius=0.1).fit(X, y)
    small = WassersteinLinearRegression(radius=0.1, coreset=0.3, random_state=0).fit(X, y)
    assert whole.worst_case_risk_ <= small.worst_case_risk_ * (1.0 + 1e-9) <= 1.01 * whole.worst_case_risk_
    X, y = sample("squared_hinge", n=600)
    names = np.where(y > 0.0, "up", "down")
    whole = WassersteinLinearSVC(loss="squared_hinge", radius=0.1, label_cost=1.0).fit(X, names)
    small = WassersteinLinearSVC(loss="squared_hinge", radius=0.1, label_cost=1.0, coreset=0.3, random_state=0).fit(
        X, names
    )
    assert whole.certificate_.relative_gap <= 1e-6
    assert whole.worst_case_risk_ <= small.worst_case_risk_ * (1.0 + 1e-9) <= 1.05 * whole.worst_case_risk_
    assert small.certificate_.lower <= whole.worst_case_risk_
    with pytest.raises(ValueError, match="loss must be one of"):
        WassersteinLinearSVC(loss="huber").fit(X, names)
