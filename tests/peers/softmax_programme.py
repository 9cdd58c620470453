"""The softmax problem as a modelling language states it: an independent referee for its solvers.

Nothing of dualcore is called but the attributes that define a problem.
"""

from typing import Any

import cvxpy as cp
import numpy as np

from peers.cvxpy_referee import DUAL_ORDERS, minimum


def softmax_optimum(problem: Any, X: Any, y: Any, sample_weight: Any = None) -> float:
    """Return the least worst-case risk over all models, ridge included."""
    X, y = np.asarray(X, dtype=np.float64), np.asarray(y).astype(int)
    n_classes, (n, m) = problem.family.n_outputs, X.shape
    w = np.ones(n) if sample_weight is None else np.asarray(sample_weight)
    theta, b, multiplier = cp.Variable((n_classes, m)), cp.Variable(n_classes), cp.Variable(nonneg=True)
    scores = X @ theta.T + np.ones((n, 1)) @ cp.reshape(b, (1, n_classes), order="C")
    own = cp.sum(cp.multiply(scores, np.eye(n_classes)[y]), axis=1)
    h = cp.log_sum_exp(scores, axis=1) - own
    if np.isfinite(problem.geometry.label_cost):
        h = h + cp.pos(own - cp.min(scores, axis=1) - problem.geometry.label_cost * multiplier)
    prices = np.ones(m) if problem.geometry.norm.weights is None else problem.geometry.norm.weights
    movable = np.flatnonzero(np.isfinite(prices))
    order = DUAL_ORDERS[problem.geometry.norm.name]
    limits = [] if problem.fit_intercept else [b == 0]
    for j in range(n_classes):
        for k in range(j):
            apart = cp.multiply(theta[j] - theta[k], 1.0 / prices)[movable]
            limits.append(cp.norm(apart, order) <= multiplier)
    cost = problem.radius * multiplier + (w / w.sum()) @ h + 0.5 * problem.ridge * cp.sum_squares(theta)
    return minimum(cost, limits)
