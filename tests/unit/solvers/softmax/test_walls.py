"""The l1 norm where labels stay: walls that stand still, scipy's method between them, and where it leads."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.certificates.softmax.design import ClassDesign
from dualcore.certificates.softmax.products import ClassProducts
from dualcore.solvers.softmax.descent import ClassDescent
from dualcore.solvers.softmax.smoothrisk import SmoothRisk
from dualcore.solvers.softmax.walls import FixedWalls


def design_of(radius=0.08, **change):
    rng = np.random.default_rng(5)
    y = np.arange(120) % 4
    X = rng.normal(size=(4, 5))[y] + rng.normal(size=(120, 5))
    problem = Problem("softmax", n_classes=4, radius=radius, norm="l1", **change)
    return problem, X, y, ClassDesign.of(problem, problem.validate(X, y.astype(float)))


def test_a_run_ends_within_its_bound_and_its_flow_costs_one():
    design = design_of()[-1]
    risk = SmoothRisk(ClassProducts(design))
    steps, seen = FixedWalls(risk, 1.0), []

    def is_enough(here):
        seen.append(here)
        return False

    steps.run(np.zeros(design.shape), 0.05, is_enough)
    here = seen[-1]
    assert all(after.value <= before.value for before, after in pairwise(seen))
    U = risk.unit(here.W)
    assert np.abs(U).max() <= 0.5 * steps.scale * (1.0 + 1e-12)
    assert risk.widest.exact(U) == pytest.approx(steps.scale, rel=1e-9)
    assert 0.5 * np.abs(here.found.gradient).sum() == pytest.approx(1.0)
    # At the optimum the flow is what the loss asks for: nothing is left beside it.
    rest = here.gradient[:, :5] * risk.price + here.budget * here.found.gradient
    assert np.abs(rest).max() <= 1e-4 * np.abs(here.gradient).max()


def test_a_run_ends_when_it_is_told_to():
    design = design_of()[-1]
    risk = SmoothRisk(ClassProducts(design))
    asked = []
    FixedWalls(risk, 1.0).run(np.zeros(design.shape), 0.05, lambda here: asked.append(here) or len(asked) == 3)
    assert len(asked) == 3


def test_a_start_far_too_large_shrinks_to_the_optimum():
    problem, X, y, design = design_of(radius=0.5)
    best = solve(problem, X, y, solver="conic").value
    far = np.random.default_rng(1).normal(size=design.shape) * 1e4
    run = ClassDescent(design, 1e-4, 2000, far)
    run.run()
    assert run.upper <= best * (1.0 + 1e-3)
    assert run.lower.value <= best * (1.0 + 1e-8)


def test_one_hot_columns_that_depend_on_each_other_take_few_evaluations():
    """Steps in the metric of all rows took 600 here: coefficients beyond their bounds cut them short."""
    rng = np.random.default_rng(3)
    groups = [rng.integers(k, size=3000) for k in (2, 5, 9, 16, 40)]
    X = np.hstack([np.eye(1 + group.max())[group] for group in groups])
    y = (X @ rng.normal(size=X.shape[1]) + rng.logistic(size=3000) > 0.0).astype(int)
    found = solve(Problem("softmax", n_classes=2, radius=0.02, norm="l1"), X, y, solver="descent", tol=1e-3)
    assert found.converged
    assert found.iterations <= 150


@pytest.mark.parametrize("scale", [1e-3, 1e3])
def test_units_of_the_columns_do_not_matter(scale):
    problem, X, y, _ = design_of()
    known = solve(problem, X, y, solver="conic").value
    units = scale ** np.linspace(-1.0, 1.0, 5)
    priced = problem.replace(feature_weights=1.0 / units)
    assert solve(priced, X * units, y, solver="descent", tol=1e-5).value == pytest.approx(known, rel=1e-4)
