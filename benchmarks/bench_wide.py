"""Wide data: the descent solver beside the plain scikit-learn model, on the same rows, in the same run.

    python benchmarks/bench_wide.py                                # every setting; an hour
    python benchmarks/bench_wide.py --quick                        # the same settings on few rows, about a minute
    python benchmarks/bench_wide.py --settings l2-correlated hinge-correlated --rows 50000 --features 768
    python benchmarks/bench_wide.py --quick --no-store             # print only

Dense rows are float32: independent columns, or correlated ones (singular values geometric from 1 to 1e-2, rotated),
brought to mean 0 and variance 1. Sparse rows have 70 numbers each, drawn by a power law of the columns. Labels follow a
logistic model; targets have Student-t (3) noise.

Every method runs in this process, with the same number of threads (--threads). Seconds are medians over --repeats, the
two methods taking turns; "ratio" is ours over the peer's. "gap" is the certified relative gap of the solution that
`solve` returns. scikit-learn's models are not robust: they say what a plain fit costs on these rows, nothing else.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import tracemalloc
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from dualcore import Problem, solve

RESULTS = Path(__file__).resolve().parent / "results" / "wide.json"
QUICK = (4000, 120)
QUICK_SPARSE = (3000, 5000)
PER_ROW = 70


@dataclass(frozen=True)
class Setting:
    """A robust problem, its tolerance, the rows it is solved on, the peer, and the ratio asked for."""

    problem: Problem
    tol: float
    kind: str
    peer: str
    most: float


def _l2(**more: Any) -> Problem:
    return Problem("logistic", radius=0.05, **more)


SETTINGS: dict[str, Setting] = {
    "l2-independent": Setting(_l2(), 1e-5, "independent", "logistic", 3.0),
    "l2-correlated": Setting(_l2(), 1e-5, "correlated", "logistic", 1.0),
    "l1-independent": Setting(Problem("logistic", radius=0.05, norm="l1"), 1e-4, "independent", "logistic", 2.0),
    "l1-correlated": Setting(Problem("logistic", radius=0.05, norm="l1"), 1e-4, "correlated", "logistic", 2.0),
    "linf-independent": Setting(Problem("logistic", radius=0.003, norm="linf"), 1e-4, "independent", "logistic", 2.0),
    "linf-correlated": Setting(Problem("logistic", radius=0.003, norm="linf"), 1e-4, "correlated", "logistic", 2.0),
    "flips-independent": Setting(_l2(label_cost=2.0), 1e-3, "independent", "logistic", 3.0),
    "flips-correlated": Setting(_l2(label_cost=2.0), 1e-3, "correlated", "logistic", 3.0),
    "hinge-independent": Setting(Problem("hinge", radius=0.05), 1e-3, "independent", "svm", 0.1),
    "hinge-correlated": Setting(Problem("hinge", radius=0.05), 1e-3, "correlated", "svm", 0.1),
    "huber-independent": Setting(Problem("huber", radius=0.05), 1e-5, "independent", "huber", 2.0),
    "huber-correlated": Setting(Problem("huber", radius=0.05), 1e-5, "correlated", "huber", 2.0),
    "l2-sparse": Setting(Problem("logistic", radius=0.001), 1e-3, "sparse", "liblinear", 5.0),
}


def make_rows(kind: str, n: int, m: int, seed: int = 0) -> Any:
    """Return the rows of a kind, as the module says."""
    rng = np.random.default_rng([n, m, seed])
    if kind == "sparse":
        chance = 1.0 / np.arange(1, m + 1) ** 0.8
        columns = rng.choice(m, size=(n, min(PER_ROW, m)), p=chance / chance.sum())
        values = rng.random(columns.shape) + 0.1
        pointers = np.arange(0, columns.size + 1, columns.shape[1])
        X = sp.csr_matrix((values.ravel(), columns.ravel(), pointers), shape=(n, m))
        X.sum_duplicates()
        return X
    X = rng.standard_normal((n, m), dtype=np.float32)
    if kind == "correlated":
        rotation = np.linalg.qr(rng.standard_normal((m, m)))[0].astype(np.float32)
        X = (X * np.geomspace(1.0, 1e-2, m, dtype=np.float32)) @ rotation
    X -= X.mean(axis=0)
    X /= X.std(axis=0)
    return X


def make_target(X: Any, classify: bool, seed: int = 1) -> np.ndarray:
    """Return labels or targets of a linear model with scores of standard deviation 2."""
    rng = np.random.default_rng([*X.shape, seed])
    score = np.asarray(X @ rng.standard_normal(X.shape[1]).astype(X.dtype), dtype=np.float64)
    score = 2.0 * (score - score.mean()) / score.std()
    if classify:
        return np.where(rng.random(score.size) < 1.0 / (1.0 + np.exp(-score)), 1.0, -1.0)
    return score + rng.standard_t(3, size=score.size)


PEERS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegression(C=np.inf, tol=1e-4, max_iter=1000),
    "svm": lambda: LinearSVC(loss="hinge", max_iter=1000),
    "huber": lambda: HuberRegressor(alpha=0.0, max_iter=1000),
    "liblinear": lambda: LogisticRegression(C=1.0, solver="liblinear", max_iter=1000),
}


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    setting: str
    rows: int
    features: int
    seconds: float
    peer: str
    peer_seconds: float
    ratio: float
    most: float
    gap: float
    tol: float
    status: str
    memory: float  # peak of Python's allocations during a solve, over the size of X


def run(name: str, rows: int, features: int, repeats: int) -> Line:
    """Time a setting and its peer in turns."""
    setting = SETTINGS[name]
    X = make_rows(setting.kind, rows, features)
    y = make_target(X, setting.problem.is_classification)
    ours, theirs = [], []
    solution = None
    for _ in range(repeats):
        began = time.perf_counter()
        solution = solve(setting.problem, X, y, solver="descent", tol=setting.tol)
        ours.append(time.perf_counter() - began)
        began = time.perf_counter()
        PEERS[setting.peer]().fit(X, y)
        theirs.append(time.perf_counter() - began)
    if solution is None:
        raise ValueError(f"--repeats must be at least 1, got {repeats}.")
    size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
    tracemalloc.start()
    solve(setting.problem, X, y, solver="descent", tol=setting.tol)
    memory = tracemalloc.get_traced_memory()[1] / size
    tracemalloc.stop()
    seconds, peer_seconds = statistics.median(ours), statistics.median(theirs)
    return Line(
        setting=name,
        rows=rows,
        features=features,
        seconds=seconds,
        peer=setting.peer,
        peer_seconds=peer_seconds,
        ratio=seconds / peer_seconds,
        most=setting.most,
        gap=solution.relative_gap,
        tol=setting.tol,
        status=solution.status.name,
        memory=memory,
    )


def show(line: Line) -> str:
    return (
        f"{line.setting:<20}{line.rows:>8}{line.features:>8}{line.seconds:>9.3f}{line.peer_seconds:>9.3f}"
        f"{line.ratio:>8.2f}{line.most:>6.1f}{line.gap:>10.1e}{line.memory:>8.2f}  {line.status}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--settings", nargs="+", choices=sorted(SETTINGS), default=list(SETTINGS))
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--features", type=int, default=768)
    parser.add_argument("--sparse-rows", type=int, default=20_000)
    parser.add_argument("--sparse-features", type=int, default=47_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rows, one run each, nothing stored")
    parser.add_argument("--no-store", action="store_true")
    chosen = parser.parse_args()
    dense, sparse = (chosen.rows, chosen.features), (chosen.sparse_rows, chosen.sparse_features)
    if chosen.quick:
        dense, sparse, chosen.repeats = QUICK, QUICK_SPARSE, 1
    heads = f"{'setting':<20}{'rows':>8}{'columns':>8}{'ours s':>9}{'peer s':>9}"
    print(heads + f"{'ratio':>8}{'most':>6}{'gap':>10}{'memory':>8}")
    lines = []
    with threadpool_limits(chosen.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer that does not converge is timed all the same
        for name in chosen.settings:
            line = run(name, *(sparse if SETTINGS[name].kind == "sparse" else dense), chosen.repeats)
            print(show(line), flush=True)
            lines.append(line)
    if not (chosen.quick or chosen.no_store):
        packages = {name: version(name) for name in ("dualcore", "numpy", "scipy", "scikit-learn")}
        machine = {"machine": platform.machine(), "python": platform.python_version(), "threads": chosen.threads}
        record = {"packages": packages, "machine": machine, "lines": [asdict(line) for line in lines]}
        RESULTS.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {RESULTS.name}")


if __name__ == "__main__":
    main()
