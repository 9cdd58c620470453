"""Put the measured constants of ``results/sources.json`` into ``docs/billion_rows.md``, and what follows from them.

python benchmarks/render_billion_rows.py            # rewrites the part between the two markers
python benchmarks/render_billion_rows.py --check    # exits with 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "sources.json"
PAGE = HERE.parent / "docs" / "billion_rows.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
PREFIXES = ("n", "µ", "m", "", "k", "M", "G", "T")
PARTITION = 1_000_000  # rows of a partition or file in the extrapolations


def constants(result: dict[str, Any]) -> dict[str, float]:
    """Processor seconds per row (a) and per number (b), bytes per row, and the rest of the page's symbols."""
    row = max(result["rows"], key=lambda row: row["n"])
    wide = result["wide"]
    narrow_cost, wide_cost = (one["read_cpu_seconds"] / one["n"] for one in (row, wide))
    slope = max((wide_cost - narrow_cost) / (wide["m"] - row["m"]), 0.0)
    return {
        "a": narrow_cost - slope * row["m"],
        "b": slope,
        "m": row["m"],
        "bytes_per_row": row["file_bytes"] / row["n"],
        "reads": row["reads"],
        "part_bytes": row["part_bytes"] + row["task_bytes"],
        "peak_bytes": row["peak_bytes"],
        "n": row["n"],
        "gap": row["gap"],
        "threads": result["machine"]["threads"],
    }


def si(value: float, unit: str = "") -> str:
    """Three digits and a prefix."""
    if value == 0.0:
        return f"0 {unit}".strip()
    power = min(max(math.floor(math.log10(abs(value)) / 3), -3), 4)
    return f"{value / 1000.0**power:.3g} {PREFIXES[power + 3]}{unit}".rstrip()


def block(result: dict[str, Any]) -> str:
    k, machine = constants(result), result["machine"]
    cost = k["a"] + k["b"] * k["m"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items())
    lines = [
        BEGIN,
        "",
        f"Measured with {int(k['threads'])} thread{'s' * (k['threads'] > 1)}, Python {machine['python']}, {packages}, "
        f"on {machine['system']}; the largest file had {int(k['n']):,} rows of {int(k['m'])} float32 features.",
        "",
        "| rows | reads | certified gap | rows/s of the fit | rows/s of one read | rows/s of pyarrow alone | memory |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['n']:,} | {row['reads']} | {row['gap']:.1e} | {si(row['fit_rows_per_second'])} "
        f"| {si(row['read_rows_per_second'])} | {si(row['pyarrow_rows_per_second'])} | {si(row['peak_bytes'], 'B')} |"
        for row in result["rows"]
    ]
    lines += [
        "",
        "| constant | value |",
        "|---|---|",
        f"| a, processor seconds per row and read | {si(k['a'], 's')} |",
        f"| b, processor seconds per number and read | {si(k['b'], 's')} |",
        f"| bytes of the file per row (m = {int(k['m'])}) | {k['bytes_per_row']:.1f} |",
        f"| R, reads to the certified gap of 1e-3 | {int(k['reads'])} |",
        f"| bytes of the summary of a part, and of the description of the work | {si(k['part_bytes'], 'B')} |",
        "",
        f"Extrapolated from these, for m = {int(k['m'])} and parts of {PARTITION:,} rows:",
        "",
        "| | 1e9 rows | 1e10 rows |",
        "|---|---|---|",
    ]
    sizes = (1e9, 1e10)
    rows: list[tuple[str, list[str]]] = [
        ("file", [si(n * k["bytes_per_row"], "B") for n in sizes]),
        ("bytes read by a fit", [si(k["reads"] * n * k["bytes_per_row"], "B") for n in sizes]),
        ("core hours of a fit", [f"{k['reads'] * n * cost / 3600.0:.3g}" for n in sizes]),
        ("cores to fit in 10 minutes", [f"{math.ceil(k['reads'] * n * cost / 600.0)}" for n in sizes]),
        ("cores to fit in an hour", [f"{math.ceil(k['reads'] * n * cost / 3600.0)}" for n in sizes]),
        (
            "disk or network rate for 10 minutes",
            [si(k["reads"] * n * k["bytes_per_row"] / 600.0, "B/s") for n in sizes],
        ),
        ("bytes moved between workers by a fit, at most", [si(k["reads"] * moved(n, k), "B") for n in sizes]),
    ]
    lines += [f"| {name} | {' | '.join(values)} |" for name, values in rows]
    return "\n".join([*lines, "", END])


def moved(n: float, k: dict[str, float]) -> float:
    """Bytes that a read moves between workers: the summary of every part, at most once."""
    return k["part_bytes"] * n / PARTITION


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    new = before + block(json.loads(RESULTS.read_text(encoding="utf-8"))) + after
    if given.check:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
