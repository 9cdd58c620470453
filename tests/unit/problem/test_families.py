"""Laws that every adversary keeps: on a box, with categories, on many classes; those of closed forms are in properties.

The referee shares no formula with the package.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, worst_case_distribution
from pairs import every_value
from reference.category_cases import draw_case, draw_rows
from reference.referee import dual_loss, referee_of
from reference.worst_cases import check_distribution

LOSSES = ("hinge", "logistic", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")
CURVED = ("logistic", "smooth_hinge", "huber")
NORMS = ("l1", "l2", "linf")


# A problem, a model (coefficients and intercept), rows and targets, weights.
Asked = tuple[Problem, tuple[np.ndarray, Any], tuple[np.ndarray, np.ndarray], np.ndarray]


def draw_box(rng: np.random.Generator, loss: str, norm: str, *, opened: bool = False) -> Asked:
    """Rows inside limits and at them, coefficients of zero among others."""
    n, m = 40, 4
    low, high = -rng.random(m), 0.2 + rng.random(m)
    X = np.clip(rng.uniform(1.4 * low, 1.4 * high, size=(n, m)), low, high)
    settings = {"radius": float(rng.choice([0.15, 3.0])), "label_cost": float(rng.choice([0.8, np.inf])), "ridge": 0.1}
    high[rng.random(m) < 0.5 * opened] = np.inf
    settings |= {"pinball": {"quantile": 0.3}, "huber": {"delta": 0.5}}.get(loss, {})
    prices = (
        np.where(rng.random(m) < 0.15, np.inf, 10.0 ** rng.uniform(-0.5, 0.5, size=m)) if rng.random() < 0.5 else None
    )
    problem = Problem(loss, norm=norm, support=(low, high), feature_weights=prices, **settings)
    coef = rng.normal(size=m) * rng.choice([0.3, 2.0])
    coef[rng.random(m) < 0.2] = 0.0
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0) if problem.is_classification else rng.normal(size=n)
    return problem, (coef, float(rng.normal())), (X, y), rng.uniform(0.1, 1.0, size=n)


def drawn(kind: str, loss: str, seed: int) -> Asked:
    rng = np.random.default_rng(seed)
    if kind == "categories":
        case = draw_case(rng, loss)
        coef = rng.normal(size=case.n_features) * (rng.random(case.n_features) > 0.1) * rng.choice([0.3, 1.0, 3.0])
        return case.problem, (coef, float(rng.normal())), draw_rows(rng, case, 20), rng.uniform(0.1, 1.0, size=20)
    if kind == "softmax":
        settings = {
            "radius": 0.3,
            "norm": NORMS[seed % 3],
            "ridge": 0.1,
            "label_cost": (0.05, 0.5, 2.0, np.inf)[seed % 4],
        }
        model, X = (rng.normal(size=(4, 3)), rng.normal(size=4)), rng.normal(size=(40, 3))
        return Problem("softmax", n_classes=4, **settings), model, (X, np.arange(40) % 4), rng.uniform(0.2, 2.0, 40)
    return draw_box(rng, loss, kind.removeprefix("open "), opened=kind.startswith("open"))


MOVING = (*NORMS, *(f"open {norm}" for norm in NORMS), "categories")


@every_value(loss=LOSSES, kind=MOVING)
def test_h_is_what_the_referee_finds_and_the_best_move_attains_it(loss, kind):
    for seed in range(8):
        problem, model, (X, y), _ = drawn(kind, loss, seed)
        kappa, size = problem.kappa(model[0]), problem.size(model[0])
        assert kappa == 0.0 or np.isinf(problem.h(*model, 0.99 * kappa, X, y)).all()
        for multiplier in {max(1.001 * kappa, share * size) for share in (0.1, 0.5, 1.1)}:
            lower, upper = problem.bounds(*model, multiplier, X, y)
            enclosure = (1e-8 if kind.endswith("l2") and loss in CURVED else 1e-12) * np.maximum(1.0, np.abs(upper))
            assert (lower <= upper).all()
            assert (upper - lower <= enclosure).all()
            assert (np.abs(upper - dual_loss(problem, *model, multiplier, X, y)) <= enclosure).all()
            if kind in NORMS:
                a, b = problem.bounds(*model, multiplier, X, y, rule="paper")
                assert (a <= lower + enclosure).all()
                assert (upper <= b + enclosure).all()
            found = problem.family.moves(X, y, *model, multiplier, points=True)
            problem.validate(found.X, y)  # inside all limits, every group one-hot
            fee = found.cost - found.travel
            assert (fee >= np.where(found.label == y, 0.0, problem.geometry.label_cost) - 1e-12).all()
            np.testing.assert_allclose(problem.family.lengths(found.X - X) + fee, found.cost, rtol=1e-9, atol=1e-9)
            score = found.X @ model[0] + model[1]
            after = problem.loss.value(found.label * score if problem.is_classification else score - y)
            np.testing.assert_allclose(after - multiplier * found.cost, lower, rtol=1e-8, atol=1e-8)


@every_value(loss=LOSSES, kind=(*MOVING, "softmax"))
def test_the_risk_is_the_referees_and_gradients_are_subgradients(loss, kind):
    for seed in range(6):
        problem, model, rows, weights = drawn(kind, loss, seed)
        data, rng = (*rows, weights), np.random.default_rng(seed)
        referee = referee_of(problem, *data)
        risk, best = problem.risk(*model, *data), problem.multiplier(*model, *data)
        assert risk == pytest.approx(float(referee.risk(referee.point(*model))), rel=1e-8)
        low, high = problem.multiplier_interval(*model, *rows)
        assert low <= best <= high
        assert problem.objective(*model, best, *data) == pytest.approx(risk, rel=1e-8)
        at = best * float(rng.uniform(1.0, 1.5)) + 0.1
        objective = problem.objective(*model, at, *data)
        of_risk, of_objective = (problem.gradient(*model, *data, multiplier=given) for given in (None, at))
        for size in (0.3, 0.01, 0.01, 0.01):
            step, rise = (size * rng.normal(size=np.shape(part)) for part in model)
            other = model[0] + step, model[1] + rise
            lam = max(problem.kappa(other[0]), at + size * float(rng.normal()))
            for gradient, here, there in (
                (of_risk, risk, problem.risk(*other, *data)),
                (of_objective, objective, problem.objective(*other, lam, *data)),
            ):
                slope = np.sum(gradient.coef * step) + np.sum(gradient.intercept * rise)
                assert there >= here + slope + gradient.multiplier * (lam - at) - 1e-8 * max(1.0, here)


@every_value(loss=LOSSES, kind=(*MOVING[:6], "softmax"))
def test_the_worst_case_attains_the_risk(loss, kind):
    for seed in range(4):
        problem, model, (X, y), weights = drawn(kind, loss, seed)
        problem = problem.replace(ridge=0.0)
        rows = sp.csr_matrix(X) if kind == "softmax" and seed % 2 else X
        worst = worst_case_distribution(problem, *model, rows, y, weights)
        closed = kind in NORMS and (problem.is_classification or np.isinf(problem.geometry.label_cost))
        check_distribution(problem, model, X, y, weights, worst, tol=1e-8 if closed else 1e-6)
        assert worst.attained or not closed


@pytest.mark.parametrize("kind", [*MOVING, "softmax"])
def test_the_constants_are_lipschitz_constants_of_h(kind):
    for seed in range(6):
        problem, model, data, _ = drawn(kind, "logistic", seed)
        constants, rng = problem.constants(data[0]), np.random.default_rng(seed)
        step, rise = (0.3 * rng.normal(size=np.shape(part)) for part in model)
        other = model[0] + step, model[1] + rise
        lam = 1.1 * max(problem.kappa(model[0]), problem.kappa(other[0])) + 0.1
        here = problem.h(*model, lam, *data)
        moved = np.abs(problem.h(*other, lam, *data) - here).max()
        assert moved <= constants.parameters * np.sqrt(np.sum(step**2) + np.sum(rise**2)) + 1e-8
        assert np.abs(problem.h(*model, lam + 0.1, *data) - here).max() <= 0.1 * constants.multiplier + 1e-8
