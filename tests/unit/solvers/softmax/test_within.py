"""Steps of the l1 norm under a bound on all coefficients: their direction, their flow, and where they lead."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dualcore import Problem, solve
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.products import ClassProducts
from dualcore.solvers.softmax import descent as module
from dualcore.solvers.softmax.classmetric import ClassMetric, sample_gram
from dualcore.solvers.softmax.descent import ClassDescent
from dualcore.solvers.softmax.smoothrisk import SmoothRisk
from dualcore.solvers.softmax.within import BoundedSteps

CHANGES = pytest.mark.parametrize(
    "change",
    [
        {},
        {"label_cost": 1.0},
        {"ridge": 0.05},
        {"fit_intercept": False},
        {"label_cost": 0.3, "ridge": 0.01},
        {"feature_weights": [1.0, 3.0, 0.2, 1.0, np.inf], "ridge": 0.01},
    ],
    ids=["plain", "flips", "ridge", "no intercept", "flips and ridge", "weights"],
)


def design_of(change, radius=0.08, seed=5):
    rng = np.random.default_rng(seed)
    y = np.arange(120) % 4
    X = rng.normal(size=(4, 5))[y] + rng.normal(size=(120, 5))
    problem = Problem("softmax", n_classes=4, radius=radius, norm="l1", **change)
    return problem, X, y, ClassDesign.of(problem, problem.validate(X, y.astype(float)))


@CHANGES
def test_the_value_under_a_bound_has_its_gradient(change):
    """Of the model and of the bound: its derivative is what changes of label leave of the radius."""
    _, _, _, design = design_of(change)
    risk, rng = SmoothRisk(ClassProducts(design)), np.random.default_rng(0)
    W, step = rng.normal(size=design.shape), rng.normal(size=design.shape)
    here = risk.at(W, 0.05, 0.0, bound=5.0)
    ahead, behind = (risk.at(W + sign * 1e-6 * step, 0.05, 0.0, bound=5.0 + sign * 1e-6).value for sign in (1.0, -1.0))
    expected = float((here.gradient * step).sum()) + here.budget
    assert (ahead - behind) / 2e-6 == pytest.approx(expected, rel=1e-5, abs=1e-7)


@CHANGES
@pytest.mark.parametrize("radius", [0.01, 0.15])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_models_and_bounds_are_those_of_the_cone_program(change, radius):
    problem, X, y, design = design_of(change, radius)
    best = solve(problem, X, y, solver="conic").value
    for evaluations in (5, 20, 400):
        run = ClassDescent(design, 1e-5, evaluations)
        run.run()
        assert run.lower.value <= best * (1.0 + 1e-8)
        assert run.upper >= best * (1.0 - 1e-8)
    assert run.upper - run.lower.value <= 1e-4 * run.upper


def test_a_round_ends_within_its_bound_and_its_flow_costs_one():
    _, _, _, design = design_of({})
    risk = SmoothRisk(ClassProducts(design))
    metric = ClassMetric.of(design, sample_gram(design), 0.1, design.ridge[0, :5])
    steps = BoundedSteps(risk, 1.0)
    here = steps.round(np.zeros(design.shape), 0.05, metric, 1e-12, 500, 500)
    U = risk.unit(here.W)
    assert np.abs(U).max() <= 0.5 * steps.scale * (1.0 + 1e-12)
    assert risk.widest.exact(U) == pytest.approx(steps.scale, rel=1e-9)
    assert 0.5 * np.abs(here.found.gradient).sum() == pytest.approx(1.0)
    # At the optimum the flow is what the loss asks for: nothing is left beside it.
    rest = here.gradient[:, :5] * risk.price + here.budget * here.found.gradient
    assert np.abs(rest).max() <= 1e-4 * np.abs(here.gradient).max()


@pytest.mark.parametrize("label_cost", [np.inf, 2.0])
def test_fewer_evaluations_than_with_a_smoothed_difference(label_cost, monkeypatch):
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    problem = Problem("softmax", n_classes=10, radius=0.05, norm="l1", label_cost=label_cost)
    found = solve(problem, X, y, solver="descent", tol=1e-3)
    monkeypatch.setattr(module, "_FEW_BOUNDED", 0)
    before = solve(problem, X, y, solver="descent", tol=1e-3)
    assert found.value == pytest.approx(before.value, rel=1e-3)
    assert 1.5 * found.iterations < before.iterations
