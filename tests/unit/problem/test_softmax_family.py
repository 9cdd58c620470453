"""`Problem("softmax", n_classes=K)`: h against brute force, K = 2, values and refusals."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp

from dualcore import Anchor, Problem, solve, worst_case_distribution
from dualcore.problem.geometry import get_norm
from dualcore.problem.losses import get_loss
from pairs import every_value

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


@every_value(every_norm, label_cost=[np.inf, 2.0, 0.3])
def test_two_classes_are_the_logistic_problem(norm, label_cost):
    y = (Y > 1).astype(int)
    many = make(2, norm=norm, label_cost=label_cost)
    one = Problem("logistic", radius=0.3, norm=norm, label_cost=label_cost)
    coef, intercept = COEF[:2], INTERCEPT[:2]
    theta, b, signs = coef[1] - coef[0], float(intercept[1] - intercept[0]), 2.0 * y - 1.0
    assert many.risk(coef, intercept, X, y, WEIGHTS) == pytest.approx(one.risk(theta, b, X, signs, WEIGHTS), rel=1e-13)
    lam = 1.1 * one.kappa(theta)
    np.testing.assert_allclose(many.h(coef, intercept, lam, X, y), one.h(theta, b, lam, X, signs), rtol=1e-12)
    gradient, wanted = many.gradient(coef, intercept, X, y, WEIGHTS), one.gradient(theta, b, X, signs, WEIGHTS)
    np.testing.assert_allclose(gradient.coef, [-wanted.coef, wanted.coef], atol=1e-12)
    np.testing.assert_allclose(gradient.intercept, [-wanted.intercept, wanted.intercept], atol=1e-12)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_what_the_family_says_of_rows_adds_up(container):
    """Slope times row, slope, and minus the transport are the gradient of ``h``."""
    problem = make()
    model = Anchor(COEF, INTERCEPT, 1.05 * problem.kappa(COEF))
    rows = problem.family.rows(model, container(X), Y.astype(float))
    np.testing.assert_allclose(rows.upper, problem.h(COEF, INTERCEPT, model.multiplier, X, Y), rtol=1e-13)
    np.testing.assert_array_equal(rows.upper, rows.lower)
    assert rows.spent.any()
    np.testing.assert_allclose(rows.slope.sum(axis=1), 0.0, atol=1e-14)
    wanted = problem.gradient(COEF, INTERCEPT, X, Y, multiplier=model.multiplier)
    np.testing.assert_allclose(rows.slope.T @ X / N, wanted.coef, atol=1e-13)
    np.testing.assert_allclose(rows.slope.mean(axis=0), wanted.intercept, atol=1e-13)
    assert 0.3 - rows.spent.mean() == pytest.approx(wanted.multiplier, rel=1e-13)
    scores, data = X @ COEF.T + INTERCEPT, problem.validate(container(X), Y)
    losses = problem.family.losses(data.rows, data.y, COEF, INTERCEPT)
    np.testing.assert_allclose(losses, logsumexp(scores, axis=1) - scores[np.arange(N), Y], rtol=1e-12)
    errors = problem.family.errors(data.rows, data.y, COEF, INTERCEPT)
    np.testing.assert_array_equal(errors, scores.argmax(axis=1) != Y)


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
        (
            lambda: worst_case_distribution(make(label_cost=np.inf), *far, X, 0 * Y + 3),
            ValueError,
            "No row is of class",
        ),
        (lambda: solve(make(), X, np.minimum(Y, 2)), ValueError, "Class 3 has no row"),
        (lambda: solve(make(), X, Y, solver="box"), ValueError, "Unknown solver"),
    ]:
        with pytest.raises(error, match=message):
            call()
