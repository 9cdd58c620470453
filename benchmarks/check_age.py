"""List stored results that were measured on other code than that of today.

    python benchmarks/check_age.py    # exits with 1 if there is one

Results say on which code they were measured, see ``fingerprint.py``. Pictures are made from them and are not listed.
"""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fingerprint import REPOSITORY, fingerprint

RESULTS = REPOSITORY / "benchmarks" / "results"
DATA = REPOSITORY / "docs" / "data"
ENVIRONMENTS = "environments.csv"


def codes(content: dict[str, Any]) -> dict[str, set[str | None]]:
    """Return the fingerprints in a JSON file by its parts, "" for the whole file; None where there is none."""
    if "cells" in content:
        known = content.get("codes", {})
        return {"": {known.get(cell) for cell in content["cells"]}}
    parts = {name: part for name, part in content.items() if isinstance(part, dict) and "lines" in part}
    if not parts:
        return {"": {content.get("environment", content).get("code")}}
    return {
        name: {part["code"]} if "code" in part else {line.get("code") for line in part["lines"]}
        for name, part in parts.items()
    }


def stored(results: Path = RESULTS, data: Path = DATA) -> Iterator[tuple[Path, str, dict[str, set[str | None]]]]:
    """Yield every file of results, the name of its fingerprint, and the fingerprints in it."""
    for path in (*sorted(results.glob("*.json")), *sorted(data.glob("*.json"))):
        yield path, path.stem, codes(json.loads(path.read_text(encoding="utf-8")))
    tables = {path: _lines(path) for path in sorted((data / "experiments").glob("*.csv"))}
    noted = tables.pop(data / "experiments" / ENVIRONMENTS, [])
    known = {line["environment"]: line.get("code") or None for line in noted}
    for path, lines in tables.items():
        yield path, "experiments", {"": {known.get(line["environment"]) for line in lines}}


def _lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def differences(results: Path = RESULTS, data: Path = DATA) -> Iterator[str]:
    """Yield a sentence for each part of a file that was not measured on the code of the repository."""
    for path, name, parts in stored(results, data):
        now = fingerprint(name, REPOSITORY / "src" / "dualcore")
        for part, found in parts.items():
            if found != {now}:
                where = path.name + (f", {part}" if part else "")
                others = sorted(code or "unknown code" for code in found - {now})
                yield f"{where}: measured on {', '.join(others)}, not on {now}"


if __name__ == "__main__":
    lines = list(differences())
    print("\n".join(lines) or "Every stored result was measured on this code.")
    sys.exit(bool(lines))
