"""A `fit` or `partial_fit` changes an estimator in one step at its end, or not at all."""

from __future__ import annotations

import os
import pickle
import signal
import sys

import numpy as np
import pytest

from dualcore import (
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    WassersteinQuantileRegressor,
    open_source,
)
from pairs import every_value

pd = pytest.importorskip("pandas")

ESTIMATORS = [
    WassersteinLogisticRegression,
    WassersteinLinearSVC,
    WassersteinHuberRegressor,
    WassersteinQuantileRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVR,
]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
SIGNAL = X @ [1.0, -0.5] + 0.3 * RNG.normal(size=60)


class Injected(BaseException):
    """Nothing in the package expects it, as nothing expects a KeyboardInterrupt."""


def interrupted(call, number: int):
    """Run a call with an exception at the beginning of one function of the package, by its number among all that run.

    Return how many ran, and whether the exception came through: one at the end of a generator is lost.
    """
    count = 0

    def profile(frame, event, _):
        nonlocal count
        if event == "call" and "/dualcore/" in frame.f_code.co_filename.replace(os.sep, "/"):
            count += 1
            if count == number:
                raise Injected

    sys.setprofile(profile)
    try:
        call()
    except Injected:
        return count, True
    finally:
        sys.setprofile(None)
    return count, False


def state(estimator):
    """Return the attributes, by identity and by content."""
    found = dict(vars(estimator))
    return {name: (id(value), pickle.dumps(value)) for name, value in found.items()}, found


def assert_untouched_wherever_it_fails(make, call, samples: int = 12):
    """Interrupt a call at its first functions, at some spread over all, and at its last ones."""
    total, _ = interrupted(lambda: call(make()), 0)
    places = {1, 2, 3, 5, 8, total - 2, total - 1, total, *np.linspace(1, total, samples).astype(int).tolist()}
    stopped = 0
    for place in sorted(place for place in places if place > 0):
        estimator = make()
        before, kept = state(estimator)
        if interrupted(lambda one=estimator: call(one), place)[1]:
            stopped += 1
            after = state(estimator)[0]
            assert after == before, f"changed by an exception at call {place} of {total}"
        del kept
    assert stopped >= 5


def targets(kind):
    return (
        np.where(SIGNAL > 0.0, "yes", "no")
        if issubclass(kind, (WassersteinLinearSVC, WassersteinLogisticRegression))
        else SIGNAL
    )


@every_value(
    kind=ESTIMATORS, settings=[{}, {"feature_weights": "std", "ridge": 0.1}, {"coreset": 20, "random_state": 0}]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_refit_with_other_columns_changes_nothing_where_it_fails(kind, settings):
    frame, y = pd.DataFrame(X, columns=["a", "b"]), targets(kind)
    trained = pickle.dumps(kind(radius=0.05, **settings).fit(frame, y))
    others = pd.DataFrame(np.c_[X, X[:, ::-1]], columns=["b", "a", "c", "d"])
    assert_untouched_wherever_it_fails(lambda: pickle.loads(trained), lambda one: one.fit(others, y))


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_from_a_source_changes_nothing_where_it_fails(kind):
    y = np.where(SIGNAL > 0.0, 1.0, -1.0) if hasattr(kind(), "class_weight") else SIGNAL
    trained = pickle.dumps(kind(radius=0.05).fit(X, targets(kind)))
    wide = np.c_[X, X]
    assert_untouched_wherever_it_fails(
        lambda: pickle.loads(trained), lambda one: one.fit(open_source(wide, y, chunk_rows=20)), samples=8
    )


@every_value(kind=ESTIMATORS, begun=[False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_part_changes_nothing_where_it_fails(kind, begun):
    y = targets(kind)
    options = {"classes": ["no", "yes"]} if hasattr(kind(), "class_weight") else {}
    first = kind(radius=0.05, coreset=20, random_state=0)
    first = first.partial_fit(X[:30], y[:30], **options) if begun else first.fit(np.c_[X, X], y)
    trained = pickle.dumps(first)
    part = slice(30, None)
    call = lambda one: one.partial_fit(X[part], y[part], **options)  # noqa: E731
    assert_untouched_wherever_it_fails(lambda: pickle.loads(trained), call)


@pytest.mark.parametrize("kind", [WassersteinLogisticRegressionCV, WassersteinHuberRegressorCV])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_choice_of_radius_changes_nothing_where_it_fails(kind):
    y = targets(kind)
    trained = pickle.dumps(kind(radii=[0.01, 0.1], cv=2).fit(X, y))
    wide = np.c_[X, X]
    assert_untouched_wherever_it_fails(lambda: pickle.loads(trained), lambda one: one.fit(wide, y), samples=8)


@pytest.mark.parametrize("multi_class", ["ovr", "multinomial"])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_many_classes_change_together(multi_class):
    y = np.digitize(SIGNAL, [-0.5, 0.5])
    trained = pickle.dumps(WassersteinLogisticRegression(multi_class=multi_class).fit(X, y))
    wide = np.c_[X, X]
    assert_untouched_wherever_it_fails(lambda: pickle.loads(trained), lambda one: one.fit(wide, y + 1))


def test_a_refused_refit_leaves_the_old_model_with_its_old_names():
    frame, y = pd.DataFrame(X, columns=["a", "b"]), targets(WassersteinLogisticRegression)
    model = WassersteinLogisticRegression().fit(frame, y)
    before = state(model)[0]
    with pytest.raises(ValueError, match="one class only"):
        model.fit(frame[["b", "a"]], np.full(60, "yes"))
    assert state(model)[0] == before
    assert list(model.feature_names_in_) == ["a", "b"]


@pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
def test_an_interrupt_by_signal_leaves_the_old_model():
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(2_000, 40))
    y = np.where(wide[:, 0] + rng.normal(size=2_000) > 0.0, 1, 0)
    model = WassersteinLogisticRegression().fit(X, targets(WassersteinLogisticRegression))
    before = state(model)[0]
    # The signal comes while the fit is at work: from its own progress.
    model.set_params(callback=lambda *told: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        model.fit(wide, y)
    model.set_params(callback=None)
    assert state(model)[0] == before
