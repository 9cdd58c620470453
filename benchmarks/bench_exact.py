"""Coresets solved alone: how far the model of a few rows and weights is from the optimum on all rows.

    python benchmarks/bench_exact.py --data DATA                      # every part; about an hour on one core
    python benchmarks/bench_exact.py --data DATA --parts letter hands --repeats 3

A coreset is built, handed to `solve` without the other rows, and the model is read on all rows. The excess is relative
to the optimum of all rows; ``model`` is the excess of the model trained on all rows, which the coreset has to give
back. Rows are permuted for every repetition; mean and worst. Beside it stand a uniform sample and Algorithm 1 of the
paper (`GridCoreset`) of as many rows. Each part is stored by itself in ``results/exact.json``.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_coreset_large import make_data
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from stored import environment, load_letter
from threadpoolctl import threadpool_limits

from dualcore import DualCoreset, GridCoreset, Problem, UniformCoreset, solve

RESULTS = Path(__file__).resolve().parent / "results" / "exact.json"


class Case(NamedTuple):
    """A problem, its rows, and a size for the coreset; None for as few rows as are exact."""

    name: str
    problem: Problem
    X: np.ndarray
    y: np.ndarray
    size: int | None
    repeats: int
    tol: float = 1e-8
    radii: tuple[float, ...] | None = None


def excess(problem: Problem, coreset: Any, X: np.ndarray, y: np.ndarray, best: float) -> float:
    alone = solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-9)
    return problem.risk(alone.coef, alone.intercept, X, y) / best - 1.0


def run(case: Case, repeats: int | None, rivals: bool = True) -> dict[str, Any]:
    """Return mean and worst excess of our coreset, and the mean of its rivals'."""
    problem, best = case.problem, solve(case.problem, case.X, case.y, tol=case.tol).value
    ours, model, others, sizes, seconds = [], [], {"uniform": [], "algorithm 1": []}, [], []
    for seed in range(repeats or case.repeats):
        order = np.random.default_rng(seed).permutation(len(case.y))
        X, y = case.X[order], case.y[order]
        began = time.perf_counter()
        # The model itself has to be good, or its own excess is all that shows.
        fit = DualCoreset(size=case.size, rounds=8, target_gap=1e-6, random_state=seed).fit(problem, X, y, tol=1e-7)
        seconds.append(time.perf_counter() - began)
        ours.append(excess(problem, fit.coreset, X, y, best))
        model.append(fit.certificate.upper / best - 1.0)
        sizes.append(len(fit.coreset))
        if rivals:
            others["uniform"].append(
                excess(problem, UniformCoreset(size=sizes[-1], random_state=seed).build(problem, X, y), X, y, best)
            )
            others["algorithm 1"].append(
                excess(problem, GridCoreset(size=sizes[-1], random_state=seed).build(problem, X, y), X, y, best)
            )
    line = {
        "setting": case.name,
        "rows": len(case.y),
        "coreset": max(sizes),
        "excess": float(np.mean(ours)),
        "worst": float(np.max(ours)),
        "model": float(np.mean(model)),
        "fit_seconds": float(np.median(seconds)),
    }
    line |= {name: float(np.mean(found)) for name, found in others.items() if found}
    print(json.dumps(line), flush=True)
    return line


def letter(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    X, y = load_letter(folder)
    logistic = Problem("logistic", radius=0.3, norm="l1", label_cost=7.0)
    svm = Problem("hinge", radius=0.1, label_cost=7.0, ridge=1 / 200)
    for name, problem, size in (("logistic", logistic, 25), ("SVM", svm, 63), ("SVM", svm, 126)):
        yield run(Case(f"LETTER, {name}", problem, X, y, size, 20), repeats)


def large(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    X, labels, targets = make_data(1_000_000, 20)
    for norm in ("l1", "l2", "linf"):
        for cost in (np.inf, 7.0, 1.0):
            at = {"radius": 0.1, "norm": norm, "label_cost": cost}
            yield run(
                Case(f"logistic, {norm}, label cost {cost:g}", Problem("logistic", **at), X, labels, 60, 2), repeats
            )
    for norm, cost in (("l2", 7.0), ("l1", np.inf), ("linf", 1.0)):
        at = {"radius": 0.1, "norm": norm, "label_cost": cost}
        yield run(Case(f"hinge, {norm}, label cost {cost:g}", Problem("hinge", **at), X, labels, 500, 1), repeats)
    for name, problem in (
        ("Huber, l2", Problem("huber", radius=0.1)),
        ("quantile 0.9, l2", Problem("pinball", quantile=0.9, radius=0.1)),
    ):
        yield run(Case(name, problem, X, targets, 500, 1), repeats)


def mnist(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    def read(name: str, skip: int) -> np.ndarray:
        with gzip.open(folder / "mnist_idx" / name) as file:
            return np.frombuffer(file.read(), np.uint8)[skip:]

    images, digits = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784), read("train-labels-idx1-ubyte.gz", 8)
    rng = np.random.default_rng(0)
    for first, second in ((3, 5), (4, 9)):
        own = (digits == first) | (digits == second)
        X = images[own] / 255.0 + rng.normal(size=(np.count_nonzero(own), 784))  # noise and flips as in the paper
        y = np.where(digits[own] == first, 1.0, -1.0) * np.where(rng.random(len(X)) < 0.1, -1.0, 1.0)
        problem = Problem("logistic", radius=0.1, norm="l1", label_cost=7.0)
        yield run(Case(f"MNIST {first} v {second}, logistic, l1", problem, X, y, 900, 1, 1e-5), repeats, rivals=False)


def digits(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    X, labels = load_digits(return_X_y=True)
    X = X / 16.0
    for norm, radius in (("l2", 0.05), ("linf", 0.01), ("l1", 0.1)):
        problem = Problem("softmax", n_classes=10, radius=radius, norm=norm)
        yield run(Case(f"digits, softmax, {norm}", problem, X, labels.astype(float), 700, 1, 1e-6), repeats)
    own = (labels == 3) | (labels == 8)
    X, y = X[own], np.where(labels[own] == 3, 1.0, -1.0)
    for loss in ("hinge", "logistic"):
        for norm, radius in (("l1", 0.5), ("l2", 0.3), ("linf", 0.05)):
            problem = Problem(loss, radius=radius, norm=norm, support=(0, 1))
            yield run(Case(f"digits in a box, {loss}, {norm}", problem, X, y, 150, 1, 1e-6), repeats)


def tables(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    """Tables of different kinds at two sizes: twice the matched numbers, and a tenth of the rows at least."""
    for name, X, y, losses in _tables(folder):
        X = StandardScaler().fit_transform(X)
        for loss in losses:
            problem = Problem(loss, radius=0.03)
            for size in (2 * (X.shape[1] + 4), max(6 * (X.shape[1] + 4), len(y) // 10)):
                if size < len(y) // 2:
                    yield run(Case(f"{name}, {loss}", problem, X, y, size, 2, 1e-7), repeats)


def _tables(folder: Path) -> Iterator[tuple[str, np.ndarray, np.ndarray, tuple[str, ...]]]:
    rng = np.random.default_rng(5)
    classes, targets = ("logistic", "hinge"), ("huber", "pinball")
    X, y = load_breast_cancer(return_X_y=True)
    yield "breast cancer", X, 2.0 * y - 1.0, classes
    X, y = load_wine(return_X_y=True)
    yield "wine", X, np.where(y == 1, 1.0, -1.0), classes
    X, y = load_diabetes(return_X_y=True)
    yield "diabetes", X, (y - y.mean()) / y.std(), targets
    with np.load(folder / "a9a.npz", allow_pickle=False) as file:
        yield "a9a", file["X_train"].astype(float), file["y_train"].astype(float), classes
    with np.load(folder / "letter_full.npz", allow_pickle=False) as file:
        own = file["y"] < 2
        yield "LETTER A v B", file["X"][own].astype(float), np.where(file["y"][own] == 0, 1.0, -1.0), classes
    with np.load(folder / "appliances_energy.npz", allow_pickle=False) as file:
        y = file["y"].astype(float)
        yield "appliances", file["X"][:, :-1].astype(float), (y - y.mean()) / y.std(), targets
    n = 4000
    X = rng.standard_t(2, size=(n, 30))
    yield "heavy tails", X, np.where(X[:, 0] - X[:, 1] + rng.logistic(size=n) > 0, 1.0, -1.0), classes
    X = np.column_stack(
        [np.eye(12)[rng.integers(12, size=n)], np.eye(40)[rng.integers(40, size=n)], rng.normal(size=(n, 5))]
    )
    yield "one-hot", X, np.where(X @ rng.normal(size=X.shape[1]) + rng.logistic(size=n) > 0, 1.0, -1.0), classes
    X = rng.normal(size=(n, 20))
    yield "separable", X, np.where(X[:, 0] + X[:, 1] > 0, 1.0, -1.0), classes
    yield "unbalanced", X, np.where(X[:, 0] + rng.logistic(size=n) > 4.5, 1.0, -1.0), classes
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, 25)) + 1e-3 * rng.normal(size=(n, 25))
    yield "near-collinear", X, np.where(X[:, 0] + rng.logistic(size=n) > 0, 1.0, -1.0), classes


def hands(folder: Path, repeats: int | None) -> Iterator[dict[str, Any]]:
    """The coreset handed to scikit-learn: its loss on all rows above that of a fit to all rows."""
    X, y = load_letter(folder)
    problem = Problem("logistic", radius=0.02)
    settings: list[tuple[str, Callable[[], Any], Callable[[np.ndarray], np.ndarray]]] = [
        (
            f"LogisticRegression(C={C:g})",
            lambda C=C: LogisticRegression(C=C, max_iter=5000),
            lambda t: np.logaddexp(0, -t),
        )
        for C in (0.01, 1.0, 100.0)
    ]
    settings.append(
        ("LinearSVC(C=1)", lambda: LinearSVC(loss="hinge", max_iter=200_000), lambda t: np.maximum(1 - t, 0))
    )
    for name, make, loss in settings:
        found: dict[str, list[float]] = {"excess": [], "uniform": []}
        sizes = []
        for seed in range(repeats or 10):
            order = np.random.default_rng(seed).permutation(len(y))
            rows, signs = X[order], y[order]
            best = loss(signs * make().fit(rows, signs).decision_function(rows)).mean()
            coreset = DualCoreset(size=126, random_state=seed).fit(problem, rows, signs).coreset
            uniform = UniformCoreset(size=126, random_state=seed).build(problem, rows, signs)
            sizes.append(len(coreset))
            for kind, part in (("excess", coreset), ("uniform", uniform)):
                fitted = make().fit(part.X, part.y, len(y) * part.weights)
                found[kind].append(float(loss(signs * fitted.decision_function(rows)).mean() - best))
        line = {"setting": name, "rows": len(y), "coreset": max(sizes), "excess": float(np.mean(found["excess"]))}
        line |= {"worst": float(np.max(found["excess"])), "uniform": float(np.mean(found["uniform"]))}
        print(json.dumps(line), flush=True)
        yield line


PARTS = {"letter": letter, "hands": hands, "digits": digits, "tables": tables, "large": large, "mnist": mnist}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DUALCORE_DATA", "../shared/data")))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=None, help="instead of those of each case; not stored")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(limits=1):
        for part in options.parts:
            print(f"== {part}", flush=True)
            began = time.perf_counter()
            lines = list(PARTS[part](options.data, options.repeats))
            if options.repeats is None:
                known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
                about = environment()
                known[part] = {
                    "packages": about["versions"],
                    "machine": {"cpu": about["cpu"], "python": about["python"], "threads": 1},
                    "seconds": time.perf_counter() - began,
                    "lines": lines,
                }
                RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
