"""Coresets solved alone: how far the model of a few rows and weights is from the optimum on all rows.

    python benchmarks/bench_exact.py --data DATA                      # every part; about 45 minutes on one core
    python benchmarks/bench_exact.py --data DATA --parts letter hands --repetitions 3

A coreset is built, handed to `solve` without the other rows, and the model is read on all rows. The excess is relative
to the optimum of all rows; ``model`` is the excess of the model trained on all rows, which the coreset has to give
back. Rows are permuted for every repetition; mean and worst. Beside it stand a uniform sample and Algorithm 1 of the
paper (`GridCoreset`) of as many rows, in the first repetitions; ``rivals`` is the number of these. Each line is stored
in ``results/exact.json`` as soon as it is known; a run that was cut off goes on after the last one, ``--stale``
measures lines of other code again, and ``--again`` all. With ``--repetitions`` lines of fewer repetitions are measured
again.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench_categories import groups_of
from fingerprint import fingerprint
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_linnerud, load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from stored import DATA, environment, load_letter, load_mnist, logistic_solvers, make_data
from threadpoolctl import threadpool_limits

from dualcore import (
    DualCoreset,
    GridCoreset,
    Problem,
    UniformCoreset,
    WassersteinLinearSVC,
    WassersteinLogisticRegression,
    fit_coreset,
    open_source,
    radius_path,
    solve,
)
from dualcore.coresets.exact import CoresetBuilder, Optima
from dualcore.coresets.matched import Matched, MatchedModel
from dualcore.coresets.weights import Basis, recombine
from dualcore.solvers.pilot import Pilot

RESULTS = Path(__file__).resolve().parent / "results" / "exact.json"
REPETITIONS = 20


class Case(NamedTuple):
    """A problem, its rows, and a size for the coreset; None for as few rows as are exact."""

    name: str
    problem: Problem
    X: np.ndarray
    y: np.ndarray
    size: int | None
    tol: float = 1e-8
    rivals: int = 5  # so many repetitions measure the rivals too
    gap: float = 1e-6  # certified, that the fit is asked for: the model itself has to be good, or its excess is all


class Line(NamedTuple):
    """The name of a line, what measures it a number of times, and that number by default."""

    name: str
    measure: Callable[[int], dict[str, Any]]
    repetitions: int = REPETITIONS


def excess(problem: Problem, coreset: Any, X: np.ndarray, y: np.ndarray, best: float) -> float:
    tol = 1e-5 if problem.family.moves_rows else 1e-9  # where rows move the last digits take long
    alone = solve(problem, coreset.X, coreset.y, coreset.weights, tol=tol)
    return problem.risk(alone.coef, alone.intercept, X, y) / best - 1.0


def permuted(case_X: np.ndarray, case_y: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    order = np.random.default_rng(seed).permutation(len(case_y))
    return case_X[order], case_y[order]


def run(case: Case, repetitions: int) -> dict[str, Any]:
    """Return mean and worst excess of our coreset, and the mean of its rivals'."""
    problem, best = case.problem, solve(case.problem, case.X, case.y, tol=case.tol).value
    found: dict[str, list[float]] = {name: [] for name in ("excess", "model", "uniform", "algorithm 1", "seconds")}
    sizes, gaps, reads = [], [], []
    for seed in range(repetitions):
        X, y = permuted(case.X, case.y, seed)
        began = time.process_time()
        sampler = DualCoreset(size=case.size, rounds=8, target_gap=case.gap, random_state=seed)
        fit = sampler.fit(problem, X, y, tol=1e-5 if problem.family.moves_rows else 0.1 * case.gap)
        found["seconds"].append(time.process_time() - began)
        found["excess"].append(excess(problem, fit.coreset, X, y, best))
        found["model"].append(fit.certificate.upper / best - 1.0)
        sizes.append(len(fit.coreset))
        gaps.append(fit.certificate.relative_gap)
        reads.append(fit.certificate.n_reads)
        if seed < case.rivals:
            for name, sampler in (("uniform", UniformCoreset), ("algorithm 1", GridCoreset)):
                rival = sampler(size=sizes[-1], random_state=seed).build(problem, X, y)
                found[name].append(excess(problem, rival, X, y, best))
    line = {"rows": len(case.y), "coreset": max(sizes), "worst": max(found["excess"]), "gap": max(gaps)}
    seconds = float(np.median(found.pop("seconds")))
    line |= {"reads": max(reads), "fit_seconds": seconds, "rivals": len(found["uniform"])}
    return line | {name: float(np.mean(values)) for name, values in found.items() if values}


def alone(case: Case) -> Line:
    return Line(case.name, partial(run, case))


def letter(folder: Path) -> Iterator[Line]:
    X, y = load_letter(folder)
    logistic = Problem("logistic", radius=0.3, norm="l1", label_cost=7.0)
    svm = Problem("hinge", radius=0.1, label_cost=7.0, ridge=1 / 200)
    for name, problem, size in (("logistic", logistic, 25), ("SVM", svm, 63), ("SVM", svm, 126)):
        yield alone(Case(f"LETTER, {name}, {size} rows", problem, X, y, size))


def large(folder: Path) -> Iterator[Line]:
    X, labels, targets = make_data(1_000_000, 20)
    for norm in ("l1", "l2", "linf"):
        for cost in (np.inf, 7.0, 1.0):
            at = {"radius": 0.1, "norm": norm, "label_cost": cost}
            yield alone(Case(f"logistic, {norm}, label cost {cost:g}", Problem("logistic", **at), X, labels, 60))
    for norm, cost in (("l2", 7.0), ("l1", np.inf), ("linf", 1.0)):
        at = {"radius": 0.1, "norm": norm, "label_cost": cost}
        yield alone(Case(f"hinge, {norm}, label cost {cost:g}", Problem("hinge", **at), X, labels, 500))
    for name, problem in (
        ("Huber, l2", Problem("huber", radius=0.1)),
        ("quantile 0.9, l2", Problem("pinball", quantile=0.9, radius=0.1)),
    ):
        yield alone(Case(name, problem, X, targets, 500))


def mnist(folder: Path) -> Iterator[Line]:
    images, digits = load_mnist(folder)
    rng = np.random.default_rng(0)
    for first, second in ((3, 5), (4, 9)):
        own = (digits == first) | (digits == second)
        X = images[own] + rng.normal(size=(np.count_nonzero(own), 784))  # noise and flips as in the paper
        y = np.where(digits[own] == first, 1.0, -1.0) * np.where(rng.random(len(X)) < 0.1, -1.0, 1.0)
        problem = Problem("logistic", radius=0.1, norm="l1", label_cost=7.0)
        yield alone(Case(f"MNIST {first} v {second}, logistic, l1", problem, X, y, 900, 1e-5, rivals=0, gap=1e-4))


def digits(folder: Path) -> Iterator[Line]:
    X, labels = load_digits(return_X_y=True)
    X = X / 16.0
    for norm, radius in (("l2", 0.05), ("linf", 0.01), ("l1", 0.1)):
        problem = Problem("softmax", n_classes=10, radius=radius, norm=norm)
        yield alone(Case(f"digits, softmax, {norm}", problem, X, labels.astype(float), 700, 1e-6))
    own = (labels == 3) | (labels == 8)
    X, y = X[own], np.where(labels[own] == 3, 1.0, -1.0)
    for loss in ("hinge", "logistic"):
        for norm, radius in (("l1", 0.5), ("l2", 0.3), ("linf", 0.05)):
            problem = Problem(loss, radius=radius, norm=norm, support=(0, 1))
            yield alone(Case(f"digits in a box, {loss}, {norm}", problem, X, y, 150, 1e-6))


def tables(folder: Path) -> Iterator[Line]:
    """Tables of different kinds at two sizes: twice the matched numbers, and a tenth of the rows at least."""
    for name, X, y, losses in _tables(folder):
        X = StandardScaler().fit_transform(X)
        for loss in losses:
            problem = Problem(loss, radius=0.03)
            for size in (2 * (X.shape[1] + 4), max(6 * (X.shape[1] + 4), len(y) // 10)):
                if size < len(y) // 2:
                    yield alone(Case(f"{name}, {loss}, {size} rows", problem, X, y, size, 1e-7))


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
    X, digits = load_digits(return_X_y=True)
    yield "digits, even", X, np.where(digits % 2 == 0, 1.0, -1.0), classes
    X, y = load_iris(return_X_y=True)
    yield "iris", X, np.where(y == 1, 1.0, -1.0), classes
    X, y = load_linnerud(return_X_y=True)
    yield "linnerud, repeated", np.tile(X, (20, 1)) + rng.normal(size=(400, 3)), np.tile(y[:, 0], 20) / 25.0, targets
    X = rng.lognormal(sigma=1.5, size=(n, 15))
    yield "skewed", X, np.log(X[:, 0]) - np.log(X[:, 1]) + rng.normal(size=n), targets
    X = np.repeat(rng.normal(size=(n // 20, 10)), 20, axis=0)
    yield "repeated rows", X, np.where(X[:, 0] + rng.logistic(size=n) > 0, 1.0, -1.0), classes
    X = rng.integers(0, 3, size=(n, 40)).astype(float)
    yield "counts", X, X[:, :5].sum(axis=1) / 3.0 + rng.standard_t(3, size=n), targets
    X = rng.normal(size=(600, 150))
    yield "wide", X, np.where(X[:, :3].sum(axis=1) + rng.logistic(size=600) > 0, 1.0, -1.0), classes
    X = rng.normal(size=(n, 25)) * 10.0 ** rng.uniform(-4, 4, size=25)
    yield "units far apart", X, X[:, 0] / X[:, 0].std() + rng.normal(size=n), targets
    X, noise = rng.normal(size=(n, 12)), rng.random(n) < 0.25
    yield "label noise", X, np.where(X[:, 0] > 0, 1.0, -1.0) * np.where(noise, -1.0, 1.0), classes


def path(folder: Path) -> Iterator[Line]:
    """Exact at a few radii, measured at others between them: the worst excess over the radii."""

    def measure(X: Any, y: Any, settings: dict[str, Any], anchors: Any, radii: Any, repetitions: int) -> dict[str, Any]:
        problems = [Problem("logistic", radius=float(radius), **settings) for radius in radii]
        bests, worst, rows = [solve(at, X, y, tol=1e-9).value for at in problems], [], []
        uniform: list[list[float]] = []
        for seed in range(repetitions):
            parts = permuted(X, y, seed)
            sampler = DualCoreset(radii=list(anchors), target_gap=1e-6, rounds=8, random_state=seed)
            coreset = sampler.build(problems[0].replace(radius=float(anchors[0])), *parts)
            rows.append(len(coreset))
            rival = UniformCoreset(size=len(coreset), random_state=seed).build(problems[0], *parts)
            found, others = (
                [excess(at, each, X, y, best) for at, best in zip(problems, bests, strict=True)]
                for each in (coreset, rival)
            )
            worst.append(max(found))
            uniform.append(others)
        line = {"rows": len(y), "coreset": max(rows), "excess": float(np.mean(worst)), "worst": max(worst)}
        line["uniform"] = float(np.mean([max(others) for others in uniform]))
        # What the picture shows: the last repetition.
        drawn = {"radii": [float(radius) for radius in radii], "risks": bests, "ours": found, "theirs": uniform[-1]}
        return line | {"picture": drawn}

    X, y = load_letter(folder)
    task = partial(
        measure, X, y, {"norm": "l1", "label_cost": 7.0}, (0.03, 0.1, 0.3, 0.6), (0.03, 0.06, 0.1, 0.2, 0.3, 0.45, 0.6)
    )
    yield Line("LETTER, four radii", task)
    X, y, _ = make_data(100_000, 20)
    task = partial(measure, X, y, {}, np.geomspace(0.01, 0.5, 5), np.geomspace(0.01, 0.5, 15))
    yield Line("100,000 x 20, five radii", task)


def census(folder: Path) -> Iterator[Line]:
    """a9a with its 14 groups of categories, which the adversary may change."""
    with np.load(folder / "a9a.npz", allow_pickle=False) as file:
        X, y = file["X_train"].astype(float), file["y_train"].astype(float)
    groups = groups_of(X)
    for loss in ("logistic", "hinge"):
        problem = Problem(loss, radius=0.01, norm="l1", categories=groups)
        yield alone(Case(f"a9a, {len(groups)} groups, {loss}", problem, X[:2000], y[:2000], 260, 1e-5))


def classes(folder: Path) -> Iterator[Line]:
    """One coreset for the models of all classes, each against the rest: the worst class."""

    def measure(estimator: Any, X: Any, y: Any, size: int, repetitions: int) -> dict[str, Any]:
        signs = np.where(y == np.unique(y)[:, None], 1.0, -1.0)
        problem, softmax = estimator.make_problem(), Problem("softmax", n_classes=len(signs))
        bests = [solve(problem, X, own, tol=1e-9).value for own in signs]
        found: dict[str, list[float]] = {"excess": [], "uniform": []}
        for seed in range(repetitions):
            rows = permuted(X, y, seed)
            ours = estimator.set_params(coreset=size, random_state=seed).fit(*rows).coreset_
            theirs = UniformCoreset(size=len(ours), random_state=seed).build(softmax, *rows)
            for name, made in (("excess", ours), ("uniform", theirs)):
                parts = [replace(made, y=np.where(made.y == k, 1.0, -1.0)) for k in range(len(signs))]
                each = zip(parts, signs, bests, strict=True)
                found[name].append(max(excess(problem, part, X, own, best) for part, own, best in each))
        line = {"rows": len(y), "coreset": len(ours), "worst": max(found["excess"])}
        return line | {name: float(np.mean(values)) for name, values in found.items()}

    with np.load(folder / "letter_full.npz", allow_pickle=False) as file:
        letters = file["X"] / 15.0, file["y"].astype(float)
    X, y = load_digits(return_X_y=True)
    for name, make in (
        ("logistic", partial(WassersteinLogisticRegression, multi_class="ovr")),
        ("hinge", WassersteinLinearSVC),
    ):
        yield Line(f"digits, {name}, 10 classes", partial(measure, make(radius=0.02), X / 16.0, y.astype(float), 1200))
        yield Line(f"LETTER, {name}, 26 classes", partial(measure, make(radius=0.002), *letters, 3000), 5)


def region(folder: Path) -> Iterator[Line]:
    """The paper's definition: largest relative error of the objective at a distance from the optimum."""

    def measure(problem: Problem, X: Any, y: Any, size: int, repetitions: int) -> dict[str, Any]:
        best = solve(problem, X, y, tol=1e-8)
        rng, Z = np.random.default_rng(0), np.column_stack([X, np.ones(len(y))])
        metric = np.linalg.cholesky(Z.T @ Z / len(y) + 1e-9 * np.eye(Z.shape[1]))
        steps = rng.normal(size=(100, Z.shape[1]))
        steps = np.linalg.solve(metric.T, (steps / np.linalg.norm(steps, axis=1)[:, None]).T).T
        line: dict[str, Any] = {"rows": len(y), "coreset": size}
        whole = Pilot(np.arange(len(y)), X, y, np.full(len(y), 1.0 / len(y)))

        def calibrated(seed: int) -> Any:
            optima = Optima([(problem, best)], whole, seed)
            return CoresetBuilder(open_source(X, y), optima).draw(size, calibrated=True)

        def built(sampler: Any, seed: int) -> Any:
            return sampler(size=size, random_state=seed).build(problem, X, y)

        exact = partial(DualCoreset, rounds=8, target_gap=1e-6)  # the others have the optimum itself
        makers = {"error": partial(built, exact), "calibrated": calibrated}
        makers |= {"algorithm 1": partial(built, GridCoreset), "uniform": partial(built, UniformCoreset)}
        coresets = {name: [make(seed) for seed in range(repetitions)] for name, make in makers.items()}
        for r in (0.03, 0.1, 0.3, 1.0, 3.0):
            errors: dict[str, list[list[float]]] = {name: [] for name in makers}
            for step in r * steps:
                coef, intercept = best.coef + step[:-1], best.intercept + step[-1]
                risk = problem.risk(coef, intercept, X, y)
                for name, made in coresets.items():
                    risks = [problem.risk(coef, intercept, c.X, c.y, c.weights) for c in made]
                    errors[name].append([abs(each / risk - 1) for each in risks])
            for name, found in errors.items():
                line |= {f"{name}, r = {r:g}": float(np.mean(found)), f"worst {name}, r = {r:g}": float(np.max(found))}
        return line

    X, y = load_letter(folder)
    tables = [("LETTER", X, y, 126), ("100,000 x 20", *make_data(100_000, 20)[:2], 240)]
    with np.load(folder / "a9a.npz", allow_pickle=False) as file:
        tables.append(("a9a", file["X_train"].astype(float), file["y_train"].astype(float), 1000))
    for name, X, y, size in tables:
        for loss in ("logistic", "hinge"):
            problem = Problem(loss, radius=0.1, label_cost=7.0)
            yield Line(f"{name}, {loss}", partial(measure, problem, X, y, size))


def times(folder: Path) -> Iterator[Line]:
    """CPU seconds at 1,000,000 x 20: fits beside scikit-learn's, 100 radii beside one fit, recombination."""
    X, labels, _ = make_data(1_000_000, 20)
    plain: list[float] = []

    def seconds(call: Callable[[], Any], repetitions: int) -> tuple[float, Any]:
        spent = []
        for _ in range(repetitions):
            began = time.process_time()
            found = call()
            spent.append(time.process_time() - began)
        return float(np.median(spent)), found

    def fit(problem: Problem, repetitions: int) -> dict[str, Any]:
        if not plain:  # beside the hinge too: LinearSVC takes minutes
            fits = [LogisticRegression(solver=solver, max_iter=1000).fit for solver in logistic_solvers(X)]
            plain.append(min(seconds(partial(each, X, labels), repetitions)[0] for each in fits))
        own, found = seconds(lambda: fit_coreset(problem, X, labels, 0.005, random_state=0), repetitions)
        line = {"seconds": own, "peer_seconds": plain[0], "ratio": own / plain[0]}
        line["gap"] = found.certificate.relative_gap
        return line | {"reads": found.certificate.n_reads, "excess": found.coreset.excess}

    def radii(size: float | None, repetitions: int) -> dict[str, Any]:
        problem = Problem("logistic", radius=0.1)
        one, _ = seconds(lambda: solve(problem, X, labels, tol=1e-4), repetitions)
        settings = {"target_gap": 1e-3, "tol": 1e-6 if size else 1e-3, "random_state": 0}  # the same certified gap
        order = np.geomspace(0.001, 0.5, 100)
        many, found = seconds(lambda: radius_path(problem, X, labels, order, size, **settings), repetitions)
        worst = max(point.certificate.relative_gap for point in found.points)
        return {"seconds": many, "peer_seconds": one, "ratio": many / one, "gap": worst, "reads": found.n_reads}

    def recombination(X: Any, y: Any, n_models: int, repetitions: int) -> dict[str, Any]:
        models, weights = [], np.full(len(y), 1.0 / len(y))
        for radius in np.geomspace(0.02, 0.5, n_models):
            problem = Problem("logistic", radius=float(radius))
            models.append(MatchedModel.of(problem, solve(problem, X[:20_000], y[:20_000], tol=1e-4)))
        matched = Matched(tuple(models), X[:1000].mean(axis=0))

        def reduced() -> Any:
            values = matched.values(X, y)
            return recombine(Basis.of(values, weights).apply(values), weights)[0]

        spent, found = seconds(reduced, repetitions)
        return {"rows": len(y), "coreset": len(found), "matched": matched.n_columns, "seconds": spent}

    for loss in ("logistic", "hinge"):
        for norm in ("l1", "l2", "linf"):
            for cost in (np.inf, 7.0, 1.0):
                problem = Problem(loss, radius=0.1, norm=norm, label_cost=cost)
                yield Line(f"{loss}, {norm}, label cost {cost:g}", partial(fit, problem), 3)
    yield Line("100 certified radii, beside one fit", partial(radii, 0.005), 3)
    yield Line("100 certified radii on all rows, beside one fit", partial(radii, None), 1)
    for n_models in (1, 5):
        yield Line(f"recombination at {n_models} models", partial(recombination, X, labels, n_models), 3)
    X, labels, _ = make_data(60_000, 784)
    yield Line("recombination of 60,000 x 784", partial(recombination, X, labels, 1), 1)


def costs(folder: Path) -> Iterator[Line]:
    """What a model of a million rows costs in CPU seconds and reads, and how good it is."""
    X, y, _ = make_data(1_000_000, 20)
    problem = Problem("logistic", radius=0.1)
    optimum: list[float] = []

    def measure(train: Callable[[Any, int], tuple[Any, int]], repetitions: int) -> dict[str, Any]:
        optimum[:] = optimum or [solve(problem, X, y, tol=1e-9).value]
        spent, found, reads = [], [], []
        for seed in range(repetitions):
            source = open_source(*permuted(X, y, seed))
            began = time.process_time()
            model, rows = train(source, seed)
            spent.append(time.process_time() - began)
            reads.append(source.n_reads)
            found.append(problem.risk(model.coef, model.intercept, X, y) / optimum[0] - 1.0)
        line = {"rows": len(y), "coreset": rows, "seconds": float(np.median(spent)), "reads": max(reads)}
        return line | {"excess": float(np.mean(found)), "worst": max(found)}

    def alone(make: Callable[..., Any], size: int | None, source: Any, seed: int) -> tuple[Any, int]:
        coreset = make(size=size, random_state=seed).build(problem, source)
        return solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-8), len(coreset)

    def fit(source: Any, seed: int) -> tuple[Any, int]:
        return fit_coreset(problem, source, coreset=0.005, random_state=seed).solution, len(y)

    for size in (100, 1000, 10_000, 100_000):
        yield Line(f"uniform sample, {size:,} rows", partial(measure, partial(alone, UniformCoreset, size)))
        yield Line(f"Algorithm 1, {size:,} rows", partial(measure, partial(alone, GridCoreset, size)))
    yield Line("exact coreset, fewest rows", partial(measure, partial(alone, DualCoreset, None)))
    yield Line("fit", partial(measure, fit))
    yield Line("all rows", partial(measure, lambda source, _: (solve(problem, source, tol=1e-6), len(y))))


def hands(folder: Path) -> Iterator[Line]:
    """The coreset handed to scikit-learn: its loss on all rows above that of a fit to all rows."""
    X, y = load_letter(folder)
    problem = Problem("logistic", radius=0.02)

    def measure(make: Callable[[], Any], loss: Callable[[np.ndarray], np.ndarray], repetitions: int) -> dict[str, Any]:
        found: dict[str, list[float]] = {"excess": [], "uniform": []}
        for seed in range(repetitions):
            rows, signs = permuted(X, y, seed)
            best = loss(signs * make().fit(rows, signs).decision_function(rows)).mean()
            coreset = DualCoreset(size=126, random_state=seed).fit(problem, rows, signs).coreset
            uniform = UniformCoreset(size=126, random_state=seed).build(problem, rows, signs)
            for kind, part in (("excess", coreset), ("uniform", uniform)):
                fitted = make().fit(part.X, part.y, len(y) * part.weights)
                found[kind].append(float(loss(signs * fitted.decision_function(rows)).mean() - best))
        line = {"rows": len(y), "coreset": len(coreset), "worst": max(found["excess"])}
        return line | {kind: float(np.mean(values)) for kind, values in found.items()}

    for C in (0.01, 1.0, 100.0):
        make = partial(LogisticRegression, C=C, max_iter=5000)
        yield Line(f"LogisticRegression(C={C:g})", partial(measure, make, lambda t: np.logaddexp(0, -t)))
    make = partial(LinearSVC, loss="hinge", max_iter=200_000)
    yield Line("LinearSVC(C=1)", partial(measure, make, lambda t: np.maximum(1 - t, 0)))


PARTS = {
    part.__name__: part
    for part in (letter, path, hands, digits, tables, large, mnist, census, classes, region, times, costs)
}


def store(part: str, line: dict[str, Any]) -> None:
    """Put a line in the place of the one of its name, or at the end."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
    about, entry = environment("exact"), known.get(part, {"lines": []})
    lines = {each["setting"]: each for each in entry["lines"]}
    lines[line["setting"]] = line | {"code": about["code"]}
    machine = {"cpu": about["cpu"], "python": about["python"], "threads": 1}
    known[part] = {"packages": about["versions"], "machine": machine, "lines": list(lines.values())}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--repetitions", type=int, default=None, help="instead of those of each line")
    parser.add_argument("--again", action="store_true", help="measure lines that are stored already")
    parser.add_argument("--stale", action="store_true", help="measure lines again that are of other code")
    parser.add_argument("--dry", action="store_true", help="store nothing")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    code = fingerprint("exact")
    for part in options.parts:
        print(f"== {part}", flush=True)
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
        kept = [line for line in known.get(part, {}).get("lines", []) if not options.stale or line.get("code") == code]
        done = {line["setting"]: line.get("repetitions", 0) for line in kept}
        for name, measure, default in PARTS[part](options.data):
            repetitions = options.repetitions or default
            if not options.again and done.get(name, 0) >= repetitions:
                continue
            with threadpool_limits(limits=1):
                line = {"setting": name, "repetitions": repetitions} | measure(repetitions)
            print(json.dumps(line), flush=True)
            if not options.dry:
                store(part, line)


if __name__ == "__main__":
    main()
