"""What every estimator promises: containers, copies, parameters, life inside scikit-learn, a coreset as a parameter."""

import logging

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from dualcore import estimators
from dualcore.coresets.samplers import DualCoreset, UniformCoreset
from dualcore.estimators import (
    WassersteinHuberRegressor,
    WassersteinLinearSVC,
    WassersteinLogisticRegression,
)
from dualcore.estimators import base as shared
from expected import warns_of_gap, warns_of_radius
from pairs import every_value

NAMES = [name for name in estimators.__all__ if name.startswith("Wasserstein")]
# Those that choose their radius themselves have a file of their own.
ALL = [getattr(estimators, name) for name in NAMES if not name.endswith("CV")]


def is_classifier(cls):
    return hasattr(cls, "decision_function")


def data_for(cls, n=100):
    X, y = load_breast_cancer(return_X_y=True) if is_classifier(cls) else load_diabetes(return_X_y=True)
    X, y = StandardScaler().fit_transform(X[:n, :6]), y[:n]
    return X, y if is_classifier(cls) else 1.0 + (y - y.mean()) / y.std()


def outputs(model, X):
    return model.decision_function(X) if is_classifier(type(model)) else model.predict(X)


# Containers


@pytest.mark.parametrize("kind", ["float64", "float32", "fortran", "csr", "csc", "pandas"])
def test_features_reach_the_solver_uncopied(kind, monkeypatch, tmp_path):
    X, y = data_for(WassersteinHuberRegressor)
    if kind == "pandas":
        given = pytest.importorskip("pandas").DataFrame(X)
        memory = given.to_numpy()
    elif kind in ("csr", "csc"):
        given = sp.csr_array(X).asformat(kind)
        memory = given.data
    else:
        given = memory = np.asfortranarray(X) if kind == "fortran" else X.astype(kind)
    seen = []

    def spy(problem, X, y, weights, **settings):
        seen.append(X)
        return solve(problem, X, y, weights, **settings)

    solve = shared.solve
    monkeypatch.setattr(shared, "solve", spy)
    WassersteinHuberRegressor().fit(given, y)
    [reached] = seen
    assert np.shares_memory(reached.data if sp.issparse(reached) else reached, memory)


# Parameters


@every_value(
    pytest.mark.parametrize(
        ("parameters", "error", "message"),
        [
            ({"radius": -0.1}, ValueError, "radius must be finite and non-negative"),
            ({"radius": "0.1"}, TypeError, "radius must be a number, got str"),
            ({"radius": np.nan}, ValueError, "radius must be finite"),
            ({"norm": "l3"}, ValueError, "Unknown norm 'l3'. Use one of"),
            ({"norm": 2}, TypeError, "norm must be a string"),
            ({"label_cost": 0.0}, ValueError, "label_cost must be positive"),
            ({"ridge": -1.0}, ValueError, "ridge must be finite and non-negative"),
            ({"fit_intercept": "yes"}, TypeError, "fit_intercept must be True or False"),
            ({"solver": "simplex"}, ValueError, "Unknown solver 'simplex'"),
            ({"tol": 0.0}, ValueError, "tol must be positive"),
            ({"tol": None}, TypeError, "tol must be a number"),
            ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
            ({"max_iter": 1.5}, TypeError, "max_iter must be a whole number"),
            ({"verbose": -1}, ValueError, "verbose must be at least 0"),
            ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
            ({"coreset": True}, TypeError, "coreset must be a size"),
            ({"coreset": 0}, ValueError, "size"),
            ({"coreset": 1.5}, ValueError, "size"),
            ({"coreset": "small"}, TypeError, "coreset must be a size"),
        ],
    ),
    cls=ALL,
)
def test_a_wrong_parameter_is_refused_at_fit_and_not_before(cls, parameters, error, message):
    model = cls(**parameters)
    with pytest.raises(error, match=message):
        model.fit(*data_for(cls))


@warns_of_radius
@pytest.mark.parametrize("cls", ALL)
def test_no_parameter_is_inert(cls):
    X, y = data_for(cls)
    plain = outputs(cls().fit(X, y), X)
    settings = [
        {"radius": 0.5},
        {"norm": "linf"},
        {"ridge": 1.0},
        {"fit_intercept": False},
        {"label_cost": 0.05, "radius": 0.5},
    ]
    own = {"delta": 0.1, "quantile": 0.9, "epsilon": 1.0, "class_weight": {0: 5.0}}
    settings += [{name: value} for name, value in own.items() if name in cls().get_params()]
    for changed in settings:
        assert np.abs(outputs(cls(**changed).fit(X, y), X) - plain).max() > 1e-3, changed


@warns_of_radius
def test_verbose_says_what_happened(caplog):
    X, y = data_for(WassersteinLogisticRegression)
    WassersteinLogisticRegression(verbose=0).fit(X, y)
    assert caplog.text == ""
    WassersteinLogisticRegression(verbose=1).fit(X, y)
    [line] = caplog.messages
    assert line.startswith("[WassersteinLogisticRegression] Solved")
    caplog.clear()
    WassersteinLinearSVC(verbose=2).fit(X, np.arange(len(y)) % 3)
    assert sum("Solved" in line for line in caplog.messages) == 3
    assert any("1 against the rest] iteration 0: value" in line for line in caplog.messages)


def test_verbose_prints_where_logging_is_not_set_up(capsys):
    """Handlers of pytest are handlers too, so they are taken away for a moment."""
    X, y = data_for(WassersteinLogisticRegression)
    root = logging.getLogger()
    handlers, root.handlers = root.handlers, []
    try:
        WassersteinLogisticRegression(verbose=1).fit(X, y)
    finally:
        root.handlers = handlers
    assert capsys.readouterr().out.startswith("[WassersteinLogisticRegression] Solved")
    assert logging.getLogger("dualcore").handlers == []


@warns_of_gap
@pytest.mark.parametrize("cls", ALL)
def test_a_callback_sees_iterations_reads_and_rounds(cls):
    X, y = data_for(cls, 400)
    seen = []
    cls(callback=seen.append).fit(X, y)
    assert all(hasattr(one, "gap") for one in seen)
    before = len(seen)
    cls(callback=seen.append, coreset=100, random_state=0).fit(X, y)
    assert len(seen) > before
    assert hasattr(seen[-1], "relative_gap")
    with pytest.raises(TypeError, match="callback must be callable"):
        cls(callback="print").fit(X, y)


# Life inside scikit-learn


# Through a coreset


@warns_of_gap
@every_value(cls=ALL, size=[0.5, 60, UniformCoreset(size=0.5), DualCoreset(size=0.3, rounds=2)])
def test_a_coreset_model_is_certified_on_the_full_data(cls, size):
    X, y = data_for(cls, 400)
    model = cls(radius=0.1, coreset=size, random_state=0).fit(X, y)
    whole = cls(radius=0.1).fit(X, y)
    assert model.coreset_.X.shape[0] < len(X)
    assert model.certificate_.upper == pytest.approx(model.worst_case_risk(X, y), rel=1e-9)
    assert model.worst_case_risk_ == model.certificate_.upper
    assert model.certificate_.lower <= whole.worst_case_risk_ * (1 + 1e-9)
    assert model.worst_case_risk_ >= whole.certificate_.lower * (1 - 1e-9)
    assert model.worst_case_risk_ <= 1.1 * whole.worst_case_risk_
    again = cls(radius=0.1, coreset=size, random_state=0).fit(X, y)
    np.testing.assert_array_equal(again.coef_, model.coef_)


def test_a_certificate_that_proves_nothing_is_a_warning():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 40))  # far more parameters than the coreset has rows
    y = np.where(3.0 * X[:, 0] + 0.5 * rng.logistic(size=400) > 0.0, 1, -1)
    model = WassersteinLogisticRegression(radius=0.001, coreset=UniformCoreset(size=12), random_state=0)
    with pytest.warns(
        ConvergenceWarning, match="leaves open how good the model is .* Use a larger coreset, DualCoreset"
    ):
        model.fit(X, y)
    assert model.certificate_.is_weak
    assert str(model.certificate_).endswith("which leaves open how near to the best possible it is.")


@pytest.mark.parametrize("masked", ["X", "y"])
def test_masked_values_are_refused(masked):
    rng = np.random.default_rng(0)
    data = {"X": rng.normal(size=(20, 2)), "y": rng.normal(size=20)}
    fitted = WassersteinHuberRegressor().fit(**data)
    array = np.ma.masked_array(data[masked], mask=np.zeros_like(data[masked], dtype=bool))
    fitted.fit(**(data | {masked: array}))
    array[0] = np.ma.masked
    with pytest.raises(ValueError, match="masked values"):
        fitted.fit(**(data | {masked: array}))
    if masked == "X":
        with pytest.raises(ValueError, match="masked values"):
            fitted.predict(array)
