"""Learning in parts, setting out from the last model, several processes."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError

from dualcore import (
    CoresetStream,
    DriftWarning,
    Problem,
    WassersteinHuberRegressor,
    WassersteinLinearSVC,
    WassersteinLinearSVCCV,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    load,
    solve,
)
from estimator_cases import is_classifier
from expected import warns_of_radius
from pairs import every_value


def labelled(n: int = 6000, classes: int = 2):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4))
    score = X[:, 0] - X[:, 1] + rng.logistic(size=n)
    return X, np.array(["a", "b", "c", "d"])[np.digitize(score, np.linspace(-1, 1, classes + 1)[1:-1])]


def in_parts(model, X, y, step=1500, **first):
    for start in range(0, len(y), step):
        model.partial_fit(X[start : start + step], y[start : start + step], **first)
    return model


def test_two_classes_are_learned_in_parts():
    """The model is that of a stream; its risk on all rows is near the least."""
    X, y = labelled()
    model = WassersteinLogisticRegression(radius=0.02, coreset=400, random_state=3)
    in_parts(model, X, y, classes=["b", "a"])
    assert model.classes_.tolist() == ["a", "b"]
    assert model.certificate_ is None
    signs, problem = np.where(y == "b", 1.0, -1.0), Problem("logistic", radius=0.02)
    stream = CoresetStream(problem, 400, random_state=3)
    stream.update(X, signs)
    coreset = stream.coreset()
    expected = solve(problem, coreset.X, coreset.y, coreset.weights)
    np.testing.assert_allclose(model.coef_[0], expected.coef, rtol=1e-9)
    best = WassersteinLogisticRegression(radius=0.02).fit(X, y)
    assert model.worst_case_risk(X, y) <= 1.005 * best.worst_case_risk_
    assert len(model.coreset_) <= 400
    assert model.coreset_.n_rows == 6000


@warns_of_radius
@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (WassersteinLinearSVC, {}),
        (WassersteinLogisticRegression, {"multi_class": "ovr"}),
        (WassersteinLogisticRegression, {"multi_class": "multinomial"}),
        (WassersteinHuberRegressor, {}),
    ],
)
def test_many_classes_and_a_regression_are_learned_in_parts(cls, settings):
    X, y = labelled(9000, classes=3)  # enough for a softmax to start on a sample
    if not is_classifier(cls):
        y = X[:, 0] + np.random.default_rng(1).standard_t(3, len(X))
    first = {"classes": ["a", "b", "c"]} if is_classifier(cls) else {}
    model = in_parts(cls(radius=0.02, coreset=400, random_state=0, **settings), X, y, **first)
    whole = cls(radius=0.02, **settings).fit(X, y)
    assert model.problem_ == whole.problem_
    assert model.coef_.shape == whole.coef_.shape
    assert model.worst_case_risk(X, y) <= (1.03 if is_classifier(cls) else 1.005) * whole.worst_case_risk_
    assert model.score(X, y) >= whole.score(X, y) - 0.03


def test_there_is_no_model_before_every_class_has_come():
    X, y = labelled(200)
    order = np.argsort(y)
    model = WassersteinLogisticRegression(radius=0.02).partial_fit(X[order[:20]], y[order[:20]], classes=["a", "b"])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[order[20:]], y[order[20:]])
    np.testing.assert_allclose(model.coef_, WassersteinLogisticRegression(radius=0.02).fit(X, y).coef_, atol=1e-5)


def test_fit_and_a_file_end_the_parts_and_a_pickle_keeps_them(tmp_path):
    X, y = labelled(600)
    model = WassersteinLogisticRegression(radius=0.02).partial_fit(X[:300], y[:300], classes=["a", "b"])
    copy = pickle.loads(pickle.dumps(model)).partial_fit(X[300:], y[300:])
    assert copy.coreset_.n_rows == 600
    model.save(tmp_path / "model.json")
    with pytest.warns(UserWarning, match="loaded from a file keeps no stream. partial_fit forgets earlier rows"):
        assert load(tmp_path / "model.json").partial_fit(X[300:], y[300:]).coreset_.n_rows == 300
    model.fit(X[:300], y[:300]).partial_fit(X[300:], y[300:])
    assert model.coreset_.n_rows == 300


def test_what_does_not_fit_is_refused():
    X, y = labelled(600)
    names = {"classes": ["a", "b"]}
    model = WassersteinLogisticRegression(radius=0.02).partial_fit(X, y, **names)
    fresh = WassersteinLogisticRegression
    for other, labels, more, message in (
        (model, y, {"classes": ["a", "z"]}, "not those of the first call"),
        (model, np.where(y == "a", "a", "z"), {}, "The target is 'z', but the classes are 'a' and 'b'"),
        (fresh(class_weight="balanced"), y, names, "balanced"),
        (fresh(coreset=0.1), y, names, "does not grow: coreset must be a whole number"),
        (fresh(), y, {}, "classes must be passed on the first call"),
    ):
        with pytest.raises(ValueError, match=message):
            other.partial_fit(X, labels, **more)
    assert not hasattr(WassersteinLogisticRegressionCV(), "partial_fit")


@warns_of_radius
@every_value(coreset=[None, 400], classes=[2, 3])
def test_a_warm_start_sets_out_from_the_last_model(coreset, classes):
    X, y = labelled(classes=classes)
    settings = {"radius": 0.02, "solver": "structured", "coreset": coreset, "random_state": 0, "multi_class": "ovr"}
    cold = WassersteinLogisticRegression(**settings).fit(X, y)
    warm = WassersteinLogisticRegression(warm_start=True, **settings).fit(X, y)
    np.testing.assert_array_equal(warm.coef_, cold.coef_)  # there is no last model yet
    again = clone(warm).fit(X, y)
    again.fit(X, y)
    np.testing.assert_allclose(again.worst_case_risk_, cold.worst_case_risk_, rtol=1e-3)
    if coreset is None:
        assert np.sum(again.n_iter_) < np.sum(cold.n_iter_)
    else:
        assert again.certificate_.relative_gap < 1e-3
    again.fit(X[:, :3], y)  # other features: from nothing
    assert again.coef_.shape[1] == 3


@warns_of_radius
def test_several_processes_change_nothing():
    X, y = labelled(900, classes=3)
    one, two = (
        WassersteinLogisticRegression(radius=0.05, coreset=200, random_state=np.random.RandomState(4), n_jobs=jobs)
        for jobs in (None, 2)
    )
    np.testing.assert_array_equal(one.fit(X, y).coef_, two.fit(X, y).coef_)
    one, two = (WassersteinLinearSVCCV(radii=[0.01, 0.1], cv=2, n_jobs=jobs).fit(X, y) for jobs in (None, 2))
    np.testing.assert_array_equal(one.scores_, two.scores_)


@pytest.mark.parametrize("classes", [2, 3])
def test_a_call_that_fails_takes_in_no_rows(classes):
    """What was learned stays, and so does what it is about; the call can be repeated."""
    X, y = labelled(900, classes=classes)
    labels = np.unique(y)
    model = WassersteinLogisticRegression(radius=0.02, random_state=0).partial_fit(X[:600], y[:600], classes=labels)
    expected = pickle.loads(pickle.dumps(model)).partial_fit(X[600:], y[600:]).coef_
    before, risk = model.coef_.copy(), model.worst_case_risk(X, y)
    with pytest.raises(ValueError, match="Unknown solver"):
        model.set_params(solver="none such").partial_fit(X[600:], y[600:])
    with pytest.raises(ValueError, match="parameters changed"):
        model.set_params(solver="auto", radius=0.5).partial_fit(X[600:], y[600:])
    np.testing.assert_array_equal(model.coef_, before)
    np.testing.assert_array_equal(model.worst_case_risk(X, y), risk)
    model.set_params(radius=0.02).partial_fit(X[600:], y[600:])
    assert np.atleast_1d(model.coreset_)[0].n_rows == 900
    np.testing.assert_array_equal(model.coef_, expected)


def test_a_warning_is_given_once_for_all_classes():
    """As `fit` does: it names the classes, and stands where `partial_fit` was called."""
    X, y = labelled(classes=4)
    settings = {"radius": 0.02, "coreset": 400, "random_state": 3, "max_iter": 1, "tol": 1e-12}
    model = WassersteinLogisticRegression(multi_class="ovr", **settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.partial_fit(X, y, classes=["a", "b", "c", "d"])
    [one] = [one for one in caught if issubclass(one.category, ConvergenceWarning)]
    assert "WassersteinLogisticRegression, classes a, b, c and d against the rest: " in str(one.message)
    assert one.filename == __file__


def test_drift_is_told_once_for_all_classes():
    rng = np.random.default_rng(0)
    place = np.linspace(-1.0, 1.0, 30_000)
    X = rng.normal(size=(30_000, 3))
    y = (3.0 * place[:, None] * X + rng.gumbel(size=X.shape)).argmax(axis=1)  # every slope changes its sign
    model = WassersteinLogisticRegression(radius=0.02, coreset=300, random_state=3, multi_class="ovr")
    with pytest.warns(DriftWarning, match=r"classes 0, 1 and 2 against the rest: The first rows do not") as caught:
        in_parts(model, X, y, step=30_000, classes=[0, 1, 2])
    assert len(caught) == 1
    with warnings.catch_warnings():  # the same rows again drift as before: nothing new to say
        warnings.simplefilter("error", DriftWarning)
        model.partial_fit(X, y)
    assert all("drift" in coreset.details for coreset in model.coreset_)
