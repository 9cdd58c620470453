"""Wide data: the descent solver beside plain scikit-learn models, on the same rows, in the same run.

    python benchmarks/bench_wide.py                          # every part, about an hour
    python benchmarks/bench_wide.py --parts dense hinge      # some parts; their lines in the stored file are replaced
    python benchmarks/bench_wide.py --parts valid --seconds 240    # so long; the next call goes on where it stopped
    python benchmarks/bench_wide.py --quick                  # the same parts on few rows, a few minutes, nothing stored

Parts (each below eight minutes on two quiet cores):

    dense            l2, l1, linf, label cost 2 and Huber at 50,000 x 768
    large, large-correlated  the same at 200,000 x 768; of HuberRegressor the first 100 iterations only
    hinge, hinge-large  hinge beside LinearSVC, and to a gap of 1e-5; at 200,000 x 768 beside its first 100 iterations
    wider            20,000 x 4,096 dense, 20,000 x 47,000 and 200,000 x 1,000,000 sparse, with the memory
    growth           seconds against features and against rows, "auto" and both solvers by name
    reads            500,000 x 768 on disk: reads, gap, memory; by a memory map and by Dask, with and without a coreset
    parquet-memory   5e6 x 20 Parquet rows through 5,000: memory beyond the imports
    certificates     1e6 x 20, coreset=0.005, eighteen settings: certified gap and reads
    tightness        300 random problems: certified gap over true excess
    valid            1,000 random problems: no bound above the optimum

The experiments of the paper (MNIST pairs, LETTER) have their own page and command: docs/experiments.md.

Dense rows are float32: independent columns, or correlated ones (singular values geometric from 1 to 1e-2, rotated),
brought to mean 0 and variance 1. Sparse rows have 70 numbers each, drawn by a power law of the columns. Labels follow a
logistic model; targets have Student-t (3) noise.

Every method runs in this process, with the same number of threads (--threads); memory beyond the imports is that of a
process of its own. Seconds are medians over --repeats, the two methods taking turns; "ratio" is ours over the peer's,
"most" what it may be. "gap" is the certified relative gap. scikit-learn's models are not robust: they say what a plain
fit costs on these rows, nothing else.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_limits
from wide_parts import memory_rows, sources, validity
from wide_parts.measured import Asked, Line

RESULTS = Path(__file__).resolve().parent / "results" / "wide.json"

PARTS: dict[str, Callable[[Asked], list[Line]]] = {
    "dense": memory_rows.dense,
    "large": memory_rows.large,
    "large-correlated": memory_rows.large_correlated,
    "hinge": memory_rows.hinge,
    "hinge-large": memory_rows.hinge_large,
    "wider": memory_rows.wider,
    "growth": memory_rows.growth,
    "reads": sources.reads,
    "parquet-memory": sources.parquet_memory,
    "certificates": sources.certificates,
    "tightness": validity.tightness,
    "valid": validity.valid,
}


def show(line: Line) -> str:
    """Return a line as text: the setting, then every other value by name."""
    shown = [f"{line['setting']:<26}"]
    for name, value in line.items():
        if name != "setting" and not isinstance(value, list):
            shown.append(f"{name} {value:.3g}" if isinstance(value, float) else f"{name} {value}")
    return "  ".join(shown)


def store(found: dict[str, Any], threads: int, repeats: int) -> None:
    """Put parts into the stored file; the others stay as they are."""
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    packages = {name: version(name) for name in ("dualcore", "numpy", "scipy", "scikit-learn")}
    machine = {"machine": platform.machine(), "python": platform.python_version(), "threads": threads}
    for name, part in found.items():
        known[name] = {"packages": packages, "machine": machine, "repeats": repeats, **part}
    RESULTS.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    print(f"stored in {RESULTS.name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="few rows, one run each, nothing stored")
    parser.add_argument("--no-store", action="store_true")
    parser.add_argument(
        "--seconds", type=float, help="how long tightness and valid may take; they go on where the stored run stopped"
    )
    chosen = parser.parse_args()
    if chosen.repeats < 1:
        parser.error(f"--repeats must be at least 1, got {chosen.repeats}.")
    asked = Asked(chosen.quick, 1 if chosen.quick else chosen.repeats)
    known = json.loads(RESULTS.read_text(encoding="utf-8")) if chosen.seconds is not None and RESULTS.exists() else {}
    found = {}
    with threadpool_limits(chosen.threads), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a peer that does not converge is timed all the same
        for name in chosen.parts:
            began = time.perf_counter()
            if chosen.seconds is not None:
                before = known[name]["lines"][0] if name in known else None
                asked = replace(asked, seconds=chosen.seconds, before=before)
            lines = PARTS[name](asked)
            taken = time.perf_counter() - began
            print(f"{name} ({taken:.0f} s)", *(f"  {show(line)}" for line in lines), sep="\n", flush=True)
            found[name] = {"seconds": taken, "lines": lines}
    if not (chosen.quick or chosen.no_store):
        store(found, chosen.threads, asked.repeats)


if __name__ == "__main__":
    main()
