"""Put what the benchmarks stored into README, ``docs/speed.md`` and ``docs/exact.md``, and draw the ratios.

    python benchmarks/render_speed.py            # rewrites the tables between the markers, draws images/speed.svg
    python benchmarks/render_speed.py --check    # exits with 1 if a table is not up to date

A block of the page begins with ``<!-- measured FILE PART: begin -->`` and ends with ``<!-- measured: end -->``;
``exact summary`` is the list of README.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / name for name in ("README.md", "docs/speed.md", "docs/exact.md")]
PICTURE = HERE.parent / "docs" / "images" / "speed.svg"
BLOCK = re.compile(r"(<!-- measured (?P<file>\w+) (?P<part>[\w-]+): begin -->).*?<!-- measured: end -->", re.DOTALL)
# Groups of the picture.
TITLES = {
    "closed": "20,000 rows, 20 features",
    "wide": "many features",
    "softmax": "ten classes",
    "box": "rows in a box",
    "categories": "categories",
    "coreset": "with a coreset",
    "choice": "cross-validation",
}
# What a column of the stored lines is called on the page; the others are left out.
COLUMNS = {
    "part": "part",
    "setting": "setting",
    "rows": "rows",
    "coreset": "rows of the coreset",
    "excess": "excess, mean",
    "worst": "excess, worst",
    "algorithm 1": "Algorithm 1, mean",
    "uniform": "uniform, mean",
    "features": "features",
    "seconds": "seconds",
    "peer_seconds": "{peer}, seconds",
    "ratio": "ratio",
    "reads": "reads",
    "gap": "certified gap",
    "without": "seconds without it",
    "gap_without": "gap without it",
    "factor": "times as long without it",
    "error, r = 0.03": "error at 0.03",
    "error, r = 0.1": "error at 0.1",
    "error, r = 1": "error at 1",
    "calibrated, r = 0.1": "calibrated draw at 0.1",
    "calibrated, r = 1": "calibrated draw at 1",
    "algorithm 1, r = 0.1": "Algorithm 1 at 0.1",
    "algorithm 1, r = 1": "Algorithm 1 at 1",
    "uniform, r = 0.1": "uniform at 0.1",
    "uniform, r = 1": "uniform at 1",
}


def number(value: Any) -> str:
    """Return a value as a reader wants it: no more than three digits, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if isinstance(value, int) or value >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.1e}" if 0.0 < abs(value) < 1e-2 else f"{value:.3g}"


def table(stored: dict[str, Any], peer: str) -> str:
    """Return a part's lines, beside those of a peer, as a table, with the sentence that says where they were taken."""
    lines = stored["lines"]
    names = [name for name in COLUMNS if any(name in line for line in lines)]
    rows = [[number(line.get(name)) for name in names] for line in lines]
    head = [COLUMNS[name].format(peer=peer) for name in names]
    shown = [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(names), *rows)]
    packages = ", ".join(f"{name} {version}" for name, version in stored.get("packages", {}).items())
    threads = stored.get("machine", {}).get("threads", 1)
    return "\n".join([f"{threads} thread{'s' if threads != 1 else ''}; {packages}.", "", *shown])


def summary(stored: dict[str, Any]) -> str:
    """Return what README quotes: a coreset beside a larger sample and all rows, a path beside one fit to all rows."""
    costs = {line["setting"]: line for line in stored["costs"]["lines"]}
    few, drawn = costs["exact coreset, fewest rows"], costs["uniform sample, 100,000 rows"]
    radii, whole = [line for line in stored["times"]["lines"] if line["setting"].startswith("100 certified radii")]
    return (
        f"- **{few['coreset']} of {few['rows']:,} rows** (20 features, logistic loss), trained on alone, give a risk "
        f"within {number(few['excess'])} of the optimum, relatively. Finding them took {few['seconds']:.1f} s and "
        f"{few['reads']} reads. Training on all rows takes {costs['all rows']['seconds']:.1f} s. A uniform sample of "
        f"100,000 rows is within {number(drawn['excess'])} after {drawn['seconds']:.1f} s.\n"
        f"- **100 radii on these rows**, each certified on all of them, take {radii['seconds']:.1f} s with a coreset, "
        f"{radii['ratio']:.1f} times one fit to all rows; without a coreset, each started from the one before, "
        f"{whole['seconds']:.1f} s. The largest certified gaps are {number(radii['gap'])} and {number(whole['gap'])}."
    )


def render(page: str) -> str:
    """Return the page with every block made anew from the stored results; what is said of all tables is said once."""
    said = ""

    def block(found: re.Match[str]) -> str:
        nonlocal said
        results = json.loads((HERE / "results" / f"{found['file']}.json").read_text(encoding="utf-8"))
        peer = "one read" if found["part"] == "sources" else "scikit-learn"
        shown = summary(results) if found["part"] == "summary" else table(results[found["part"]], peer)
        where, _, rest = shown.partition("\n\n")
        said, shown = where, rest if where == said else shown
        return f"{found[1]}\n\n{shown}\n\n<!-- measured: end -->"

    return BLOCK.sub(block, page)


def draw(stored: dict[str, Any]) -> None:
    """Draw the time of every line over that of scikit-learn's plain fit, a row of marks for each group."""
    from matplotlib import rc_context  # only the picture needs it
    from matplotlib.figure import Figure

    groups = {name: [line["ratio"] for line in stored[name]["lines"] if "ratio" in line] for name in TITLES}
    with rc_context({"svg.hashsalt": "speed", "font.size": 10, "svg.fonttype": "path"}):
        figure = Figure(figsize=(7.0, 3.2), layout="constrained")
        axes = figure.subplots()
        for place, ratios in enumerate(groups.values()):
            axes.plot(ratios, [-place] * len(ratios), "o", color="#1f6fb4", alpha=0.5, markersize=7)
            axes.plot(statistics.median(ratios), -place, "|", color="#c4421a", markersize=18, markeredgewidth=2)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set_yticks([-place for place in range(len(groups))], [TITLES[name] for name in groups])
        axes.set(xscale="log", xlabel="CPU time over that of scikit-learn's plain fit (a bar: the median)")
        axes.spines[["top", "right"]].set_visible(False)
        figure.savefig(PICTURE, metadata={"Date": None})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        new = render(page)
        if options.check and new != page:
            return 1
        path.write_text(new, encoding="utf-8")
    if not options.check:
        draw(json.loads((HERE / "results" / "speed.json").read_text(encoding="utf-8")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
