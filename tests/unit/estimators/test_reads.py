"""Estimators trained on all rows of a source, and what ``coreset="auto"`` takes."""

import numpy as np
import pytest

from dualcore import Problem, WassersteinLinearSVC, WassersteinLogisticRegression, fit_coreset, open_source
from dualcore.coresets.fit import choose_rows
from dualcore.data.sources import PartsSource

N, M = 9000, 12


@pytest.fixture(autouse=True)
def few_rows_count_as_many(monkeypatch):
    """Sources of some megabytes would be loaded; here they are read."""
    monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", 1000)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, M))
    score = X @ rng.normal(size=M) / np.sqrt(M)
    return X, np.where(score + rng.logistic(size=N) > 0.0, 1, 0)


def in_parts(X, y):
    return lambda: iter([(X[start : start + 2000], y[start : start + 2000]) for start in range(0, len(X), 2000)])


@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_classifier_trains_on_all_rows_of_a_source(table, class_weight):
    X, y = table
    whole = WassersteinLogisticRegression(radius=0.02, class_weight=class_weight).fit(X, y)
    model = WassersteinLogisticRegression(radius=0.02, class_weight=class_weight).fit(in_parts(X, y))
    np.testing.assert_array_equal(model.classes_, [0, 1])
    np.testing.assert_allclose(model.coef_, whole.coef_, atol=2e-3)
    assert model.coreset_ is None
    assert model.certificate_.relative_gap <= 1e-6
    assert model.certificate_.n_reads >= model.solution_.n_reads > 2
    assert model.worst_case_risk_ == pytest.approx(whole.worst_case_risk_, rel=2e-6)
    assert (model.predict(X) == whole.predict(X)).mean() > 0.999


@pytest.mark.parametrize(
    ("loss", "settings", "rows", "features", "in_memory", "tol", "coreset"),
    [
        ("logistic", {}, 1_000_000, 20, False, 1e-6, False),
        ("logistic", {}, 1_000_000, 20, False, 1e-3, True),
        ("hinge", {}, 20_000, 20, True, 1e-6, False),
        ("hinge", {}, 500_000, 20, True, 1e-6, True),
        ("logistic", {"label_cost": 1.0}, 500_000, 20, False, 1e-6, True),
        ("hinge", {}, 500_000, 300, True, 1e-6, False),
        ("hinge", {"support": (0.0, 1.0)}, 500_000, 20, True, 1e-6, False),
    ],
)
def test_the_choice_follows_the_measured_rule(loss, settings, rows, features, in_memory, tol, coreset):
    problem = Problem(loss, radius=0.1, **settings)
    size, reason = choose_rows(problem, rows, features, in_memory=in_memory, tol=tol)
    assert (size is not None) == coreset
    assert reason


def test_auto_takes_all_rows_where_they_are_few_and_says_so(table, caplog):
    X, y = table
    whole = WassersteinLinearSVC(radius=0.02).fit(X, y)
    model = WassersteinLinearSVC(radius=0.02, coreset="auto", verbose=1).fit(X, y)
    assert model.coreset_ is None
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    assert "on all rows (few rows" in model.solution_.solver
    assert "on all rows (few rows" in caplog.text
    seen = []
    fit = fit_coreset(Problem("hinge", radius=0.02), X, 2.0 * y - 1.0, "auto", callback=seen.append)
    assert fit.coreset is None
    assert fit.history == tuple(seen)
    assert fit.certificate.relative_gap <= 1e-6


def test_auto_takes_a_coreset_where_that_is_quicker(table, monkeypatch):
    monkeypatch.setattr("dualcore.coresets.fit._MANY_NUMBERS", 1000)
    X, y = table
    model = WassersteinLinearSVC(radius=0.02, coreset="auto", random_state=0).fit(X, y)
    assert len(model.coreset_) == 2000
    assert "on a coreset of 2000 rows" in model.solution_.solver
    source = open_source(PartsSource(in_parts(X, 2.0 * y - 1.0)))
    fit = fit_coreset(Problem("hinge", radius=0.02), source, coreset="auto", random_state=0)
    assert len(fit.coreset) == 2000
