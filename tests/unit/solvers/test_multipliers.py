"""The method of multipliers: losses of straight pieces with a Euclidean norm, on rows with many features."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, solve
from dualcore.coresets.radii import largest_radius
from pairs import every_value


def sparse_text(n: int = 600, m: int = 900, per_row: int = 30, seed: int = 3) -> tuple[sp.csr_matrix, np.ndarray]:
    """Return unit rows with columns by a power law: separable, most rows of a good model on the margin."""
    rng = np.random.default_rng(seed)
    likely = 1.0 / np.arange(1, m + 1) ** 0.8
    columns = rng.choice(m, (n, per_row), p=likely / likely.sum())
    values = rng.exponential(size=(n, per_row)) * np.log(2 + columns)
    X = sp.csr_matrix((values.ravel(), columns.ravel(), np.arange(0, n * per_row + 1, per_row)), shape=(n, m))
    X.sum_duplicates()
    X = sp.csr_matrix(sp.diags(1.0 / np.sqrt(np.asarray(X.multiply(X).sum(axis=1)).ravel())) @ X)
    score = X @ (rng.normal(size=m) * (rng.random(m) < 0.1)) * 12.0
    return X, np.where(score + rng.logistic(size=n) > 0, 1.0, -1.0)


@pytest.mark.parametrize("radius", [0.01, 0.001])
def test_separable_text_takes_few_passes(radius):
    X, y = sparse_text()
    found = solve(Problem("hinge", radius=radius), X, y, solver="descent", tol=1e-6)
    exact = solve(Problem("hinge", radius=radius), X, y, solver="structured", tol=1e-8)
    assert found.converged
    assert found.iterations <= 20  # of fifty passes each; smoothing alone takes more than thirty
    assert found.lower_bound <= exact.value * (1.0 + 1e-9)
    assert found.value <= exact.value * (1.0 + 1e-6)


@every_value(
    pytest.mark.parametrize(
        ("loss", "settings"),
        [
            ("hinge", {}),
            ("hinge", {"fit_intercept": False}),
            ("hinge", {"ridge": 0.01}),
            ("hinge", {"feature_weights": np.linspace(0.5, 2.0, 200)}),
            ("pinball", {"quantile": 0.3}),
            ("absolute", {}),
            ("epsilon_insensitive", {"epsilon": 0.5}),
        ],
    ),
    dtype=[np.float32, np.float64],
)
def test_multipliers_agree_with_the_interior_point(loss, settings, dtype):
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(900, 200)) * np.linspace(0.5, 2.0, 200) + 3.0).astype(dtype)
    score = (X - 3.0) @ rng.normal(size=200) / 10.0
    y = np.where(score + rng.logistic(size=900) > 0, 1.0, -1.0) if loss == "hinge" else score + rng.normal(size=900)
    weights = rng.exponential(size=900)
    problem = Problem(loss, radius=0.05, **settings)
    found = solve(problem, X, y, weights, solver="descent", tol=1e-5)
    exact = solve(problem, X, y, weights, solver="structured", tol=1e-8)
    assert found.converged
    assert found.lower_bound <= exact.value * (1.0 + 1e-8)
    assert abs(found.value / exact.value - 1.0) <= 1e-5


@pytest.mark.parametrize(("n", "m", "seed", "share"), [(500, 5, 1, 0.8), (2000, 20, 1, 1.0), (2000, 20, 0, 0.95)])
def test_where_no_row_is_on_a_ramp_a_step_stays_finite(n, m, seed, share):
    """Near the largest useful radius coefficients are small, and so no row may curve in the intercept."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = np.where(X @ rng.normal(size=m) * 0.5 + rng.logistic(size=n) > 0, 1.0, -1.0)
    problem = Problem("hinge", radius=share * largest_radius(Problem("hinge"), X, y))
    found = solve(problem, X, y, solver="descent")  # overflow is an error here
    assert found.converged
    assert found.value == pytest.approx(solve(problem, X, y, solver="structured").value, rel=2e-6)
