"""`DualCoreset`: seeds, containers, weights, what is refused."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import DualCoreset, Problem, fit_coreset
from dualcore.coresets.refine import as_sampler

LOGISTIC = Problem("logistic", radius=0.1, label_cost=1.0)


def sample(n: int = 1200, m: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    score = 2.0 * X[:, 0] - X[:, 1] + 0.3
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0)


@pytest.mark.parametrize("size", [2, 3, 5, 10, 20])
def test_fewer_rows_than_the_model_needs_still_make_a_coreset(size):
    X, y = sample(m=30)
    coreset = DualCoreset(size=size, random_state=1).build(LOGISTIC, X, y)
    assert 1 < len(coreset) <= size
    assert set(coreset.y) == {-1.0, 1.0}
    assert (coreset.weights > 0.0).all()
    assert coreset.weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert "too few to reproduce the model" in coreset.details["message"]


# Seeds, containers, weights


def test_sparse_is_dense():
    X, y = sample()
    X = np.where(np.abs(X) > 0.4, X, 0.0)
    problem = Problem("logistic", radius=0.1)
    dense = DualCoreset(size=80, random_state=1).fit(problem, X, y)
    sparse = DualCoreset(size=80, random_state=1).fit(problem, sp.csr_matrix(X), y)
    np.testing.assert_allclose(sparse.solution.coef, dense.solution.coef, atol=1e-6)
    assert len(sparse.coreset) == len(dense.coreset)
    assert max(abs(sparse.coreset.excess), abs(dense.coreset.excess)) <= 1e-6
    rows = sparse.coreset.indices
    np.testing.assert_array_equal(sparse.coreset.X.toarray(), X[rows])


def test_equal_weights_are_no_weights():
    X, y = sample()
    plain = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y)
    equal = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y, np.full(len(y), 5.0))
    np.testing.assert_array_equal(plain.indices, equal.indices)
    np.testing.assert_allclose(plain.weights, equal.weights, rtol=1e-6)
    assert plain.weights[plain.y > 0.0].sum() == pytest.approx((y > 0.0).mean(), abs=1e-8)


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"rounds": 2.0}, "rounds must be a whole number"),
        ({"target_gap": 0.0}, "target_gap must be positive"),
        ({"target_gap": np.nan}, "target_gap must be positive"),
        ({"size": 0}, "at least one row"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_build_and_fit(options, message):
    X, y = sample(100)
    for call in ("build", "fit"):
        with pytest.raises(ValueError, match=message):
            getattr(DualCoreset(**({"random_state": 0} | options)), call)(LOGISTIC, X, y)


# The one call behind the estimators


def test_a_number_is_the_size_of_a_dual_coreset_with_the_seed_of_the_estimator():
    assert as_sampler(0.1, 7) == DualCoreset(size=0.1, rounds=4, target_gap=1e-3, random_state=7)
    assert as_sampler(DualCoreset(size=5), 7).random_state == 7
    assert as_sampler(DualCoreset(size=5, random_state=3), 7).random_state == 3
    for wrong in ["0.1", True, None]:
        with pytest.raises(TypeError, match=r"coreset must be a size .* or a sampler"):
            as_sampler(wrong)


def test_fit_coreset_is_the_fit_of_its_sampler():
    X, y = sample()
    one = fit_coreset(LOGISTIC, X, y, coreset=0.1, random_state=3)
    other = DualCoreset(size=0.1, rounds=4, target_gap=1e-3, random_state=3).fit(LOGISTIC, X, y)
    np.testing.assert_array_equal(one.solution.coef, other.solution.coef)
    # So few rows are certified once more with all of them at hand.
    assert one.certificate.upper == other.certificate.upper
    assert one.certificate.lower >= other.certificate.lower
