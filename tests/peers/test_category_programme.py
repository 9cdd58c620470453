"""The published programme of the benchmark is right: its worst assignments by brute force, its value by `solve`."""

import numpy as np
import pytest

pytest.importorskip("cvxpy")

from category_programme import cutting_planes, worst_assignments

from dualcore import solve
from reference.category_cases import draw_case, draw_rows
from reference.referee import dual_loss


def draw(seed, label_cost):
    rng = np.random.default_rng(seed)
    settings = {"norm": "l1", "feature_weights": None, "label_cost": label_cost}
    case = draw_case(rng, "logistic", limits=False, immovable=0.0, **settings)
    return case, *draw_rows(rng, case, 30)


@pytest.mark.parametrize("seed", range(4))
def test_the_worst_assignments_are_those_of_brute_force(seed):
    case, X, y = draw(seed, np.inf)
    groups = case.problem.geometry.categories.groups
    rng = np.random.default_rng(100 + seed)
    coef, shift = rng.normal(size=case.n_features), float(rng.normal())
    lam = max(case.problem.kappa(coef), float(rng.uniform(0.05, 1.0)))
    h, moved, paid = worst_assignments(coef, shift, lam, X, y, groups, case.costs)
    assert h == pytest.approx(dual_loss(case.problem, coef, shift, lam, X, y), abs=1e-12)
    assert h == pytest.approx(np.logaddexp(0.0, -y * (moved @ coef + shift)) - lam * paid, abs=1e-12)


@pytest.mark.parametrize(("seed", "label_cost"), [(0, np.inf), (1, 1.0)])
def test_the_programme_finds_the_value_of_solve(seed, label_cost):
    case, X, y = draw(seed, label_cost)
    problem = case.problem
    groups = problem.geometry.categories.groups
    settings = {"radius": problem.radius, "label_cost": label_cost, "tol": 1e-6, "seconds": 600.0}
    with np.errstate(all="ignore"):
        found = cutting_planes(X, y, groups, case.costs, **settings)
    assert found.finished
    assert found.value == pytest.approx(solve(problem, X, y, tol=1e-7).value, abs=2e-6)
    late = cutting_planes(X, y, groups, case.costs, **settings | {"seconds": 0.0})
    assert not late.finished
    assert late.rounds == 0


def test_numbers_that_move_in_linf_beside_categories_close_the_gap():
    """The least multiplier is a sum of sizes there, which planes without split coefficients only relaxed."""
    rng = np.random.default_rng(103)
    settings = {"ridge": float(rng.choice([0.0, 0.0, 0.02])), "fit_intercept": bool(rng.random() < 0.8)}
    case = draw_case(rng, "epsilon_insensitive", immovable=0.15 if settings["ridge"] else 0.0, **settings)
    assert case.problem.geometry.norm.name == "linf"
    X, y = draw_rows(rng, case, int(rng.integers(8, 61)))
    assert solve(case.problem, X, y, tol=1e-7).converged
