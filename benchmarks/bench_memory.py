"""How much memory training on all rows takes: n = 1,000,000, m = 50, float32, within three times the size of X.

    python benchmarks/bench_memory.py                  # bound: 3 times the size of X, X itself included
    python benchmarks/bench_memory.py --rows 200000

Each problem is solved in a process of its own, which reports its largest resident set as the operating system saw it.
What the interpreter and its imports hold before there are any data is subtracted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time

import numpy as np

from dualcore import Problem, solve

MOST_TIMES = 3.0
PROBLEMS = {
    "logistic": Problem("logistic", norm="l1", radius=0.3, label_cost=7.0),
    "svm": Problem("hinge", norm="l2", radius=0.1, label_cost=7.0),
    "huber": Problem("huber", norm="l2", radius=0.1, label_cost=7.0),
}
# ru_maxrss counts bytes on macOS and kilobytes elsewhere.
UNIT = 1 if sys.platform == "darwin" else 1024


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * UNIT


def make_data(problem: Problem, n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 features and labels or targets, drawn a few rows at a time so that drawing leaves no trace."""
    rng = np.random.default_rng(0)
    coef = rng.choice([-1.0, 1.0], size=m) / np.arange(1.0, m + 1.0)
    X, y = np.empty((n, m), dtype=np.float32), np.empty(n)
    for start in range(0, n, 10_000):
        rows = slice(start, min(start + 10_000, n))
        X[rows] = rng.normal(size=X[rows].shape)
        y[rows] = X[rows] @ coef + 0.7 * rng.standard_t(4, size=y[rows].size)
    return X, np.where(y > 0.0, 1.0, -1.0) if problem.is_classification else y


def work(name: str, n: int, m: int) -> None:
    problem = PROBLEMS[name]
    solve(problem, *make_data(problem, 200, m))  # imports and caches belong to the baseline
    before = peak_bytes()
    X, y = make_data(problem, n, m)
    loaded = peak_bytes()
    start = time.perf_counter()
    solution = solve(problem, X, y)
    facts = {
        "before": before,
        "loaded": loaded,
        "peak": peak_bytes(),
        "size": X.nbytes,
        "seconds": time.perf_counter() - start,
        "iterations": solution.iterations,
        "gap": solution.relative_gap,
        "flips": solution.dual is not None and solution.dual.share is not None,
    }
    print(json.dumps({key: float(value) for key, value in facts.items()}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=50)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--work", choices=PROBLEMS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.work, options.rows, options.features)
        return 0
    megabyte, failed = 1e6, False
    print(f"n = {options.rows:,}, m = {options.features}, float32; memory in MB beyond what the imports hold")
    columns = ("problem", "X", "data", "peak", "times X", "seconds", "iterations", "gap", "flips")
    print(f"{columns[0]:10s}" + "".join(f"{name:>11s}" for name in columns[1:]))
    threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), str(options.threads))
    for name in options.problems:
        command = [sys.executable, __file__, "--work", name]
        command += ["--rows", str(options.rows), "--features", str(options.features)]
        run = subprocess.run(command, env=os.environ | threads, capture_output=True, text=True, check=False)
        if run.returncode != 0:
            print(f"{name:10s} failed: {(run.stderr.strip() or 'no output').splitlines()[-1]}")
            failed = True
            continue
        facts = json.loads(run.stdout.splitlines()[-1])
        times = (facts["peak"] - facts["before"]) / facts["size"]
        failed |= times > MOST_TIMES
        numbers = [facts["size"], facts["loaded"] - facts["before"], facts["peak"] - facts["before"]]
        print(
            f"{name:10s}"
            + "".join(f"{number / megabyte:11.0f}" for number in numbers)
            + f"{times:11.2f}{facts['seconds']:11.1f}{facts['iterations']:11.0f}{facts['gap']:11.1e}"
            + f"{'yes' if facts['flips'] else 'no':>11s}"
        )
    print(f"Bound: {MOST_TIMES:g} times X, X included: {'NOT MET' if failed else 'met'}.")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
