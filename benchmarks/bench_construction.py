"""What building a coreset costs, the anchor given: one read, the draw, the calibration, in products ``X @ coef``.

    python benchmarks/bench_construction.py               # n = 1e6, m = 50: bound 8 products
    python benchmarks/bench_construction.py --n 50000

The same array, the same threads, medians of seven runs taken in turn. "arrays" starts from plain arrays, so that labels
and finiteness are checked each time; "source" from a source that was checked before, as in every round after the first.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from stored import report, store
from threadpoolctl import threadpool_limits

from dualcore import Anchor, DualCoreset, Problem
from dualcore.data.sources import ArraySource

ROWS, FEATURES, REPEATS, SHARE, MOST_PRODUCTS = 1_000_000, 50, 7, 0.005, 8.0
PROBLEMS = {
    "logistic": Problem("logistic", radius=0.1, label_cost=7.0),
    "logistic that flips": Problem("logistic", radius=0.1, label_cost=1.0),
    "hinge": Problem("hinge", radius=0.1, label_cost=7.0),
    "huber": Problem("huber", radius=0.1),
}


def seconds(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=ROWS)
    parser.add_argument("--features", type=int, default=FEATURES)
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--threads", type=int, default=None, help="of BLAS, for both sides; default: all")
    options = parser.parse_args()
    n, m = options.n, options.features
    rng = np.random.default_rng(0)
    X, coef = rng.standard_normal((n, m)), rng.standard_normal(m) / np.sqrt(m)
    score = X @ coef
    labels, targets = np.where(score + rng.standard_normal(n) > 0.0, 1.0, -1.0), score + rng.standard_normal(n)
    results, bars = {}, []
    with threadpool_limits(limits=options.threads):
        print(f"n = {n}, m = {m}, coreset {100 * SHARE:g} %, medians of {options.repeats}\n")
        print(f"{'problem':<20} {'product':>10} {'arrays':>10} {'ratio':>6} {'source':>10} {'ratio':>6}")
        for name, problem in PROBLEMS.items():
            y = labels if problem.is_classification else targets
            anchor = Anchor(coef, 0.0, 1.05 * problem.kappa(coef))
            sampler, source = DualCoreset(size=SHARE, anchor=anchor, random_state=0), ArraySource(X, y)

            def from_arrays(sampler: DualCoreset = sampler, problem: Problem = problem, y: np.ndarray = y) -> object:
                return sampler.build(problem, X, y)

            def from_source(
                sampler: DualCoreset = sampler, problem: Problem = problem, source: ArraySource = source
            ) -> object:
                return sampler.build(problem, source)

            from_arrays(), from_source(), X @ coef
            times = [
                (seconds(lambda: X @ coef), seconds(from_arrays), seconds(from_source)) for _ in range(options.repeats)
            ]
            product, arrays, checked = (statistics.median(column) for column in zip(*times, strict=True))
            print(
                f"{name:<20} {1e3 * product:>7.2f} ms {1e3 * arrays:>7.2f} ms {arrays / product:>6.2f}"
                f" {1e3 * checked:>7.2f} ms {checked / product:>6.2f}",
                flush=True,
            )
            results[name] = {"product": product, "arrays": arrays, "source": checked}
            ratio = arrays / product
            bars.append((ratio <= MOST_PRODUCTS, f"{name}: {ratio:.2f} products <= {MOST_PRODUCTS:g}"))
    passed = report(bars)
    full = n >= ROWS and m >= FEATURES and options.repeats >= REPEATS
    settings = {"n": n, "m": m, "share": SHARE, "threads": options.threads, "repeats": options.repeats}
    outcome = [{"passed": ok, "bar": sentence} for ok, sentence in bars]
    store("construction", settings | {"seconds": results, "bars": outcome}, full=full)
    sys.exit(0 if passed else "a bar was missed")


if __name__ == "__main__":
    main()
