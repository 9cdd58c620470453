"""Every model at least as good as the one known lies in the region."""

import numpy as np

from dualcore import Problem
from dualcore.certificates.region import find_region, side_means
from pairs import every_pair

LIMITS = {
    "closed": (np.array([-2.0, -2.0, -2.0]), np.array([2.0, 2.0, 2.0])),
    "open": (np.array([-np.inf, -2.0, -2.0]), np.array([2.0, np.inf, 2.0])),
    "flat": (np.array([-2.0, 0.3, -2.0]), np.array([2.0, 0.3, 2.0])),
}


@every_pair(
    loss=["hinge", "logistic", "huber", "absolute"], norm=["l1", "l2", "linf"], limits=list(LIMITS), ridge=[0.0, 0.05]
)
def test_no_model_outside_the_region_is_as_good(loss: str, norm: str, limits: str, ridge: float) -> None:
    rng = np.random.default_rng(3)
    low, high = LIMITS[limits]
    X = np.clip(rng.normal(size=(12, 3)), low, high)
    y = X @ [1.0, 0.5, -1.0] + 0.3 * rng.normal(size=12)
    problem = Problem(loss, radius=0.2, norm=norm, support=LIMITS[limits], ridge=ridge)
    y = np.where(y > 0.0, 1.0, -1.0) if problem.is_classification else y
    data = problem.validate(X, y)
    middle, sides = 0.0 if problem.is_classification else float(y.mean()), side_means(problem, data)
    upper = problem.evaluate(np.zeros(3), middle, data).value
    region = find_region(problem, problem.family, data, sides, middle, X.std(axis=0), upper)
    inside = 0
    for size in 10.0 ** rng.uniform(-2, 2.5, 40):
        coef = size * rng.normal(size=3)
        coef[low == high] = 0.0  # a constant feature does nothing that an intercept does not
        level = middle + size * rng.normal()
        least = problem.evaluate(coef, level - X.mean(axis=0) @ coef, data)
        if least.value <= upper:
            inside += 1
            assert (np.abs(coef) <= region.coef).all()
            assert region.units @ np.abs(coef) <= region.capacity
            assert abs(level - middle) <= region.intercept
            assert region.low <= least.multiplier <= region.high
    assert inside > 1
