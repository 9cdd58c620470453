"""How fast a robust model is fitted to a Parquet file that does not fit in memory, and in how much memory.

    python benchmarks/bench_sources.py                     # 1e5, 1e6, 1e7 and 2e7 rows of 20 features
    python benchmarks/bench_sources.py --n 100000 1000000

Every size runs in a process of its own: ``merely reading`` is pyarrow's own loop over record batches, all columns,
nothing kept; then the fit, to a certified relative gap of 1e-3 or at most five reads, and two more for its coreset.
Memory is the peak resident set beyond what the interpreter and the imports held. A file of 100 features tells what a
feature costs and what a row. Then an estimator's ``fit(path, "y")`` with and without a coreset, and pyarrow's scan,
each in a process of its own: seconds, processor seconds and memory. Writes ``results/sources.json``;
``render_billion_rows.py`` puts its constants into the documentation.

Bounds (from 1e6 rows on): gap <= 1e-3 in at most 7 reads, two of which are the coreset's; less than 1 GB; rows per
second at least half of those of merely reading; and flat within a factor of 1.5.
"""

from __future__ import annotations

import argparse
import json
import pickle
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "sources.json"
WIDE = (200_000, 100)
CALLS = ("scan", "whole", "coreset")
SIZES = (100_000, 1_000_000, 10_000_000, 20_000_000)
MOST_READS, MOST_GAP, MOST_BYTES, LEAST_SHARE, MOST_SPREAD = 7, 1e-3, 1e9, 0.5, 1.5


def resident() -> int:
    """Peak resident bytes of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def timed(function: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock, and of all threads together."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def merely_read(path: Path) -> None:
    """Let pyarrow hand out all record batches."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches(batch_size=65536):
            pass


def one_call(path: Path, call: str, size: int) -> dict[str, Any]:
    """Time and memory of pyarrow's scan or of an estimator's fit; run in a process of its own."""
    import pyarrow.parquet  # noqa: F401  not a part of the time

    from dualcore import WassersteinLogisticRegression

    model = WassersteinLogisticRegression(
        radius=0.05, norm="linf", coreset=size if call == "coreset" else None, random_state=0
    )
    before = resident()
    wall, cpu = timed(partial(merely_read, path) if call == "scan" else partial(model.fit, str(path), "y"))
    found = {"seconds": wall, "cpu_seconds": cpu, "peak_bytes": resident() - before}
    if call != "scan":
        found |= {"reads": model.certificate_.n_reads, "gap": model.certificate_.relative_gap}
    if call == "coreset":
        found |= {"coreset_rows": len(model.coreset_), "excess": model.coreset_.excess}
    return found


def _shifted(chunk: Any, run: Any) -> Any:
    return run(chunk._replace(start=chunk.start + 7))


def one(path: Path, size: int) -> dict[str, Any]:
    """Fit one file; run in a process of its own."""

    from dualcore import DualCoreset, Problem
    from dualcore.data.sources import ParquetSource
    from dualcore.reading.reading import read
    from dualcore.reading.summary import Pass, SummaryRead

    problem = Problem("logistic", radius=0.05, norm="linf")
    source = ParquetSource(path, "y")
    before = resident()
    start = time.perf_counter()
    sampler = DualCoreset(size=min(size, source.n_rows // 2), rounds=3, target_gap=MOST_GAP, random_state=0)
    fit = sampler.fit(problem, source)
    seconds = time.perf_counter() - start
    peak = resident() - before
    reads = source.n_reads

    anchor = fit.coreset.anchor
    assert anchor is not None
    task = Pass(problem, anchor)
    ours, theirs = [], []
    for _ in range(3):  # in turn, so that both meet the same machine
        ours.append(timed(lambda: read(source, task)))
        theirs.append(timed(lambda: merely_read(path)))

    run = SummaryRead(None, source.total_weight, task)
    joined = run.merge(list(source._run(partial(_shifted, run=run), run.merge)))
    part_bytes = len(pickle.dumps(joined, protocol=5))
    return {
        "n": source.n_rows,
        "m": source.n_features,
        "file_bytes": path.stat().st_size,
        "reads": reads,
        "gap": fit.certificate.relative_gap,
        "coreset_rows": len(fit.coreset),
        "fit_seconds": seconds,
        "fit_rows_per_second": reads * source.n_rows / seconds,
        "read_seconds": min(wall for wall, _ in ours),
        "read_cpu_seconds": min(cpu for _, cpu in ours),
        "read_rows_per_second": source.n_rows / min(wall for wall, _ in ours),
        "pyarrow_seconds": min(wall for wall, _ in theirs),
        "pyarrow_cpu_seconds": min(cpu for _, cpu in theirs),
        "pyarrow_rows_per_second": source.n_rows / min(wall for wall, _ in theirs),
        "peak_bytes": peak,
        "part_bytes": part_bytes,
        "task_bytes": len(pickle.dumps(task, protocol=5)),
    }


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    from dualcore.data.threads import allowed_threads

    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": allowed_threads(),
        "packages": {name: version(name) for name in ("numpy", "pyarrow")},
    }


def check(rows: list[dict[str, Any]]) -> list[str]:
    """Return the bounds that are broken, in words."""
    faults = []
    large = [row for row in rows if row["n"] >= 1_000_000]
    for row in large:
        if row["gap"] > MOST_GAP or row["reads"] > MOST_READS:
            faults.append(f"n={row['n']}: gap {row['gap']:.2g} after {row['reads']} reads")
        if row["peak_bytes"] > MOST_BYTES:
            faults.append(f"n={row['n']}: {row['peak_bytes'] / 1e6:.0f} MB")
        if row["fit_rows_per_second"] < LEAST_SHARE * row["pyarrow_rows_per_second"]:
            faults.append(f"n={row['n']}: slower than half of merely reading")
    rates = [row["read_rows_per_second"] for row in large]
    if rates and max(rates) > MOST_SPREAD * min(rates):
        faults.append(f"rows per second differ by a factor of {max(rates) / min(rates):.2f}")
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--m", type=int, default=20)
    parser.add_argument("--size", type=int, default=5_000, help="rows of the coreset")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dualcore-benchmarks")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--call", choices=("read", *CALLS), default="read", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(
            json.dumps(
                one(given.one, given.size) if given.call == "read" else one_call(given.one, given.call, given.size)
            )
        )
        return 0
    from fingerprint import fingerprint
    from make_parquet import make_parquet

    code = fingerprint("sources")

    def run(n: int, m: int, call: str = "read") -> dict[str, Any]:
        path = given.folder / f"rows-{n}-{m}.parquet"
        if not path.exists():
            make_parquet(path, n, m)
        command = [sys.executable, __file__, "--one", str(path), "--size", str(given.size), "--call", call]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr)
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return row

    names = ("rows", "reads", "gap", "fit s", "fit rows/s", "read rows/s", "pyarrow", "share", "MB")
    print("".join(f"{name:>12}" for name in names))
    rows = []
    for n in given.n:
        row = run(n, given.m)
        rows.append(row)
        share = row["fit_rows_per_second"] / row["pyarrow_rows_per_second"]
        rates = [row[f"{name}_rows_per_second"] for name in ("fit", "read", "pyarrow")]
        print(
            f"{n:>12}{row['reads']:>12}{row['gap']:>12.1e}{row['fit_seconds']:>12.1f}"
            + "".join(f"{rate:>12.3g}" for rate in rates)
            + f"{share:>12.2f}{row['peak_bytes'] / 1e6:>12.0f}"
        )
        row["calls"] = {call: run(n, given.m, call) for call in CALLS}
        for call, found in row["calls"].items():
            print(f"{call:>12}", "  ".join(f"{name} {value:.3g}" for name, value in found.items()))
    given.out.parent.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "code": code, "rows": rows, "wide": run(*WIDE)}
    given.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    faults = check(rows)
    print("\n".join(faults) if faults else "All bounds hold.")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
