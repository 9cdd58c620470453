"""Rows in files: reads and memory out of core, certificates of coresets of narrow data."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
from make_parquet import make_parquet
from sklearn.linear_model import LogisticRegression

from dualcore import Problem, fit_coreset
from wide_parts.generated import make_rows, make_target
from wide_parts.measured import Asked, Line, in_a_process

_CHUNK = 10_000
_WAYS = {
    "reads-1e-3": ("solve(problem, SOURCE, tol=1e-3)", 8),
    "reads-1e-6": ("solve(problem, SOURCE, tol=1e-6)", 20),
    "coreset": ("fit_coreset(problem, SOURCE, coreset=0.02).solution", 8),
}
# A sum over a map given to `dask.array.from_array` was measured to hold twice the file (100,000 x 768; the line
# dask-sum-from-array), so blocks open the file themselves. How the rows are loaded is up to whoever calls Dask.
_LOADED = """
def load(path, block_info=None):
    first, last = block_info[None]["array-location"][0]
    return np.load(path, mmap_mode="r")[first:last]
def loaded(path, step):
    X = np.load(path, mmap_mode="r")
    sizes = tuple(min(step, len(X) - first) for first in range(0, len(X), step))
    return dask.array.map_blocks(
        load, path, chunks=(sizes, X.shape[1:]), dtype=X.dtype, meta=np.empty((0, 0), X.dtype)
    )
"""
_OPENED = {
    "map": 'open_source(np.load({X!r}, mmap_mode="r"), np.load({y!r}))',
    "dask": "open_source(loaded({X!r}, 20_000), dask.array.from_array(np.load({y!r}), chunks=20_000))",
}
_SUMS = {
    "dask-sum": "loaded({X!r}, 20_000)",
    "dask-sum-from-array": "dask.array.from_array(np.load({X!r}, mmap_mode='r'), chunks=(20_000, -1))",
}


def _write_map(folder: Path, n: int, m: int) -> tuple[str, str]:
    """Write a memory map of independent float32 columns chunk by chunk, and its labels."""
    paths = str(folder / "X.npy"), str(folder / "y.npy")
    X = np.lib.format.open_memmap(paths[0], mode="w+", dtype=np.float32, shape=(n, m))
    coef = np.random.default_rng(0).standard_normal(m) * 2.0 / np.sqrt(m)
    y = np.empty(n)
    for number, first in enumerate(range(0, n, _CHUNK)):
        rng = np.random.default_rng([1, number])
        part = rng.standard_normal((min(_CHUNK, n - first), m), dtype=np.float32)
        X[first : first + len(part)] = part
        y[first : first + len(part)] = np.where(part @ coef + rng.logistic(size=len(part)) > 0.0, 1.0, -1.0)
    X.flush()
    np.save(paths[1], y)
    return paths


def reads(asked: Asked) -> list[Line]:
    """500,000 x 768 float32 on disk, by a memory map and by Dask: reads, gap, memory (600 MB); Dask's own for a sum."""
    n, m = (20_000, 120) if asked.quick else (500_000, 768)
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        X, y = _write_map(Path(folder), n, m)
        for kind, opened in _OPENED.items():
            for name, (call, most_reads) in _WAYS.items():
                if kind == "dask" and name == "reads-1e-6":
                    continue
                source = opened.format(X=X, y=y)
                body = "import time\n" + (f"import dask.array\n{_LOADED}" if kind == "dask" else "")
                body += "problem = Problem('logistic', radius=0.05)\nbegan = time.perf_counter()\n"
                body += f"source = {source}\nfound = {call.replace('SOURCE', 'source')}\n"
                body += "out = dict(seconds=time.perf_counter() - began, reads=source.n_reads, "
                body += "gap=found.relative_gap, status=found.status.name)"
                done = in_a_process(body)
                lines.append({"setting": f"{kind}-{name}", "rows": n, "features": m, "most_reads": most_reads, **done})
        for name, array in _SUMS.items():  # what Dask holds for a sum of the columns
            body = f"import dask.array\n{_LOADED}\n{array.format(X=X)}.sum(axis=0).compute()\nout = {{}}"
            done = in_a_process(body)
            lines.append({"setting": name, "rows": n, "features": m, **done})
    return lines


def parquet_memory(asked: Asked) -> list[Line]:
    """5e6 x 20 Parquet rows through a coreset of 5,000: memory beyond the imports (300 MB) in every setting."""
    n = 200_000 if asked.quick else 5_000_000
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        make_parquet(path, n)
        for norm in ("l1", "l2", "linf"):
            for label_cost in ("np.inf", "1.0"):
                body = f"problem = Problem('logistic', radius=0.05, norm={norm!r}, label_cost={label_cost})\n"
                body += f"fit = fit_coreset(problem, {str(path)!r}, 'y', coreset=5000, random_state=0)\n"
                body += "out = dict(gap=fit.certificate.relative_gap, reads=fit.certificate.n_reads)"
                name = f"{norm}-label-cost-{label_cost.removeprefix('np.')}"
                lines.append({"setting": name, "rows": n, "features": 20, "most": 300.0, **in_a_process(body)})
    return lines


def certificates(asked: Asked) -> list[Line]:
    """1e6 x 20: certified gap of `coreset=0.005` in eighteen settings, within 8 reads; seconds beside a plain fit."""
    n = 50_000 if asked.quick else 1_000_000
    X = make_rows("correlated", n, 20)
    y = make_target(X, True)
    began = time.perf_counter()
    LogisticRegression(C=np.inf, tol=1e-4, max_iter=1000).fit(X, y)
    plain = time.perf_counter() - began
    lines = []
    for loss in ("logistic", "hinge"):
        for norm in ("l1", "l2", "linf"):
            for label_cost in (7.0, 1.0, np.inf):
                problem = Problem(loss, radius=0.1, norm=norm, label_cost=label_cost)
                began = time.perf_counter()
                fit = fit_coreset(problem, X, y, coreset=0.005, random_state=0)
                taken = time.perf_counter() - began
                known = fit.certificate
                lines.append(
                    {
                        "setting": f"{loss}-{norm}-label-cost-{label_cost:g}",
                        "rows": n,
                        "features": 20,
                        "seconds": taken,
                        "peer": "logistic",
                        "peer_seconds": plain,
                        "ratio": taken / plain,
                        "most": 1.5,
                        "gap": known.relative_gap,
                        "tol": 1e-3,
                        "reads": known.n_reads,
                        "most_reads": 8,
                    }
                )
    return lines
