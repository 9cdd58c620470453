"""Planes of split coefficients stay below the risk of every model, whatever the signs of its coefficients."""

import numpy as np

from dualcore import Problem
from dualcore.solvers.moving.bundle import Bundle
from pairs import every_pair

N_ROWS, N_FEATURES = 30, 4


def draw(loss: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((N_ROWS, N_FEATURES))
    y = X @ rng.normal(size=N_FEATURES) * 2.0 + rng.normal(size=N_ROWS)
    return X, np.where(y > np.median(y), 1.0, -1.0) if loss == "hinge" else y


@every_pair(label_cost=[1.0, np.inf], norm=["l1", "l2", "linf"], loss=["absolute", "huber", "hinge"])
def test_the_bound_is_below_every_model(loss: str, norm: str, label_cost: float) -> None:
    # The radius takes rows across the box, so that coefficients are split. Some features of a row then rise while
    # others fall, and a plane has to pay for both: it paid for the dearer side alone, and was false with l1 and l2.
    problem = Problem(loss, radius=1.0, norm=norm, label_cost=label_cost, support=(0.0, 1.0))
    for seed in range(2):
        X, y = draw(loss, seed)
        data = problem.validate(X, y)
        lower, upper = [], []
        for start in (0.0, 1.0, -1.0):
            bundle = Bundle(problem, data, np.full(N_FEATURES, start), 0.0)
            assert bundle.parts == 2
            bundle.run(1e-4, 60)
            lower.append(bundle.lower)
            upper.append(bundle.upper)
        assert max(lower) <= min(upper) * (1.0 + 1e-9)
        rng = np.random.default_rng(seed)
        for _ in range(20):
            coef, intercept = rng.normal(size=N_FEATURES) * rng.choice([0.1, 1.0, 3.0]), float(rng.normal())
            assert max(lower) <= problem.risk(coef, intercept, X, y) * (1.0 + 1e-9)
