"""What a run prints: a line for every problem that fails, and counts at the end."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from .cases import Case
from .verdicts import FORBIDDEN

_WORST = 8
RESULTS = Path(__file__).resolve().parents[3] / "benchmarks" / "results" / "torture.json"


def failures(record: dict[str, Any]) -> dict[str, list[str]]:
    """Return the verdicts of a record that a release must not have."""
    return {name: texts for name, texts in record["verdicts"].items() if name in FORBIDDEN}


def print_record(record: dict[str, Any], done: int, total: int, seconds: float) -> None:
    """Print one line for a problem that failed, and the progress now and then."""
    for name, texts in failures(record).items():
        case = record["case"]
        size = f"{case['loss']} {case['norm']} {case['n']} x {case['m']}"
        print(f"{record['seed']}/{record['number']} {record['family']} {size}: {name}: {texts[0]}")
    if done % 50 == 0 or done == total:
        print(f"-- {done} of {total} problems, {seconds:.0f} s", flush=True)


def counts(records: list[dict[str, Any]]) -> Counter[str]:
    """Return how many problems have each verdict."""
    return Counter(name for record in records for name in record["verdicts"])


def print_summary(records: list[dict[str, Any]]) -> None:
    """Print counts by family, the share that converged, and the worst of every verdict that must not occur."""
    families = sorted({record["family"] for record in records})
    tables = {name: counts([each for each in records if each["family"] == name]) for name in families}
    claims = sum(len(record["claims"]) for record in records)
    print(f"\n{len(records)} problems, {claims} claims")
    names = [*FORBIDDEN, *sorted({name for table in tables.values() for name in table} - set(FORBIDDEN))]
    print(f"{'verdict':18}" + "".join(f"{name:>10}" for name in families) + f"{'all':>10}")
    print(f"{'problems':18}" + "".join(f"{_of(records, name):10}" for name in families) + f"{len(records):10}")
    for name in names:
        row = [tables[family][name] for family in families]
        print(f"{name:18}" + "".join(f"{count:10}" for count in row) + f"{sum(row):10}")
    total = counts(records)
    decided = total["converged"] + total["not_converged"]
    if decided:
        print(f"converged: {100 * total['converged'] / decided:.2f} % of {decided} that have a minimiser and an answer")
    for name in (*FORBIDDEN, "optimal_not_near"):
        bad = [record for record in records if name in record["verdicts"]]
        for record in sorted(bad, key=lambda each: each["case"]["n"] * each["case"]["m"])[:_WORST]:
            case = record["case"]
            size = f"{case['loss']} {case['norm']} {case['n']} x {case['m']}"
            print(
                f"  {name} {record['seed']}/{record['number']} {record['family']} {size}: {record['verdicts'][name][0]}"
            )


def store_counts(records: list[dict[str, Any]]) -> None:
    """Write the counts by family to `RESULTS`, with the seeds that they belong to."""
    families = {}
    for family in sorted({record["family"] for record in records}):
        own = [record for record in records if record["family"] == family]
        claims = sum(len(record["claims"]) for record in own)
        families[family] = {"problems": len(own), "claims": claims, "verdicts": dict(sorted(counts(own).items()))}
    seeds = sorted({record["seed"] for record in records})
    spans = {seed: [record["number"] for record in records if record["seed"] == seed] for seed in seeds}
    runs = [{"seed": seed, "first": min(numbers), "problems": len(numbers)} for seed, numbers in spans.items()]
    RESULTS.write_text(json.dumps({"runs": runs, "families": families}, indent=1) + "\n", encoding="utf-8")


def reproduction(case: Case) -> str:
    """Return a script that has the data and the problem of a case at hand."""
    forced = (f", family={case.family!r}" if case.forced else "") + ("" if case.paired else ", paired=False")
    lines = [
        "import dualcore",
        "from tests.torture.parts.cases import draw_case",
        f"case = draw_case({case.seed}, {case.number}, small={case.small}{forced})",
        f"problem = dualcore.Problem({case.loss!r}, **case.settings())",
        "X, y, sample_weight = case.X, case.y, case.weights",
        f"# {case.describe()}",
    ]
    if case.family == "softmax":
        lines.insert(-1, f"problem = problem.replace(loss=dualcore.problem.losses.Softmax({case.n_classes}))")
    return "\n".join(lines)


def _of(records: list[dict[str, Any]], family: str) -> int:
    return sum(record["family"] == family for record in records)
