"""Planes below the worst-case risk: rigorous wherever the method stops, tight where it ends."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from dualcore.solvers.moving.levelbundle import LevelBundle
from pairs import every_pair

N_ROWS, N_FEATURES = 40, 3
SUPPORTS = {
    "closed": (0.0, 1.0),
    "one side": ([0.0, -np.inf, 0.0], [np.inf, 1.0, 1.0]),
    "mixed": ([-np.inf, 0.0, -np.inf], [np.inf, np.inf, 1.0]),
}


def draw(loss: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((N_ROWS, N_FEATURES))
    y = X @ rng.normal(size=N_FEATURES) * 2.0 + rng.normal(size=N_ROWS)
    return X, np.where(y > np.median(y), 1.0, -1.0) if loss in ("hinge", "logistic") else y


@every_pair(
    loss=["hinge", "logistic", "absolute", "huber", "pinball"],
    norm=["l1", "l2", "linf"],
    label_cost=[1.0, np.inf],
    support=["closed", "one side", "mixed"],
    radius=[0.02, 1.0],
    ridge=[0.0, 0.1],
    prices=[None, [1.0, 0.3, 2.0]],
)
def test_the_bound_is_below_every_model_and_meets_the_best(loss, norm, label_cost, support, radius, ridge, prices):
    # A radius of 1 takes rows across the box. Some features of a row then rise while others fall, and a plane has to
    # pay for both: it once paid for the dearer side alone, and was false.
    settings = {"quantile": 0.2} if loss == "pinball" else {}
    problem = Problem(
        loss,
        radius=radius,
        norm=norm,
        label_cost=label_cost,
        ridge=ridge,
        support=SUPPORTS[support],
        feature_weights=prices,
        **settings,
    )
    X, y = draw(loss, 0)
    data, rng = problem.validate(X, y), np.random.default_rng(0)
    stopped = [LevelBundle(problem, data, np.full(N_FEATURES, at), 0.0).run(0.0, k) for at, k in ((1.0, 1), (-1.0, 4))]
    found = LevelBundle(problem, data, np.zeros(N_FEATURES), 0.0).run(1e-6, 200)
    assert found.is_within(1e-6)
    assert found.upper == pytest.approx(problem.risk(found.coef, found.intercept, X, y), rel=1e-5)
    least = min(found.upper, *(each.upper for each in stopped))
    for _ in range(10):
        coef = found.coef + rng.normal(size=N_FEATURES) * rng.choice([0.01, 0.3, 3.0])
        least = min(least, problem.risk(coef, found.intercept + float(rng.normal()) * 0.1, X, y))
    assert max(found.lower, *(each.lower for each in stopped)) <= least * (1.0 + 1e-9)


def test_it_stops_where_the_bound_is_enough_and_tells_of_every_pass():
    X, y = draw("logistic", 1)
    problem, seen = Problem("logistic", norm="l2", radius=0.02, support=(0.0, 1.0)), []
    data = problem.validate(X, y)
    bundle = LevelBundle(problem, data, np.zeros(N_FEATURES), 0.0, report=lambda *bounds: seen.append(bounds))
    best = bundle.run(1e-6, 100)
    assert len(seen) > len(best.history) > 2
    again = LevelBundle(problem, data, best.coef, best.intercept).run(0.0, 100, enough=best.lower * (1.0 - 1e-3))
    assert len(again.history) < len(best.history)


@pytest.mark.parametrize("offset", [0.0, 1e6])
@pytest.mark.parametrize("loss", ["hinge", "huber"])
def test_rounding_is_priced_where_the_optimum_can_be(loss, offset):
    # A radius of 1e-8 alone leaves coefficients room for 1e8: planes say more of where the optimum is.
    X, y = draw(loss, 2)
    problem = Problem(loss, norm="l2", radius=1e-8, support=(offset, offset + 1.0))
    found = solve(problem, X + offset, y, tol=1e-5)
    assert found.converged
    assert certify(problem, found, X + offset, y).relative_gap <= 1e-5


def test_rows_that_share_a_plane(monkeypatch):
    monkeypatch.setattr("dualcore.solvers.moving.levelbundle._MOST_GROUPS", 8)
    X, y = draw("hinge", 3)
    problem = Problem("hinge", norm="linf", radius=0.05, support=(0.0, 1.0))
    bundle = LevelBundle(problem, problem.validate(X, y), np.zeros(N_FEATURES), 0.0)
    assert bundle.n_groups == 8
    found = bundle.run(1e-3, 300)
    assert found.is_within(1e-3)
    assert found.lower <= solve(problem, X, y).value * (1.0 + 1e-9)
