"""What one exact worst-case risk costs, in products ``X @ coef`` and in vectors of length n.

    python benchmarks/bench_risk.py            # n = 1e6, m = 20: bounds 8 products and 6 vectors
    python benchmarks/bench_risk.py --rows 100000

The same array, the same threads, medians of seven runs taken in turn. "few flips" is a label cost that makes flips
worth their price for some rows; "all flips" lets every correctly classified row be flipped, the worst case for memory.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable

import numpy as np
from threadpoolctl import threadpool_limits

from dualcore import Problem

MOST_PRODUCTS, MOST_VECTORS, REPEATS = 8.0, 6.0, 7
CLASSIFICATION = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
REGRESSION = ("huber", "pinball", "epsilon_insensitive", "absolute", "squared")


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def extra_bytes(function: Callable[[], object]) -> int:
    """Most bytes held beyond those held before; numpy reports its arrays to tracemalloc."""
    gc.collect()
    tracemalloc.start()
    try:
        held = tracemalloc.get_traced_memory()[0]
        function()
        return tracemalloc.get_traced_memory()[1] - held
    finally:
        tracemalloc.stop()


def settings() -> list[tuple[str, str, float, float, bool]]:
    """Name, loss, radius, label cost, weighted."""
    rows = []
    for loss in CLASSIFICATION:
        rows += [
            (f"{loss}, no flips", loss, 0.1, np.inf, False),
            (f"{loss}, few flips", loss, 0.1, 2.0, False),
            (f"{loss}, all flips", loss, 0.1, 0.01, False),
            (f"{loss}, few flips, weighted", loss, 0.1, 2.0, True),
        ]
    for loss in REGRESSION:
        rows += [(loss, loss, 0.1, 7.0, False), (f"{loss}, weighted", loss, 0.1, 7.0, True)]
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=20)
    parser.add_argument("--threads", type=int, default=None, help="threads of BLAS, for both sides; default: all")
    options = parser.parse_args()
    n, m = options.rows, options.features
    rng = np.random.default_rng(0)
    X, coef, intercept = rng.standard_normal((n, m)), rng.standard_normal(m), 0.1
    score = X @ coef + intercept
    labels = np.where(score + rng.standard_normal(n) > 0.0, 1.0, -1.0)
    targets, weights = score + rng.standard_normal(n), rng.random(n)

    worst_products = worst_vectors = 0.0
    with threadpool_limits(limits=options.threads):
        print(f"n = {n}, m = {m}; one risk, in products X @ coef (median of {REPEATS}) and vectors of length n\n")
        print(f"{'problem':36} {'product':>10} {'risk':>10} {'ratio':>7} {'vectors':>8}")
        for name, loss, radius, label_cost, weighted in settings():
            problem = Problem(loss, radius=radius, label_cost=label_cost)
            y = labels if problem.is_classification else targets
            w = weights if weighted else None

            def risk(problem: Problem = problem, y: np.ndarray = y, w: np.ndarray | None = w) -> float:
                return problem.risk(coef, intercept, X, y, w)

            risk(), X @ coef
            pairs = [(seconds(lambda: X @ coef), seconds(risk)) for _ in range(REPEATS)]
            product, whole = (statistics.median(column) for column in zip(*pairs, strict=True))
            vectors = extra_bytes(risk) / (8.0 * n)
            flag = "" if whole <= MOST_PRODUCTS * product and vectors <= MOST_VECTORS else "  above the bound"
            print(
                f"{name:36} {1e3 * product:7.2f} ms {1e3 * whole:7.2f} ms {whole / product:7.2f} {vectors:8.2f}{flag}",
                flush=True,
            )
            worst_products, worst_vectors = max(worst_products, whole / product), max(worst_vectors, vectors)
    print(f"\nlargest ratio {worst_products:.2f} (bound {MOST_PRODUCTS:g})")
    print(f"largest extra memory {worst_vectors:.2f} vectors of length n (bound {MOST_VECTORS:g})")


if __name__ == "__main__":
    main()
