"""The baselines: the formulas of their papers, the same anchor for all, and no class lost without a word."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from dualcore import Anchor, GridCoreset, ImportanceCoreset, LayeredCoreset, Problem, UniformCoreset
from dualcore.coresets.samplers.baselines import _sensitivities
from dualcore.coresets.samplers.grid import build_grid
from dualcore.data.keys import row_keys, seed_from
from dualcore.data.sources import ArraySource
from pairs import every_value

LOGISTIC = Problem("logistic", radius=0.1, norm="l1", label_cost=2.0)
HUBER = Problem("huber", radius=0.1)


def sample(n: int = 400, m: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, labels, targets."""
    rng = np.random.default_rng(seed)
    X = rng.standard_t(4, size=(n, m)) * np.array([1.0, 3.0, 0.1, 1.0])[:m]
    score = X[:, 0] - 0.3 * X[:, 1] + 0.4
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0), score + 0.3 * rng.normal(size=n)


# Uniform


def test_uniform_takes_the_rows_of_smallest_keys_with_equal_weights():
    X, y, _ = sample()
    coreset = UniformCoreset(size=30, random_state=7).build(LOGISTIC, X, y)
    keys = row_keys(seed_from(7), np.arange(400))
    np.testing.assert_array_equal(coreset.indices, np.sort(np.argsort(keys)[:30]))
    np.testing.assert_allclose(coreset.weights, 1.0 / 30, rtol=1e-14)
    np.testing.assert_array_equal(coreset.X, X[coreset.indices])
    np.testing.assert_array_equal(coreset.y, y[coreset.indices])
    assert coreset.anchor is None
    assert coreset.n_rows == 400


# Importance


def leverages(columns: np.ndarray) -> np.ndarray:
    """Squared row norms of the left singular vectors of the directions that are there."""
    U, s, _ = np.linalg.svd(columns, full_matrices=False)
    return (U[:, s > 1e-10 * s.max()] ** 2).sum(axis=1)


@every_value(loss=["logistic", "hinge", "huber"], deficient=[False, True])
def test_importance_sensitivities_are_those_of_a_direct_decomposition(loss, deficient):
    problem = Problem(loss, radius=0.1)
    X, labels, targets = sample(300)
    if deficient:
        X = np.hstack([X, X[:, :1] - X[:, 1:2]])
    y = labels if problem.is_classification else targets
    found = _sensitivities(problem, ArraySource(X, y, chunk_rows=77))
    Z, expected = np.hstack([X, np.ones((300, 1))]), np.empty(300)
    if loss == "huber":
        expected = np.sqrt(leverages(np.hstack([Z, -y[:, None]])))
    for label in (-1.0, 1.0) if problem.is_classification else ():
        rows = y == label
        leverage = leverages(Z[rows])
        expected[rows] = 2.0 + rows.sum() * leverage if loss == "logistic" else leverage + 1.0 / 300
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_importance_weights_are_counts_over_chances_self_normalised():
    X, y, _ = sample()
    coreset = ImportanceCoreset(size=60, random_state=3).build(LOGISTIC, X, y)
    scores = _sensitivities(LOGISTIC, ArraySource(X, y))
    # weight_i ~ count_i / p_i: times p_i they are whole multiples of one number, and the counts add up to the draws.
    counts = coreset.weights * scores[coreset.indices]
    counts *= 60 / counts.sum()
    np.testing.assert_allclose(counts, np.round(counts), atol=1e-9)
    assert counts.min() == pytest.approx(1.0)


# Layered


@pytest.mark.parametrize("loss", ["logistic", "hinge", "huber"])
def test_layered_is_dual_where_labels_cannot_flip_and_only_there(loss):
    problem, (X, labels, targets) = Problem(loss, radius=0.1), sample()
    y = labels if problem.is_classification else targets
    layered, dual = (make(size=50, random_state=2).build(problem, X, y) for make in (LayeredCoreset, GridCoreset))
    np.testing.assert_array_equal(layered.indices, dual.indices)
    np.testing.assert_allclose(layered.weights, dual.weights, rtol=1e-13)
    anchor, flips = Anchor(np.array([3.0, -0.9, 0.0, 0.0]), 0.0, 3.0), LOGISTIC.replace(label_cost=0.5)
    layered, dual = (
        make(50, anchor=anchor, random_state=2).build(flips, X, labels) for make in (LayeredCoreset, GridCoreset)
    )
    h = flips.h(anchor.coef, anchor.intercept, anchor.multiplier, X, labels)
    assert dual.details["cells"] == build_grid(h, h).counts.size
    assert not np.array_equal(layered.indices, dual.indices)


# A class is never lost without a word


def rare(n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    """One row in a thousand is of class +1, away from the others."""
    X = np.random.default_rng(4).normal(size=(n, 2))
    y = np.full(n, -1.0)
    y[:: n // 3] = 1.0
    X[y > 0] += 3.0
    return X, y


@pytest.mark.parametrize(
    ("sampler", "n"),
    [(UniformCoreset(size=20, random_state=0), 3000), (ImportanceCoreset(size=5, random_state=0), 30_000)],
)
def test_a_class_that_was_missed_is_put_back_with_a_warning(sampler, n):
    X, y = rare(n)
    with pytest.warns(UserWarning, match=r"missed class \+1"):
        coreset = sampler.build(LOGISTIC, X, y)
    assert set(coreset.y) == {-1.0, 1.0}
    assert len(coreset) <= sampler.size
    assert "missed class +1" in coreset.details["message"]
    assert coreset.weights.sum() == pytest.approx(1.0, abs=1e-14)


@pytest.mark.parametrize("make", [LayeredCoreset, GridCoreset])
def test_a_rare_class_on_which_the_anchor_does_well_is_not_lost(make):
    """Layers look at the loss alone: rare rows of small loss share a layer with thousands of the other class."""
    sampler = make(size=20, anchor=Anchor(np.array([3.0, 3.0]), -9.0, 3.0), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the class was put back
        assert set(sampler.build(LOGISTIC, *rare()).y) == {-1.0, 1.0}
