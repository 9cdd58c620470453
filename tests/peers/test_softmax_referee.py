"""The softmax problem as CVXPY states it, and the dual of its norm."""

from __future__ import annotations

import numpy as np
import pytest
from dualcore.coresets.softmax import SoftmaxProblem, solve_softmax

from dualcore import Problem

cp = pytest.importorskip("cvxpy")
DUAL = {"l1": "inf", "l2": 2, "linf": 1}


@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
@pytest.mark.parametrize("extra", [{}, {"label_cost": 0.7}, {"ridge": 0.1}, {"fit_intercept": False}], ids=str)
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_the_optimum_is_that_of_cvxpy(norm, extra, n_classes):
    rng = np.random.default_rng(n_classes)
    y = rng.integers(n_classes, size=40)
    y[:n_classes] = np.arange(n_classes)
    X = rng.normal(size=(n_classes, 3))[y] + rng.normal(size=(40, 3))
    w = rng.uniform(0.5, 2.0, size=40)
    base = Problem("logistic", radius=0.1, norm=norm, **extra)
    theta, b, lam = cp.Variable((n_classes, 3)), cp.Variable(n_classes), cp.Variable()
    scores = X @ theta.T + np.ones((40, 1)) @ cp.reshape(b, (1, n_classes), order="C")
    own = cp.sum(cp.multiply(scores, np.eye(n_classes)[y]), axis=1)
    h = cp.log_sum_exp(scores, axis=1) - own
    if "label_cost" in extra:
        h = h + cp.pos(own - cp.min(scores, axis=1) - extra["label_cost"] * lam)
    limits = [cp.norm(theta[j] - theta[k], DUAL[norm]) <= lam for j in range(n_classes) for k in range(j)]
    if not base.fit_intercept:
        limits.append(b == 0)
    cost = 0.1 * lam + (w / w.sum()) @ h + 0.5 * base.ridge * cp.sum_squares(theta)
    referee = cp.Problem(cp.Minimize(cost), limits)
    with np.errstate(all="ignore"):
        referee.solve(solver=cp.CLARABEL)
    solution = solve_softmax(SoftmaxProblem(base, n_classes), X, y, w)
    assert solution.value == pytest.approx(referee.value, rel=2e-6)
    assert solution.lower_bound <= referee.value * (1.0 + 1e-7)
