"""Choosing a radius where features outnumber rows: the same rules, in less memory and with fewer digits."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, WassersteinLogisticRegressionCV, select_radius, suggest_radius
from dualcore.coresets import path, selection
from expected import warns_of_radius


def text(n: int, m: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sp.random(n, m, 0.02, "csr", random_state=rng)
    return X, np.where(X @ rng.normal(size=m) + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)


def test_draws_are_taken_a_few_at_a_time():
    X, y = text(200, 2500)
    suggest_radius(Problem("logistic"), X, y, draws=10, random_state=0)  # what is imported at the first solve
    tracemalloc.start()
    suggest_radius(Problem("logistic"), X, y, draws=2000, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * 2000 * 2500 * 8


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_draws_row_by_row_agree_with_the_covariance(monkeypatch, norm):
    """Norms vary by a tenth between draws; quantiles of 2,000 and the radius of the first model by far less."""
    X, y = text(120, 300)
    problem = Problem("logistic", norm=norm)
    exact = suggest_radius(problem, X, y, random_state=0)
    monkeypatch.setattr(selection, "_COVARIANCE_FEATURES", 100)
    drawn = suggest_radius(problem, X, y, random_state=0)
    assert drawn != exact
    assert drawn == pytest.approx(exact, rel=0.05)


@pytest.mark.filterwarnings("ignore:.*chose the largest of the radii")
@pytest.mark.parametrize(
    ("wide", "given", "asked"),
    [(True, {}, 1e-3), (True, {"tol": 1e-2}, 1e-2), (False, {}, 1e-6), (True, {"solver": "structured"}, 1e-6)],
)
def test_models_of_folds_have_the_digits_that_a_choice_needs(monkeypatch, wide, given, asked):
    """On wide data every digit costs descent much, and a held-out loss shows none of them."""
    X, y = text(900, 2000) if wide else text(450, 60)
    solve, tolerances = path.solve, []

    def told(*args, **settings):
        tolerances.append(settings["tol"])
        return solve(*args, **settings)

    monkeypatch.setattr(path, "solve", told)
    model = WassersteinLogisticRegressionCV(radii=[0.02, 0.05], cv=2, **given).fit(X, y)
    select_radius(Problem("logistic"), X, y, [0.02, 0.05], cv=2, random_state=0, **given)
    assert tolerances == [asked] * 8
    assert model.certificate_.relative_gap <= given.get("tol", 1e-6)


@warns_of_radius
def test_fewer_digits_choose_the_same_radius(monkeypatch):
    X, y = text(900, 2000)
    rough = WassersteinLogisticRegressionCV(radii=4, cv=3).fit(X, y)
    monkeypatch.setattr(path, "fold_tolerance", lambda *_: 1e-9)
    exact = WassersteinLogisticRegressionCV(radii=4, cv=3).fit(X, y)
    assert exact.radius_ == rough.radius_
    assert not np.array_equal(exact.scores_, rough.scores_)
    np.testing.assert_allclose(exact.scores_, rough.scores_, rtol=1e-2)
