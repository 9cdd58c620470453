"""Rows in memory: dense, large, hinge, sparse, growth."""

from __future__ import annotations

import time
import tracemalloc
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import scipy.sparse as sp

from dualcore import Problem, solve
from wide_parts.generated import make_rows, make_target
from wide_parts.measured import PEERS, Asked, Line, seconds_in_turns


@dataclass(frozen=True)
class Setting:
    """A robust problem, its tolerance, the rows it is solved on, the peer, and the ratio asked for."""

    problem: Problem
    tol: float
    kind: str
    peer: str
    most: float


def _logistic(kind: str, tol: float, most: float, **more: Any) -> Setting:
    return Setting(Problem("logistic", **({"radius": 0.05} | more)), tol, kind, "logistic", most)


SETTINGS: dict[str, Setting] = {
    "l2-independent": _logistic("independent", 1e-5, 3.0),
    "l2-correlated": _logistic("correlated", 1e-5, 1.0),
    "l1-independent": _logistic("independent", 1e-4, 2.0, norm="l1"),
    "l1-correlated": _logistic("correlated", 1e-4, 2.0, norm="l1"),
    "linf-independent": _logistic("independent", 1e-4, 2.0, norm="linf", radius=0.003),
    "linf-correlated": _logistic("correlated", 1e-4, 2.0, norm="linf", radius=0.003),
    "flips-independent": _logistic("independent", 1e-3, 3.0, label_cost=2.0),
    "flips-correlated": _logistic("correlated", 1e-3, 3.0, label_cost=2.0),
    "huber-independent": Setting(Problem("huber", radius=0.05), 1e-5, "independent", "huber", 2.0),
    "huber-correlated": Setting(Problem("huber", radius=0.05), 1e-5, "correlated", "huber", 2.0),
    "hinge-independent": Setting(Problem("hinge", radius=0.05), 1e-3, "independent", "svm", 0.1),
    "hinge-correlated": Setting(Problem("hinge", radius=0.05), 1e-3, "correlated", "svm", 0.1),
}
SPARSE = Setting(Problem("logistic", radius=0.001), 1e-3, "sparse", "liblinear", 5.0)


@lru_cache(maxsize=1)
def _rows(kind: str, n: int, m: int) -> Any:
    """Return generated rows; those of the line before where they are the same."""
    return make_rows(kind, n, m)


def _line(name: str, setting: Setting, rows: int, features: int, repeats: int, *, traced: bool = False) -> Line:
    """Time a setting and its peer in turns; ``traced`` adds the peak of Python's allocations over the size of X."""
    X = _rows(setting.kind, rows, features)
    y = make_target(X, setting.problem.is_classification)
    found: list[Any] = []

    def ours() -> None:
        found.append(solve(setting.problem, X, y, solver="descent", tol=setting.tol))

    slow = ("peer",) if setting.peer.startswith("svm") or setting.peer.endswith("short") else ()
    taken = seconds_in_turns({"ours": ours, "peer": lambda: PEERS[setting.peer]().fit(X, y)}, repeats, slow)
    line: Line = {
        "setting": name,
        "rows": rows,
        "features": features,
        "seconds": taken["ours"],
        "peer": setting.peer,
        "peer_seconds": taken["peer"],
        "ratio": taken["ours"] / taken["peer"],
        "most": setting.most,
        "gap": found[-1].relative_gap,
        "tol": setting.tol,
        "status": found[-1].status.name,
    }
    if traced:
        size = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes if sp.issparse(X) else X.nbytes
        tracemalloc.start()
        ours()
        line["memory"] = tracemalloc.get_traced_memory()[1] / size
        tracemalloc.stop()
    return line


def _smooth(settings: dict[str, Setting], kind: str, rows: int, features: int, repeats: int) -> list[Line]:
    names = [name for name, each in settings.items() if each.kind == kind and not name.startswith("hinge")]
    return [_line(name, settings[name], rows, features, repeats) for name in names]


def dense(asked: Asked) -> list[Line]:
    """50,000 x 768, every smooth setting beside scikit-learn."""
    shape = (4000, 120) if asked.quick else (50_000, 768)
    return [line for kind in ("independent", "correlated") for line in _smooth(SETTINGS, kind, *shape, asked.repeats)]


def _large(kind: str, asked: Asked) -> list[Line]:
    shape = (8000, 120) if asked.quick else (200_000, 768)
    short = {name: replace(each, peer="huber-short") for name, each in SETTINGS.items() if each.peer == "huber"}
    return _smooth(SETTINGS | short, kind, *shape, asked.repeats)


def large(asked: Asked) -> list[Line]:
    """200,000 x 768 independent columns beside scikit-learn; of HuberRegressor the first 100 iterations."""
    return _large("independent", asked)


def large_correlated(asked: Asked) -> list[Line]:
    """200,000 x 768 correlated columns beside scikit-learn; of HuberRegressor the first 100 iterations."""
    return _large("correlated", asked)


def hinge(asked: Asked) -> list[Line]:
    """50,000 x 768: hinge beside LinearSVC, which runs once, and without it to a gap of 1e-5."""
    shape = (4000, 120) if asked.quick else (50_000, 768)
    lines = []
    for kind in ("independent", "correlated"):
        setting = SETTINGS[f"hinge-{kind}"]
        lines.append(_line(f"hinge-{kind}", setting, *shape, asked.repeats))
        X = make_rows(kind, *shape)
        y = make_target(X, True)
        began = time.perf_counter()
        found = solve(setting.problem, X, y, solver="descent", tol=1e-5)
        lines.append(
            {
                "setting": f"hinge-{kind}-fine",
                "rows": shape[0],
                "features": shape[1],
                "seconds": time.perf_counter() - began,
                "gap": found.relative_gap,
                "tol": 1e-5,
                "status": found.status.name,
            }
        )
    return lines


def hinge_large(asked: Asked) -> list[Line]:
    """200,000 x 768: hinge beside 100 of LinearSVC's iterations; it would take more."""
    shape = (8000, 120) if asked.quick else (200_000, 768)
    kinds = ("independent", "correlated")
    settings = {f"hinge-{kind}": replace(SETTINGS[f"hinge-{kind}"], peer="svm-short") for kind in kinds}
    return [_line(name, setting, *shape, 1) for name, setting in settings.items()]


def wider(asked: Asked) -> list[Line]:
    """20,000 x 4,096 dense, 20,000 x 47,000 and 200,000 x 1,000,000 sparse, beside liblinear, with the memory."""
    dense_setting = replace(SETTINGS["l2-independent"], tol=1e-3, peer="liblinear", most=5.0)
    shapes = [(3000, 500), (3000, 5000), (6000, 20_000)]
    if not asked.quick:
        shapes = [(20_000, 4096), (20_000, 47_000), (200_000, 1_000_000)]
    return [
        _line("l2-dense", dense_setting, *shapes[0], 1, traced=True),
        _line("l2-sparse", SPARSE, *shapes[1], asked.repeats, traced=True),
        _line("l2-sparse", SPARSE, *shapes[2], 1, traced=True),
    ]


def growth(asked: Asked) -> list[Line]:
    """Seconds of ``solver="auto"`` and of both solvers by name, against features at 20,000 rows, and against rows."""
    features = (20, 60, 150) if asked.quick else (50, 100, 150, 200, 400, 800, 1600, 5000)
    rows = (1000, 3000, 10_000) if asked.quick else (10_000, 30_000, 100_000, 300_000, 1_000_000)
    n, m = (2000, 20) if asked.quick else (20_000, 100)
    lines = []
    for shape in [*((n, each) for each in features), *((each, m) for each in rows)]:
        X = make_rows("independent", *shape)
        y = make_target(X, True)
        for name, problem in (("l2", Problem("logistic", radius=0.05)), ("hinge", Problem("hinge", radius=0.05))):
            for solver in ("auto", "structured", "descent"):
                if solver == "structured" and float(shape[0]) * shape[1] ** 2 > 4e9:
                    continue  # minutes: descent took over long before
                began = time.perf_counter()
                found = solve(problem, X, y, solver=solver, tol=1e-4)
                lines.append(
                    {
                        "setting": f"{name}-{solver}",
                        "rows": shape[0],
                        "features": shape[1],
                        "seconds": time.perf_counter() - began,
                        "ran": found.solver,
                        "gap": found.relative_gap,
                        "tol": 1e-4,
                        "status": found.status.name,
                    }
                )
    return lines
