"""A path of 100 radii through a coreset against one coreset fit, at n = 1,000,000 and m = 20.

Asked: at most five times the time of one fit (logistic), every certified relative gap at most 1e-3. Times are seconds
of processor time, which other work on the machine does not disturb; wall-clock seconds stand beside them.
Run it with: python benchmarks/bench_path.py [--rows N] [--repeats K]
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from dualcore import Problem, fit_coreset
from dualcore.coresets.path import radius_path

RADII = np.geomspace(0.01, 0.5, 100)
SIZES = (0.005, 0.02)
CASES = (
    ("logistic", Problem("logistic")),
    ("logistic, label cost 7", Problem("logistic", label_cost=7.0)),
    ("hinge", Problem("hinge")),
    ("Huber", Problem("huber")),
)


def make_data(n: int, m: int, classification: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m))
    score = X @ rng.normal(size=m) * (2.0 / np.sqrt(m))
    if classification:
        return X, np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, score + rng.standard_t(3, size=n)


def fastest(run, repeats: int):
    """Time a call a few times: processor and wall-clock seconds of the fastest, and what it returned."""
    taken, result = [], None
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        result = run()
        taken.append((time.process_time() - processor, time.perf_counter() - wall))
    return *min(taken), result


def compare(title: str, problem: Problem, size: float, rows: int, repeats: int) -> None:
    X, y = make_data(rows, 20, problem.is_classification)
    at = problem.replace(radius=float(np.sqrt(RADII[0] * RADII[-1])))
    one, one_wall, _ = fastest(lambda: fit_coreset(at, X, y, size, random_state=0), repeats)
    many, many_wall, path = fastest(
        lambda: radius_path(problem, X, y, RADII, size, target_gap=1e-3, random_state=0), repeats
    )
    print(
        f"{title:<24}{size:>8.0%}{one:>8.3f}s{many:>8.3f}s{many / one:>7.2f}{one_wall:>7.3f} {many_wall:>7.3f}s"
        f"{path.n_builds:>8}{path.n_reads:>7}{path.relative_gap.max():>11.2e}"
    )
    print("    certified relative gaps: " + " ".join(f"{gap:.1e}" for gap in path.relative_gap), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    print(f"{options.rows} rows, 20 features, {RADII.size} radii from {RADII[0]:g} to {RADII[-1]:g}")
    print(
        f"{'problem':<24}{'coreset':>8}{'one fit':>9}{'path':>9}{'ratio':>7}{'wall clock':>16}"
        f"{'builds':>8}{'reads':>7}{'worst gap':>11}"
    )
    for title, problem in CASES:
        for size in SIZES:
            compare(title, problem, size, options.rows, options.repeats)


if __name__ == "__main__":
    main()
