"""What each part of the solvers buys: the same call with it and without it.

    python benchmarks/bench_mechanisms.py                        # lines that are not stored for the code of today
    python benchmarks/bench_mechanisms.py --only "working set"   # those whose name holds these words

A part stays in the package where a line shows at least 1.5 times over the next best, or a gap that nothing else closes.
It is switched off from outside: another solver is asked for, or a function is replaced while the call runs. The calls
alternate, in CPU seconds of one thread: the smallest of three runs, of one where either takes more than five seconds. A
call that takes longer than ``--cap`` seconds counts as that long and has no gap.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from bench_speed import seconds, ten_classes
from sklearn.datasets import load_digits, load_iris
from stored import DATA, HERE, environment, load_mnist, make_data
from threadpoolctl import threadpool_limits

from dualcore import DualCoreset, Problem, WassersteinLogisticRegressionCV, fit_coreset, open_source, solve
from dualcore.coresets.weights import eliminate
from dualcore.data.sources.products import SourceRows
from dualcore.problem.normal import Normal
from dualcore.solvers import structured
from dualcore.solvers.moving.branches import run_branches
from dualcore.solvers.moving.branches.featureset import FeatureSet

RESULTS = HERE / "results" / "mechanisms.json"
NEVER = type("Never", (), {})  # nothing is an instance of it
Line = tuple[str, str, Callable[..., Any]]  # part, what a user asks for, and the call, which returns its certified gap
Lines, PRODUCTS = Iterator[Line], ("dot", "transpose_dot", "column_squares")


def no(*_: Any, **__: Any) -> bool:
    return False


def all_features(work: Any, *given: Any, init: Any = FeatureSet.__init__) -> None:
    init(work, *given[:3], np.ones_like(given[3]), *given[4:])


def eliminated(values: np.ndarray, weights: np.ndarray, most: int = 0) -> tuple[np.ndarray, np.ndarray]:
    left = eliminate(values, weights)
    return np.flatnonzero(left > 0.0), left[left > 0.0]


# How to do without each part: another ``solver``, or a new value for every dotted name below ``dualcore``.
WITHOUT: dict[str, dict[str, Any]] = {
    "interior point": {"solver": "descent"},
    "cone programme": {"solver": "descent"},
    "working set of rows": {"solvers.structured.worth_a_working_set": no},
    "working set of rows that are read": {"solvers.overreads._run_working_set": lambda *_: None},
    "Newton system of few rows": {"solvers.interior.MaxCone": NEVER, "solvers.interior.SumCone": NEVER},
    "span of few rows": {"solvers.structured._in_row_space": structured._run},
    "centring of far columns": {"solvers.solve.Normal.of": Normal},
    "small sparse rows written out": {"solvers.solve.dense_if_small": lambda rows: rows},
    "descent": {"solver": "structured"},
    "Hessian of a sample": {"solvers.descent.solver.MOST_FEATURES": 0},
    "quasi-Newton": {"solvers.descent.solver._ProximalSteps._is_smooth": no},
    "multipliers": {"solvers.descent.solver.can_multiply": no},
    "smoothing in stages": {"solvers.descent.continuation._FIRST_WIDTH": 1e-4},
    "memory of steps": {"solvers.lbfgs.LimitedMemory.add": no},
    "start without label flips": {"solvers.softmax.descent.ClassDescent._start_unchanged": no},
    "start on a sample": {"solvers.softmax.descent.ClassDescent._start_on_sample": no},
    "metric of the features": {"solvers.softmax.descent.sample_gram": lambda _: None},
    "Newton by cone programmes": {"solver": "descent"},
    "folds without bounds": {"coresets.path.ClassDescentSolver": NEVER},
    "branches": {"solvers.moving.methods.can_use_branches": no},
    "atoms": {"solvers.moving.methods.run_atoms": run_branches},
    "lifted columns": {"solvers.moving.extremes._MOST_COLUMNS": 0},
    "set of features": {"solvers.moving.branches.featureset.FeatureSet.__init__": all_features},
    "constant columns left out": {"solvers.moving.narrow.constant_columns": lambda rows: np.zeros((2, rows.m), bool)},
    "start without limits": {"solvers.box._free_optimum": lambda problem, data, *_: (np.zeros(data.rows.m), 0.0)},
    "products remembered": {f"solvers.remembered.RememberedRows.{p}": getattr(SourceRows, p) for p in PRODUCTS},
    "shrunken start": {"solvers.overreads.shrunk": lambda _, point: point},
    "recombination in groups": {"coresets.exact.recombine": eliminated},
    "repair of bounds": {"coresets.training.can_repair": no},
}


def weighed(parts: str, table: str, loss: str, X: Any, y: Any = None, tol: float = 1e-6, **given: Any) -> Lines:
    """Yield a line for each of some parts: a call of `solve`; ``given`` are parameters of the problem."""

    def call(**settings: Any) -> float:
        return solve(Problem(loss, **given), X() if callable(X) else X, y, tol=tol, **settings).relative_gap

    cost = f"label cost {given['label_cost']:g}" if "label_cost" in given else None
    words = ("box" if "support" in given else None, loss.replace("_", " "), given.get("norm", "l2"), cost, table)
    for part in parts.split(" + "):
        yield part, ", ".join(filter(None, words)), call


def images(first: int, second: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    X, digit = load_mnist(DATA)
    own = np.flatnonzero((digit == first) | (digit == second))[:n]
    return np.ascontiguousarray(X[own]), np.where(digit[own] == first, 1.0, -1.0)


def in_memory() -> Lines:
    X, y, targets = make_data(20_000, 20)
    yield from weighed("interior point", "2,000 x 20", "hinge", X[:2000], y[:2000], radius=0.005, norm="l1")
    yield from weighed("interior point", "20,000 x 20", "logistic", X, y, radius=0.05, norm="l1", label_cost=1.0)
    yield from weighed("cone programme", "100 x 20", "squared", X[:100], targets[:100], radius=0.05)
    part, far = "centring of far columns", X[:5000] + 1e7
    yield from weighed(part, "5,000 x 20, 1e7 from the origin", "logistic", far, y[:5000], radius=0.05)
    part, some = "small sparse rows written out", sp.csr_array(np.where(np.abs(X[:400]) > 1.5, X[:400], 0.0))
    yield from weighed(part, "400 x 20, sparse", "hinge", some, y[:400], radius=0.02)
    X, y, _ = make_data(100_000, 20)
    yield from weighed("working set of rows", "100,000 x 20", "logistic", X, y, radius=0.05, label_cost=1.0)
    few, pixels = images(3, 5, 100), "100 images of 784 pixels"
    yield from weighed("cone programme", pixels, "squared_hinge", *few, radius=0.001, norm="linf")
    yield from weighed("descent", pixels, "logistic", *few, radius=0.001, norm="linf")
    for norm, part in zip(("l1", "linf", "l2"), (*["Newton system of few rows"] * 2, "span of few rows"), strict=True):
        yield from weighed(part, pixels, "hinge", *few, radius=0.001, norm=norm)
    X, y, _ = make_data(10_000, 500)
    for norm, radius in {"l1": 0.02, "l2": 0.01, "linf": 0.003}.items():
        part = "descent + Hessian of a sample"
        yield from weighed(part, "10,000 x 500", "logistic", X, y, 1e-4, radius=radius, norm=norm)
    part = "quasi-Newton + smoothing in stages"
    yield from weighed(part, "10,000 x 500", "logistic", X, y, 1e-4, radius=0.01, label_cost=2.0)
    yield from weighed("multipliers", "10,000 x 500", "hinge", X, y, 1e-3, radius=0.01)


def many_classes() -> Lines:
    X, y = load_digits(return_X_y=True)
    ten = partial(weighed, loss="softmax", n_classes=10, tol=1e-3)
    digits = partial(ten, table="digits", X=X / 16.0, y=y.astype(float))
    yield from digits("memory of steps + descent", radius=0.05)
    X, y = (part[:500] for part in load_mnist(DATA))
    at = {"X": X, "y": y.astype(float), "radius": 0.02, "norm": "linf", "label_cost": 1.0}
    yield from ten("start without label flips", "500 images of 784 pixels", **at)
    X, y = ten_classes(20_000)
    yield from ten("start on a sample", "20,000 x 16", X=X, y=y, radius=0.02)
    rng, X = np.random.default_rng(5), make_data(9000, 24)[0]
    y = (X @ rng.normal(size=(24, 10)) / 5.0 + rng.gumbel(size=(9000, 10))).argmax(axis=1).astype(float)
    yield from ten("metric of the features", "9,000 x 24", X=X, y=y, radius=0.02)
    at = {"X": load_iris().data, "y": load_iris().target.astype(float), "norm": "l1", "label_cost": 0.5}
    yield from weighed("Newton by cone programmes", "iris", "softmax", n_classes=3, radius=0.03, **at)
    model = WassersteinLogisticRegressionCV(cv=5, random_state=0)
    call = partial(lambda X, y: model.fit(X, y).certificate_.relative_gap, *ten_classes(7000))
    yield "folds without bounds", "softmax, cross-validation, 7,000 x 16", call


def boxes() -> Lines:
    X, y = load_digits(return_X_y=True)
    X, y = X[(y == 3) | (y == 8)] / 16.0, np.where(y[(y == 3) | (y == 8)] == 3, 1.0, -1.0)
    inside: dict[str, Any] = {"support": (0.0, 1.0), "tol": 1e-3}
    yield from weighed("branches", "digits", "logistic", X, y, radius=0.3, **inside)
    yield from weighed("branches", "digits", "logistic", X, y, radius=0.05, norm="linf", **inside)
    X, y, _ = make_data(2000, 10)
    for loss, norm in (("logistic", "l2"), ("hinge", "linf")):
        at = {"radius": 0.1, "norm": norm, "support": (-2.0, 2.0)}
        yield from weighed("atoms", "2,000 x 10", loss, np.clip(X, -2.0, 2.0), y, 1e-4, **at)
    yield from weighed("lifted columns", "2,000 x 10", "hinge", np.clip(X, -2.0, 2.0), y, 1e-4, **at | {"norm": "l1"})
    for m in (10, 60):
        X, y, _ = make_data(400, m)
        at = {"support": (-np.inf, 3.5), "radius": 0.1, "norm": "linf"}
        yield from weighed("lifted columns", f"400 x {m}, half-open", "logistic", np.minimum(X, 3.5), y, **at)
    X, y = images(4, 9, 1000)
    for loss, norm, radius, more in (
        ("logistic", "l1", 0.5, ""), ("logistic", "l2", 0.3, ""), ("logistic", "linf", 0.05, " + set of features"),
        ("hinge", "l1", 0.5, ""), ("hinge", "l2", 0.3, " + start without limits"), ("hinge", "linf", 0.05, ""),
    ):  # fmt: skip
        part, at = "constant columns left out" + more, inside | {"radius": radius, "norm": norm}
        yield from weighed(part, "1,000 images of 784 pixels", loss, X, y, **at)


def sources() -> Lines:
    for n, m in ((6000, 800), (300_000, 20)):
        X, y, _ = make_data(n, m)
        with tempfile.TemporaryDirectory() as folder:
            file = f"{folder}/rows.parquet"
            pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(m)} | {"y": y}), file, row_group_size=n // 6)
            call = partial(weighed, table=f"Parquet, {n:,} x {m}", loss="logistic", X=partial(open_source, file, "y"))
            yield from call("shrunken start" if n == 6000 else "products remembered", tol=1e-3, radius=0.01)
            if n > 6000:
                yield from call("working set of rows that are read", tol=1e-3, radius=0.05, label_cost=1.0)

    def coreset(size: Any, **given: Any) -> float:
        problem = Problem("logistic", radius=0.1, **given)
        return fit_coreset(problem, X, y, size, random_state=0).certificate.relative_gap

    yield "recombination in groups", "coreset, logistic, l2, 300,000 x 20", partial(coreset, DualCoreset())
    yield "repair of bounds", "coreset, logistic, label cost 1, 300,000 x 20", partial(coreset, 0.005, label_cost=1.0)


def run(line: Line, cap: int, without: dict[str, Any]) -> tuple[float, Any]:
    """Return the CPU seconds of a call and its certified gap; the cap and None where it took longer."""
    settings = {name: without[name] for name in without if name == "solver"}
    with ExitStack() as changes, threadpool_limits(limits=1):
        for name in without.keys() - settings:
            changes.enter_context(patch(f"dualcore.{name}", without[name]))
        return seconds(partial(line[2], **settings), cap, runs=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="words in the name of a line")
    parser.add_argument("--cap", type=int, default=60, help="seconds after which a call is given up")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    about = environment("mechanisms")
    for line in chain(in_memory(), many_classes(), boxes(), sources()):
        known = json.loads(RESULTS.read_text(encoding="utf-8"))["solvers"]["lines"] if RESULTS.is_file() else []
        lines = {(each["part"], each["setting"]): each for each in known}
        if lines.get(line[:2], {}).get("code") == about["code"] or options.only not in ": ".join(line[:2]):
            continue
        on, off = list[Any](), list[Any]()
        while len(on) < 3 and max([spent for spent, _ in on + off], default=0.0) <= 5.0:
            on.append(run(line, options.cap, {}))
            off.append(run(line, options.cap, WITHOUT[line[0]]))
        (spent, gap), (other, left) = min(on, key=lambda each: each[0]), min(off, key=lambda each: each[0])
        found = {"part": line[0], "setting": line[1], "seconds": spent, "gap": gap, "without": other}
        found |= {"gap_without": left, "factor": other / spent, "code": about["code"]}
        print(json.dumps(found), flush=True)
        machine = {"cpu": about["cpu"], "python": about["python"], "threads": 1}
        content = {"packages": about["versions"], "machine": machine, "lines": [*(lines | {line[:2]: found}).values()]}
        RESULTS.write_text(json.dumps({"solvers": content}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
