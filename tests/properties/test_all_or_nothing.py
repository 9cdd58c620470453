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
SIGNAL, WIDE = X @ [1.0, -0.5] + 0.3 * RNG.normal(size=60), np.c_[X, X[:, ::-1]]


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


def assert_untouched_wherever_it_fails(trained, call):
    """Interrupt a call at its first functions, at some spread over all, and at its last ones."""
    stored = pickle.dumps(trained)
    total, _ = interrupted(lambda: call(pickle.loads(stored)), 0)
    places = {1, 2, 3, 5, 8, total - 1, total, *np.linspace(1, total, 8).astype(int).tolist()}
    stopped = 0
    for place in sorted(places):
        estimator = pickle.loads(stored)
        before, kept = state(estimator)
        if interrupted(lambda one=estimator: call(one), place)[1]:
            stopped += 1
            after = state(estimator)[0]
            assert after == before, f"changed by an exception at call {place} of {total}"
        del kept
    assert stopped >= 5


def targets(kind, values=("no", "yes")):
    return np.where(SIGNAL > 0.0, *values[::-1]) if hasattr(kind(), "class_weight") else SIGNAL


@every_value(
    kind=ESTIMATORS, settings=[{}, {"feature_weights": "std", "ridge": 0.1}, {"coreset": 20, "random_state": 0}]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_refit_with_other_columns_changes_nothing_where_it_fails(kind, settings):
    frame, y = pd.DataFrame(X, columns=["a", "b"]), targets(kind)
    others = pd.DataFrame(WIDE, columns=["b", "a", "c", "d"])
    assert_untouched_wherever_it_fails(kind(radius=0.05, **settings).fit(frame, y), lambda one: one.fit(others, y))


@pytest.mark.parametrize("kind", ESTIMATORS)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_fit_from_a_source_changes_nothing_where_it_fails(kind):
    source = open_source(WIDE, targets(kind, (-1.0, 1.0)), chunk_rows=20)
    assert_untouched_wherever_it_fails(kind(radius=0.05).fit(X, targets(kind)), lambda one: one.fit(source))


@every_value(kind=ESTIMATORS, begun=[False, True])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_part_changes_nothing_where_it_fails(kind, begun):
    y = targets(kind)
    options = {"classes": ["no", "yes"]} if hasattr(kind(), "class_weight") else {}
    model = kind(radius=0.05, coreset=20, random_state=0)
    model = model.partial_fit(X[:30], y[:30], **options) if begun else model.fit(WIDE, y)
    assert_untouched_wherever_it_fails(model, lambda one: one.partial_fit(X[30:], y[30:], **options))


@pytest.mark.parametrize(
    "model",
    [
        WassersteinLogisticRegressionCV(radii=[0.01, 0.1], cv=2),
        WassersteinHuberRegressorCV(radii=[0.01, 0.1], cv=2),
        WassersteinLogisticRegression(multi_class="ovr"),
        WassersteinLogisticRegression(multi_class="multinomial"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_choice_of_radius_and_many_classes_change_nothing_where_they_fail(model):
    y = targets(type(model)) if hasattr(model, "radii") else np.digitize(SIGNAL, [-0.5, 0.5])
    assert_untouched_wherever_it_fails(model.fit(X, y), lambda one: one.fit(WIDE, y))


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
    known = signal.signal(signal.SIGINT, signal.default_int_handler)  # a process in the background ignores the signal
    try:
        with pytest.raises(KeyboardInterrupt):
            model.fit(wide, y)
    finally:
        signal.signal(signal.SIGINT, known)
    model.set_params(callback=None)
    assert state(model)[0] == before
