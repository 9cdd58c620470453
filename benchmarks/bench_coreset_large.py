"""A million rows through a coreset of half a percent: gap, reads and seconds, next to scikit-learn on all rows.

    python benchmarks/bench_coreset_large.py                  # n = 1e6, m = 20, median of 3; minutes
    python benchmarks/bench_coreset_large.py --n 50000 --repeats 1

Both sides get the same arrays, the same threads, and take turns. Ours is `fit_coreset`: validation, pilot, reads,
solves and the certificate are all in its time. Scikit-learn's models are plain fits without robustness:
LogisticRegression (tol=1e-6), LinearSVC (hinge; stopped at --svc-iterations where it has not converged, so that its
time is too small) and HuberRegressor.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.svm import LinearSVC
from stored import store
from threadpoolctl import threadpool_limits

from dualcore import Problem, fit_coreset

ROWS, FEATURES, SHARE, RADIUS, REPEATS = 1_000_000, 20, 0.005, 0.1, 3


class Contest(NamedTuple):
    loss: dict[str, Any]
    peer: Callable[[int], Any]


CONTESTS = {
    "logistic": Contest({"loss": "logistic", "label_cost": 7.0}, lambda _: LogisticRegression(tol=1e-6, max_iter=1000)),
    "svm": Contest(
        {"loss": "hinge", "label_cost": 7.0},
        lambda limit: LinearSVC(loss="hinge", max_iter=limit, random_state=0),
    ),
    "huber": Contest({"loss": "huber", "delta": 1.35}, lambda _: HuberRegressor(max_iter=1000)),
}


def make_data(n: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Correlated features, labels with noise, targets with heavy tails."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, m)) @ (np.eye(m) + 0.2 * rng.standard_normal((m, m)))
    score = X @ rng.standard_normal(m) / np.sqrt(m) + 0.5
    labels = np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, labels, score + rng.standard_t(3, size=n)


def run(name: str, X: np.ndarray, y: np.ndarray, *, radius: float, repeats: int, limit: int) -> dict[str, Any]:
    contest = CONTESTS[name]
    problem = Problem(radius=radius, **contest.loss)
    ours, theirs, gaps, reads = [], [], [], []
    for repeat in range(repeats):
        began = time.perf_counter()
        fit = fit_coreset(problem, X, y, coreset=SHARE, random_state=repeat)
        ours.append(time.perf_counter() - began)
        gaps.append(fit.certificate.relative_gap)
        reads.append(fit.certificate.n_reads)
        began = time.perf_counter()
        contest.peer(limit).fit(X, y)
        theirs.append(time.perf_counter() - began)
        steps = ", ".join(f"{done.relative_gap:.1e}" for done in fit.history)
        print(f"{name}, run {repeat + 1}: {len(fit.coreset)} rows; relative gap after each read: {steps}", flush=True)
    return {
        "problem": repr(problem),
        "peer": type(contest.peer(1)).__name__,
        "seconds": statistics.median(ours),
        "peer_seconds": statistics.median(theirs),
        "relative_gap": max(gaps),
        "reads": max(reads),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=ROWS)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--losses", nargs="+", choices=CONTESTS, default=list(CONTESTS))
    parser.add_argument("--radius", type=float, default=RADIUS)
    parser.add_argument("--svc-iterations", type=int, default=100)
    parser.add_argument("--threads", type=int, default=None, help="of BLAS and OpenMP, for both sides; default: all")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    X, labels, targets = make_data(options.n, options.features)
    print(f"n = {options.n}, m = {options.features}, radius {options.radius:g}, coreset {100 * SHARE:g} %\n")
    results = {}
    with threadpool_limits(limits=options.threads):
        for name in options.losses:
            y = targets if name == "huber" else labels
            found = run(name, X, y, radius=options.radius, repeats=options.repeats, limit=options.svc_iterations)
            results[name] = found
            print(name, found, flush=True)
    full = options.n >= ROWS and options.repeats >= REPEATS and set(options.losses) == set(CONTESTS)
    settings = {name: getattr(options, name) for name in ("n", "features", "radius", "threads", "repeats")}
    store("coreset_large", settings | {"share": SHARE} | {"contests": results}, full=full)


if __name__ == "__main__":
    main()
