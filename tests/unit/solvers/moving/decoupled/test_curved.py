"""Curved losses on a box with l1: derivatives of the smoothed worst case, bounds that hold, and the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from dualcore import Problem, solve
from dualcore.solvers.moving import smoothed as smoothed_parts
from dualcore.solvers.moving.decoupled import can_use_curves, curved, run_curves
from pairs import every_value

LOSSES = ["logistic", "huber", "smooth_hinge"]


def draw(seed, n=60, m=4):
    """Return a problem on a box with l1, its rows and targets."""
    rng = np.random.default_rng(seed)
    low = -rng.uniform(0.0, 2.0, m)
    high = low + rng.uniform(0.2, 3.0, m)
    X = low + (high - low) * rng.choice([rng.random((n, m)), rng.random((n, m)).round()])
    y = X @ rng.normal(size=m) + rng.normal(size=n)
    loss = LOSSES[seed % 3]
    if loss != "huber":
        y = np.where(np.argsort(np.argsort(y)) < n // 2, -1.0, 1.0)
    problem = Problem(
        loss,
        radius=float(rng.choice([0.01, 0.1, 0.3])),
        norm="l1",
        label_cost=float(rng.choice([np.inf, 1.0])),
        ridge=float(rng.choice([0.0, 0.02])),
        fit_intercept=bool(rng.random() < 0.8),
        support=(low, high),
        feature_weights=rng.uniform(0.3, 3.0, m) if rng.random() < 0.3 else None,
    )
    return problem, X, y


@pytest.mark.parametrize("seed", range(6))
def test_derivatives(seed, monkeypatch):
    monkeypatch.setattr(curved, "_HEAVY", 0.0)
    monkeypatch.setattr(curved, "_NEGLIGIBLE", 40.0)
    problem, X, y = draw(seed)
    rng = np.random.default_rng(seed)
    smoothed = curved._CurvedObjective(problem, problem.family, problem.validate(X, y))
    x = np.append(rng.normal(size=X.shape[1]), [0.2, problem.family.floor() + 0.3])
    mu, step = 0.05, 1e-5
    along = rng.normal(size=x.size)
    along[-2] *= problem.fit_intercept
    smoothed.set_width(mu)
    sums, above, below = (smoothed.sums(each) for each in (x, x + step * along, x - step * along))
    assert (above.value - below.value) / (2.0 * step) == pytest.approx(sums.gradient @ along, rel=1e-5)
    change = (above.gradient - below.gradient) / (2.0 * step)
    change[-2] = (sums.hessian @ along)[-2] if not problem.fit_intercept else change[-2]
    size = np.abs(sums.hessian @ along).max()
    # The curvature of two of the losses jumps.
    assert np.abs(change - sums.hessian @ along).max() <= (1e-4 if problem.loss.name == "logistic" else 0.05) * size
    # Smoothing and chords only add.
    barrier = smoothed_parts._BARRIER * mu * np.log(x[-1] - problem.family.floor())
    assert sums.value + barrier >= smoothed.risk(x) - 1e-12


def test_bounds_hold_wherever_it_stops(monkeypatch):
    close = 0
    for seed in range(9):
        problem, X, y = draw(seed)
        best = solve(problem, X, y, tol=1e-7)
        data = problem.validate(X, y)
        for stages in (1, 2, 14):
            monkeypatch.setattr(curved, "_MOST_STAGES", stages)
            monkeypatch.setattr(smoothed_parts, "_MOST_STEPS", 30 if stages > 1 else 2)
            found = run_curves(problem, data, np.zeros(X.shape[1]), 0.0, 1e-4)
            assert found.lower <= best.value * (1.0 + 1e-9), (seed, stages)
            assert found.upper >= best.lower_bound * (1.0 - 1e-9), (seed, stages)
            assert problem.risk(found.coef, found.intercept, X, y) <= found.upper * (1.0 + 1e-12)
        close += found.is_within(1e-4)
    assert close >= 7  # the others stop a few tolerances away, and planes take over


@pytest.mark.parametrize("loss", LOSSES)
def test_solve_takes_it(loss):
    rng = np.random.default_rng(len(loss))
    X = rng.random((400, 20)).round(1)
    score = (X - 0.5) @ rng.normal(size=20)
    y = score + 0.3 * rng.normal(size=400) if loss == "huber" else np.where(score > 0.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.2, norm="l1", support=(0.0, 1.0))
    data = problem.validate(X, y)
    assert can_use_curves(problem, data)
    assert not can_use_curves(problem.replace(norm="l2"), data)
    assert not can_use_curves(problem.replace(loss="hinge"), data)
    assert not can_use_curves(problem.replace(support=(0.0, np.inf)), data)
    found = solve(problem, X, y, tol=1e-4)
    assert (found.converged, found.solver) == (True, "box")
    for size in (1e-3, 1e-2, 1e-1):
        for _ in range(5):
            step = size * rng.normal(size=20)
            assert problem.risk(found.coef + step, found.intercept, X, y) >= found.lower_bound


@every_value(pytest.mark.parametrize(("pair", "radius"), [((3, 8), 1.0), ((4, 9), 0.1), ((2, 7), 0.03)]), loss=LOSSES)
def test_closes_the_gap_from_far(pair, radius, loss):
    # The optimum without walls is far away, or chords decide the gap.
    X, label = load_digits(return_X_y=True)
    rows = np.isin(label, pair)
    X, y = X[rows] / 16.0, np.where(label[rows] == pair[0], 1.0, -1.0)
    problem = Problem(loss, radius=radius, norm="l1", support=(0.0, 1.0))
    free = solve(problem.replace(support=None), X, y)
    found = run_curves(problem, problem.validate(X, y), free.coef, free.intercept, 1e-4)
    assert found.is_within(1e-4)
    assert problem.risk(found.coef, found.intercept, X, y) <= found.upper * (1.0 + 1e-12)


def test_close_to_the_optimum_of_planes():
    for seed in range(6):
        problem, X, y = draw(seed, n=150)
        best = solve(problem, X, y, tol=1e-8)
        found = run_curves(problem, problem.validate(X, y), np.zeros(X.shape[1]), 0.0, 1e-6)
        assert found.lower <= best.value * (1.0 + 1e-12)
        assert found.upper >= best.lower_bound * (1.0 - 1e-12)
        assert found.is_within(1e-5), seed
