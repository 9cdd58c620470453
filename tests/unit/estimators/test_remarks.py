"""What estimators say of fits that one should look at."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import (
    DualCoreset,
    UniformCoreset,
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVCCV,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
    open_source,
)
from expected import warns_of_gap, warns_of_radius
from pairs import first


def few_positives(n: int = 3000, share: float = 0.05):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) * [1.0, 3.0, 0.1, 1.0] + [0.0, 5.0, 0.0, 0.0]
    score = X[:, 0] + rng.logistic(size=n)
    return X, np.where(score > np.quantile(score, 1 - share), 1.0, -1.0)


def learning_nothing(model, X, y, also: str = "") -> str:
    """Return what is said where a radius leaves nothing to learn."""
    with pytest.warns(UserWarning, match=f"leaves nothing to learn{also}") as said:
        model.fit(X, y)
    [text] = [str(one.message) for one in said if "leaves nothing to learn" in str(one.message)]
    assert said[0].filename == __file__
    return text


def named_radius(text: str) -> float:
    return float(re.search(r"largest useful radius is (?:below )?([0-9.e+-]+)\.", text)[1])


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (WassersteinLogisticRegression, {}),
        (WassersteinLogisticRegression, {"norm": "linf"}),
        (WassersteinLogisticRegression, {"fit_intercept": False}),
        (WassersteinHuberRegressor, {"delta": 0.5}),
        (WassersteinLinearRegression, {"norm": "l1"}),
    ],
)
def test_the_largest_useful_radius_is_named(cls, settings):
    """Just above it nothing is learned, just below it something is: it is exact where the loss is smooth."""
    X, y = few_positives()
    X = X - X.mean(axis=0) if not settings.get("fit_intercept", True) else X
    radius = named_radius(learning_nothing(cls(radius=100.0, **settings), X, y))
    learning_nothing(cls(radius=1.01 * radius, **settings), X, y)
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
    text = learning_nothing(cls(radius=2.0, **settings), X, y, ".*below")
    assert named_radius(text) <= 2.0
    assert ("at any radius, 0 included: then use a smooth loss" in text) is (cls is not WassersteinLogisticRegression)
    model = cls(radius=1e-4, label_cost=np.inf).fit(X, np.where(X[:, 0] > 0, 1.0, -1.0))
    assert np.abs(model.coef_).max() > 1e-3


def test_zeros_that_are_not_certified_are_not_blamed_on_the_radius():
    """A dozen rows for 200 features teach nothing at a radius at which all rows teach much."""
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(400, 200))
    y = np.where(X[:, :5].sum(axis=1) + 0.1 * rng.normal(size=400) > 3.3, 1.0, -1.0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        thin = WassersteinLinearSVC(radius=0.01, coreset=UniformCoreset(size=12), random_state=0).fit(X, y)
    assert thin.certificate_.is_weak
    assert not any("nothing to learn" in str(one.message) for one in said)
    assert WassersteinLinearSVC(radius=0.01).fit(X, y).worst_case_risk_ < 0.5 * thin.worst_case_risk_


def test_on_a_box_no_radius_is_named_below_one_that_is_useful():
    """Limits hold the adversary back, so radii above the bound without limits are useful."""
    rng = np.random.default_rng(0)
    y = np.where(np.arange(100) % 2, 1.0, -1.0)
    X = (rng.random((100, 20)) < np.where((np.arange(20) < 10) == (y > 0)[:, None], 0.3, 0.0)).astype(float)
    free = float(np.linalg.norm((X * y[:, None]).mean(axis=0)))
    useful = WassersteinLogisticRegression(radius=1.05 * free, support=(0, 1)).fit(X, y)
    assert useful.certificate_.upper < np.log(2.0) - 1e-4
    too_large = WassersteinLogisticRegression(radius=2.0 * free, support=(0, 1))
    assert named_radius(learning_nothing(too_large, X, y)) >= 1.05 * free


def test_a_rare_class_is_named_beside_the_radius():
    """The hinge of few positives is best at zero whatever the radius; weights help, a smaller radius does not."""
    X, y = few_positives()
    with pytest.warns(UserWarning, match="One class has 0.05 of the weight; class_weight='balanced'"):
        WassersteinLinearSVC(radius=1e-3).fit(X, y)
    WassersteinLinearSVC(radius=1e-3, class_weight="balanced").fit(X, y)
    assert "One class" not in learning_nothing(WassersteinLinearSVC(radius=100.0, class_weight="balanced"), X, y)


def test_nothing_is_said_where_no_radius_would_help():
    """Warnings are errors here."""
    one = WassersteinLogisticRegression(radius=0.1).fit(np.zeros((6, 2)), [0, 1, 0, 1, 0, 1])
    other = WassersteinHuberRegressor(radius=0.1).fit(np.arange(12.0).reshape(6, 2), np.ones(6))
    assert max(np.abs(one.coef_).max(), np.abs(other.coef_).max()) < 1e-20


def test_a_size_asks_for_a_gap_of_a_thousandth():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 30))
    y = np.where(X.sum(axis=1) + 4.0 * rng.logistic(size=3000) > 0.0, 1.0, -1.0)
    model = WassersteinLinearSVC(radius=0.01, coreset=100, random_state=0, solver="descent")
    advice = r"more than the target_gap of 0\.001\. Use more rounds .* a smaller tol"
    with pytest.warns(ConvergenceWarning, match=advice):
        model.set_params(tol=0.1).fit(X, y)
    assert 1e-3 < model.certificate_.relative_gap < 0.5
    model.set_params(tol=1e-3).fit(X, y)  # what was advised
    assert model.certificate_.relative_gap <= 1e-3


def test_rows_that_do_not_reproduce_the_model_are_told():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8))
    y = np.where(X[:, 0] + rng.logistic(size=2000) > 0.0, 1.0, -1.0)
    with pytest.warns(UserWarning, match=r"the 5 rows of coreset_ have a risk \d+% above .* 12 rows would"):
        model = WassersteinLogisticRegression(radius=0.1, coreset=5, random_state=0).fit(X, y)
    assert repr(model.coreset_).endswith(f"excess {model.coreset_.excess:.1g}>")


@pytest.mark.parametrize("seed", first(1, range(3)))
def test_few_rows_of_a_rare_class_do_not_lead_astray(seed):
    # A model trained on 50 rows with three of the rare class is far off, and the steps did not find back from it.
    X, y = few_positives()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the radius leaves nothing to learn
        found = WassersteinLinearSVC(radius=0.01, coreset=50, random_state=seed).fit(X, y)
    assert found.certificate_.relative_gap < 1e-3


def test_cross_validation_is_not_advised_to_those_who_used_it():
    X, y = few_positives(600)
    text = learning_nothing(WassersteinLinearSVCCV(radii=[1.0, 10.0], cv=3), X, y)
    assert text.startswith("WassersteinLinearSVCCV: ")
    assert "names end in CV" not in text
    assert "scores_" in text


def ten_classes(n: int = 2000):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 5))
    score = X @ rng.normal(size=(5, 10)) + rng.gumbel(size=(n, 10))
    return X, score.argmax(axis=1)


@warns_of_gap
@warns_of_radius
@pytest.mark.parametrize("source", [False, True])
def test_classes_share_one_warning_that_names_them(source):
    X, y = ten_classes()
    data = (open_source(X, y.astype(float)),) if source else (X, y)
    sampler = DualCoreset(size=100, rounds=1, target_gap=1e-3, random_state=0)
    with pytest.warns(ConvergenceWarning, match="more than the target_gap of 0.001") as said:
        model = WassersteinLinearSVC(radius=0.01, coreset=sampler, tol=0.1).fit(*data)
    loose = [k for k, known in enumerate(model.certificates_) if known.relative_gap > 1e-3]
    assert len(loose) > 1
    [text] = [str(one.message) for one in said if "target_gap" in str(one.message)]
    names = f"{', '.join(map(str, loose[:-1]))} and {loose[-1]}"
    worst = max(model.certificates_[k].relative_gap for k in loose)
    assert text.startswith(f"WassersteinLinearSVC, classes {names} against the rest: the certified relative gap is up")
    assert f"up to {worst:.2g}, more than" in text
    if not source:
        assert said[0].filename == __file__  # the line that called fit


def test_classes_that_stop_early_or_learn_nothing_share_a_warning():
    X, y = ten_classes(400)
    with pytest.warns(ConvergenceWarning, match="Iteration limit reached") as said:
        WassersteinLogisticRegression(radius=0.01, max_iter=2, solver="structured").fit(X, y)
    assert len(said) == 1
    text = learning_nothing(WassersteinLogisticRegression(radius=50.0, multi_class="ovr"), X, y, ": .* the same score")
    assert "largest useful radii of these classes are 0." in text
    text = learning_nothing(WassersteinLogisticRegression(radius=50.0), X, y)
    assert text.startswith("WassersteinLogisticRegression: radius=50 leaves nothing to learn")


@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_trouble_with_columns_of_different_sizes_advises_to_scale_them(container):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2000, 3)) * [1.0, 1e-4, 10.0]
    y = np.where(1e4 * X[:, 1] + rng.logistic(size=2000) > 0.0, 1.0, -1.0)
    advice = r"a factor of 1e\+05 between columns 1 and 2\), so one radius.*feature_weights=.std"
    for settings in (
        {"radius": 0.5},
        {"radius": 1e-4, "coreset": DualCoreset(size=20, rounds=1, target_gap=1e-9, random_state=0)},
        {"max_iter": 1, "solver": "structured"},
    ):
        with pytest.warns(UserWarning, match=advice):
            WassersteinLogisticRegression(**settings).fit(container(X), y)
    weighted = WassersteinLogisticRegression(radius=50.0, feature_weights=[1.0, 1e4, 0.1])
    text = learning_nothing(weighted, container(X), y)
    assert "very different scales" not in text  # the prices make up for the units
    extreme = container(X * [1.0, 1e-3, 1.0])  # said without other trouble too
    with pytest.warns(UserWarning, match=r"Regression: The columns have very different scales \(a factor of 1e\+08"):
        WassersteinLogisticRegression(radius=1e-9).fit(extreme, y)
    WassersteinLogisticRegression(radius=0.0).fit(extreme, y)


def test_rare_columns_are_not_of_different_sizes():
    """A one-hot column that is 1 in one row of a thousand has a deviation of 0.03; counts of words have heavy tails."""
    rng = np.random.default_rng(0)
    n = 5000
    hot = np.eye(40)[np.minimum(rng.geometric(0.3, n) - 1, 39)]
    X = np.hstack([hot, rng.normal(size=(n, 1)) * 20.0, rng.poisson(0.01, size=(n, 30)) * rng.pareto(1.5, (n, 30))])
    y = np.where(rng.random(n) < 0.3, 1.0, -1.0)
    for data in (X, sp.csr_matrix(X)):
        assert "very different scales" not in learning_nothing(WassersteinLogisticRegression(radius=100.0), data, y)


@pytest.mark.parametrize(("unit", "said"), [(1e5, "nearly every row"), (1e-4, "no row"), (1.0, None), (20.0, None)])
def test_the_default_delta_of_another_unit_is_told(unit, said):
    """A target in a currency: the named delta makes the model that of the scaled target."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = X[:, 0] + rng.normal(size=400) + 3.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        WassersteinHuberRegressor(radius=1e-9).fit(X, unit * y)
        WassersteinHuberRegressor(radius=1e-9, delta=1.35 + 1e-9).fit(X, unit * y)  # chosen, not the default
    found = [one for one in caught if "delta=1.35 is in the units" in str(one.message)]
    assert len(found) == (said is not None)
    if said is not None:
        assert said in str(found[0].message)
        assert found[0].filename == __file__
        named = float(re.search(r"about delta=([0-9.e+-]+),", str(found[0].message))[1])
        assert 0.5 < named / (1.35 * unit) < 2.0
        with pytest.warns(UserWarning, match="delta=1.35 is in the units of the target"):  # also on a source
            WassersteinHuberRegressor(radius=1e-9, coreset=100, random_state=0).fit(open_source(X, unit * y))
