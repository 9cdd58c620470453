"""Newton's method with priced moves: the moves, derivatives, bounds that hold wherever it stops, mixtures, images."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, solve
from dualcore.certificates import priced
from dualcore.certificates.plane import PlaneBound, mix_planes
from dualcore.certificates.priced import can_use_prices, run_prices
from dualcore.certificates.pricedmoves import LinfMoves
from dualcore.problem.families import BoxFamily
from dualcore.solvers.structured import StructuredSolver


def draw(rng, loss, n=60, m=5, **settings):
    """Return a problem with walls of several widths, some rows at them, and the rows."""
    low, high = -rng.random(m), rng.random(m) + 0.2
    settings = {
        "radius": float(rng.uniform(0.01, 0.4)),
        "norm": "linf",
        "label_cost": float(rng.choice([0.5, 2.0, np.inf])),
        "ridge": float(rng.choice([0.0, 0.02])),
        "fit_intercept": bool(rng.random() < 0.8),
        "feature_weights": rng.uniform(0.5, 2.0, m) if rng.random() < 0.3 else None,
    } | settings
    problem = Problem(loss, support=(low, high), **settings)
    X = np.clip(rng.uniform(1.3 * low, 1.3 * high, size=(n, m)), low, high)
    score = 3.0 * X @ rng.normal(size=m) + 0.5 * rng.normal(size=n)
    y = np.where(score > np.median(score), 1.0, -1.0) if problem.is_classification else score
    return problem, X, y


def pixels(n=300, m=400, seed=0):
    """Return rows like images: most pixels at a wall, two classes that differ in a few."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X = np.clip(rng.normal(size=(n, m)) + 0.3 * np.outer(y, rng.normal(size=m)) - 0.4, 0.0, 1.0)
    return X, y


@pytest.mark.parametrize("seed", range(5))
def test_moves_are_the_best_ones(seed):
    rng = np.random.default_rng(seed)
    caps = rng.random((6, 4)) * (rng.random((6, 4)) < 0.8)
    sizes, slope, lam, nu = rng.random(4) + 0.1, rng.random(6), 0.3, float(rng.choice([0.02, 0.5]))
    moves = LinfMoves(sizes, caps, lam, nu)
    found = moves.respond(slope)

    def worth(v, a):
        return a * sizes @ v - lam * v.max() - 0.5 * nu * v @ v

    for k, cap in enumerate(caps):
        best = 0.0
        for level in np.linspace(0.0, 1.0, 2001):
            best = max(best, worth(np.minimum(np.minimum(cap, slope[k] * sizes / nu), level), slope[k]))
        one = minimize(  # the level as a variable of its own: a concave programme
            lambda z, a=slope[k]: -(a * sizes @ z[:4] - lam * z[4] - 0.5 * nu * z[:4] @ z[:4]),
            np.zeros(5),
            bounds=[(0.0, c) for c in cap] + [(0.0, 1.0)],
            constraints=[{"type": "ineq", "fun": lambda z: z[4] - z[:4]}],
            method="SLSQP",
        )
        value = worth(found.move[k], slope[k])
        assert value >= best - 1e-12
        assert value >= -one.fun - 1e-7
    np.testing.assert_allclose(found.cost, found.move.max(axis=1))
    np.testing.assert_allclose(found.gain, found.move @ sizes)
    assert (found.move <= caps).all()


def test_a_level_is_the_same_wherever_the_search_begins():
    rng = np.random.default_rng(1)
    caps, sizes, slope = rng.random((50, 20)), rng.random(20), rng.random(50)
    moves = LinfMoves(sizes, caps, 1.5, 0.1)
    known = moves.respond(slope)
    for begin in (known.level, 1.02 * known.level, 3.0 * known.level, np.full(50, 1e-9)):
        np.testing.assert_allclose(moves.respond(slope, begin).move, known.move, rtol=1e-12, atol=1e-14)
    some = np.array([3, 7, 40])
    np.testing.assert_allclose(moves.respond(slope[some], None, some).move, known.move[some])


@pytest.mark.parametrize("loss", ["hinge", "logistic", "smooth_hinge", "absolute", "pinball"])
@pytest.mark.parametrize("label_cost", [np.inf, 1.0])
def test_the_gradient_is_that_of_the_smoothed_objective(loss, label_cost):
    rng = np.random.default_rng(5)
    problem, X, y = draw(rng, loss, label_cost=label_cost, ridge=0.01, fit_intercept=True)
    smoothed = priced._Smoothed(problem, BoxFamily.of(problem.family), problem.validate(X, y))
    coef = rng.normal(size=5)
    x = np.append(coef, [0.2, max(0.6 * np.abs(coef).sum(), 1.1 * smoothed.family.floor())])
    smoothed.set_widths(0.05, 0.3)
    smoothed.place_tangents()
    here = smoothed.at(x, with_hessian=True)
    np.testing.assert_allclose(smoothed.at(x, with_hessian=False).gradient, here.gradient, rtol=1e-9, atol=1e-12)
    assert np.linalg.eigvalsh(here.hessian).min() > -1e-4 * np.abs(here.hessian).max()
    for _ in range(4):
        along = rng.normal(size=x.size)
        step = 1e-6
        rise = smoothed.at(x + step * along, with_hessian=False).value
        rise -= smoothed.at(x - step * along, with_hessian=False).value
        assert rise / (2.0 * step) == pytest.approx(float(here.gradient @ along), rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("loss", ["hinge", "logistic", "smooth_hinge", "absolute", "pinball"])
@pytest.mark.parametrize("seed", range(4))
def test_bounds_hold_wherever_it_stops(loss, seed, monkeypatch):
    rng = np.random.default_rng(seed)
    problem, X, y = draw(rng, loss)
    data = problem.validate(X, y)
    assert not can_use_prices(problem, data)  # with so few numbers the other side are planes
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        known = solve(problem, X, y, tol=1e-7)
    for stages in (1, 4, 8):
        monkeypatch.setattr(priced, "_MOST_STAGES", stages)
        found = run_prices(problem, data, known.coef + 0.1 * rng.normal(size=5), known.intercept, 1e-4)
        assert found.lower <= known.value * (1.0 + 1e-9)
        assert found.upper >= known.lower_bound * (1.0 - 1e-9)
        value = problem.evaluate(found.coef, found.intercept, data).value
        assert value <= found.upper * (1.0 + 1e-9)


def test_a_mixture_of_planes_bounds_no_less_than_each():
    rng = np.random.default_rng(2)
    problem, X, y = draw(rng, "hinge", ridge=0.0, fit_intercept=True, label_cost=np.inf)
    data = problem.validate(X, y)
    family = BoxFamily.of(problem.family)
    smoothed, below = priced._Smoothed(problem, family, data), PlaneBound(problem, family, data)
    free = StructuredSolver().run(problem.unwalled(), data, tol=1e-6, max_iter=200, start=None)
    smoothed.set_widths(0.02, 0.02)
    planes = []
    for _ in range(8):
        x = np.append(free.coef * rng.uniform(0.5, 1.5, 5), [free.intercept, np.abs(free.coef).sum() * rng.random()])
        planes.append(smoothed.at(x, with_hessian=False).plane)
    upper = problem.evaluate(free.coef, free.intercept, data).value
    each = [below.least(plane, free.coef, upper)[0] for plane in planes]
    mixed = below.least(below.best_mixture(planes, upper), free.coef, upper)[0]
    assert mixed >= max(each) - 1e-9 * abs(max(each))
    assert mixed <= solve(problem, X, y).value * (1.0 + 1e-9)
    half = mix_planes(planes[:2], np.array([0.5, 0.5]))
    np.testing.assert_allclose(half.moment, 0.5 * (planes[0].moment + planes[1].moment))
    assert half.n_atoms == planes[0].n_atoms + planes[1].n_atoms


def test_images_close_the_gap():
    X, y = pixels()
    problem = Problem("hinge", radius=0.02, norm="linf", support=(0.0, 1.0))
    assert can_use_prices(problem, problem.validate(X, y))
    found = solve(problem, X, y, tol=1e-3)
    assert found.relative_gap <= 1e-3
    plain = Problem("hinge", radius=0.02, norm="linf")
    assert found.value <= solve(plain, X, y).value * (1.0 + 1e-3)


@pytest.mark.parametrize(
    "settings",
    [{"norm": "l2"}, {"norm": "l1"}, {"support": (0.0, np.inf)}, {"loss": "huber"}],
    ids=["l2", "l1", "one wall", "curved residuals"],
)
def test_problems_that_others_solve(settings):
    X, y = pixels(260, 400)
    loss = settings.pop("loss", "hinge")
    problem = Problem(loss, **{"radius": 0.02, "norm": "linf", "support": (0.0, 1.0)} | settings)
    assert not can_use_prices(problem, problem.validate(X, y))


def separated(n=60, m=4, seed=0):
    """Return rows that a feature which cannot move separates: what is left of the risk is the ridge."""
    rng = np.random.default_rng(seed)
    X, y = rng.random((n, m)), np.where(rng.random(n) < 0.5, 1.0, -1.0)
    X[:, 0] = 0.5 + 0.5 * y
    return X, y, np.append(np.inf, np.ones(m - 1))


@pytest.mark.parametrize("ridge", [1e-14, 1e-9, 1e-3])
def test_a_risk_of_nothing_but_the_ridge_leaves_a_multiplier(ridge):
    X, y, prices = separated()
    problem = Problem("smooth_hinge", norm="linf", radius=0.1, support=(0.0, 1.0), feature_weights=prices, ridge=ridge)
    data = problem.validate(X, y)
    found = run_prices(problem, data, np.array([4.0, 0.0, 0.0, 0.0]), -2.0, 1e-3)
    assert found.multiplier > 0.0
    assert found.lower <= 2.0 * ridge * (1.0 + 1e-9) <= found.upper * (1.0 + 1e-2)


def test_no_more_tangents_than_there_may_be(monkeypatch):
    monkeypatch.setattr(priced, "_MOST_TANGENTS", 20)
    X, y = pixels(60, 20)
    problem = Problem("logistic", norm="linf", radius=0.01, support=(0.0, 1.0))
    seen = []
    place = priced._Smoothed.place_tangents
    monkeypatch.setattr(
        priced._Smoothed, "place_tangents", lambda self: (place(self), seen.append(self.angles.size))[0]
    )
    found = run_prices(problem, problem.validate(X, y), np.zeros(20), 0.0, 1e-7)
    assert max(seen) <= 22
    assert 0.0 < found.lower <= found.upper
