"""Categories wherever other families are: worst cases, paths of radii, streams, coresets, model files."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import (
    CoresetStream,
    DualCoreset,
    Problem,
    changed_categories,
    radius_path,
    solve,
    worst_case_distribution,
)
from reference.category_cases import draw_case, draw_rows

PROBLEM = Problem("logistic", radius=0.1, label_cost=2.0, categories=[[1, 2, 3], [None, 4]], category_cost=[1.0, 0.5])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    city, colour, age = rng.integers(0, 3, 900), rng.integers(0, 2, 900), rng.normal(size=900)
    X = np.column_stack([age, *(city == k for k in range(3)), colour]).astype(float)
    y = np.where(X @ np.array([1.0, 1.5, 0.0, -1.5, 0.8]) + rng.logistic(size=900) > 0.0, 1.0, -1.0)
    return X, y


@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber", "absolute"])
def test_the_worst_case_is_legal_and_attains_the_risk(loss):
    rng = np.random.default_rng(3)
    for _ in range(10):
        case = draw_case(rng, loss)
        problem = case.problem
        X, y = draw_rows(rng, case, 30)
        coef, intercept = rng.normal(size=X.shape[1]), float(rng.normal())
        worst = worst_case_distribution(problem, coef, intercept, X, y)
        risk = problem.risk(coef, intercept, X, y)
        assert worst.expected_loss + worst.gap == pytest.approx(risk, rel=1e-6, abs=1e-9)
        assert worst.gap <= 1e-6 * max(1.0, risk)
        assert worst.transport_cost <= problem.radius * (1.0 + 1e-9)
        assert worst.weights.sum() == pytest.approx(1.0)
        if problem.geometry.support is None:  # numbers may run away there, one-hot columns never
            problem.family.check_rows(problem.validate(X, y)._replace(rows=_rows(worst.X)).rows)
        changes = changed_categories(problem, worst, X)
        spent = sum(case.costs[change.group] * change.mass for change in changes)
        assert spent <= worst.transport_cost * (1.0 + 1e-9) + 1e-12
        assert all(change.before != change.after and change.mass > 0.0 for change in changes)


def _rows(X):
    from dualcore.data.rows import as_rows

    return as_rows(X)


def test_changes_need_categories(data):
    X, y = data
    plain = PROBLEM.replace(categories=None)
    worst = worst_case_distribution(plain, np.ones(5), 0.0, X, y)
    with pytest.raises(ValueError, match="no categories"):
        changed_categories(plain, worst, X)


def test_a_path_of_radii(data):
    X, y = data
    path = radius_path(PROBLEM, X, y, [0.02, 0.2], tol=1e-5)
    for point in path.points:
        best = solve(PROBLEM.replace(radius=point.radius), X, y, tol=1e-6)
        assert point.certificate.lower <= best.value * (1.0 + 1e-9)
        assert point.certificate.upper == pytest.approx(best.value, rel=1e-4)
    sampled = radius_path(PROBLEM, X, y, [0.02, 0.2], 200, random_state=0)
    assert all(
        one.certificate.lower <= two.certificate.upper for one, two in zip(sampled.points, path.points, strict=True)
    )


def test_a_coreset_is_near(data):
    X, y = data
    fit = DualCoreset(size=200, rounds=3, random_state=0).fit(PROBLEM, X, y)
    best = solve(PROBLEM, X, y)
    assert fit.certificate.lower <= best.value * (1.0 + 1e-9)
    assert fit.certificate.upper <= 1.01 * best.value


def test_a_stream_is_saved_and_goes_on(data, tmp_path):
    X, y = data
    stream = CoresetStream(PROBLEM, size=100, random_state=0)
    for start in range(0, 600, 150):
        stream.update(X[start : start + 150], y[start : start + 150])
    stream.save(tmp_path / "stream.npz")
    again = CoresetStream.load(tmp_path / "stream.npz", PROBLEM)
    for each in (stream, again):
        each.update(X[600:], y[600:])
    np.testing.assert_array_equal(stream.coreset().weights, again.coreset().weights)
    with pytest.raises(ValueError, match="is about"):
        CoresetStream.load(tmp_path / "stream.npz", PROBLEM.replace(category_cost=2.0))
