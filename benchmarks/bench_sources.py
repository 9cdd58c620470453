"""How fast a robust model is fitted to a Parquet file that does not fit in memory, and in how much memory.

    python benchmarks/bench_sources.py                     # 1e5, 1e6, 1e7 and 2e7 rows of 20 features
    python benchmarks/bench_sources.py --n 100000 1000000

Every size runs in a process of its own: ``merely reading`` is pyarrow's own loop over record batches, all columns,
nothing kept; then the fit, to a certified relative gap of 1e-3 or at most five reads. Memory is the peak resident set
beyond what the interpreter and the imports held. Writes ``results/sources.json``, from which the documentation
takes its constants.

Bounds (from 1e6 rows on): gap <= 1e-3 in at most 5 reads; less than 1 GB; rows per second at least half of those of
merely reading; and flat within a factor of 1.5.
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
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "sources.json"
SIZES = (100_000, 1_000_000, 10_000_000, 20_000_000)
MOST_READS, MOST_GAP, MOST_BYTES, LEAST_SHARE, MOST_SPREAD = 5, 1e-3, 1e9, 0.5, 1.5


def resident() -> int:
    """Peak resident bytes of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def merely_read(path: Path) -> float:
    """Seconds pyarrow takes to hand out all record batches."""
    import pyarrow.parquet as pq

    start = time.perf_counter()
    with pq.ParquetFile(path) as file:
        for _ in file.iter_batches(batch_size=65536):
            pass
    return time.perf_counter() - start


def one(path: Path, size: int) -> dict[str, Any]:
    """Fit one file; run in a process of its own."""
    import numpy as np

    from dualcore import DualCoreset, Problem
    from dualcore.sources import ParquetSource
    from dualcore.summary import CellRule, Extent, Pass, merge, read, summarise

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
    rule = CellRule(0.5, 0.5, 6, 4, True)
    task = Pass(problem, anchor, rule, 0, np.full(rule.n_cells, min(1.0, 2.0 * size / source.n_rows)))
    read_seconds = []
    pyarrow_seconds = []
    for _ in range(3):  # in turn, so that both meet the same machine
        start = time.perf_counter()
        read(source, task)
        read_seconds.append(time.perf_counter() - start)
        pyarrow_seconds.append(merely_read(path))
    # A part as a worker would send it: a million rows that begin and end inside a leaf.
    extent = Extent(source.n_rows, source.total_weight)
    chunks = [chunk for chunk in source._run(partial(summarise, task=task, extent=extent))]
    part = merge(chunks[: max(1, 1_000_000 // source.chunk_rows)], task, extent)
    return {
        "n": source.n_rows,
        "m": source.n_features,
        "file_bytes": path.stat().st_size,
        "reads": reads,
        "label_share": source._label_share(),
        "gap": fit.certificate.relative_gap,
        "coreset_rows": len(fit.coreset),
        "fit_seconds": seconds,
        "fit_rows_per_second": reads * source.n_rows / seconds,
        "read_seconds": min(read_seconds),
        "read_rows_per_second": source.n_rows / min(read_seconds),
        "pyarrow_seconds": min(pyarrow_seconds),
        "pyarrow_rows_per_second": source.n_rows / min(pyarrow_seconds),
        "peak_bytes": peak,
        "summary_bytes": len(pickle.dumps(part, protocol=5)),
        "summary_rows": part.n_rows,
        "task_bytes": len(pickle.dumps(task, protocol=5)),
    }


def machine() -> dict[str, Any]:
    from importlib.metadata import version

    from dualcore.threads import allowed_threads

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
    parser.add_argument("--size", type=int, default=20_000, help="rows of the coreset")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "dualcore-benchmarks")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(json.dumps(one(given.one, given.size)))
        return 0
    from make_parquet import make_parquet

    head = f"{'rows':>10} {'reads':>5} {'gap':>8} {'fit s':>7} {'fit rows/s':>11} {'read rows/s':>11} {'pyarrow':>11} {'share':>6} {'MB':>5}"
    print(head)
    rows = []
    for n in given.n:
        path = given.folder / f"rows-{n}-{given.m}.parquet"
        if not path.exists():
            make_parquet(path, n, given.m)
        command = [sys.executable, __file__, "--one", str(path), "--size", str(given.size)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        row = json.loads(done.stdout.splitlines()[-1])
        rows.append(row)
        print(
            f"{n:>10} {row['reads']:>5} {row['gap']:>8.1e} {row['fit_seconds']:>7.1f} {row['fit_rows_per_second']:>11.3g} "
            f"{row['read_rows_per_second']:>11.3g} {row['pyarrow_rows_per_second']:>11.3g} "
            f"{row['fit_rows_per_second'] / row['pyarrow_rows_per_second']:>6.2f} {row['peak_bytes'] / 1e6:>5.0f}"
        )
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps({"machine": machine(), "rows": rows}, indent=1) + "\n", encoding="utf-8")
    faults = check(rows)
    print("\n".join(faults) if faults else "All bounds hold.")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
