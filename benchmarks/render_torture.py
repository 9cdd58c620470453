"""Put the counts of ``results/torture.json`` into ``docs/certificate.md``.

python benchmarks/render_torture.py            # rewrites the part between the two markers
python benchmarks/render_torture.py --check    # exits with 1 if the page is not up to date
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "torture.json"
PAGE = HERE.parent / "docs" / "certificate.md"
BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"
ROWS = {
    "false_lower": "lower bounds above the best known value",
    "false_upper": "risks that are not the model's",
    "false_optimal": "OPTIMAL with a certified gap above the tolerance",
    "false_unbounded": "UNBOUNDED although a minimiser exists",
    "exception": "exceptions other than documented refusals",
    "timeout": "calls cut off",
    "slow": "calls over 10 s with at most 1e5 numbers",
    "converged": "certified to 1e-6",
    "not_converged": "not certified to 1e-6",
    "unbounded": "no minimiser (separable, nothing penalised)",
    "withheld": "withheld: rounding decides, and the status says so",
}
KINDS = {
    "small": "All problems have the smaller sizes that the tests use (`--small`).",
    "quick": "The referee searched for better models for a shorter time (`--quick`).",
}


def render(result: dict[str, Any]) -> str:
    """Return the table and the sentence above it."""
    families = result["families"]
    runs = ", ".join(f"seed {run['seed']} (from problem {run['first']})" for run in result["runs"])
    kinds = [text for name, text in KINDS.items() if all(run[name] for run in result["runs"])]
    total = sum(family["problems"] for family in families.values())
    claims = sum(family["claims"] for family in families.values())
    lines = [" ".join([f"Latest run: {total:,} problems, {claims:,} claims judged, {runs}.", *kinds]), ""]
    lines += ["| problems with | " + " | ".join(families) + " | all |", "|---|" + "---|" * (len(families) + 1)]
    sizes = [family["problems"] for family in families.values()]
    lines.append("| problems | " + " | ".join(f"{size:,}" for size in [*sizes, total]) + " |")
    for verdict, text in ROWS.items():
        counts = [family["verdicts"].get(verdict, 0) for family in families.values()]
        lines.append(f"| {text} | " + " | ".join(f"{count:,}" for count in [*counts, sum(counts)]) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8")
    start, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    body = render(json.loads(RESULTS.read_text(encoding="utf-8")))
    new = f"{page[:start]}\n\n{body}\n\n{page[end:]}"
    if options.check:
        return int(new != page)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
