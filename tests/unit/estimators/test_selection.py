"""Estimators that choose their own radius: which one they choose, and that the rest is the plain estimator."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_diabetes, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.metrics import accuracy_score, make_scorer
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold

from dualcore import (
    Problem,
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegressionCV,
    WassersteinLinearSVC,
    WassersteinLinearSVCCV,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    select_radius,
    solve,
)
from dualcore.coresets.radii import radius_grid
from estimator_cases import CHOOSERS, NAMED, data_for
from expected import warns_of_gap, warns_of_radius
from pairs import every_value, first

PAIRS = [
    (WassersteinLogisticRegressionCV, WassersteinLogisticRegression, "logistic"),
    (WassersteinLinearSVCCV, WassersteinLinearSVC, "hinge"),
    (WassersteinHuberRegressorCV, WassersteinHuberRegressor, "huber"),
]
RADII = [0.3, 0.003, 0.03]


@pytest.mark.parametrize("cls", CHOOSERS)
def test_the_parameters_are_those_of_the_plain_estimator_but_the_radius(cls):
    own, without = {"radii", "cv", "scoring", "refit", "rule", "n_jobs"}, {"radius", "warm_start"}
    mine, theirs = cls().get_params(), NAMED[cls.__name__.removesuffix("CV")]().get_params()
    assert set(mine) - own == set(theirs) - without - own
    assert [name for name in theirs if name not in without and mine[name] != theirs[name]] == []


@pytest.mark.parametrize(("cls", "plain", "loss"), PAIRS)
def test_the_radius_is_that_of_a_search_by_hand_and_the_model_that_of_the_radius(cls, plain, loss):
    X, y = data_for(cls, 200)
    model = cls(radii=RADII, cv=3, scoring="r2" if loss == "huber" else "accuracy").fit(X, y)
    np.testing.assert_array_equal(model.radii_, sorted(RADII))
    search = GridSearchCV(plain(), {"radius": sorted(RADII)}, cv=3).fit(X, y)
    by_hand = np.stack([search.cv_results_[f"split{k}_test_score"] for k in range(3)], axis=1)
    np.testing.assert_allclose(model.scores_, by_hand, atol=1e-4)
    assert model.radius_ == search.best_params_["radius"]
    final = plain(radius=model.radius_).fit(X, y)
    np.testing.assert_array_equal(model.coef_, final.coef_)
    np.testing.assert_array_equal(model.predict(X), final.predict(X))
    assert model.certificate_ == final.certificate_
    assert model.problem_.radius == model.radius_
    assert model.worst_case_risk(X, y) == final.worst_case_risk(X, y)


@pytest.mark.parametrize(("cls", "plain", "loss"), PAIRS)
def test_the_default_score_is_the_held_out_loss(cls, plain, loss):
    X, y = data_for(cls, 200)
    splitter = KFold(3) if loss == "huber" else StratifiedKFold(3)
    model = cls(radii=RADII, cv=splitter).fit(X, y)
    target = y if loss == "huber" else 2.0 * y - 1.0
    chosen = select_radius(Problem(loss), X, target, RADII, cv=list(splitter.split(X, y)))
    assert chosen.radius == model.radius_
    np.testing.assert_allclose(model.scores_, -chosen.scores, rtol=1e-9)


@warns_of_radius
def test_more_than_two_classes_share_a_radius():
    X, y = load_iris(return_X_y=True)
    names = np.array(["a", "b", "c"])[y]
    model = WassersteinLogisticRegressionCV(radii=[0.01, 1.0], cv=3).fit(X, names)
    assert model.coef_.shape == (3, 4)
    assert model.radius_ == 0.01
    assert model.score(X, names) > 0.85
    scored = WassersteinLogisticRegressionCV(radii=[0.01, 1.0], cv=3, scoring=make_scorer(accuracy_score)).fit(X, names)
    by_hand = GridSearchCV(WassersteinLogisticRegression(), {"radius": [0.01, 1.0]}, cv=3).fit(X, names)
    np.testing.assert_allclose(scored.scores_.mean(axis=1), by_hand.cv_results_["mean_test_score"], atol=1e-9)


def test_coresets_are_used_in_the_folds_and_in_the_end():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 5))
    y = np.where(X[:, 0] + rng.logistic(size=3000) > 0, "yes", "no")
    model = WassersteinLogisticRegressionCV(radii=[0.001, 0.01, 1.0], cv=3, coreset=0.2, random_state=0).fit(X, y)
    whole = WassersteinLogisticRegressionCV(radii=[0.001, 0.01, 1.0], cv=3).fit(X, y)
    assert len(model.coreset_) == 600
    np.testing.assert_allclose(model.scores_, whole.scores_, atol=2e-3)
    assert model.radius_ < 1.0


def test_weights_count_in_training_and_in_scoring():
    X, y = data_for(WassersteinLogisticRegressionCV, 120)
    weights = np.arange(120) % 3
    folds = [(np.arange(60), np.arange(60, 120)), (np.arange(60, 120), np.arange(60))]
    weighted = WassersteinLogisticRegressionCV(radii=RADII, cv=folds).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(120), weights)
    split = np.flatnonzero(rows >= 60)[0]
    first, second = np.arange(split), np.arange(split, rows.size)
    repeated = WassersteinLogisticRegressionCV(radii=RADII, cv=[(first, second), (second, first)]).fit(X[rows], y[rows])
    np.testing.assert_allclose(weighted.scores_, repeated.scores_, rtol=1e-6)
    heavy = WassersteinLogisticRegressionCV(radii=RADII, cv=3, class_weight="balanced").fit(X, y)
    assert not np.allclose(heavy.class_weight_, 1.0)


def test_the_rule_of_one_standard_error_prefers_the_larger_radius():
    X, y = data_for(WassersteinLogisticRegressionCV, 200)
    radii = np.geomspace(1e-3, 0.3, 8)
    best = WassersteinLogisticRegressionCV(radii=radii, cv=4).fit(X, y)
    robust = WassersteinLogisticRegressionCV(radii=radii, cv=4, rule="one_standard_error").fit(X, y)
    assert robust.radius_ > best.radius_
    with pytest.raises(ValueError, match="Unknown rule 'luck'"):  # before any rows are looked at
        WassersteinLogisticRegressionCV(radii=[0.1, 0.2], cv=2, rule="luck").fit(None, None)


def test_a_radius_at_which_nothing_is_learned_is_not_chosen_for_its_size():
    """Few rows with wrong labels: the constant is within a standard error of the best, and its error is a half."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 8))
    y = np.where((X[:, 0] + 0.5 * rng.normal(size=60) > 0) ^ (rng.random(60) < 0.2), 1, 0)
    model = WassersteinLogisticRegressionCV(radii=6, cv=4, rule="one_standard_error").fit(X, y)
    mean, error = model.scores_.mean(axis=1), model.scores_.std(axis=1, ddof=1) / 2.0
    assert mean[-1] >= mean.max() - error[mean.argmax()]
    assert model.radius_ == model.radii_[-2]
    assert model.score(X, y) > 0.7
    given = WassersteinLogisticRegressionCV(radii=[*model.radii_[:-1], 9.0, 10.0], cv=4, rule=model.rule).fit(X, y)
    assert given.radius_ == model.radius_
    folds = list(StratifiedKFold(4).split(X, y))
    chosen = select_radius(Problem("logistic"), X, 2.0 * y - 1.0, model.radii_, folds, rule=model.rule)
    assert chosen.radius == model.radius_


@every_value(loss=["logistic", "hinge", "huber", "squared"], norm=["l1", "l2", "linf"])
def test_nothing_is_learned_from_the_end_of_the_grid_on(loss, norm):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 4)) * [1.0, 5.0, 0.2, 1.0] + 1.0
    score = X @ [1.0, -0.3, 2.0, 0.0] + rng.normal(size=150)
    problem = Problem(loss, norm=norm)
    y = np.where(score > 0.6, 1.0, -1.0) if problem.is_classification else score
    grid = radius_grid(problem, X, y, 5)
    np.testing.assert_allclose(grid[1:] / grid[:-1], 1000**0.25)
    beyond = solve(problem.replace(radius=1.01 * grid[-1]), X, y)
    assert np.abs(beyond.coef).max() < 1e-5
    if loss != "hinge":  # there the slopes at a kink are a choice, and nothing may be learned even before
        before = solve(problem.replace(radius=0.9 * grid[-1]), X, y)
        assert np.abs(beyond.coef).max() < 1e-3 * np.abs(before.coef).max()


def test_without_refit_there_is_a_radius_and_no_model():
    X, y = data_for(WassersteinLogisticRegressionCV)
    model = WassersteinLogisticRegressionCV(radii=RADII, cv=3, refit=False).fit(X, y)
    assert model.radius_ in RADII
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_a_scorer_takes_rows_of_text():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"city": rng.choice(["Bern", "Oslo", "Rome"], 200), "age": rng.normal(size=200)})
    y = (frame["age"] + (frame["city"] == "Oslo") + rng.normal(size=200)).to_numpy()
    at = {"categories": "from_dtype", "radii": [0.001, 0.01, 1.0], "cv": 3}
    search = WassersteinLogisticRegressionCV(scoring="accuracy", **at).fit(frame, y > 0.0)
    assert search.scores_.max() > 0.7
    assert search.n_features_in_ == 2
    assert WassersteinHuberRegressorCV(scoring="r2", **at).fit(frame, y).scores_.max() > 0.3


def test_a_wrong_parameter_is_refused():
    X, y = data_for(WassersteinLogisticRegressionCV)
    for parameters, error, message in [
        ({"radii": True}, ValueError, "radii must be a number of radii or a sequence"),
        ({"radii": []}, ValueError, "radii must be a number of radii or a sequence"),
        ({"radii": 0}, ValueError, "at least one radius"),
        ({"radii": [-1.0, 0.1]}, ValueError, "radii must be finite and non-negative"),
        ({"cv": 1}, ValueError, "n_splits=1"),
        ({"cv": [(np.arange(50), np.arange(50, 100))]}, ValueError, "at least two folds"),
        ({"scoring": "luck"}, ValueError, "luck"),
        ({"norm": "l7"}, ValueError, "Unknown norm 'l7'"),
        ({"coreset": "small"}, TypeError, "coreset must be a size"),
    ]:
        with pytest.raises(error, match=message):
            WassersteinLogisticRegressionCV(**({"radii": [0.01, 0.1]} | parameters)).fit(X, y)
    with pytest.raises(ValueError, match=r"no row of class .*: use fewer folds"):
        WassersteinLogisticRegressionCV(cv=KFold(2), radii=[0.1, 0.2]).fit(X, np.repeat([0, 1], 50))


@warns_of_gap
@pytest.mark.parametrize("seed", first(1, range(3)))
def test_a_search_through_small_coresets_keeps_a_rare_class(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(300, 4))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=300) > 1.6, "rare", "usual")
    model = WassersteinLogisticRegressionCV(radii=4, cv=3, coreset=40, random_state=seed).fit(X, y)
    assert np.isfinite(model.scores_).all()
    assert model.scores_.shape == (4, 3)


def test_the_largest_radius_is_chosen_with_a_warning():
    X, y = load_diabetes(return_X_y=True)
    with pytest.warns(UserWarning, match="chose the largest of the radii, 1e-05: try larger ones"):
        WassersteinLinearRegressionCV(radii=[1e-7, 1e-5], cv=3).fit(X, y)
