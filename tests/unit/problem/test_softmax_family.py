"""`Problem("softmax", n_classes=K)`: h against brute force, K = 2, values and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logsumexp

from dualcore import Problem, solve, worst_case_distribution
from dualcore.problem.geometry import get_norm
from dualcore.problem.losses import get_loss

RNG = np.random.default_rng(0)
K, M, N = 4, 3, 40
X = RNG.normal(size=(N, M))
Y = RNG.integers(K, size=N)
Y[:K] = np.arange(K)
WEIGHTS = RNG.uniform(0.2, 2.0, size=N)
COEF, INTERCEPT = RNG.normal(size=(K, M)), RNG.normal(size=K)
every_norm = pytest.mark.parametrize("norm", ["l1", "l2", "linf"])


def make(n_classes=K, **settings):
    return Problem("softmax", n_classes=n_classes, **({"radius": 0.3, "label_cost": 0.7} | settings))


@every_norm
def test_h_is_the_best_the_adversary_can_do(norm):
    """Rows far and near, every label: none is worth more than ``h``, and one that stays is worth as much."""
    problem, ball = make(norm=norm), get_norm(norm)
    multiplier = 1.2 * problem.kappa(COEF)
    h = problem.h(COEF, INTERCEPT, multiplier, X, Y)
    steps = np.vstack([np.zeros(M), RNG.normal(size=(500, M)) * RNG.choice([0.1, 1.0, 10.0, 1e3], size=(500, 1))])
    travel = np.array([ball.value(step) for step in steps])[:, None]
    for row in range(N):
        scores = (X[row] + steps) @ COEF.T + INTERCEPT
        cost = travel + 0.7 * (np.arange(K) != Y[row])
        worth = logsumexp(scores, axis=1, keepdims=True) - scores - multiplier * cost
        assert worth.max() <= h[row] + 1e-9 * multiplier * cost.max()
        assert worth[0].max() == pytest.approx(h[row], abs=1e-12)


def test_the_loss_of_several_scores():
    loss = get_loss("softmax", n_classes=3)
    t = RNG.normal(size=(5, 3))
    np.testing.assert_allclose(loss.value(t), logsumexp(t, axis=1))
    slope, step = loss.slope(t), 1e-6
    for k in range(3):
        move = step * np.eye(3)[k]
        np.testing.assert_allclose((loss.value(t + move) - loss.value(t - move)) / (2 * step), slope[:, k], atol=1e-9)
    np.testing.assert_allclose(loss.conjugate(slope), (slope * t).sum(axis=1) - loss.value(t), atol=1e-12)
    assert np.isinf(loss.conjugate(np.array([[0.5, 0.6, -0.1]])))[0]
    assert loss.slope_range == (0.0, 1.0)


def test_what_has_no_meaning_is_said():
    far = 9.0 * np.eye(K)[:, :3], INTERCEPT
    for call, error, message in [
        (lambda: Problem("softmax"), TypeError, r"needs the parameters \['n_classes'\]"),
        (lambda: Problem("softmax", n_classes=1), ValueError, "at least 2"),
        (lambda: Problem("softmax", n_classes=2.0), TypeError, "whole number"),
        (lambda: Problem("softmax", n_classes=3, delta=1.0), TypeError, "does not take"),
        (lambda: make(support=(0, 1)), ValueError, "can move anywhere"),
        (lambda: make().risk(COEF, INTERCEPT, X, Y + 1), ValueError, r"numbers 0 to 3, found \[1.0"),
        (lambda: make().risk(COEF, INTERCEPT, X, Y - 0.5), ValueError, "numbers 0 to 3, found"),
        (lambda: make().risk(COEF, INTERCEPT, X, Y[1:]), ValueError, "one class number per row"),
        (lambda: make().risk(COEF[0], 0.0, X, Y), ValueError, "one row of coefficients and one intercept"),
        (lambda: make().risk(COEF[:, :2], INTERCEPT, X, Y), ValueError, r"feature \(3\) and class \(4\), got shape"),
        (lambda: make().risk(COEF * np.nan, INTERCEPT, X, Y), ValueError, "must be finite"),
        (lambda: make().form, ValueError, "4 scores a row"),
        (lambda: make().growth(COEF, INTERCEPT), ValueError, "4 scores a row"),
        (lambda: make().multiplier_bound(COEF, INTERCEPT, X, Y), ValueError, "4 scores a row"),
        (lambda: worst_case_distribution(make(label_cost=np.inf), *far, X, 0 * Y + 3), ValueError, "No row is of"),
        (lambda: solve(make(), X, np.minimum(Y, 2)), ValueError, "Class 3 has no row"),
        (lambda: solve(make(), X, Y, solver="box"), ValueError, "Unknown solver"),
    ]:
        with pytest.raises(error, match=message):
            call()
