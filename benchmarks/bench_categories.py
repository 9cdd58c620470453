"""Categories on a9a: training to a certified gap beside the published programme, and accuracy on rows not seen.

    python benchmarks/bench_categories.py                                   # all parts
    python benchmarks/bench_categories.py --parts programme --seconds 20

``programme``: `solve` beside the cutting planes of Selvi, Belbasi, Haugh and Wiesemann (`category_programme`), both to
1e-4, on 125 rows, twice as many, and so on until the programme needs more than two minutes; seconds on the clock.

``study``: accuracy on rows not seen, as those papers measure it: 50 splits with 60 rows to train on.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from category_programme import cutting_planes
from fingerprint import fingerprint
from sklearn.datasets import load_breast_cancer
from sklearn.exceptions import ConvergenceWarning
from stored import store
from threadpoolctl import threadpool_limits

from dualcore import Problem, solve

RESULTS = Path(__file__).resolve().parent / "results"
SPLITS, TRAIN, CHOOSE = 50, 60, 60
GRID = (0.01, 0.03, 0.1, 0.3)
TOLERANCE, RADIUS = 1e-4, 0.01
FIRST_ROWS, PATIENCE = 125, 120.0
PARTS = ("programme", "study")


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


def census(path: Path) -> tuple[Any, Any, list[list[int | None]]]:
    """Return rows of a9a by four of its columns of text (marital status, occupation, relationship, sex)."""
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X_train"].astype(np.float64), file["y_train"].astype(np.float64)
    sizes, columns, groups = [7, 14, 6, 2], list[int](), list[list[int | None]]()
    found = groups_of(X)
    for size, group in zip(sizes, (found[k] for k in (5, 6, 7, 9)), strict=True):
        own = [column for column in group if column is not None]
        if len(own) != size:
            raise ValueError(f"{path.name} is not a9a: a group has {len(own)} columns where {size} were expected.")
        groups.append([None, *range(len(columns), len(columns) + size)])
        columns += own
    return np.ascontiguousarray(X[:, columns]), y, groups


def tumours() -> tuple[Any, Any, list[list[int | None]]]:
    """Return rows of scikit-learn's tumours: four numbers, and four more cut at their quartiles into categories."""
    data = load_breast_cancer()
    numbers, cut = data.data[:, [1, 4, 8, 9]], data.data[:, [5, 15, 18, 28]]
    levels = [np.searchsorted(np.quantile(column, [0.25, 0.5, 0.75]), column) for column in cut.T]
    X = np.hstack([(numbers - numbers.mean(axis=0)) / numbers.std(axis=0), *(np.eye(4)[level] for level in levels)])
    groups: list[list[int | None]] = [[None, *range(4 + 4 * k, 8 + 4 * k)] for k in range(4)]
    return X, np.where(data.target == 1, 1.0, -1.0), groups


def study(X: Any, y: Any, groups: list[list[int | None]]) -> tuple[dict[str, list[float]], float]:
    """Return the accuracies of every method on the rows of each split that were used for nothing else.

    The second result is the largest certified relative gap of a model.

    A method trains on 60 rows for four values of its parameter, and keeps the model that is right most often on 60
    others; the smallest value of those that are equally good.
    """
    methods = {
        "plain": [Problem("logistic", radius=0.0, ridge=1e-6)],
        "norm-regularised": [Problem("logistic", radius=0.0, ridge=value) for value in GRID],
        "numeric-robust": [Problem("logistic", radius=value) for value in GRID],
        "category-robust": [Problem("logistic", radius=value, categories=groups) for value in GRID],
    }
    found: dict[str, list[float]] = {name: [] for name in methods}
    gap = 0.0
    for split in range(SPLITS):
        order = np.random.default_rng(split).permutation(y.size)
        train, choose, test = np.split(order, [TRAIN, TRAIN + CHOOSE])
        for name, problems in methods.items():
            with warnings.catch_warnings():  # the largest gap is returned
                warnings.simplefilter("ignore", ConvergenceWarning)
                models = [solve(problem, X[train], y[train], tol=TOLERANCE) for problem in problems]
            gap = max(gap, *(model.relative_gap for model in models))

            def right(model: Any, rows: Any) -> float:
                return float(np.mean((X[rows] @ model.coef + model.intercept > 0.0) == (y[rows] > 0.0)))

            found[name].append(right(max(models, key=lambda model: right(model, choose)), test))
    return found, gap


def run_study(path: Path) -> None:
    """Print and store the accuracies on both data sets."""
    stored: dict[str, Any] = {"splits": SPLITS, "train": TRAIN, "choose": CHOOSE, "grid": list(GRID)}
    stored |= {"code": fingerprint("categories_study"), "accuracy": {}, "largest_relative_gap": {}}
    for title, (X, y, groups) in {"census": census(path), "tumours": tumours()}.items():
        began = time.process_time()
        found, gap = study(X, y, groups)
        stored["accuracy"][title] = {name: [round(value, 6) for value in values] for name, values in found.items()}
        stored["largest_relative_gap"][title] = float(f"{gap:.1e}")
        print(
            f"{title}: {len(groups)} groups, gaps up to {gap:.1e}, {time.process_time() - began:.0f} processor seconds"
        )
        robust = np.array(found["category-robust"])
        for name, values in found.items():
            wins = f"{int((robust > values).sum())} better, {int((robust < values).sum())} worse"
            print(f"  {name:<18} {np.mean(values):.4f} +- {np.std(values) / SPLITS**0.5:.4f}; category-robust {wins}")
    (RESULTS / "categories_study.json").write_text(json.dumps(stored, indent=1) + "\n")


def run_programme(problem: Problem, X: Any, y: Any, limit: float) -> list[dict[str, Any]]:
    """Print and return both answers and their seconds, until the programme needs more than ``limit``."""
    lines, n = [], FIRST_ROWS
    print(f"both to {TOLERANCE:g}; seconds on the clock, at most {limit:g} for the programme")
    while True:
        began = time.perf_counter()
        ours = solve(problem, X[:n], y[:n], tol=TOLERANCE)
        seconds = time.perf_counter() - began
        theirs = cutting_planes(
            X[:n], y[:n], problem.geometry.categories.groups, 1.0, radius=problem.radius, tol=TOLERANCE, seconds=limit
        )
        outcome = "" if theirs.finished else ", not finished"
        print(
            f"{n:>7} rows: package {seconds:.1f} s, {ours.lower_bound:.6f} to {ours.value:.6f}; programme "
            f"{theirs.seconds:.1f} s, {theirs.value:.6f} to {theirs.value + theirs.violation:.6f}, "
            f"{theirs.rounds} rounds, {theirs.constraints} constraints{outcome}",
            flush=True,
        )
        package = {"seconds": seconds, "value": ours.value, "lower_bound": ours.lower_bound}
        lines.append({"rows": n, "package": package, "programme": theirs._asdict()})
        if not theirs.finished or n >= len(y):
            return lines
        n = min(2 * n, len(y))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=os.environ.get("DUALCORE_DATA", beside), help="folder of a9a.npz")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--seconds", type=float, default=PATIENCE, help="that the programme is given")
    options = parser.parse_args()
    path = Path(options.data) / "a9a.npz"
    fingerprint("categories_programme")  # before it measures: `store` asks again
    with np.load(path, allow_pickle=False) as file:
        X, y = file["X_train"].astype(np.float64), file["y_train"].astype(np.float64)
    problem = Problem("logistic", radius=RADIUS, norm="l1", categories=groups_of(X))
    with threadpool_limits(1):
        if "programme" in options.parts:
            lines = run_programme(problem, X, y, options.seconds)
            content = {"tolerance": TOLERANCE, "seconds": options.seconds, "lines": lines}
            store("categories_programme", content, full=options.seconds >= PATIENCE)
        if "study" in options.parts:
            run_study(path)


if __name__ == "__main__":
    main()
