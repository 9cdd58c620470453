"""MNIST pairs at c = 0.5 %: thin coresets beside the same number of plain quasi-Newton evaluations, pair by pair.

    python benchmarks/check_mnist_reads.py --data ../shared/data                    # 45 pairs, 5 trials; stored
    python benchmarks/check_mnist_reads.py --data ../shared/data --pairs 3-5 4-9 --trials 2 --no-store

The problem and the rows of a pair are those of docs/experiments.md: logistic, l1, radius 0.3, label cost 7, noise and a
tenth of the labels flipped in training. Ours is `DualCoreset(size=0.005, rounds=reads - 1)`, which reads all rows
``reads`` times; the trials differ in its draws.

The peers are scipy's L-BFGS-B on centred columns from the model without coefficients, stopped after ``reads``
evaluations, each of which is a read; the evaluation of least value is the model. ``plain`` has the robust risk and a
subgradient of it for its objective. ``no_flips`` leaves changes of labels out (an infinite label cost).

A line has the test accuracies in percent and the robust risks. ``above`` is by how much the mean accuracy of ours is
above that of ``plain``, ``above_no_flips`` above the other; at most half a point below is asked of every pair.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

from dualcore import DualCoreset, Problem
from experiments.data import Split, load_split
from experiments.runner import seed_of
from experiments.settings import LOGISTIC

RESULTS = Path(__file__).resolve().parent / "results" / "mnist_reads.json"
SHARE, MOST_BELOW = 0.005, 0.5
PAIRS = [f"{a}-{b}" for a, b in combinations(range(10), 2)]


class _SpentError(Exception):
    """All evaluations are spent."""


def plain_reads(problem: Problem, X: np.ndarray, y: np.ndarray, reads: int) -> tuple[np.ndarray, float]:
    """Return the best of so many evaluations of L-BFGS-B on centred columns, as coefficients and intercept."""
    centre = X.mean(axis=0)
    seen: list[tuple[float, np.ndarray]] = []

    def evaluate(point: np.ndarray) -> tuple[float, np.ndarray]:
        if len(seen) == reads:
            raise _SpentError
        coef, intercept = point[:-1], float(point[-1] - centre @ point[:-1])
        value = problem.risk(coef, intercept, X, y)
        found = problem.gradient(coef, intercept, X, y)
        seen.append((value, point.copy()))
        return value, np.append(found.coef - found.intercept * centre, found.intercept)

    with contextlib.suppress(_SpentError):
        minimize(evaluate, np.zeros(X.shape[1] + 1), jac=True, method="L-BFGS-B")
    _, best = min(seen, key=lambda one: one[0])
    return best[:-1], float(best[-1] - centre @ best[:-1])


def accuracy(data: Split, coef: np.ndarray, intercept: float) -> float:
    """Return the share of test rows on the right side, in percent."""
    return 100.0 * float(np.mean(np.where(data.X_test @ coef + intercept > 0.0, 1.0, -1.0) == data.y_test))


def compare(pair: str, reads: int, trials: int, home: str) -> dict[str, Any]:
    """Return the line of a pair of digits."""
    first, second = (int(digit) for digit in pair.split("-"))
    data = load_split(("mnist-pair", first, second), home)
    size = int(SHARE * len(data.y))
    line: dict[str, Any] = {"pair": pair, "rows": size, "reads": reads}
    for name, problem in (("plain", LOGISTIC), ("no_flips", LOGISTIC.replace(label_cost=np.inf))):
        model = plain_reads(problem, data.X, data.y, reads)
        line[name], line[f"{name}_risk"] = accuracy(data, *model), LOGISTIC.risk(*model, data.X, data.y)
    ours, risks = [], []
    for trial in range(trials):
        seed = seed_of("mnist", f"{first} vs {second}", trial)
        fit = DualCoreset(size=size, rounds=reads - 1, random_state=seed).fit(LOGISTIC, data.X, data.y, tol=1e-4)
        if fit.certificate.n_reads > reads:
            raise RuntimeError(f"{fit.certificate.n_reads} reads, {reads} allowed")
        ours.append(accuracy(data, fit.solution.coef, fit.solution.intercept))
        risks.append(fit.solution.value)
    line |= {"ours": statistics.mean(ours), "least": min(ours), "risk": statistics.mean(risks)}
    return line | {"above": line["ours"] - line["plain"], "above_no_flips": line["ours"] - line["no_flips"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="folder of the data sets")
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=PAIRS)
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--reads", type=int, default=6)
    parser.add_argument("--no-store", action="store_true")
    chosen = parser.parse_args()
    lines = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # gaps of thin coresets are wide; what is asked here is accuracy
        for pair in chosen.pairs:
            lines.append(compare(pair, chosen.reads, chosen.trials, chosen.data))
            shown = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in lines[-1].items())
            print("  ".join(shown), flush=True)
    for name in ("ours", "plain", "no_flips"):
        print(f"mean {name}: {statistics.mean(line[name] for line in lines):.2f}")
    for name in ("above", "above_no_flips"):
        below = [line["pair"] for line in lines if line[name] < -MOST_BELOW]
        least = min(line[name] for line in lines)
        print(f"{name}: least {least:+.2f}; more than {MOST_BELOW} below: {', '.join(below) or 'none'}")
    if not chosen.no_store:
        RESULTS.write_text(json.dumps({"trials": chosen.trials, "lines": lines}, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {RESULTS.name}")


if __name__ == "__main__":
    main()
