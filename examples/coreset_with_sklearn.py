"""A coreset is rows and weights: any estimator that takes ``sample_weight`` can be trained on it.

Scikit-learn's logistic regression is fitted to all rows, to a uniform sample, and to a dual coreset of the same size.
The problem handed to the sampler says for which models the coreset should be good: those of small logistic loss.
"""

from __future__ import annotations

import time

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

from dualcore import DualCoreset, Problem, UniformCoreset

N_ROWS, N_FEATURES, SIZE = 100_000, 20, 1000


def make_data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated features and noisy labels -1 and +1."""
    X = rng.normal(size=(N_ROWS, N_FEATURES)) @ (np.eye(N_FEATURES) + 0.2 * rng.normal(size=(N_FEATURES, N_FEATURES)))
    score = X @ rng.normal(size=N_FEATURES) / 2.0 - 1.0
    return X, np.where(score + rng.logistic(size=N_ROWS) > 0.0, 1.0, -1.0)


def main() -> None:
    """Fit three models and compare them on all rows."""
    X, y = make_data(np.random.default_rng(0))
    problem = Problem("logistic", radius=0.01)

    began = time.perf_counter()
    whole = LogisticRegression(C=np.inf).fit(X, y)
    whole_seconds = time.perf_counter() - began

    def train(sampler: UniformCoreset | DualCoreset) -> tuple[LogisticRegression, float, int]:
        began = time.perf_counter()
        coreset = sampler.build(problem, X, y)
        # The weights sum to one. Scikit-learn adds up losses instead of averaging them: scale to the number of rows.
        model = LogisticRegression(C=np.inf).fit(coreset.X, coreset.y, sample_weight=len(y) * coreset.weights)
        return model, time.perf_counter() - began, len(coreset)

    rows = [("all rows", whole, whole_seconds, len(y))]
    for name, sampler in (
        ("uniform sample", UniformCoreset(size=SIZE, random_state=0)),
        ("dual coreset", DualCoreset(size=SIZE, random_state=0)),
    ):
        rows.append((name, *train(sampler)))

    best = log_loss(y, whole.predict_proba(X))
    print(f"{'trained on':<16} {'rows':>7} {'seconds':>8} {'log-loss on all':>16} {'excess':>9} {'|coef - whole|':>15}")
    for name, model, seconds, size in rows:
        loss = log_loss(y, model.predict_proba(X))
        distance = float(np.linalg.norm(model.coef_ - whole.coef_))
        print(f"{name:<16} {size:>7} {seconds:>8.2f} {loss:>16.6f} {loss - best:>9.1e} {distance:>15.4f}")


if __name__ == "__main__":
    main()
