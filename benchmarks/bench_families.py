"""Families beyond one closed form, each beside a plain peer on the same rows, in the same run.

    python benchmarks/bench_families.py                            # every part; MNIST is looked for in ../shared/data
    python benchmarks/bench_families.py --parts digits conic       # some of them; the others stay stored
    python benchmarks/bench_families.py --quick                    # fewer rows, nothing stored
    python benchmarks/bench_families.py --data folder              # where mnist_idx is

Softmax parts: "digits" (1,797 x 64, ten classes, all norms, with and without changes of label) and "mnist" (60,000 x
784, ten classes, l2; "mnist-l1" and "mnist-linf" the other norms) beside scikit-learn's multinomial
LogisticRegression(tol=1e-4) on the same rows; "many" trains 100 classes of 512 features on 50,000 rows, with no peer,
in a process of its own ("extra_mb" is how far training raises its peak of memory, "extra_in_rows" the same in
multiples of X; "peak_mb" has the packages and the making of X in it); "conic" compares 50 small problems with
Newton's method through cone programs, to nine digits; "coreset" trains on two percent of MNIST from a Parquet file.
Parts whose name begins with "box": `families_parts/box.py`.

"squared-hinge" trains the squared hinge whose labels may flip on 10,000 rows beside the cone program of all rows.

Seconds are medians over --repeats, the two methods taking turns, in one process with --threads threads; "ratio" is ours
over the peer's. They are CPU seconds, which other work on the machine changes little; those of the box parts are by the
clock. "gap" is the certified relative gap. scikit-learn's models are not robust: they say what a plain fit
costs on these rows, nothing else.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from families_parts.box import box_parts
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from dualcore import Problem, fit_coreset, solve

RESULTS = Path(__file__).resolve().parent / "results" / "families.json"
DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
TOL = 1e-3
Line = dict[str, Any]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    found = function()
    return time.process_time() - began, found


def against_plain(name: str, problem: Problem, X: Any, y: Any, most: float, repeats: int) -> Line:
    """Take turns with the plain peer."""
    ours, peer = [], []
    for _ in range(repeats):
        seconds, found = timed(lambda: solve(problem, X, y, tol=TOL))
        ours.append(seconds)
        peer.append(timed(lambda: LogisticRegression(tol=1e-4, max_iter=1000).fit(X, y))[0])
    seconds, plain = statistics.median(ours), statistics.median(peer)
    return {
        "setting": name,
        "rows": X.shape[0],
        "features": X.shape[1],
        "seconds": seconds,
        "peer_seconds": plain,
        "ratio": seconds / plain,
        "most": most,
        "value": found.value,
        "gap": found.relative_gap,
        "evaluations": found.iterations,
        "status": found.status.name,
    }


def digits(chosen: argparse.Namespace) -> Iterator[Line]:
    X, y = load_digits(return_X_y=True)
    X = X / 16.0
    for norm, radius in (("l2", 0.05), ("l1", 0.05), ("linf", 0.02)):
        for label_cost in (np.inf, 2.0):
            problem = Problem("softmax", n_classes=10, radius=radius, norm=norm, label_cost=label_cost)
            flips = "" if np.isinf(label_cost) else ", labels change"
            yield against_plain(f"digits {norm}{flips}", problem, X, y, 10.0, chosen.repeats)


def read_idx(path: Path) -> np.ndarray:
    """Return the array of a file in IDX format."""
    with gzip.open(path) as file:
        raw = file.read()
    n_axes = raw[3]
    shape = [int.from_bytes(raw[4 + 4 * k : 8 + 4 * k], "big") for k in range(n_axes)]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


def mnist_rows(chosen: argparse.Namespace) -> tuple[np.ndarray, np.ndarray] | None:
    folder = chosen.data / "mnist_idx"
    if not folder.is_dir():
        print(f"no {folder.name} in {chosen.data}: its parts are left out")
        return None
    images = read_idx(folder / "train-images-idx3-ubyte.gz")
    labels = read_idx(folder / "train-labels-idx1-ubyte.gz").astype(np.int64)
    n = 5000 if chosen.quick else len(labels)
    return (images[:n].reshape(n, -1) / 255.0).astype(np.float32), labels[:n]


def mnist(norm: str, radius: float) -> Callable[[argparse.Namespace], Iterator[Line]]:
    """Return the part of a norm: l1 and linf take far longer than l2."""

    def part(chosen: argparse.Namespace) -> Iterator[Line]:
        found = mnist_rows(chosen)
        if found is not None:
            problem = Problem("softmax", n_classes=10, radius=radius, norm=norm)
            yield against_plain(f"mnist {norm}", problem, *found, 3.0, chosen.repeats)

    return part


def train_many(n: int, m: int, n_classes: int, threads: int) -> Line:
    """Train on drawn rows and return the line of it; alone in its process, or the peaks are those of other work."""
    rng = np.random.default_rng(0)
    y = rng.integers(n_classes, size=n)
    centres = (0.35 * rng.normal(size=(n_classes, m))).astype(np.float32)
    X = rng.standard_normal(size=(n, m), dtype=np.float32)
    for k in range(n_classes):  # class by class: no second table of this size
        X[y == k] += centres[k]
    problem = Problem("softmax", n_classes=n_classes, radius=0.05)
    with threadpool_limits(threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        solve(problem, X[:1000], y[:1000], tol=0.5)  # imports and buffers
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        seconds, found = timed(lambda: solve(problem, X, y, tol=TOL))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "setting": f"{n_classes} classes l2",
        "rows": n,
        "features": m,
        "seconds": seconds,
        "value": found.value,
        "gap": found.relative_gap,
        "evaluations": found.iterations,
        "status": found.status.name,
        "rows_mb": X.nbytes / 1e6,
        "peak_mb": peak * 1024 / 1e6,
        "extra_mb": (peak - before) * 1024 / 1e6,
        "extra_in_rows": (peak - before) * 1024 / X.nbytes,
    }


def many(chosen: argparse.Namespace) -> Iterator[Line]:
    shape = (5000, 128, 40) if chosen.quick else (50_000, 512, 100)
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as alone:
        yield alone.submit(train_many, *shape, chosen.threads).result()


def conic(chosen: argparse.Namespace) -> Iterator[Line]:
    """Compare with Newton's method to nine digits: the largest relative difference of 50 problems."""
    worst, broken, count = 0.0, 0, 10 if chosen.quick else 50
    began = time.perf_counter()
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n_classes, m = int(rng.integers(3, 6)), int(rng.integers(2, 7))
        y = np.arange(90) % n_classes
        X = rng.normal(size=(n_classes, m))[y] + rng.normal(size=(90, m))
        problem = Problem(
            "softmax",
            n_classes=n_classes,
            radius=float(rng.choice([0.02, 0.1])),
            norm=str(rng.choice(["l1", "l2", "linf"])),
            label_cost=float(rng.choice([np.inf, 1.0])),
            ridge=float(rng.choice([0.0, 0.01])),
        )
        known, found = solve(problem, X, y, solver="structured", tol=1e-9), solve(problem, X, y)
        worst = max(worst, abs(found.value - known.value) / known.value)
        broken += found.lower_bound > known.value * (1.0 + 1e-9)
    seconds = time.perf_counter() - began
    yield {"setting": f"conic, {count} problems", "seconds": seconds, "difference": worst, "false_bounds": int(broken)}


def coreset(chosen: argparse.Namespace) -> Iterator[Line]:
    found = mnist_rows(chosen)
    if found is None:
        return
    import pandas as pd

    X, y = found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "mnist.parquet"
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        frame["y"] = y.astype(np.float64)
        frame.to_parquet(path, row_group_size=5000)
        problem = Problem("softmax", n_classes=10, radius=0.05)
        seconds, fit = timed(lambda: fit_coreset(problem, path, "y", coreset=0.02, random_state=0))
    yield {
        "setting": "mnist, coreset of 2 % from Parquet",
        "rows": len(fit.coreset),
        "seconds": seconds,
        "value": fit.certificate.upper,
        "gap": fit.certificate.relative_gap,
        "reads": fit.certificate.n_reads,
        "most_reads": 8,
        "classes_held": len(set(fit.coreset.y.tolist())),
    }


def squared_hinge(chosen: argparse.Namespace) -> Iterator[Line]:
    """Compare Newton's method with the cone program of all rows where labels may flip."""
    rng = np.random.default_rng(0)
    n, m = 1000 if chosen.quick else 10_000, 10
    X = rng.normal(size=(n, m))
    y = np.where(X.sum(axis=1) / np.sqrt(m) + 0.5 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    for norm, radius in (("l2", 0.1), ("l1", 0.1), ("linf", 0.05)):
        problem = Problem("squared_hinge", radius=radius, norm=norm, label_cost=0.4)
        seconds, found = timed(lambda problem=problem: solve(problem, X, y))
        peer, known = timed(lambda problem=problem: solve(problem, X, y, solver="conic"))
        yield {
            "setting": f"squared hinge {norm}, labels change",
            "rows": n,
            "features": m,
            "seconds": seconds,
            "peer_seconds": peer,
            "ratio": seconds / peer,
            "most": 1.0 / 20.0,
            "value": found.value,
            "gap": found.relative_gap,
            "difference": abs(found.value - known.value) / known.value,
            "status": found.status.name,
        }


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Line]]] = {
    "digits": digits,
    "mnist": mnist("l2", 0.05),
    "mnist-l1": mnist("l1", 0.01),
    "mnist-linf": mnist("linf", 0.005),
    "many": many,
    "conic": conic,
    "coreset": coreset,
    "squared-hinge": squared_hinge,
    **box_parts(mnist_rows),
}


def show(line: Line) -> str:
    parts = [f"{line['setting']:<36}"]
    for key in (
        "seconds",
        "peer_seconds",
        "ratio",
        "most",
        "gap",
        "evaluations",
        "difference",
        "false_bounds",
        "reads",
        "pairs",
        "peak_mb",
        "extra_mb",
        "extra_in_rows",
    ):
        if key in line:
            parts.append(f"{key} {line[key]:.3g}")
    return "  ".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=sorted(PARTS), default=list(PARTS))
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="fewer rows, one run each, nothing stored")
    parser.add_argument("--no-store", action="store_true")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.repeats = 1
    found: dict[str, list[Line]] = {}
    with threadpool_limits(chosen.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer that does not converge is timed all the same
        for part in chosen.parts:
            found[part] = []
            for line in PARTS[part](chosen):
                print(show(line), flush=True)
                found[part].append(line)
    if not (chosen.quick or chosen.no_store):
        packages = {name: version(name) for name in ("dualcore", "numpy", "scipy", "scikit-learn")}
        machine = {"machine": platform.machine(), "python": platform.python_version(), "threads": chosen.threads}
        known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        for part, lines in found.items():  # the other parts stay as they are
            known[part] = {"packages": packages, "machine": machine, "repeats": chosen.repeats, "lines": lines}
        RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
        print(f"stored in {RESULTS.name}")


if __name__ == "__main__":
    main()
