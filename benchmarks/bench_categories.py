"""Categories on a9a: training to a certified gap, beside numeric one-hot columns and beside the published programme.

    python benchmarks/bench_categories.py --data ../shared/data/a9a.npz --rows 2000 8000 32561

The published programme (Selvi, Belbasi, Haugh, Wiesemann) is a cone programme over assignments of the rows, to which
the worst assignment of every row is added until none is violated. It is written here with CVXPY and Clarabel, as a
referee: it runs on more and more rows until two minutes are over.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

from dualcore import Problem, solve

TOLERANCE, RADIUS, LIMIT, BOX = 1e-4, 0.01, 120.0, 6.0


def groups_of(X: Any) -> list[list[int | None]]:
    """Return runs of columns of which no row has two; None where a row has none of them."""
    together = X.T @ X
    runs: list[list[int]] = [[0]]
    for column in range(1, X.shape[1]):
        if any(together[column, other] for other in runs[-1]):
            runs.append([])
        runs[-1].append(column)
    out: list[list[int | None]] = []
    for run in runs:
        empty = bool((X[:, run].sum(axis=1) == 0.0).any())
        out.append([None, *run] if empty else list(run))
    return out


def published(problem: Problem, X: Any, y: Any, limit: float) -> tuple[float, float, int]:
    """Return the optimum of the programme that grows by assignments, its violation, and its rounds."""
    import cvxpy as cp

    began, n = time.perf_counter(), len(y)
    theta, shift, lam, h = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable(nonneg=True), cp.Variable(n)
    # Before the assignments that matter are known the rows may be separable: a box keeps the programme bounded.
    constraints = [h >= cp.logistic(-cp.multiply(y, X @ theta + shift)), cp.abs(theta) <= BOX]
    value, violation = np.inf, np.inf
    for rounds in range(1, 1000):
        program = cp.Problem(cp.Minimize(problem.radius * lam + cp.sum(h) / n), constraints)
        program.solve(solver=cp.CLARABEL)
        value = float(program.value)
        found = problem.family.moves(X, y, theta.value, float(shift.value), float(lam.value), points=True)
        beyond = found.lower - h.value
        violation = float(np.maximum(beyond, 0.0).mean())
        if violation <= TOLERANCE * value or time.perf_counter() - began > limit:
            return value, violation, rounds
        rows = np.flatnonzero(beyond > 1e-9)
        score = found.X[rows] @ theta + shift
        constraints.append(h[rows] >= cp.logistic(-cp.multiply(found.label[rows], score)) - found.cost[rows] * lam)
    return value, violation, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="a9a.npz")
    parser.add_argument("--rows", type=int, nargs="+", default=[2000, 8000, 32561])
    parser.add_argument("--published", type=int, nargs="*", default=[250, 500, 1000, 2000, 4000])
    options = parser.parse_args()
    with np.load(options.data, allow_pickle=False) as file:
        X, y = file["X_train"].astype(np.float64), file["y_train"].astype(np.float64)
    groups = groups_of(X)
    problem = Problem("logistic", radius=RADIUS, norm="l1", categories=groups)
    print(f"{len(groups)} groups; certified to {TOLERANCE:g}; processor seconds")
    for n in options.rows:
        seconds = []
        for each in (problem.replace(categories=None), problem):
            began = time.process_time()
            found = solve(each, X[:n], y[:n], tol=TOLERANCE)
            seconds.append(time.process_time() - began)
        print(
            f"{n:>7} rows: numeric {seconds[0]:.2f}, categories {seconds[1]:.2f}, risk {found.value:.6f}, "
            f"gap {found.relative_gap:.1e}, {found.status.name}",
            flush=True,
        )
    for n in options.published:
        began = time.perf_counter()
        value, violation, rounds = published(problem, X[:n], y[:n], LIMIT)
        seconds_taken = time.perf_counter() - began
        print(f"{n:>7} rows: published programme {seconds_taken:.1f} s, {rounds} rounds, {value:.6f} + {violation:.1e}")
        if seconds_taken > LIMIT:
            break


if __name__ == "__main__":
    main()
