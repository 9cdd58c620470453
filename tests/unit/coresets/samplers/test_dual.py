"""`DualCoreset`: seeds, containers, weights, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import DualCoreset, GridCoreset, Problem, fit_coreset
from dualcore.coresets.fit import as_sampler

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


def test_equal_weights_are_no_weights():
    X, y = sample()
    plain = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y)
    equal = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y, np.full(len(y), 5.0))
    np.testing.assert_array_equal(plain.indices, equal.indices)
    np.testing.assert_allclose(plain.weights, equal.weights, rtol=1e-6)
    assert plain.weights[plain.y > 0.0].sum() == pytest.approx((y > 0.0).mean(), abs=1e-8)


# Refusals


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (DualCoreset, {"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        (DualCoreset, {"rounds": True}, "rounds must be a whole number"),
        (DualCoreset, {"rounds": 2.0}, "rounds must be a whole number"),
        (DualCoreset, {"target_gap": 0.0}, "target_gap must be positive"),
        (DualCoreset, {"target_gap": np.nan}, "target_gap must be positive"),
        (DualCoreset, {"size": 0}, "at least one row"),
        (GridCoreset, {"epsilon": 0.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        (GridCoreset, {"epsilon": 1.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        (GridCoreset, {"epsilon": 0.1}, "needs a positive parameter_radius"),
        (GridCoreset, {"epsilon": 0.1, "parameter_radius": -1.0}, "needs a positive parameter_radius"),
        (GridCoreset, {"bounds": "loose"}, "bounds must be 'exact' or 'paper'"),
        (GridCoreset, {"size": None}, "size is None"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_build_and_fit(make, options, message):
    X, y = sample(100)
    for call in ("build", "fit"):
        with pytest.raises(ValueError, match=message):
            getattr(make(**({"random_state": 0} | options)), call)(LOGISTIC, X, y)


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
    other = DualCoreset(size=0.1, random_state=3).fit(LOGISTIC, X, y)
    np.testing.assert_array_equal(one.solution.coef, other.solution.coef)
    assert one.certificate == other.certificate
