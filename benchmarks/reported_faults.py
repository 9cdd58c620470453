"""The 23 faults of a hostile trial, each asked again, with what is printed now.

    python benchmarks/reported_faults.py                # all of them; exits with 1 if one is back
    python benchmarks/reported_faults.py --items 3 16   # some of them
    python benchmarks/reported_faults.py --store        # keeps the lines in benchmarks/results/reported_faults.txt

Few reports name their data in full. Where one gives a count over random problems without their seeds, or a size without
the rows, such problems are drawn here, as many, or fewer where each takes long: the line says how many, and its optima
are those of the problems drawn. Item 16 counts seconds of processor time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from reported_parts.crashes import CHECKS as CRASHES
from reported_parts.inputs import CHECKS as INPUTS
from reported_parts.outcomes import Outcome
from reported_parts.statements import CHECKS as STATEMENTS

RESULTS = Path(__file__).resolve().parent / "results" / "reported_faults.txt"
CHECKS = STATEMENTS | CRASHES | INPUTS


def line(item: int, found: Outcome) -> str:
    return f"{item:2d} {'OK   ' if found.ok else 'FAULT'} | reported: {found.reported} | now: {found.now}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--items", type=int, nargs="+", choices=sorted(CHECKS), default=sorted(CHECKS))
    parser.add_argument("--store", action="store_true", help="keep the lines of all items for the documentation")
    chosen = parser.parse_args()
    if chosen.store and set(chosen.items) != set(CHECKS):
        parser.error("--store keeps all items: leave --items out")
    lines, faults = [], 0
    for item in chosen.items:
        found = CHECKS[item]()
        faults += not found.ok
        lines.append(line(item, found))
        print(lines[-1], flush=True)
    print(f"{len(lines) - faults} of {len(lines)} OK")
    if chosen.store:
        RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"stored in {RESULTS.name}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
