"""How far a working set of rows changes the answer: `solve` on random problems, with and without a working set.

    python benchmarks/check_working_set.py                    # 300 problems, about three minutes
    python benchmarks/check_working_set.py --problems 1200 --seed 1

Above some thousand rows the structured solver sets rows aside that keep their piece of the loss, see
``dualcore.solvers.working_set``. Here it does so from 600 rows on, for every loss, norm and label cost, with 700 to
4,000 rows: badly scaled columns, weights with zeros, small and large radii, with and without intercept and ridge. Both
answers are certified; the command fails where they differ by more than 1e-6, or the first is not certified to that.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from unittest.mock import patch

import numpy as np
from threadpoolctl import threadpool_limits

from dualcore import Problem, solve
from dualcore.solvers import structured, working_set

LOSSES = ("logistic", "hinge", "pinball", "absolute", "epsilon_insensitive")
FROM_ROWS, AGREEMENT = 600, 1e-6


def draw(number: int, rng: np.random.Generator) -> tuple[Problem, np.ndarray, np.ndarray, np.ndarray | None]:
    loss = LOSSES[number % len(LOSSES)]
    n, m = int(rng.integers(700, 4000)), int(rng.integers(1, 12))
    problem = Problem(
        loss,
        radius=float(rng.choice([0.0, 0.01, 0.1, 0.5])),
        norm=str(rng.choice(["l1", "l2", "linf"])),
        label_cost=float(rng.choice([0.5, 2.0, 7.0, np.inf])),
        ridge=float(rng.choice([0.0, 0.0, 0.01])),
        fit_intercept=bool(rng.random() < 0.8),
    )
    X = rng.normal(size=(n, m)) * (10.0 ** rng.uniform(-3.0, 3.0, m) if rng.random() < 0.3 else 1.0)
    score = X @ (rng.normal(size=m) / X.std(axis=0)) + 0.5 * rng.normal(size=n)
    y = score + rng.standard_t(3, n)
    if problem.is_classification:
        y = np.where(score > 0.0, 1.0, -1.0) * np.where(rng.random(n) < 0.1, -1.0, 1.0)
    weights = rng.exponential(size=n) * (rng.random(n) < 0.8) if rng.random() < 0.3 else None
    return problem, X, y, weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    apart, gaps, counts, faults = defaultdict(float), defaultdict(float), defaultdict(int), []
    with (
        threadpool_limits(1),
        patch.object(working_set, "_MANY", FROM_ROWS),
        patch.object(working_set, "_MANY_SMOOTH", FROM_ROWS),
    ):
        for number in range(options.problems):
            problem, *data = draw(number, rng)
            ours = solve(problem, *data, solver="structured")
            with patch.object(structured, "worth_a_working_set", lambda *_: False):
                plain = solve(problem, *data, solver="structured")
            name, difference = problem.loss.name, abs(ours.value - plain.value) / abs(plain.value)
            apart[name], gaps[name] = max(apart[name], difference), max(gaps[name], ours.relative_gap)
            counts[name] += 1
            # The plain solver may stall on its own; then the certificate of the first alone speaks.
            if ours.relative_gap > AGREEMENT or (plain.converged and difference > AGREEMENT):
                faults.append(f"problem {number}, {problem}: apart {difference:.1e}, gap {ours.relative_gap:.1e}")
    print(f"{'loss':22}{'problems':>9}{'apart':>10}{'gap':>10}")
    for name, count in counts.items():
        print(f"{name:22}{count:>9}{apart[name]:>10.1e}{gaps[name]:>10.1e}")
    print("\n".join(faults) or "no fault")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
