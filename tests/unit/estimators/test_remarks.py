"""What estimators say of fits that one should look at."""

from __future__ import annotations

import importlib
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import (
    DualCoreset,
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVCCV,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
    open_source,
)


def few_positives(n: int = 3000, share: float = 0.05):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) * [1.0, 3.0, 0.1, 1.0] + [0.0, 5.0, 0.0, 0.0]
    score = X[:, 0] + rng.logistic(size=n)
    return X, np.where(score > np.quantile(score, 1 - share), 1.0, -1.0)


def named_radius(messages) -> float:
    [text] = [str(one.message) for one in messages if "leaves nothing to learn" in str(one.message)]
    return float(re.search(r"largest useful radius is (?:below )?([0-9.e+-]+)\.", text)[1])


SMOOTH = [
    (WassersteinLogisticRegression, {}),
    (WassersteinLogisticRegression, {"norm": "linf"}),
    (WassersteinLogisticRegression, {"fit_intercept": False}),
    (WassersteinHuberRegressor, {"delta": 0.5}),
    (WassersteinLinearRegression, {"norm": "l1"}),
]


@pytest.mark.parametrize(("cls", "settings"), SMOOTH)
def test_the_largest_useful_radius_is_named(cls, settings):
    """Just above it nothing is learned, just below it something is: it is exact where the loss is smooth."""
    X, y = few_positives()
    X = X - X.mean(axis=0) if not settings.get("fit_intercept", True) else X
    with pytest.warns(UserWarning, match="leaves nothing to learn") as said:
        cls(radius=100.0, **settings).fit(X, y)
    radius = named_radius(said)
    with pytest.warns(UserWarning, match="leaves nothing to learn"):
        cls(radius=1.01 * radius, **settings).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = cls(radius=0.97 * radius, **settings).fit(X, y)
    assert np.abs(model.coef_).max() > 1e-4


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (WassersteinLinearSVC, {}),
        (WassersteinLogisticRegression, {"label_cost": 0.5}),
        (WassersteinQuantileRegressor, {"quantile": 0.3}),
    ],
)
def test_with_kinks_or_flips_the_radius_named_is_a_bound(cls, settings):
    X, y = few_positives()
    with pytest.warns(UserWarning, match="leaves nothing to learn.*below") as said:
        cls(radius=2.0, **settings).fit(X, y)
    assert named_radius(said) <= 2.0
    model = cls(radius=1e-4, label_cost=np.inf).fit(X, np.where(X[:, 0] > 0, 1.0, -1.0))
    assert np.abs(model.coef_).max() > 1e-3


def test_coresets_sources_and_sparse_rows_are_remarked_too():
    X, y = few_positives()
    model = WassersteinLogisticRegression(radius=5.0)
    for data in [(sp.csr_matrix(X), y), (open_source(X, y),)]:
        with pytest.warns(UserWarning, match="leaves nothing to learn"):
            model.fit(*data)
    with pytest.warns(UserWarning, match="largest useful radius"):
        WassersteinLogisticRegression(radius=5.0, coreset=300, random_state=0).fit(open_source(X, y))


def test_nothing_is_said_where_no_radius_would_help():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        WassersteinLogisticRegression(radius=0.1).fit(np.zeros((6, 2)), [0, 1, 0, 1, 0, 1])
        WassersteinHuberRegressor(radius=0.1).fit(np.arange(12.0).reshape(6, 2), np.ones(6))


def test_a_target_gap_that_was_not_reached_is_said_with_what_to_do():
    X, y = few_positives()
    sampler = DualCoreset(size=60, rounds=1, target_gap=1e-9, random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"more than the target_gap of 1e-09\. Use a larger coreset"):
        WassersteinLogisticRegression(radius=0.01, coreset=sampler).fit(X, y)


def test_a_size_asks_for_a_gap_of_a_thousandth():
    X, y = few_positives()
    with pytest.warns(ConvergenceWarning, match=r"more than the target_gap of 0\.001\. Use a larger coreset"):
        loose = WassersteinLinearSVC(radius=0.01, coreset=30, random_state=0).fit(X, y)
    assert 1e-3 < loose.certificate_.relative_gap < 0.5
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tight = WassersteinLogisticRegression(radius=0.01, coreset=0.5, random_state=0).fit(X, y)
    assert tight.certificate_.relative_gap <= 1e-3


@pytest.mark.parametrize("solver", ["structured", "conic"])
def test_iterations_are_printed_while_the_solver_runs(capsys, monkeypatch, solver):
    """What is printed before the score of the solution is what was printed on the way."""
    X, y = few_positives()
    seen: list[str] = []
    solve_module = importlib.import_module("dualcore.solvers.solve")  # a function has the name of the module
    score = solve_module.score

    def late(*arguments):
        seen.append(capsys.readouterr().out)
        return score(*arguments)

    monkeypatch.setattr(solve_module, "score", late)
    model = WassersteinLogisticRegression(radius=0.01, solver=solver, verbose=2).fit(X, y)
    lines = [line for line in seen[0].splitlines() if "iteration" in line]
    assert len(lines) == len(model.solution_.history)
    assert f"value {model.solution_.history[0].value:.8g}" in lines[0]
    assert "iteration" not in capsys.readouterr().out.replace("iterations of", "")  # and not once more


def test_cross_validation_is_not_advised_to_those_who_used_it():
    X, y = few_positives(600)
    with pytest.warns(UserWarning, match="leaves nothing to learn") as said:
        WassersteinLinearSVCCV(radii=[1.0, 10.0], cv=3).fit(X, y)
    text = str(said[-1].message)
    assert text.startswith("WassersteinLinearSVCCV: ")
    assert "names end in CV" not in text
    assert "scores_" in text
