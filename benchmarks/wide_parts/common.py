"""What the parts share: rows of every kind, the peers, times, and the memory of a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.svm import LinearSVC

PER_ROW = 70

Line = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a part."""

    quick: bool
    repeats: int


def make_rows(kind: str, n: int, m: int, seed: int = 0) -> Any:
    """Return rows: float32 ``independent`` or ``correlated`` columns, or ``sparse`` ones, 70 numbers a row."""
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
    # Of a longer run that does not converge either: what it takes is a lower bound on the time of the peer.
    "svm-short": lambda: LinearSVC(loss="hinge", max_iter=200),
    "huber": lambda: HuberRegressor(alpha=0.0, max_iter=1000),
    "liblinear": lambda: LogisticRegression(C=1.0, solver="liblinear", max_iter=1000),
}


def seconds_in_turns(methods: dict[str, Callable[[], Any]], repeats: int, once: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the median seconds of every method, which take turns; those in ``once`` run one time only."""
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(repeats):
        for name, method in methods.items():
            if turn == 0 or name not in once:
                began = time.perf_counter()
                method()
                taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in taken.items()}


_CHILD = """
import json, resource, sys, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.optimize, sklearn.linear_model, pyarrow.parquet
import dualcore
from dualcore import *
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
{body}
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps(dict(out, megabytes=(peak - before) / 1024.0)))
"""


def in_a_process(body: str) -> Line:
    """Run statements that set ``out`` in a fresh process; return it with the peak memory beyond the imports."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(body=body)], check=True, capture_output=True, text=True, timeout=3600
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))
