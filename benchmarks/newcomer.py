"""What a new user meets on data as they come: eleven items, one line each.

    python benchmarks/newcomer.py                      # all items; a few minutes
    python benchmarks/newcomer.py --items 1 6 7        # some of them
    python benchmarks/newcomer.py --store before       # keep the lines in results/newcomer-before.txt

The data are generated to have the traits of real ones: a heavy-tailed target in minutes, few positives, rows in the
order of a drifting feature, wide sparse text, missing values, categories. A line holds the item, what is asked, what
was measured, and "ok" or "NOT". Speeds are ratios of two times of this run, not seconds of two runs.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from newcomer_data import delays, few_positives, ordered, text

import dualcore as dc
from dualcore import Problem

RESULTS = Path(__file__).resolve().parent / "results"


class Line(NamedTuple):
    """What is asked, what was measured, and whether it is as asked."""

    asked: str
    measured: str
    ok: bool


def clock(run: Callable[[], Any], repeats: int = 1) -> tuple[float, Any]:
    """Return the least seconds of some runs, and the result of the last."""
    best, found = np.inf, None
    for _ in range(repeats):
        began = time.perf_counter()
        found = run()
        best = min(best, time.perf_counter() - began)
    return best, found


def messages(run: Callable[[], Any]) -> tuple[list[str], Any]:
    """Return the warnings of a run, and its result."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = run()
    return [str(one.message) for one in caught], found


# The items


def item_1() -> Iterator[Line]:
    """Huber and the scale of the target."""
    X, y = delays()
    dc.solve(Problem("huber", radius=0.01), X[:100], y[:100])  # what is imported at the first solve
    for delta in (100.0, 20.0):
        found = []
        for factor in (1.0, 32.0):
            problem = Problem("huber", radius=0.01, delta=delta / factor)
            seconds, solution = clock(lambda p=problem, f=factor: dc.solve(p, X, y / f))
            found.append((seconds, solution))
        (slow, one), (fast, other) = found
        same = abs(one.value / 32.0**2 / other.value - 1.0) < 1e-6
        yield Line(
            f"Huber, minutes, delta {delta:g}: solved, like y / 32",
            f"{one.status.name}, gap {one.relative_gap:.0e}, {one.iterations} and {other.iterations} iterations, "
            f"time ratio {slow / fast:.2f}",
            bool(one.converged and same and abs(one.iterations - other.iterations) <= 2),
        )


def item_2() -> Iterator[Line]:
    """Small radii."""
    rng = np.random.default_rng(4)
    n, m = 7000, 250
    factors = rng.normal(size=(n, 20)) @ rng.normal(size=(20, m))
    X = factors + 0.5 * rng.normal(size=(n, m))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    y = np.where(X @ rng.normal(0, 0.15, m) + rng.logistic(size=n) > 0, 1.0, -1.0)
    seconds, easy = clock(lambda: dc.solve(Problem("logistic", radius=0.05), X, y))
    for radius in (1e-2, 1e-3, 1e-4):
        other, solution = clock(lambda r=radius: dc.solve(Problem("logistic", radius=r), X, y))
        yield Line(
            f"logistic 7,000 x 250, radius {radius:g}: at most 60 iterations",
            f"{solution.status.name}, gap {solution.relative_gap:.0e}, {solution.iterations} iterations by "
            f"{solution.solver}, {other / seconds:.1f} times the time of radius .05 ({easy.iterations})",
            bool(solution.converged and solution.iterations <= 60),
        )


def item_3() -> Iterator[Line]:
    """Wide sparse text."""
    from sklearn.linear_model import LogisticRegression

    X, y = text()
    problem = Problem("logistic", radius=0.001)
    dc.WassersteinLogisticRegression(radius=0.001, coreset=20).fit(X[:100], y[:100])  # what is imported at the first
    peer, _ = clock(lambda: LogisticRegression(C=1.0).fit(X, y), 3)
    whole, solution = clock(lambda: dc.solve(problem, X, y), 5)
    yield Line(
        "text 5,000 x 8,000: solve within 100 times scikit-learn's plain fit",
        f"{solution.status.name}, gap {solution.relative_gap:.0e}, ratio {whole / peer:.0f}",
        bool(solution.converged and whole <= 100 * peer),
    )
    seconds, radius = clock(lambda: dc.suggest_radius(problem, X, y, random_state=0), 3)
    yield Line(
        "text: suggest_radius within 5 fits",
        f"radius {radius:.2g}, {seconds / whole:.1f} fits",
        seconds <= 5 * whole,
    )
    _, (seconds, found) = messages(
        lambda: clock(lambda: dc.WassersteinLogisticRegression(radius=0.001, coreset=0.1, random_state=0).fit(X, y), 3)
    )
    yield Line(
        "text: a coreset of a tenth within 3 fits",
        f"gap {found.certificate_.relative_gap:.1e}, {seconds / whole:.1f} fits",
        seconds <= 3 * whole,
    )
    for name, fit, grid in (
        ("SVC", dc.WassersteinLinearSVC, dc.WassersteinLinearSVCCV),
        ("logistic", dc.WassersteinLogisticRegression, dc.WassersteinLogisticRegressionCV),
    ):
        one, _ = clock(lambda cls=fit: cls(radius=0.001).fit(X, y), 3)
        seconds, found = clock(lambda cls=grid: cls(radii=4, cv=3).fit(X, y), 3)
        fits = 4 * 3 + 1
        yield Line(
            f"text: {name} cross-validation of {fits} fits within {2 * fits} fits",
            f"radius {found.radius_:.2g}, {seconds / one:.1f} fits",
            seconds <= 2 * fits * one,
        )
    seconds, worst = clock(lambda: dc.worst_case_distribution(problem, solution.coef, solution.intercept, X, y))
    yield Line(
        "text: the worst-case distribution within one fit, still sparse",
        f"{seconds / whole:.2f} fits, {'sparse' if sp.issparse(worst.X) else 'dense'}",
        bool(seconds <= whole and sp.issparse(worst.X)),
    )


def item_4() -> Iterator[Line]:
    """Hinge against CVXPY with Clarabel."""
    try:
        import cvxpy as cp
    except ImportError:
        yield Line("hinge with l1 or linf: 15 times faster than CVXPY with Clarabel", "CVXPY is not installed", False)
        return
    rng = np.random.default_rng(5)
    X = rng.normal(size=(10_000, 20))
    y = np.where(X @ rng.normal(size=20) + rng.logistic(size=10_000) > 0, 1.0, -1.0)
    for norm in ("l1", "linf"):
        ours, solution = clock(lambda k=norm: dc.solve(Problem("hinge", radius=0.02, norm=k), X, y), 3)
        theta, b = cp.Variable(20), cp.Variable()
        size = cp.norm(theta, "inf" if norm == "l1" else 1)
        programme = cp.Problem(cp.Minimize(cp.sum(cp.pos(1 - cp.multiply(y, X @ theta + b))) / 10_000 + 0.02 * size))
        with np.errstate(all="ignore"):
            theirs, _ = clock(lambda p=programme: p.solve(solver="CLARABEL"), 2)
        yield Line(
            f"hinge {norm}, 10,000 x 20: 15 times faster than CVXPY with Clarabel",
            f"{theirs / ours:.1f} times, {solution.iterations} iterations by {solution.solver}, "
            f"gap {solution.relative_gap:.0e}",
            bool(theirs >= 15 * ours and solution.converged),
        )


def item_5() -> Iterator[Line]:
    """Certificates of coresets of the support vector machine."""
    X, y = few_positives()
    for name, more in (("no flips", {}), ("flips", {"label_cost": 2.0}), ("radius 0", {"radius": 0.0})):
        settings = {"radius": 0.01, "class_weight": "balanced"} | more
        whole = dc.WassersteinLinearSVC(**settings).fit(X, y)
        said, model = messages(lambda s=settings: dc.WassersteinLinearSVC(**s, coreset=600, random_state=0).fit(X, y))
        gap = model.certificate_.relative_gap
        excess = model.certificate_.upper / whole.certificate_.upper - 1.0
        told = any("gap" in one and ("larger" in one or "rounds" in one) for one in said)
        yield Line(
            f"SVM coreset, {name}: the gap is within 0.001, or a sentence says what to do",
            f"gap {gap:.1e}, true excess {excess:.0e}, {'told' if told else 'nothing said'}",
            bool(gap <= 1e-3 or told),
        )


def item_6() -> Iterator[Line]:
    """A radius that leaves nothing to learn."""
    X, y = few_positives()
    for cls in (dc.WassersteinLogisticRegression, dc.WassersteinLinearSVC):
        said, model = messages(lambda c=cls: c(radius=0.5).fit(X, y))
        told = [one for one in said if "radius" in one]
        yield Line(
            f"{cls.__name__}, a radius too large: a warning names the largest useful radius",
            told[0][:110] if told else f"largest coefficient {np.abs(model.coef_).max():.0e}, nothing said",
            bool(told),
        )
    said, model = messages(lambda: dc.WassersteinLogisticRegression().fit(X, y))
    yield Line(
        "logistic, default radius, unbalanced: something is learned, or it is said",
        f"largest coefficient {np.abs(model.coef_).max():.1e}, {len(said)} warnings",
        bool(np.abs(model.coef_).max() > 1e-6 or said),
    )


def item_7() -> Iterator[Line]:
    """Streams of ordered rows."""
    X, y = ordered()
    n, size = y.size, 2000
    for loss in ("hinge", "logistic"):
        problem = Problem(loss, radius=0.02)
        best = dc.solve(problem, X, y).value

        def excess(model: Any, problem: Problem = problem, best: float = best) -> float:
            return problem.risk(model.coef, model.intercept, X, y) / best - 1.0

        found: dict[str, list[float]] = {"ordered": [], "shuffled": [], "uniform": []}
        warned = 0
        for seed in range(3):
            rng = np.random.default_rng(seed)
            for order in ("ordered", "shuffled"):
                rows = np.arange(n) if order == "ordered" else rng.permutation(n)

                def run(rows: Any = rows, seed: int = seed, problem: Problem = problem) -> Any:
                    stream = dc.CoresetStream(problem, size, random_state=seed)
                    for start in range(0, n, 10_000):
                        stream.update(X[rows[start : start + 10_000]], y[rows[start : start + 10_000]])
                    return stream.coreset()

                said, coreset = messages(run)
                warned += order == "ordered" and any("do not stand for all" in one for one in said)
                found[order].append(excess(dc.solve(problem, coreset.X, coreset.y, coreset.weights)))
            part = rng.choice(n, size, replace=False)
            found["uniform"].append(excess(dc.solve(problem, X[part], y[part])))
        means = {name: float(np.mean(values)) for name, values in found.items()}
        yield Line(
            f"stream of ordered rows, {loss}, 2,000 kept: no worse than a uniform sample, and it is said",
            f"excess {means['ordered']:.2%} ordered, {means['shuffled']:.3%} shuffled, {means['uniform']:.2%} uniform "
            f"sample; {warned} of 3 warned",
            bool(means["ordered"] <= means["uniform"] and warned == 3),
        )
    done = subprocess.run([sys.executable, "-m", "dualcore", "stream", "--help"], capture_output=True, text=True)
    yield Line("a stream command", f"exit code {done.returncode}", done.returncode == 0)


def item_8() -> Iterator[Line]:
    """Getting data in."""
    import pandas as pd

    rng = np.random.default_rng(6)
    frame = pd.DataFrame(rng.normal(size=(3000, 3)), columns=["a", "b", "c"])
    frame["clicked"] = (frame.a + rng.normal(size=3000) > 0).astype(int)
    model = dc.WassersteinLogisticRegression(radius=0.01)
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        frame.to_parquet(home / "clicks.parquet")
        frame.to_csv(home / "clicks.csv", index=False)
        kinds = {}
        for name in ("clicks.parquet", "clicks.csv"):
            kinds[name] = dc.WassersteinLogisticRegression(radius=0.01).fit(str(home / name), "clicked").classes_.dtype
        kinds["arrays"] = model.fit(frame[["a", "b", "c"]], frame.clicked).classes_.dtype
        yield Line(
            "classes_ has one type from every source", f"{kinds}", len({np.dtype(kind) for kind in kinds.values()}) == 1
        )
        for what in ("predict", "decision_function", "score"):
            try:
                arguments = (str(home / "clicks.csv"), "clicked") if what == "score" else (str(home / "clicks.csv"),)
                X = frame[["a", "b", "c"]]
                expected = getattr(model, what)(*((X, frame.clicked) if what == "score" else (X,)))
                found = getattr(model, what)(*arguments)
                same = bool(np.allclose(np.asarray(found, dtype=float), np.asarray(expected, dtype=float), atol=1e-9))
                yield Line(f"{what} of a path, as of the rows", f"same: {same}", same)
            except Exception as error:
                yield Line(f"{what} of a path, as of the rows", _short(error, folder), False)
        try:
            model.fit(str(home / "nowhere/"), "clicked")
            said = "nothing"
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        yield Line("a missing folder is 'not found'", said.replace(folder, "DIR")[:90], "not found" in said.lower())
        try:
            path = dc.radius_path(
                Problem("logistic"), str(home / "clicks.parquet"), "clicked", [0.01, 0.1], coreset=500
            )
            yield Line("radius_path finds the labels of a source", f"{len(path.radii)} radii", True)
        except Exception as error:
            yield Line("radius_path finds the labels of a source", _short(error, folder), False)
        holes = frame.mask(rng.random(frame.shape) < 0.02)
        holes["clicked"] = frame["clicked"]
        holes.loc[3, "clicked"] = np.nan
        holes.to_csv(home / "holes.csv", index=False)
        source = dc.open_source(str(home / "holes.csv"), "clicked", drop_missing=True)
        yield Line(
            "missing values can be dropped, a null target too",
            f"{source.n_rows} of 3000 rows",
            0 < source.n_rows < 3000,
        )
        frame["carrier"] = rng.choice(["AA", "BB", "CC"], 3000)
        frame.to_csv(home / "cats.csv", index=False)
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "dualcore",
                "fit",
                str(home / "cats.csv"),
                "-t",
                "clicked",
                "-o",
                str(home / "m.json"),
            ],
            capture_output=True,
            text=True,
        )
        yield Line(
            "a text column is coded",
            f"exit code {done.returncode}: {' '.join((done.stdout + done.stderr).split())[:110]}",
            done.returncode == 0 and "carrier (3 categories)" in done.stdout,
        )


def _short(error: Exception, folder: str) -> str:
    return f"{type(error).__name__}: {str(error).replace(folder, 'DIR')[:80]}"


def item_9() -> Iterator[Line]:
    """Columns of different scales."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(2000, 3)) * [1.0, 100.0, 0.01] + [5.0, 0.0, 1.0]
    y = np.where(X[:, 0] - 5 + 0.01 * X[:, 1] + rng.logistic(size=2000) > 0, 1.0, -1.0)
    found = dc.WassersteinLogisticRegression(radius=0.05, feature_weights="std").fit(dc.open_source(X, y))
    expected = dc.WassersteinLogisticRegression(radius=0.05).fit((X - X.mean(axis=0)) / X.std(axis=0), y)
    off = float(np.abs(found.coef_ * X.std(axis=0) - expected.coef_).max())
    yield Line("feature_weights='std' is the scaled model", f"coefficients off by {off:.0e}", off < 1e-4)


def item_10() -> Iterator[Line]:
    """What scikit-learn's users expect."""
    classes = [getattr(dc, name) for name in dc.__all__ if name.startswith("Wasserstein") and not name.endswith("CV")]
    for what, has in (
        ("partial_fit", lambda cls: hasattr(cls, "partial_fit")),
        ("warm_start", lambda cls: "warm_start" in cls().get_params()),
    ):
        able = [cls.__name__ for cls in classes if has(cls)]
        yield Line(f"{what} on every estimator", f"{len(able)} of {len(classes)}", len(able) == len(classes))
    several = (dc.WassersteinLogisticRegression, dc.WassersteinLinearSVC, dc.WassersteinLogisticRegressionCV)
    able = [cls.__name__ for cls in several if "n_jobs" in cls().get_params()]
    yield Line("n_jobs where classes or folds are independent", f"{len(able)} of 3", len(able) == 3)
    try:
        dc.WassersteinLinearSVC().predict_proba(np.eye(2))
        said = ""
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    yield Line("predict_proba of the SVM points to CalibratedClassifierCV", said[:90], "CalibratedClassifierCV" in said)
    import pandas as pd

    rng = np.random.default_rng(8)
    frame = pd.DataFrame(rng.normal(size=(500, 2)), columns=["age", "pay"])
    y = np.where(frame.age + rng.normal(size=500) > 0, "yes", "no")
    model = dc.WassersteinLogisticRegression(radius=0.05, coreset=100, random_state=0)
    _, model = messages(lambda: model.fit(frame, y))
    columns = list(model.coreset_.to_frame().columns)
    yield Line("feature names in Coreset.to_frame", f"{columns}", "age" in columns)


def item_11() -> Iterator[Line]:
    """Verbose, import, demo, reproduce."""
    X, y = few_positives(4000)
    times: list[float] = []

    class Watched(io.StringIO):
        def write(self, text: str) -> int:
            times.append(time.perf_counter())
            return super().write(text)

    out = Watched()
    dc.WassersteinLogisticRegression(radius=0.01).fit(X[:100], np.arange(100) % 2)  # what is imported at the first fit
    began = time.perf_counter()
    with contextlib.redirect_stdout(out):
        dc.WassersteinLogisticRegression(radius=0.001, verbose=2).fit(X, y)
    ended = time.perf_counter()
    first = (times[0] - began) / (ended - began) if times else 1.0
    yield Line("verbose=2 prints while it runs", f"first line after {first:.0%} of the time", first < 0.7)

    def cpu(code: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    base = "import sklearn.linear_model"
    extra = min(cpu(f"{base}; import dualcore; dualcore.WassersteinLogisticRegression") for _ in range(2)) - min(
        cpu(base) for _ in range(2)
    )
    yield Line("import in under a second of CPU beyond scikit-learn's", f"{extra:.2f} s", extra < 1.0)
    with tempfile.TemporaryDirectory() as folder:
        blocked = Path(folder) / "matplotlib"
        blocked.mkdir()
        hide = (
            "import sys, importlib.util as u; sys.modules['matplotlib'] = None; find = u.find_spec\n"
            "u.find_spec = lambda name, package=None: None if name == 'matplotlib' else find(name, package)\n"
            "import dualcore.cli.app as a; sys.argv = ['dualcore'] + sys.argv[1:]; a.main()"
        )
        done = subprocess.run(
            [sys.executable, "-c", hide, "demo", "--rows", "4000", "--out", str(Path(folder) / "out")],
            capture_output=True,
            text=True,
        )
        said = " ".join((done.stdout + done.stderr).split())
        yield Line(
            "demo without matplotlib runs and says that pictures need it",
            f"exit code {done.returncode}",
            done.returncode == 0 and "matplotlib" in said,
        )
        done = subprocess.run(
            [sys.executable, "-m", "dualcore", "reproduce", "table1", "--trials", "1", "--data", folder],
            capture_output=True,
            text=True,
            env=os.environ | {"DUALCORE_DATA": folder},
            cwd=folder,
        )
        said = " ".join((done.stdout + done.stderr).split())
        named = "letter_authors.npz" in said and "--data" in said
        yield Line("reproduce table1 says how to get the data", said.replace(folder, "DIR")[:150], named)


ITEMS: dict[int, Callable[[], Iterator[Line]]] = {
    1: item_1, 2: item_2, 3: item_3, 4: item_4, 5: item_5, 6: item_6,
    7: item_7, 8: item_8, 9: item_9, 10: item_10, 11: item_11,
}  # fmt: skip


def walk(items: list[int]) -> Iterator[str]:
    """Run the items, and give a line for every check."""
    for number in items:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for line in ITEMS[number]():
                    yield f"{number:>2}  {'ok ' if line.ok else 'NOT'}  {line.asked}: {line.measured}"
        except Exception as error:  # a line, so that the other items are still walked
            yield f"{number:>2}  NOT  {ITEMS[number].__doc__} {type(error).__name__}: {str(error)[:120]}"


def main() -> None:
    """Print the lines, and store them if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, nargs="+", default=list(ITEMS), choices=list(ITEMS))
    parser.add_argument("--store", metavar="NAME", help="keep the lines in results/newcomer-NAME.txt")
    options = parser.parse_args()
    lines = []
    for line in walk(options.items):
        print(line, flush=True)
        lines.append(line)
    if options.store:
        (RESULTS / f"newcomer-{options.store}.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
