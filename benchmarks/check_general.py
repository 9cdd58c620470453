"""Long sweeps over the general framework: softmax models, order 2, generic bounds. Prints its figures.

python benchmarks/check_general.py            # a few minutes on one core
python benchmarks/check_general.py --quick
"""

from __future__ import annotations

import argparse
import itertools
import time
import warnings

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, certify, solve
from dualcore.coresets.softmax import SoftmaxProblem, fit_softmax_coreset, solve_softmax

NORMS = ("l1", "l2", "linf")


def many_classes(n, m, n_classes, seed, noise=1.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(n_classes, size=n)
    y[:n_classes] = np.arange(n_classes)
    return rng.normal(size=(n_classes, m))[y] + noise * rng.normal(size=(n, m)), y


def softmax_against_cones(seeds):
    """Newton's method against the exact cone program of all rows."""
    settings = [
        {},
        {"label_cost": 1.0},
        {"label_cost": 0.3},
        {"ridge": 0.05},
        {"radius": 0.0},
        {"fit_intercept": False},
    ]
    difference, gap, count, failed = 0.0, 0.0, 0, 0
    for seed, norm, extra, n_classes in itertools.product(range(seeds), NORMS, settings, (2, 3, 5)):
        X, y = many_classes(80, 3, n_classes, seed)
        problem = SoftmaxProblem(Problem("logistic", **({"radius": 0.1, "norm": norm} | extra)), n_classes)
        newton, cones = solve_softmax(problem, X, y), solve_softmax(problem, X, y, solver="conic")
        count += 1
        failed += not newton.converged
        if newton.converged and cones.converged:
            difference = max(difference, abs(newton.value / cones.value - 1.0))
            gap = max(gap, newton.relative_gap)
    print(f"softmax: {count} problems, {failed} unfinished; Newton and cones differ by {difference:.1e}, gap {gap:.1e}")


def softmax_in_rows(sizes):
    """Time and certified gap as rows grow, whole and through a coreset of 5 %."""
    for n, label_cost in itertools.product(sizes, (np.inf, 1.0)):
        X, y = many_classes(n, 20, 5, 0, noise=2.0)
        problem = SoftmaxProblem(Problem("logistic", radius=0.05, label_cost=label_cost), 5)
        whole = solve_softmax(problem, X, y)
        began = time.perf_counter()
        small = fit_softmax_coreset(problem, X, y, 0.05, random_state=0)
        seconds = time.perf_counter() - began
        print(
            f"softmax, n = {n}, label cost {label_cost:g}: whole {whole.seconds:.1f} s, gap {whole.relative_gap:.0e}; "
            f"coreset {seconds:.1f} s, excess {small.certificate.upper / whole.value - 1.0:.1e}, "
            f"certified {small.certificate.relative_gap:.1e}"
        )


def order_two(seeds):
    """Gap at the solver's solution, and the closed form where nothing flips."""
    worst = {"squared": 0.0, "squared_hinge": 0.0}
    count = 0
    for seed, norm, label_cost, ridge, radius in itertools.product(
        range(seeds), NORMS, (np.inf, 2.0, 1.0, 0.5), (0.0, 0.1), (0.01, 0.1, 0.5)
    ):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(300, 4))
        score = X @ rng.normal(size=4) + rng.normal(size=300)
        for loss in worst:
            y = score if loss == "squared" else np.where(score > 0.0, 1.0, -1.0)
            problem = Problem(loss, radius=radius, norm=norm, label_cost=label_cost, ridge=ridge)
            worst[loss] = max(worst[loss], certify(problem, solve(problem, X, y), X, y).relative_gap)
            count += 1
    print(f"order 2: {count} problems; largest gap squared {worst['squared']:.1e}, hinge {worst['squared_hinge']:.1e}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    warnings.simplefilter("ignore", ConvergenceWarning)
    softmax_against_cones(1 if quick else 6)
    softmax_in_rows([5_000] if quick else [20_000, 100_000])
    order_two(1 if quick else 8)
