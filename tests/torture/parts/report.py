"""What a run prints and keeps: a line for every problem that fails, counts at the end, a file of all records."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import fingerprint

from .verdicts import FORBIDDEN

_WORST = 8
RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "torture.json"


def stored(path: Path | None) -> list[dict[str, Any]]:
    """Return the records of a file; a line cut short by an interrupted run is left out."""
    records = []
    for line in path.read_text().split("\n") if path is not None and path.exists() else ():
        try:
            records += [json.loads(line)] if line else []
        except json.JSONDecodeError:
            print(f"{path}: a line that is no JSON is left out", file=sys.stderr)
    return records


def append(path: Path, record: dict[str, Any]) -> None:
    """Write one line with the code it is of, on a new line: an interrupted run may have left half a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.write(f"\n{json.dumps(record | {'code': fingerprint('torture')})}\n")


def failures(record: dict[str, Any]) -> dict[str, list[str]]:
    """Return the verdicts of a record that a release must not have."""
    return {name: texts for name, texts in record["verdicts"].items() if name in FORBIDDEN}


def _line(record: dict[str, Any], verdict: str) -> str:
    case, text = record["case"], record["verdicts"][verdict][0]
    size = f"{case['loss']} {case['norm']} {case['n']} x {case['m']}"
    return f"{verdict} {record['seed']}/{record['number']} {record['family']} {size}: {text}"


def print_record(record: dict[str, Any], done: int, total: int, seconds: float) -> None:
    """Print one line for a problem that failed, and the progress now and then."""
    for name in failures(record):
        print(_line(record, name))
    if done % 50 == 0 or done == total:
        print(f"-- {done} of {total} problems, {seconds:.0f} s", flush=True)


def counts(records: list[dict[str, Any]]) -> Counter[str]:
    return Counter(name for record in records for name in record["verdicts"])


def by_family(records: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return for each family how many problems and claims there are, and how many problems have each verdict."""
    found = {}
    for family in sorted({record["family"] for record in records}):
        own = [record for record in records if record["family"] == family]
        claims = sum(len(record["claims"]) for record in own)
        found[family] = {"problems": len(own), "claims": claims, "verdicts": dict(sorted(counts(own).items()))}
    return found


def print_summary(records: list[dict[str, Any]]) -> None:
    """Print counts by family, the share that converged, and the worst of every verdict that must not occur."""
    families, total = by_family(records), counts(records)
    print(f"\n{len(records)} problems, {sum(each['claims'] for each in families.values())} claims")
    print(f"{'verdict':18}" + "".join(f"{name:>10}" for name in [*families, "all"]))
    for name in ["problems", *FORBIDDEN, *sorted(set(total) - set(FORBIDDEN))]:
        row = [each["problems"] if name == "problems" else each["verdicts"].get(name, 0) for each in families.values()]
        print(f"{name:18}" + "".join(f"{count:10}" for count in [*row, sum(row)]))
    decided = total["converged"] + total["not_converged"]
    if decided:
        print(f"converged: {100 * total['converged'] / decided:.2f} % of {decided} that have a minimiser and an answer")
    for name in (*FORBIDDEN, "optimal_not_near"):
        bad = [record for record in records if name in record["verdicts"]]
        for record in sorted(bad, key=lambda each: each["case"]["n"] * each["case"]["m"])[:_WORST]:
            print(f"  {_line(record, name)}")


def store_counts(records: list[dict[str, Any]]) -> None:
    """Write the counts by family to `RESULTS`, with the seeds and the code that they belong to."""
    codes = sorted({record.get("code", "unknown code") for record in records})
    runs = []
    for seed in sorted({record["seed"] for record in records}):
        own = [record for record in records if record["seed"] == seed]
        kind = {name: all(record.get(name) for record in own) for name in ("small", "quick")}
        runs.append({"seed": seed, "first": min(each["number"] for each in own), "problems": len(own)} | kind)
    result = {"code": " and ".join(codes), "runs": runs, "families": by_family(records)}
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
