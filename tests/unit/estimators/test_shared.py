"""What every estimator promises: learned attributes, containers, parameters, a coreset as a parameter."""

import inspect
import logging
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import (
    Problem,
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
)
from dualcore.coresets.samplers import DualCoreset, UniformCoreset
from dualcore.estimators import base as shared
from estimator_cases import CHOOSERS, ESTIMATORS, data_for, is_classifier
from expected import warns_of_gap, warns_of_radius
from pairs import every_value

# The loss of an estimator, and its parameter at another value than by default.
LOSSES = {
    WassersteinLogisticRegression: ("logistic", {}),
    WassersteinLinearSVC: ("hinge", {}),
    WassersteinHuberRegressor: ("huber", {"delta": 0.7}),
    WassersteinQuantileRegressor: ("pinball", {"quantile": 0.8}),
    WassersteinLinearRegression: ("squared", {}),
    WassersteinLinearSVR: ("epsilon_insensitive", {"epsilon": 0.3}),
}
each_estimator = pytest.mark.parametrize("cls", ESTIMATORS)


def outputs(model, X):
    return model.decision_function(X) if is_classifier(model) else model.predict(X)


@warns_of_radius
@every_value(
    cls=ESTIMATORS,
    settings=[
        {"radius": 0.05},
        {"radius": 0.1, "norm": "linf", "label_cost": 4.0, "ridge": 0.02},
        {"radius": 0.02, "norm": "l1"},
    ],
)
def test_learned_attributes_describe_the_solution_on_the_data(cls, settings):
    X, y = data_for(cls)
    weights = np.random.default_rng(0).uniform(0.5, 2.0, y.size)
    loss, own = LOSSES[cls]
    model = cls(**own, **settings).fit(X, y, sample_weight=weights)
    problem = Problem(loss, **own, **settings)
    assert model.problem_ == problem
    assert model.coef_.shape == ((1, 6) if is_classifier(cls) else (6,))
    assert np.shape(model.intercept_) == ((1,) if is_classifier(cls) else ())
    at = np.ravel(model.coef_), float(np.squeeze(model.intercept_)), X, 2.0 * y - 1.0 if is_classifier(cls) else y
    risk = problem.risk(*at, weights)
    assert model.worst_case_risk_ == pytest.approx(risk, rel=1e-12)
    assert model.worst_case_risk(X, y, weights) == pytest.approx(risk, rel=1e-12)
    assert model.dual_variable_ == pytest.approx(problem.multiplier(*at, weights), rel=1e-12)
    assert model.certificate_.upper == model.worst_case_risk_
    assert 0.0 <= model.certificate_.gap <= 1e-6 * risk
    assert model.certificate_.relative_gap == model.certificate_.gap / model.certificate_.upper
    assert model.certificate_.n_reads > model.n_iter_ >= 1
    assert model.solution_.converged
    assert model.coreset_ is None
    np.testing.assert_allclose(outputs(model, X), X @ at[0] + at[1], rtol=1e-12)


@pytest.mark.parametrize("cls", [cls for cls, (loss, own) in LOSSES.items() if own])
def test_the_worst_distribution_has_the_worst_case_risk(cls):
    X, y = data_for(cls)
    model = cls(**LOSSES[cls][1], radius=0.1, label_cost=2.0).fit(X, y)
    worst = model.worst_case_distribution(X, y)
    assert worst.transport_cost <= 0.1 + 1e-12
    assert worst.expected_loss == pytest.approx(model.worst_case_risk_, abs=worst.gap + 1e-9)
    with pytest.raises(ValueError, match="order 2"):
        WassersteinLinearRegression().fit(X, y).worst_case_distribution(X, y)


@pytest.mark.parametrize("quantile", [0.2, 0.5, 0.9])
def test_a_quantile_regressor_leaves_that_share_below(quantile):
    X, y = data_for(WassersteinQuantileRegressor)
    model = WassersteinQuantileRegressor(quantile=quantile, radius=0.0).fit(X, y)
    below = (y < model.predict(X) - 1e-6).mean()
    assert below <= quantile <= (y < model.predict(X) + 1e-6).mean()


@pytest.mark.parametrize("kind", ["float64", "float32", "fortran", "csr", "csc", "pandas"])
def test_features_reach_the_solver_uncopied(kind, monkeypatch):
    X, y = data_for(WassersteinHuberRegressor)
    if kind == "pandas":
        given = pytest.importorskip("pandas").DataFrame(X)
    elif kind in ("csr", "csc"):
        given = sp.csr_array(X).asformat(kind)
    else:
        given = np.asfortranarray(X) if kind == "fortran" else X.astype(kind)
    memory = given.data if sp.issparse(given) else np.asarray(given)
    seen, solve = [], shared.solve
    monkeypatch.setattr(
        shared, "solve", lambda problem, X, *rest, **more: seen.append(X) or solve(problem, X, *rest, **more)
    )
    WassersteinHuberRegressor().fit(given, y)
    [reached] = seen
    assert np.shares_memory(reached.data if sp.issparse(reached) else reached, memory)


def described(cls, title="Parameters"):
    """Return the names and descriptions of a section of a docstring."""
    section = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", inspect.getdoc(cls), re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^(\w+)\b(.*(?:\n[ \t]+\S.*)*)", section, re.MULTILINE))


@pytest.mark.parametrize("cls", [*ESTIMATORS, *CHOOSERS])
def test_every_parameter_is_described_once_keyword_only_and_no_attribute_of_the_class(cls):
    parameters = inspect.signature(cls).parameters
    assert sorted(described(cls)) == sorted(parameters)
    assert {parameter.kind for parameter in parameters.values()} == {inspect.Parameter.KEYWORD_ONLY}
    assert [name for name in parameters if hasattr(cls, name)] == []
    # A classifier speaks of flips, and an estimator with cross-validation has no radius.
    assert ("label flip" in described(cls)["label_cost"]) == is_classifier(cls)
    assert ("classes_" in described(cls, "Attributes")) == is_classifier(cls)
    assert ("radius" in parameters) is not (cls in CHOOSERS)
    assert ("radius_" in described(cls, "Attributes")) is (cls in CHOOSERS)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"radius": -0.1}, ValueError, "radius must be finite and non-negative"),
        ({"radius": "0.1"}, TypeError, "radius must be a number, got str"),
        ({"norm": "l3"}, ValueError, "Unknown norm 'l3'. Use one of"),
        ({"fit_intercept": "yes"}, TypeError, "fit_intercept must be True or False"),
        ({"solver": "simplex"}, ValueError, "Unknown solver 'simplex'"),
        ({"tol": 0.0}, ValueError, "tol must be positive"),
        ({"tol": None}, TypeError, "tol must be a number"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"max_iter": 1.5}, TypeError, "max_iter must be a whole number"),
        ({"verbose": -1}, ValueError, "verbose must be at least 0"),
        ({"callback": "print"}, TypeError, "callback must be callable"),
        ({"random_state": "seed"}, ValueError, "cannot be used to seed"),
        ({"coreset": True}, TypeError, "coreset must be a size"),
        ({"coreset": 0}, ValueError, "size"),
        ({"coreset": 1.5}, ValueError, "size"),
        ({"coreset": "small"}, TypeError, "coreset must be a size"),
        ({"delta": 0.0}, ValueError, "delta must be positive"),
        ({"quantile": 1.0}, ValueError, "quantile must lie strictly between 0 and 1"),
        ({"epsilon": -0.1}, ValueError, "epsilon must be non-negative"),
        ({"power": 2.0, "solver": "structured"}, TypeError, "Use solver='descent'"),
    ],
)
def test_a_wrong_parameter_is_refused_at_fit_and_not_before(parameters, error, message):
    [cls, *_] = [cls for cls in ESTIMATORS if set(parameters) <= set(inspect.signature(cls).parameters)]
    model = cls(**parameters)
    with pytest.raises(error, match=message):
        model.fit(*data_for(cls))


@warns_of_radius
@each_estimator
def test_no_parameter_is_inert(cls):
    X, y = data_for(cls)
    plain = outputs(cls().fit(X, y), X)
    settings = [{"radius": 0.5}, {"norm": "linf"}, {"ridge": 1.0}, {"fit_intercept": False}]
    settings += [{"label_cost": 0.05, "radius": 0.5}]
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


def test_verbose_prints_where_logging_is_not_set_up(capsys, monkeypatch):
    """Handlers of pytest are handlers too, so they are taken away for a moment."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    WassersteinLogisticRegression(verbose=1).fit(*data_for(WassersteinLogisticRegression))
    assert capsys.readouterr().out.startswith("[WassersteinLogisticRegression] Solved")
    assert logging.getLogger("dualcore").handlers == []


@warns_of_gap
@each_estimator
def test_a_callback_sees_iterations_reads_and_rounds(cls):
    X, y = data_for(cls, 400)
    seen = []
    cls(callback=seen.append).fit(X, y)
    assert all(hasattr(one, "gap") for one in seen)
    before = len(seen)
    cls(callback=seen.append, coreset=100, random_state=0).fit(X, y)
    assert len(seen) > before
    assert hasattr(seen[-1], "relative_gap")


@warns_of_gap
@every_value(cls=ESTIMATORS, size=[0.5, 60, UniformCoreset(size=0.5), DualCoreset(size=0.3, rounds=2)])
def test_a_coreset_model_is_certified_on_the_full_data(cls, size):
    X, y = data_for(cls, 400)
    model, again = (cls(radius=0.1, coreset=size, random_state=0).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(again.coef_, model.coef_)
    whole = cls(radius=0.1).fit(X, y)
    assert len(model.coreset_) < len(X)
    assert model.certificate_.upper == pytest.approx(model.worst_case_risk(X, y), rel=1e-9)
    assert model.worst_case_risk_ == model.certificate_.upper
    assert model.certificate_.lower <= whole.worst_case_risk_ * (1 + 1e-9)
    assert whole.certificate_.lower * (1 - 1e-9) <= model.worst_case_risk_ <= 1.1 * whole.worst_case_risk_


def test_a_certificate_that_proves_nothing_is_a_warning():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(400, 40))  # far more parameters than the coreset has rows
    y = np.where(3.0 * X[:, 0] + 0.5 * rng.logistic(size=400) > 0.0, 1, -1)
    model = WassersteinLogisticRegression(radius=0.001, coreset=UniformCoreset(size=12), random_state=0)
    said = "leaves open how good the model is .* Use a larger coreset, DualCoreset"
    with pytest.warns(ConvergenceWarning, match=said):
        model.fit(X, y)
    assert model.certificate_.is_weak
    assert str(model.certificate_).endswith("which leaves open how near to the best possible it is.")
