"""A loss of one's own: ten lines, one check, and it runs everywhere."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import DualCoreset, Problem, certify, check_loss, fit_coreset, solve, worst_case_distribution
from dualcore.estimators.classifiers import WassersteinClassifier
from dualcore.estimators.regressors import WassersteinRegressor
from dualcore.problem.losses import Loss
from own_losses import LogCosh, RootHinge

OWN = {"residual": LogCosh(), "margin": RootHinge()}
each_own = pytest.mark.parametrize("kind", OWN)


def sample(kind, n=400):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    score = X @ np.array([1.0, -2.0, 0.5])
    if kind == "residual":
        return X, score + rng.standard_t(2, size=n)
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0)


def test_a_broken_loss_is_told_what_it_breaks():
    for parent, breakage, sentence in [
        (LogCosh, {"value": lambda self, t: np.log(np.cosh(t))}, "overflows"),
        (LogCosh, {"value": lambda self, t: LogCosh.value(self, t) + 1.0}, "vanish at zero"),
        (LogCosh, {"value": lambda self, t: LogCosh.value(self, t) - 0.1}, "negative"),
        (LogCosh, {"value": lambda self, t: np.sqrt(np.abs(t))}, "not convex"),
        (LogCosh, {"value": lambda self, t: float(np.sum(t))}, "float64 array"),
        (LogCosh, {"value": lambda self, t: t if t.size < 9 else LogCosh.value(self, t) * np.nan}, "not finite"),
        (LogCosh, {"slope": lambda self, t: 0.5 * np.tanh(t)}, "derivative of its value"),
        (LogCosh, {"slope": lambda self, t: t}, "new array"),
        (LogCosh, {"slope": lambda self, t: np.sign(t)}, "derivative of its value"),
        (LogCosh, {"slope": lambda self, t: np.tanh(t) * (1.1 if t.dtype == np.float32 else 1.0)}, "float32"),
        (
            LogCosh,
            {"value": lambda self, t: np.abs(t), "slope": lambda self, t: np.sign(t)},
            "name that point in kinks",
        ),
        (LogCosh, {"lipschitz": 1.01}, "largest slope"),
        (LogCosh, {"lipschitz": 0.99}, "largest slope"),
        (LogCosh, {"lipschitz": np.inf}, "positive and finite"),
        (LogCosh, {"kinks": (0.5,)}, "does not jump"),
        (LogCosh, {"curvature": lambda self, t: np.full(t.shape, 0.3)}, "derivative of its slope"),
        (LogCosh, {"curvature": lambda self, t: -np.ones(t.shape)}, "negative"),
        (LogCosh, {"conjugate": lambda self, s: 0.25 * s * s}, "conjugate"),
        (LogCosh, {"slope_range": (-2.0, 2.0)}, "slope_range"),
        (LogCosh, {"pieces": ((1.0, 0.0), (-1.0, 0.0))}, "pieces"),
        (LogCosh, {"value_and_slope": lambda self, t: (self.value(t), 2.0 * self.slope(t))}, "value_and_slope"),
        (RootHinge, {"value": lambda self, t: LogCosh.value(self, t), "slope": LogCosh.slope}, "rises"),
        (RootHinge, {"flip_gain": lambda self, z: z}, "flip_gain"),
    ]:
        with pytest.raises(AssertionError, match=sentence):
            check_loss(type("Broken", (parent,), breakage)())


def test_what_is_no_loss_is_told_so():
    bare = {"lipschitz": 1.0, "value": lambda self, t: np.abs(t), "slope": lambda self, t: np.sign(t)}
    for thing in (type("Bare", (Loss,), bare)(), LogCosh, "hinge"):
        with pytest.raises(AssertionError, match="MarginLoss or ResidualLoss"):
            check_loss(thing)


@each_own
@pytest.mark.parametrize("label_cost", [np.inf, 1.0])
def test_it_is_solved_certified_and_drawn(kind, label_cost):
    X, y = sample(kind)
    problem = Problem(OWN[kind], radius=0.05, label_cost=label_cost)
    whole = solve(problem, X, y)
    assert whole.converged
    assert certify(problem, whole, X, y).relative_gap <= 1e-6
    small = fit_coreset(problem, X, y, coreset=DualCoreset(size=120, rounds=3, random_state=0))
    assert whole.lower_bound <= small.certificate.upper
    assert small.certificate.lower <= whole.value
    assert small.certificate.relative_gap < 0.05
    worst = worst_case_distribution(problem, whole.coef, whole.intercept, X, y)
    assert worst.expected_loss <= whole.value * (1.0 + 1e-9)


def test_an_estimator_of_it_is_one_method():
    class LogCoshRegressor(WassersteinRegressor):
        def _loss(self):
            return LogCosh()

    class RootHingeClassifier(WassersteinClassifier):
        def _loss(self):
            return RootHinge()

    X, y = sample("residual")
    model = LogCoshRegressor(radius=0.05, coreset=0.3, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.3
    assert model.certificate_.relative_gap < 0.01
    X, y = sample("margin")
    names = np.where(y > 0.0, "up", "down")
    classifier = RootHingeClassifier(radius=0.05, label_cost=2.0).fit(X, names)
    assert classifier.score(X, names) > 0.8
    assert classifier.certificate_.relative_gap <= 1e-6
