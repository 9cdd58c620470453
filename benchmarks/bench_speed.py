"""What training costs beside scikit-learn's plain fits.

    python benchmarks/bench_speed.py                                  # every group, a quarter of an hour; stored
    python benchmarks/bench_speed.py --groups box wide --no-store

A line is one call on one table, in CPU seconds of one thread: the smallest of three runs, of one run where it takes
more than five seconds. The peer is scikit-learn's plain model of the same loss on the same rows, at its own tolerance
and, for the logistic loss, by the faster of its solvers; it is not robust and certifies nothing, so it says what the
rows cost. ``gap`` is the certified gap that our call ended with. A call that
takes longer than ``--cap`` is given up and counts as that long.
"""

from __future__ import annotations

import argparse
import json
import math
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.linear_model import (
    HuberRegressor,
    LinearRegression,
    LogisticRegression,
    LogisticRegressionCV,
)
from sklearn.svm import LinearSVC
from stored import environment, logistic_solvers, make_data
from threadpoolctl import threadpool_limits

import dualcore
from dualcore import Problem, fit_coreset, open_source, radius_path, solve

RESULTS = Path(__file__).resolve().parent / "results" / "speed.json"
SVM = partial(LinearSVC, max_iter=1000, random_state=0)
PEERS: dict[str, Callable[..., Any]] = {
    "hinge": partial(SVM, loss="hinge"),
    "squared_hinge": partial(SVM, loss="squared_hinge"),
    "huber": partial(HuberRegressor, max_iter=1000),
    "squared": LinearRegression,
}


class Line(NamedTuple):
    """A call, which returns its certified gap, and plain fits, with the fastest of which it is compared."""

    setting: str
    shape: tuple[int, int]
    ours: Callable[[], float | None]
    peers: Sequence[Callable[[], Any]] = ()


def plain_fits(loss: str, X: Any, y: Any) -> list[Callable[[], Any]]:
    """Return the fits of scikit-learn with the same loss."""
    if loss in PEERS:
        return [lambda: PEERS[loss]().fit(X, y)]
    solvers = logistic_solvers(X, len(np.unique(y)) if loss == "softmax" else 1)
    return [partial(LogisticRegression(solver=solver, max_iter=2000).fit, X, y) for solver in solvers]


def trained(problem: Problem, X: Any, y: Any, tol: float) -> float:
    found = solve(problem, X, y, tol=tol)
    return found.gap / abs(found.value)


def line(setting: str, loss: str, X: Any, y: Any, *, tol: float = 1e-4, peer: bool = True, **more: Any) -> Line:
    """Return the line of a `solve` beside the peer of its loss."""
    problem = Problem(loss, **more)
    plain = plain_fits(loss, X, y) if peer else ()
    return Line(setting, X.shape, lambda: trained(problem, X, y, tol), plain)


def ten_classes(n: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(2)
    X = rng.normal(size=(n, 16))
    return X, (X @ rng.normal(size=(16, 10)) + rng.gumbel(size=(n, 10))).argmax(axis=1).astype(float)


def closed() -> Iterator[Line]:
    """Ordinary tables: features move freely, labels stay or have a price."""
    X, labels, targets = make_data(20_000, 20)
    for norm in ("l1", "l2", "linf"):
        yield line(f"logistic, {norm}", "logistic", X, labels, radius=0.05, norm=norm)
        yield line(f"hinge, {norm}", "hinge", X, labels, radius=0.05, norm=norm)
        yield line(f"logistic, {norm}, label cost 1", "logistic", X, labels, radius=0.05, norm=norm, label_cost=1.0)
    yield line("hinge, l2, label cost 1", "hinge", X, labels, radius=0.05, label_cost=1.0)
    yield line("squared hinge, l2", "squared_hinge", X, labels, radius=0.05)
    yield line("Huber, l2", "huber", X, targets, radius=0.05)
    yield line("quantile 0.9, l2", "pinball", X, targets, radius=0.05, quantile=0.9, peer=False)
    yield line("squared, l2", "squared", X, targets, radius=0.05)


def wide() -> Iterator[Line]:
    """Hundreds of features and more, dense and sparse."""
    rng = np.random.default_rng(1)
    X, labels, targets = make_data(10_000, 500)
    for norm, radius in (("l1", 0.02), ("l2", 0.01), ("linf", 0.003)):
        yield line(f"logistic, {norm}", "logistic", X, labels, radius=radius, norm=norm)
    yield line("logistic, l2, label cost 2", "logistic", X, labels, radius=0.01, label_cost=2.0)
    yield line("hinge, l2", "hinge", X, labels, radius=0.01, tol=1e-3, peer=False)
    yield line("Huber, l2", "huber", X, targets, radius=0.01)
    X = rng.normal(size=(300, 3000))
    y = np.where(X[:, :5].sum(axis=1) + rng.logistic(size=300) > 0, 1.0, -1.0)
    for norm, radius in (("l1", 0.05), ("l2", 0.05), ("linf", 0.003)):
        yield line(f"logistic, {norm}, few rows", "logistic", X, y, radius=radius, norm=norm)
    X = sp.random(20_000, 40_000, density=70 / 40_000, format="csr", random_state=0, data_rvs=rng.standard_normal)
    y = np.where(X @ rng.normal(size=40_000) + rng.logistic(size=20_000) > 0, 1.0, -1.0)
    yield line("logistic, l2, sparse", "logistic", X, y, radius=0.005, tol=1e-3)


def softmax() -> Iterator[Line]:
    """Ten classes, one model of all."""
    X, y = load_digits(return_X_y=True)
    X, y = X / 16.0, y.astype(float)
    for norm, radius in (("l1", 0.05), ("l2", 0.05), ("linf", 0.01)):
        yield line(f"digits, {norm}", "softmax", X, y, n_classes=10, radius=radius, norm=norm, tol=1e-3)
    yield line("digits, l2, label cost 2", "softmax", X, y, n_classes=10, radius=0.05, label_cost=2.0, tol=1e-3)
    X, y = ten_classes(10_000)
    yield line("generated, l2", "softmax", X, y, n_classes=10, radius=0.02, tol=1e-3)


def box() -> Iterator[Line]:
    """Rows that must stay in a box."""
    X, y = load_digits(return_X_y=True)
    own = (y == 3) | (y == 8)
    X, y = X[own] / 16.0, np.where(y[own] == 3, 1.0, -1.0)
    for loss in ("hinge", "logistic"):
        for norm, radius in (("l1", 0.5), ("l2", 0.3), ("linf", 0.05)):
            yield line(f"digits 3 v 8, {loss}, {norm}", loss, X, y, radius=radius, norm=norm, support=(0.0, 1.0))
    X, labels, targets = make_data(2000, 10)
    X = np.clip(X, -2.0, 2.0)
    for norm in ("l1", "l2", "linf"):
        at: dict[str, Any] = {"radius": 0.1, "norm": norm, "support": (-2.0, 2.0)}
        yield line(f"generated, logistic, {norm}", "logistic", X, labels, **at)
        yield line(f"generated, Huber, {norm}", "huber", X, targets, **at)


def categories() -> Iterator[Line]:
    """Groups of one-hot columns of which the adversary may change one to another."""
    for n, groups, levels in ((2400, 60, 5), (5000, 8, 6)):
        rng = np.random.default_rng(3)
        X = np.concatenate([np.eye(levels)[rng.integers(levels, size=n)] for _ in range(groups)], axis=1)
        y = np.where(X @ rng.normal(size=groups * levels) + rng.logistic(size=n) > 0, 1.0, -1.0)
        at = {"categories": [list(range(levels * k, levels * (k + 1))) for k in range(groups)], "radius": 0.01}
        for loss in ("logistic", "hinge"):
            yield line(f"{groups} groups, {loss}", loss, X, y, tol=1e-3, norm="l1", **at)


def coreset() -> Iterator[Line]:
    """A coreset of half a percent, handed out and checked, and a path of radii from one."""
    X, labels, targets = make_data(200_000, 20)
    for loss, norm, cost in (
        ("logistic", "l2", np.inf), ("logistic", "l1", 7.0), ("logistic", "linf", 1.0), ("hinge", "l2", np.inf),
        ("hinge", "l1", 1.0), ("huber", "l2", np.inf),
    ):  # fmt: skip
        problem, y = Problem(loss, radius=0.1, norm=norm, label_cost=cost), targets if loss == "huber" else labels
        yield Line(
            f"{loss}, {norm}, label cost {cost:g}",
            X.shape,
            lambda p=problem, y=y: fit_coreset(p, X, y, 0.005, random_state=0).certificate.relative_gap,
            plain_fits(loss, X, y),
        )

    def path(radii: Any) -> float:
        found = radius_path(Problem("logistic", radius=0.1), X, labels, radii, 0.005, random_state=0)
        return max(point.certificate.relative_gap for point in found.points)

    def ridges(solver: str) -> None:
        model = LogisticRegression(solver=solver, max_iter=2000, warm_start=True)
        for C in np.geomspace(1e-4, 1e4, 20):
            model.set_params(C=C).fit(X, labels)

    paths = [partial(ridges, solver) for solver in logistic_solvers(X)]
    yield Line("20 radii, logistic", X.shape, partial(path, np.geomspace(0.002, 0.5, 20)), paths)


def choice() -> Iterator[Line]:
    """Cross-validation: ten radii, five folds, beside ten strengths of a ridge."""
    ridge = partial(LogisticRegressionCV, Cs=10, cv=5, scoring="neg_log_loss", max_iter=2000)
    X, labels, _ = make_data(2000, 20)

    def ours(X: Any, y: Any) -> None:
        dualcore.WassersteinLogisticRegressionCV(cv=5, random_state=0).fit(X, y)

    for setting, rows, y, n_outputs in (("two classes", X, labels, 1), ("ten classes", *ten_classes(7000), 10)):
        peers = [partial(ridge(solver=solver).fit, rows, y) for solver in logistic_solvers(rows, n_outputs)]
        yield Line(setting, rows.shape, partial(ours, rows, y), peers)


def sources() -> Iterator[Line]:
    """Rows that are read from a file, a few times; the peer is one scan by pyarrow or one product by numpy."""
    import pyarrow as pa
    import pyarrow.dataset as ds
    import pyarrow.parquet as pq

    X, labels, _ = make_data(500_000, 20)
    problem = Problem("logistic", radius=0.1)
    with tempfile.TemporaryDirectory() as folder:
        columns = {f"x{j}": X[:, j] for j in range(20)} | {"y": labels}
        pq.write_table(pa.table(columns), f"{folder}/rows.parquet", row_group_size=50_000)
        np.save(f"{folder}/rows.npy", X)
        mapped = np.load(f"{folder}/rows.npy", mmap_mode="r")

        def scan() -> None:
            for batch in ds.dataset(f"{folder}/rows.parquet").to_batches():
                np.column_stack(batch.columns).sum()

        def parquet() -> Any:
            return open_source(f"{folder}/rows.parquet", "y")

        def coreset_of(*data: Any) -> float:
            return fit_coreset(problem, *data, coreset=0.005, random_state=0).certificate.relative_gap

        yield Line("Parquet, coreset", X.shape, lambda: coreset_of(parquet()), [scan])
        yield Line("Parquet, all rows", X.shape, lambda: trained(problem, parquet(), None, 1e-3), [scan])
        yield Line("memory map, coreset", X.shape, lambda: coreset_of(mapped, labels), [lambda: mapped @ np.ones(20)])


GROUPS = {group.__name__: group for group in (closed, wide, softmax, box, categories, coreset, choice, sources)}


class TooLongError(Exception):
    """A call that was given up."""


def seconds(call: Callable[[], Any], cap: int, runs: int = 3) -> tuple[float, Any]:
    """Return the smallest CPU time of some runs, and what the last returned; the cap where it took longer."""

    def stop(*_: Any) -> None:
        raise TooLongError

    best, found = math.inf, None
    previous = signal.signal(signal.SIGALRM, stop)
    try:
        for _ in range(runs):
            signal.alarm(cap)
            began = time.process_time()
            found = call()
            signal.alarm(0)
            best = min(best, time.process_time() - began)
            if best > 5.0:
                break
    except TooLongError:
        best = min(best, float(cap))
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return best, found


def measure(group: str, cap: int) -> Iterator[dict[str, Any]]:
    """Yield the lines of a group as they are measured."""
    for each in GROUPS[group]():
        spent, gap = seconds(each.ours, cap)
        found: dict[str, Any] = {"setting": each.setting, "rows": each.shape[0], "features": each.shape[1]}
        found |= {"seconds": spent, "gap": gap}
        if each.peers:
            theirs = min(seconds(peer, cap)[0] for peer in each.peers)
            found |= {"peer_seconds": theirs, "ratio": spent / theirs}
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--groups", nargs="+", choices=list(GROUPS), default=list(GROUPS))
    parser.add_argument("--cap", type=int, default=60, help="seconds after which a call is given up")
    parser.add_argument("--no-store", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    about = environment("speed")
    for group in options.groups:
        lines = []
        with threadpool_limits(limits=1):
            for found in measure(group, options.cap):
                print(json.dumps(found), flush=True)
                lines.append(found)
        if not options.no_store:
            known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
            machine = {"cpu": about["cpu"], "python": about["python"], "threads": 1}
            entry = {"packages": about["versions"], "machine": machine, "code": about["code"], "lines": lines}
            known[group] = entry
            RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
