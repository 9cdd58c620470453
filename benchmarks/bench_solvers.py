"""What training on all rows costs: both solvers, CVXPY, two robust-learning packages, and plain scikit-learn.

    python benchmarks/bench_solvers.py             # n = 1,000 / 10,000 / 100,000, m = 20; up to an hour, for the peers
    python benchmarks/bench_solvers.py --quick     # n = 1,000, one run each, about a minute
    python benchmarks/bench_solvers.py --tasks svm --methods structured conic --sizes 10000

One table, one run, the same data for all. Every method runs in a process of its own with the same number of threads
(--threads, 1 by default) and is killed when its time is up (--cap). Seconds are the median over the repeats of one
call, imports and data loading apart; a method that needs long is not repeated.

The data are synthetic but not kind: four latent factors correlate the features, a fifth of the columns is log-normal
and another fifth binary, all are brought to mean 0 and variance 1; labels follow a logistic model, 5 % of them are
flipped; targets have Student-t (3) noise and 1 % gross outliers.

"risk" is the exact worst-case risk of the model returned, computed here alike for all; "gap" its distance to the best
robust method, relative. "x ours" says how many times longer than our structured solver a method took, "over CVXPY" how
many times faster than CVXPY it was. CVXPY is given the problem as the literature states it and once more in the fewest
cones we know ("short"). scikit-learn's models are not robust: their risk is the price of ignoring the adversary. The
packages dro and skwdro are used where they are installed; nothing installs them.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

import dualcore
from dualcore import Problem, solve

RESULTS = Path(__file__).resolve().parent / "results"
FEATURES = 20
PACKAGES = ("dualcore", "numpy", "scipy", "scikit-learn", "clarabel", "cvxpy", "dro", "skwdro")
THREAD_VARIABLES = (
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "RAYON_NUM_THREADS",
)
# Beyond this many seconds in all a method is not repeated again.
ENOUGH_SECONDS = 20.0
AGREEMENT = 1e-6

Model = tuple[np.ndarray, float, str]


@dataclass(frozen=True)
class Task:
    """A robust problem, the name its loss goes by elsewhere, and the plain scikit-learn model beside it."""

    problem: Problem
    dro: str | None
    plain: str

    @property
    def summary(self) -> str:
        p = self.problem
        return f"{p.loss!r}, {p.geometry.norm.name}, radius {p.radius:g}, label cost {p.geometry.label_cost:g}"


TASKS = {
    "logistic": Task(Problem("logistic", norm="l1", radius=0.3, label_cost=7.0), "logistic", "LogisticRegression"),
    "svm": Task(Problem("hinge", norm="l2", radius=0.1, label_cost=7.0), "svm", "LinearSVC"),
    "huber": Task(Problem("huber", norm="l2", radius=0.1, label_cost=7.0), None, "HuberRegressor"),
}


def make_data(task: Task, n: int, skew: float = 0.35, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return correlated, skewed and binary features of unit variance, and labels or targets, as the module says."""
    rng = np.random.default_rng([n, seed])
    X = rng.normal(size=(n, 4)) @ rng.normal(size=(4, FEATURES)) / 2.0 + rng.normal(size=(n, FEATURES))
    X[:, ::5] = np.exp(skew * X[:, ::5])
    X[:, 1::5] = X[:, 1::5] > 0.5
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    score = X @ (rng.choice([-1.0, 1.0], size=FEATURES) / np.arange(1.0, FEATURES + 1.0))
    score /= score.std()
    if task.problem.is_classification:
        y = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-2.0 * score)), 1.0, -1.0)
        return X, np.where(rng.random(n) < 0.05, -y, y)
    y = score + 0.5 * rng.standard_t(3, size=n)
    return X, np.where(rng.random(n) < 0.01, y + 20.0 * rng.normal(size=n), y)


# Methods: (task, X, y) -> coefficients, intercept, a word on how it went


def ours(solver: str) -> Callable[[Task, np.ndarray, np.ndarray], Model]:
    def run(task: Task, X: np.ndarray, y: np.ndarray) -> Model:
        found = solve(task.problem, X, y, solver=solver)
        return found.coef, found.intercept, f"{found.iterations} iterations, certified gap {found.relative_gap:.0e}"

    return run


def cvxpy_clarabel(task: Task, X: np.ndarray, y: np.ndarray, *, short: bool = False) -> Model:
    """The reformulation as the literature states it, or in the fewest cones we know; Clarabel's own tolerances."""
    import cvxpy as cp

    loss, geometry, radius = task.problem.loss, task.problem.geometry, task.problem.radius
    coef, intercept, lam = cp.Variable(X.shape[1]), cp.Variable(), cp.Variable()
    constraints = [lam >= loss.lipschitz * cp.norm(coef, "inf" if geometry.norm.name == "l1" else 2)]
    margin, flip_price = cp.multiply(y, X @ coef + intercept), geometry.label_cost * lam
    if not task.problem.is_classification:
        h = 0.5 * cp.huber(X @ coef + intercept - y, loss.delta)
        constraints.append(lam >= loss.lipschitz * geometry.target_slope)
    elif not short:
        branch = cp.pos if loss.name == "hinge" else cp.logistic
        stay, flip = (1 - margin, 1 + margin) if loss.name == "hinge" else (-margin, margin)
        h = cp.Variable(len(y))
        constraints += [h >= branch(stay), h >= branch(flip) - flip_price]
    elif loss.name == "hinge":
        h = cp.maximum(1 - margin, 0, 1 + margin - flip_price)
    else:
        h = cp.logistic(-margin) + cp.pos(margin - flip_price)
    program = cp.Problem(cp.Minimize(radius * lam + cp.sum(h) / len(y)), constraints)
    program.solve(solver=cp.CLARABEL)
    return coef.value, float(intercept.value), program.status


def dro_package(task: Task, X: np.ndarray, y: np.ndarray) -> Model:
    from dro.linear_model.wasserstein_dro import WassersteinDRO

    geometry = task.problem.geometry
    model = WassersteinDRO(X.shape[1], model_type=task.dro, solver="CLARABEL")
    model.update(
        {"eps": task.problem.radius, "p": 1 if geometry.norm.name == "l1" else 2, "kappa": geometry.label_cost}
    )
    found = model.fit(X, y)
    return np.asarray(found["theta"]), float(found["b"]), ""


def skwdro_package(task: Task, X: np.ndarray, y: np.ndarray) -> Model:
    """Its cost of order 1 in the same feature norm; smoothing and the price of labels are its defaults."""
    from skwdro.linear_models import LogisticRegression

    model = LogisticRegression(rho=task.problem.radius, cost="t-NLC-1-1", solver="entropic_torch").fit(X, y)
    return np.ravel(model.coef_).astype(float), float(np.ravel(model.intercept_)[0]), "entropic approximation"


def plain_sklearn(task: Task, X: np.ndarray, y: np.ndarray) -> Model:
    from sklearn.linear_model import HuberRegressor, LogisticRegression
    from sklearn.svm import LinearSVC

    if task.plain == "LogisticRegression":
        model = LogisticRegression(tol=1e-6, max_iter=1000)
    elif task.plain == "LinearSVC":
        model = LinearSVC(loss="hinge", random_state=0)
    else:
        model = HuberRegressor()
    model.fit(X, y)
    return np.ravel(model.coef_), float(np.ravel(model.intercept_)[0]), "not robust"


METHODS: dict[str, Callable[[Task, np.ndarray, np.ndarray], Model]] = {
    "structured": ours("structured"),
    "conic": ours("conic"),
    "cvxpy": cvxpy_clarabel,
    "cvxpy_short": partial(cvxpy_clarabel, short=True),
    "dro": dro_package,
    "skwdro": skwdro_package,
    "sklearn": plain_sklearn,
}
LABELS = {
    "structured": "dualcore, structured",
    "conic": "dualcore, conic",
    "cvxpy": "CVXPY + Clarabel",
    "cvxpy_short": "CVXPY + Clarabel, short",
    "dro": "dro",
    "skwdro": "skwdro",
}
ROBUST = ("structured", "conic", "cvxpy", "cvxpy_short", "dro", "skwdro")


def absence(method: str, task: Task) -> str | None:
    """Return why a method takes no part, or None."""
    if method not in ("structured", "conic", "sklearn") and find_spec(method.removesuffix("_short")) is None:
        return "skipped: not installed"
    if method == "cvxpy_short" and not task.problem.is_classification:
        return "skipped: the same as the line above"
    if method == "dro" and task.dro is None:
        return "skipped: has no such loss"
    if method == "skwdro" and task.plain != "LogisticRegression":
        return "skipped: has no such estimator"
    return None


# One process per method


def work(method: str, task_name: str, folder: Path, repeats: int) -> None:
    """Print one line of JSON per repeat; the parent reads as many as there are when time is up."""
    task = TASKS[task_name]
    X, y = np.load(folder / "X.npy"), np.load(folder / "y.npy")
    # The first call of anything pays for imports and caches: a few rows take that upon themselves.
    few = np.concatenate([np.flatnonzero(y > np.median(y))[:50], np.flatnonzero(y <= np.median(y))[:50]])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if method != "skwdro":
            METHODS[method](task, X[few], y[few])
    spent = 0.0
    for _ in range(repeats):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            start = time.perf_counter()
            coef, intercept, note = METHODS[method](task, X, y)
            seconds = time.perf_counter() - start
        if heard:
            note = f"{note}; {heard[0].category.__name__}".lstrip("; ")
        print(json.dumps({"seconds": seconds, "coef": list(coef), "intercept": intercept, "note": note}), flush=True)
        spent += seconds
        if spent > ENOUGH_SECONDS:
            break


@dataclass
class Line:
    """One line of the table."""

    task: str
    n: int
    method: str
    seconds: float | None = None
    runs: int = 0
    capped: bool = False
    risk: float | None = None
    gap: float | None = None
    times_ours: float | None = None
    over_cvxpy: float | None = None
    note: str = ""


def measure(
    method: str, task_name: str, n: int, folder: Path, options: argparse.Namespace
) -> tuple[Line, Model | None]:
    """Run a method in a process of its own and kill it when its time is up."""
    line = Line(task_name, n, method)
    reason = absence(method, TASKS[task_name])
    if reason is not None:
        line.note = reason
        return line, None
    environment = os.environ | dict.fromkeys(THREAD_VARIABLES, str(options.threads))
    command = [sys.executable, __file__, "--work", method, task_name, str(folder), "--repeats", str(options.repeats)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, err = process.communicate(timeout=options.cap)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        line.capped = True
    runs = [json.loads(text) for text in out.splitlines() if text.startswith('{"seconds"') and text.endswith("}")]
    if not runs:
        line.note = f"no answer in {options.cap:g} s" if line.capped else f"failed: {last_words(err)}"
        return line, None
    line.capped = False
    line.runs, line.seconds = len(runs), statistics.median(run["seconds"] for run in runs)
    line.note = runs[-1]["note"]
    return line, (np.array(runs[-1]["coef"]), runs[-1]["intercept"], "")


def last_words(errors: str) -> str:
    """Return the last line of a traceback without anything that looks like a path: the record is public."""
    words = (errors.strip() or "no output").splitlines()[-1].split()
    return " ".join(word for word in words if "/" not in word and "\\" not in word)[:100]


def compare(task_name: str, n: int, options: argparse.Namespace) -> list[Line]:
    """Run every method on one data set, score all alike and relate them to each other."""
    task = TASKS[task_name]
    X, y = make_data(task, n, options.skew)
    lines = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y)
        for method in options.methods:
            line, model = measure(method, task_name, n, folder, options)
            if model is not None:
                line.risk = task.problem.risk(model[0], model[1], X, y)
            lines.append(line)
            print(".", end="", file=sys.stderr, flush=True)
    relate(lines, options.cap)
    return lines


def relate(lines: list[Line], cap: float) -> None:
    """Fill in gaps and ratios; what was killed counts with its cap, which flatters it."""
    best = min((line.risk for line in lines if line.risk is not None and line.method in ROBUST), default=None)
    took = {line.method: cap if line.capped else line.seconds for line in lines}
    for line in lines:
        if line.risk is not None and best is not None:
            line.gap = (line.risk - best) / best
        seconds, mine, cvxpy = took[line.method], took.get("structured"), took.get("cvxpy")
        if seconds is not None and mine is not None:
            line.times_ours = seconds / mine
        if seconds is not None and cvxpy is not None and not line.capped:
            line.over_cvxpy = cvxpy / seconds


# What is printed and stored


def label(line: Line) -> str:
    return LABELS.get(line.method, f"sklearn {TASKS[line.task].plain}")


def number(value: float | None, form: str, at_least: bool = False) -> str:
    return "" if value is None else (">" if at_least else "") + format(value, form)


def show(lines: list[Line], cap: float) -> None:
    cvxpy_capped = {(line.task, line.n) for line in lines if line.method == "cvxpy" and line.capped}
    columns = f"{'seconds':>9s} {'runs':>4s} {'x ours':>8s} {'over CVXPY':>10s} {'risk':>12s} {'gap':>9s}"
    head = f"{'method':27s} {columns}  note"
    for task in dict.fromkeys(line.task for line in lines):
        for n in dict.fromkeys(line.n for line in lines if line.task == task):
            print(f"\n{task}: {TASKS[task].summary}; n = {n:,}, m = {FEATURES}\n{head}")
            for line in lines:
                if (line.task, line.n) != (task, n):
                    continue
                seconds = f">{cap:g}" if line.capped else number(line.seconds, ".3g")
                print(
                    f"{label(line):27s} {seconds:>9s} {line.runs or '':>4} "
                    f"{number(line.times_ours, '.3g', line.capped):>8s} "
                    f"{number(line.over_cvxpy, '.3g', (task, n) in cvxpy_capped):>10s} "
                    f"{number(line.risk, '.8g'):>12s} {number(line.gap, '.1e'):>9s}  {line.note}"
                )


@dataclass(frozen=True)
class Bar:
    """Something the structured solver must achieve: ``seconds(other) / seconds(structured) >= factor``.

    CVXPY is what the literature states, handed to it as it stands; how the fewest cones we know fare is said beside it.
    """

    task: str
    n: int
    other: str
    factor: float

    def verdict(self, lines: list[Line], cap: float) -> str:
        rows = {line.method: line for line in lines if (line.task, line.n) == (self.task, self.n)}
        mine, other, short = (rows.get(name) for name in ("structured", self.other, f"{self.other}_short"))
        if mine is None or mine.seconds is None or other is None or (other.seconds is None and not other.capped):
            return "not measured"
        ratio = (cap if other.capped or other.seconds is None else other.seconds) / mine.seconds
        exact = mine.gap is not None and mine.gap <= AGREEMENT
        met = "met" if ratio >= self.factor and exact else "NOT MET"
        aside = f" ({short.seconds / mine.seconds:.3g} times in the fewest cones)" if short and short.seconds else ""
        return f"{met}: {'>' if other.capped else ''}{ratio:.3g} times{aside}, gap {mine.gap:.1e}"

    def __str__(self) -> str:
        other = LABELS.get(self.other, f"sklearn {TASKS[self.task].plain}")
        if self.factor >= 1.0:
            return f"{self.task}, n = {self.n:,}: at least {self.factor:g} times faster than {other}"
        return f"{self.task}, n = {self.n:,}: at most {1.0 / self.factor:g} times slower than {other}"


BARS = (
    Bar("logistic", 10_000, "cvxpy", 100.0),
    Bar("svm", 10_000, "cvxpy", 50.0),
    Bar("huber", 10_000, "cvxpy", 30.0),
    Bar("logistic", 100_000, "sklearn", 0.2),
    Bar("svm", 100_000, "sklearn", 1.0),
)


def cpu_model() -> str:
    try:
        listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        names = [text.split(":", 1)[1].strip() for text in listing.splitlines() if text.startswith("Model name")]
    except (OSError, subprocess.CalledProcessError):
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def environment(options: argparse.Namespace) -> dict[str, Any]:
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    versions["dualcore"] = dualcore.__version__  # also where it is used in place, without being installed
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu_model(),
        "threads": options.threads,
        "repeats": options.repeats,
        "cap_seconds": options.cap,
        "skew": options.skew,
        "versions": versions,
    }


def store(lines: list[Line], options: argparse.Namespace) -> list[Path]:
    """Write the table as CSV and, with what it was measured on, as JSON."""
    folder = RESULTS / "local" if options.quick else RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    rows = [asdict(line) | {"method": label(line)} for line in lines]
    table, record = folder / "solvers.csv", folder / "solvers.json"
    with table.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    record.write_text(json.dumps(environment(options) | {"lines": rows}, indent=1) + "\n", encoding="utf-8")
    return [table, record]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="n = 1,000 only, one run each, results kept apart")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sizes", nargs="+", type=int, help="numbers of rows (default: 1000 10000 100000)")
    parser.add_argument("--threads", type=int, default=1, help="threads of every method (default: 1)")
    parser.add_argument("--repeats", type=int, help="runs to take the median of (default: 5)")
    parser.add_argument("--cap", type=float, help="seconds after which a method is killed (default: 300)")
    parser.add_argument(
        "--skew", type=float, default=0.35, help="size of the log-normal columns' logarithm: 0.8 makes heavy tails"
    )
    parser.add_argument("--no-store", action="store_true", help="only print")
    parser.add_argument("--work", nargs=3, metavar=("METHOD", "TASK", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.sizes = options.sizes or ([1000] if options.quick else [1000, 10_000, 100_000])
    options.repeats = options.repeats or (1 if options.quick else 5)
    options.cap = options.cap or (60.0 if options.quick else 300.0)
    return options


def main() -> int:
    options = arguments()
    if options.work:
        method, task, folder = options.work
        work(method, task, Path(folder), options.repeats)
        return 0
    facts = environment(options)
    print(f"{facts['cpu']}, {facts['system']}, Python {facts['python']}, {options.threads} thread(s) each")
    print(", ".join(f"{name} {number}" for name, number in facts["versions"].items()))
    lines = [line for task in options.tasks for n in options.sizes for line in compare(task, n, options)]
    print(file=sys.stderr)
    show(lines, options.cap)
    print("\nBars, at a gap of at most 1e-6:")
    for bar in BARS:
        print(f"  {bar}: {bar.verdict(lines, options.cap)}")
    if not options.no_store:
        stored = store(lines, options)
        print("\nStored in", " and ".join(str(path.relative_to(RESULTS.parent)) for path in stored))
    return 0


if __name__ == "__main__":
    sys.exit(main())
