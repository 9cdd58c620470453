"""Many classes inside walls: how far apart two closed bounds on the worst-case risk of a softmax model are.

    python benchmarks/check_box_classes.py

With ``c_k = theta_k - theta_y`` and the features in a box, no exact form of

    h = sup over x' in the box of  log sum_k exp(s_k(x') - s_y(x')) - lam ||x' - x||

is known: the sup is not at a vertex of few candidates. For every class k however ``g_k``, the sup of ``s_k - s_y - lam
||x' - x||``, has a closed form and a maximiser ``x_k``, and

    max_k  l(x_k) - lam ||x_k - x||   <=   h   <=   log sum_k exp(g_k) .

Digits, pixels in [0, 1], l1 norm: softmax models trained without walls, and both bounds minimised over the multiplier.
``gap`` is their distance over the upper one; ``walls`` is what the upper bound gains on the risk without walls.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import logsumexp
from sklearn.datasets import load_digits

from dualcore import Problem, solve

RESULTS = Path(__file__).resolve().parent / "results" / "box_classes.json"
SETTINGS = ((0.01, 0.05), (0.01, 0.2), (0.01, 1.0), (0.1, 0.2), (0.1, 1.0))


def bounds(model: Any, X: np.ndarray, y: np.ndarray, multiplier: float) -> tuple[float, float]:
    """Return the means of the lower and of the upper bound on h."""
    every = np.arange(len(y))
    scores = X @ model.coef.T + model.intercept
    best, low = np.zeros(scores.shape), logsumexp(scores, axis=1) - scores[every, y]
    for k in range(scores.shape[1]):
        push = model.coef[k] - model.coef[y]
        room = np.where(push > 0.0, 1.0 - X, X) * (np.abs(push) > multiplier)
        best[:, k] = scores[:, k] - scores[every, y] + ((np.abs(push) - multiplier) * room).sum(axis=1)
        there = (X + np.sign(push) * room) @ model.coef.T + model.intercept
        low = np.maximum(low, logsumexp(there, axis=1) - there[every, y] - multiplier * room.sum(axis=1))
    return float(low.mean()), float(logsumexp(best, axis=1).mean())


def main() -> None:
    X, y = load_digits(return_X_y=True)
    X, lines = X / 16.0, []
    for trained, radius in SETTINGS:
        problem = Problem("softmax", n_classes=10, radius=trained, norm="l1")
        model = solve(problem, X, y, tol=1e-3)
        most = problem.family.size(model.coef)

        def least(which: int, model: Any = model, most: float = most, radius: float = radius) -> float:
            found = minimize_scalar(
                lambda lam: radius * lam + bounds(model, X, y, lam)[which], bounds=(0.0, most), method="bounded"
            )
            return float(found.fun)

        lower, upper = least(0), least(1)
        open_risk = problem.replace(radius=radius).risk(model.coef, model.intercept, X, y)
        line = {"trained": trained, "radius": radius, "lower": lower, "upper": upper, "gap": 1.0 - lower / upper}
        lines.append(line | {"walls": 1.0 - upper / open_risk})
        print(json.dumps(lines[-1]), flush=True)
    RESULTS.write_text(json.dumps(lines, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
