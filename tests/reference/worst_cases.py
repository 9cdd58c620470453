"""All that a worst-case distribution promises, measured without asking it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import WorstCase
from reference.referee import ORDERS, plain_loss


def transport_costs(problem: Any, X: np.ndarray, y: np.ndarray, points: np.ndarray, worst: WorstCase) -> np.ndarray:
    """Return what carrying each atom from its source costs, by definition; what cannot move has not moved."""
    geometry = problem.geometry
    prices = np.ones(X.shape[1]) if geometry.norm.weights is None else geometry.norm.weights
    moves, able = points - X[worst.source], np.isfinite(prices)
    assert (moves[:, ~able] == 0.0).all()
    travel = np.linalg.norm(moves[:, able] * prices[able], ord=ORDERS[geometry.norm.name], axis=1)
    step = np.abs(worst.y - y[worst.source])
    if np.isinf(geometry.label_cost):
        assert (step == 0.0).all()
        return travel
    return travel + geometry.label_cost * ((step > 0.0) if problem.family.n_outputs > 1 else 0.5 * step)


def check_distribution(
    problem: Any, model: Any, X: np.ndarray, y: np.ndarray, weights: Any, worst: WorstCase, tol: float = 1e-6
) -> None:
    """Assert that the distribution is one, lies in the ball, and is as bad as the risk, to ``tol`` and its own gap."""
    points = worst.X.toarray() if sp.issparse(worst.X) else worst.X
    atoms, masses = len(worst.weights), np.full(len(y), 1.0 / len(y)) if weights is None else weights / weights.sum()
    assert points.shape == (atoms, X.shape[1])
    assert worst.y.shape == worst.source.shape == (atoms,)
    assert atoms <= 2 * len(y) + 1
    assert (worst.weights > 0.0).all()
    assert worst.weights.sum() == pytest.approx(1.0, rel=1e-12)
    # The plan carries each row's mass, no more and no less.
    np.testing.assert_allclose(np.bincount(worst.source, worst.weights, len(y)), masses, rtol=1e-9, atol=1e-14)
    if problem.is_classification:
        assert set(np.unique(worst.y)) <= set(np.unique(y))
    if problem.geometry.support is not None:
        low, high = problem.geometry.support.spread(X.shape[1])
        assert (low <= points).all()
        assert (points <= high).all()

    cost = float(worst.weights @ transport_costs(problem, X, y, points, worst))
    assert cost <= problem.radius * (1.0 + 1e-9)
    assert worst.transport_cost == pytest.approx(cost, rel=1e-6, abs=1e-12)
    expected = float(worst.weights @ plain_loss(problem, points @ model[0].T + model[1], worst.y))
    assert worst.expected_loss == pytest.approx(expected, rel=1e-9, abs=1e-15)

    risk = problem.risk(*model, X, y, weights)
    rounding, allowed = 1e-9 * max(1.0, risk), tol * max(1.0, risk)
    assert -rounding <= risk - expected <= min(allowed, worst.gap) + rounding
    assert 0.0 <= worst.gap <= allowed * (1.0 + 1e-9)
