"""Parts about walls: training on a box beside the same problem without walls, in processor seconds of one run.

"box-digits": digits 3 v 8 in [0, 1], three losses, three norms; "ratio" is with walls over without. "box-mnist35":
MNIST 3 v 5, 1,902 and all 11,552 rows; "pairs" is the time of training in products with X and its transpose, of rows in
double precision as training has them: of single-precision rows a product with a double-precision vector converts all of
them first and takes several times as long. "box-mnist-all": odd digits against even ones, all 60,000 rows.
"box-evaluation": risk and gradient at one multiplier, in products
``X @ coef``; digits 3 v 8, and 1,902 rows of MNIST.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from threadpoolctl import threadpool_limits

from dualcore import Problem, solve
from dualcore.problem.anchor import Anchor

__all__ = ["box_parts"]

Line = dict[str, Any]
Part = Callable[[argparse.Namespace], Iterator[Line]]
RADII = {"l1": 0.3, "l2": 0.1, "linf": 0.02}
LOSSES = ("hinge", "logistic", "huber")
FEW, TOL, PIXEL_TOL, ALL_TOL = 1902, 1e-4, 1e-3, 1e-2
# Losses, norms and radii of either number of rows; l1 and linf for the fewer rows only.
PIXELS = (
    ("hinge", "l2", 0.1),
    ("hinge", "l2", 0.5),
    ("logistic", "l2", 0.1),
    ("logistic", "l2", 0.5),
)
FEW_PIXELS = (
    ("hinge", "l1", 0.3),
    ("hinge", "linf", 0.02),
    ("logistic", "l1", 0.3),
    ("logistic", "linf", 0.02),
)


def processor_seconds(function: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """Return the median of a few runs, and what the last one found."""
    seconds = []
    for _ in range(repeats):
        began = time.process_time()
        found = function()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds), found


def two_digits(X: Any, y: Any, first: int, second: int) -> tuple[Any, Any]:
    kept = (y == first) | (y == second)
    return X[kept], np.where(y[kept] == first, 1.0, -1.0)


def three_eight() -> tuple[Any, Any]:
    X, y = load_digits(return_X_y=True)
    return two_digits(X / 16.0, y, 3, 8)


def digits(chosen: argparse.Namespace) -> Iterator[Line]:
    X, y = three_eight()
    for loss in LOSSES:
        for norm, radius in RADII.items():
            problem = Problem(loss, radius=radius, norm=norm)
            walled = problem.replace(support=(0.0, 1.0))
            free, _ = processor_seconds(lambda problem=problem: solve(problem, X, y, tol=TOL), 5)
            seconds, found = processor_seconds(lambda walled=walled: solve(walled, X, y, tol=TOL), chosen.repeats)
            yield {
                "setting": f"digits 3 v 8 in a box, {loss} {norm}",
                "rows": X.shape[0],
                "features": X.shape[1],
                "seconds": seconds,
                "peer_seconds": free,
                "ratio": seconds / free,
                "most": 50.0,
                "value": found.value,
                "gap": found.relative_gap,
                "status": found.status.name,
            }


def evaluations(name: str, X: Any, y: Any, repeats: int) -> Iterator[Line]:
    """Yield risk and gradient of all losses and norms at one model and one multiplier."""
    coef = np.random.default_rng(0).normal(size=X.shape[1])
    for loss in LOSSES:
        for norm, radius in RADII.items():
            problem = Problem(loss, radius=radius, norm=norm, support=(0.0, 1.0))
            data = problem.validate(X, y)
            multiplier = 0.5 * problem.loss.lipschitz * problem.size(coef)

            def both(problem=problem, data=data, multiplier=multiplier) -> None:
                found = problem.family.rows(Anchor(coef, 0.0, multiplier), X, y)
                float(data.masses @ found.upper), (data.masses * found.slope) @ found.moved

            product, _ = processor_seconds(lambda: [X @ coef for _ in range(100 * repeats)], 3)
            seconds, _ = processor_seconds(lambda both=both: [both() for _ in range(repeats)], 3)
            yield {
                "setting": f"risk and gradient{name}, {loss} {norm}",
                "rows": X.shape[0],
                "features": X.shape[1],
                "seconds": seconds / repeats,
                "peer_seconds": product / (100 * repeats),
                "ratio": 100.0 * seconds / product,
                "most": 100.0,
            }


def pair_seconds(X: Any, y: Any) -> float:
    """Return how long a product with X and one with its transpose take."""
    wide, ones = X.astype(np.float64), np.ones(X.shape[1])
    return processor_seconds(lambda: wide.T @ (y * (wide @ ones)), 20)[0]


def box_parts(read_mnist: Callable[[argparse.Namespace], tuple[Any, Any] | None]) -> dict[str, Part]:
    """Return the parts by name; ``read_mnist`` returns pixels in [0, 1] and labels, or None where there are none."""

    def pixels(chosen: argparse.Namespace) -> Iterator[Line]:
        found = read_mnist(chosen)
        if found is None:
            return
        X, y = two_digits(*found, 3, 5)
        for n in (FEW, X.shape[0]):
            A, labels = X[:n], y[:n]
            pair = pair_seconds(A, labels)
            for loss, norm, radius in (*PIXELS, *(FEW_PIXELS if n == FEW else ())):
                problem = Problem(loss, radius=radius, norm=norm, support=(0.0, 1.0))
                run = lambda A=A, labels=labels, problem=problem: solve(problem, A, labels, tol=PIXEL_TOL)  # noqa: E731
                seconds, model = processor_seconds(run, 1)
                yield {
                    "setting": f"MNIST 3 v 5 in a box, {loss} {norm}, radius {radius:g}",
                    "rows": A.shape[0],
                    "features": A.shape[1],
                    "seconds": seconds,
                    "pairs": seconds / pair,
                    "most": 10_000.0,
                    "value": model.value,
                    "gap": model.relative_gap,
                    "status": model.status.name,
                }

    def parities(chosen: argparse.Namespace) -> Iterator[Line]:
        found = read_mnist(chosen)
        if found is None:
            return
        X, y = found[0], np.where(found[1] % 2 == 1, 1.0, -1.0)
        problem = Problem("logistic", radius=0.1, norm="l2", support=(0.0, 1.0))
        seconds, model = processor_seconds(lambda: solve(problem, X, y, tol=ALL_TOL), 1)
        yield {
            "setting": "MNIST odd against even in a box, logistic l2, radius 0.1",
            "rows": X.shape[0],
            "features": X.shape[1],
            "seconds": seconds,
            "pairs": seconds / pair_seconds(X, y),
            "value": model.value,
            "gap": model.relative_gap,
            "status": model.status.name,
        }

    def evaluation(chosen: argparse.Namespace) -> Iterator[Line]:
        found = read_mnist(chosen)
        with threadpool_limits(1):  # threads that wait for each other would be counted
            yield from evaluations("", *three_eight(), repeats=20)
            if found is not None:
                X, y = two_digits(*found, 3, 5)
                yield from evaluations(" of MNIST 3 v 5", X[:FEW].astype(np.float64), y[:FEW], repeats=2)

    return {"box-digits": digits, "box-mnist35": pixels, "box-mnist-all": parities, "box-evaluation": evaluation}
