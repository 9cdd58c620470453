"""Put what the benchmarks stored into ``docs/speed.md`` and ``docs/exact.md``, and draw the growth.

    python benchmarks/render_speed.py            # rewrites the tables between the markers, draws images/growth.svg
    python benchmarks/render_speed.py --check    # exits with 1 if a table is not up to date

A block of the page begins with ``<!-- measured FILE PART: begin -->`` and ends with ``<!-- measured: end -->``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parent / name for name in ("README.md", "docs/speed.md", "docs/exact.md")]
PICTURE = HERE.parent / "docs" / "images" / "growth.svg"
BLOCK = re.compile(r"<!-- measured (?P<file>\w+) (?P<part>[\w-]+): begin -->.*?<!-- measured: end -->", re.DOTALL)
# What a column of the stored lines is called on the page; the others are left out.
COLUMNS = {
    "setting": "setting",
    "rows": "rows",
    "coreset": "rows of the coreset",
    "excess": "excess, mean",
    "worst": "excess, worst",
    "algorithm 1": "Algorithm 1, mean",
    "uniform": "uniform, mean",
    "features": "features",
    "seconds": "seconds",
    "peer_seconds": "scikit-learn, seconds",
    "ratio": "ratio",
    "pairs": "pairs of products",
    "reads": "reads",
    "megabytes": "MB",
    "extra_mb": "MB",
    "memory": "memory / X",
    "gap": "certified gap",
    "problems": "problems",
    "median": "median",
    "false": "false bounds",
}
# Parts of the names that benchmarks give their settings, in words.
WORDS = {
    "l1": "logistic, l1",
    "l2": "logistic, l2",
    "linf": "logistic, linf",
    "flips": "logistic, l2, label cost 2",
    "huber": "Huber, l2",
    "hinge": "hinge, l2",
    "independent": "independent columns",
    "correlated": "correlated columns",
    "fine": "gap 1e-5",
    "map": "memory map",
    "dask": "Dask",
    "reads": "all rows, gap",
    "sum": "the sum of all numbers",
    "from": "made by",
    "array": "from_array",
}
MARKS = {"auto": ("o", "-"), "structured": ("s", ":"), "descent": ("D", ":")}
COLOURS = {"l2": "#1f6fb4", "hinge": "#c4421a"}


def setting(name: str) -> str:
    """Return the name of a setting in words; names with spaces are words already."""
    if " " in name or "-" not in name:
        return name
    first, *rest = re.split(r"(?<!\de)-", name.replace("label-cost-", "label cost ").replace("reads-", "reads "))
    if rest and rest[0] in ("l1", "l2", "linf"):  # a loss and a norm
        return ", ".join([first, *rest])
    return ", ".join(" ".join(WORDS.get(word, word) for word in part.split(" ", 1)) for part in (first, *rest))


def number(value: Any) -> str:
    """Return a value as a reader wants it: no more than three digits, thousands apart."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return "" if value is None else str(value)
    if isinstance(value, int) or value >= 1000.0:
        return f"{value:,.0f}"
    return f"{value:.1e}" if 0.0 < abs(value) < 1e-2 else f"{value:.3g}"


def table(stored: dict[str, Any]) -> str:
    """Return a part's lines as a table, with the sentence that says where they were taken."""
    lines = stored["lines"]
    names = [name for name in COLUMNS if any(name in line for line in lines)]
    lines = [line | {"setting": setting(line["setting"])} if "setting" in line else line for line in lines]
    rows = [[number(line.get(name)) for name in names] for line in lines]
    head = [COLUMNS[name] for name in names]
    shown = [f"| {' | '.join(each)} |" for each in (head, ["---"] * len(names), *rows)]
    packages = ", ".join(f"{name} {version}" for name, version in stored.get("packages", {}).items())
    threads = stored.get("machine", {}).get("threads", 1)
    return "\n".join([f"{threads} thread{'s' if threads != 1 else ''}; {packages}.", "", *shown])


def render(page: str) -> str:
    """Return the page with every block made anew from the stored results."""

    def block(found: re.Match[str]) -> str:
        results = json.loads((HERE / "results" / f"{found['file']}.json").read_text(encoding="utf-8"))
        begin = found[0][: found[0].index("-->") + 3]
        return f"{begin}\n\n{table(results[found['part']])}\n\n<!-- measured: end -->"

    return BLOCK.sub(block, page)


def draw(lines: list[dict[str, Any]]) -> None:
    """Draw seconds against features and against rows; the filled marks are what ``solver="auto"`` took."""
    from matplotlib import rc_context  # only the picture needs it
    from matplotlib.figure import Figure

    # Lines with the number of rows that most lines have were taken against features, the others against rows.
    counts = [line["rows"] for line in lines]
    usual = max(set(counts), key=counts.count)
    panels = (("features", [line for line in lines if line["rows"] == usual]),)
    panels += (("rows", [line for line in lines if line["rows"] != usual]),)
    with rc_context({"svg.hashsalt": "growth", "font.size": 10, "svg.fonttype": "path"}):
        figure = Figure(figsize=(8.4, 3.6), layout="constrained")
        for axes, (what, own) in zip(figure.subplots(1, 2, sharey=True), panels, strict=True):
            for name in sorted({line["setting"] for line in own}):
                loss, solver = name.split("-")
                points = sorted((line[what], line["seconds"]) for line in own if line["setting"] == name)
                marker, style = MARKS[solver]
                axes.plot(
                    *zip(*points, strict=True),
                    color=COLOURS[loss],
                    marker=marker,
                    markerfacecolor=COLOURS[loss] if solver == "auto" else "white",
                    markersize=5 if solver == "auto" else 4,
                    linestyle=style,
                    linewidth=1.8 if solver == "auto" else 0.9,
                    label=f"{'logistic' if loss == 'l2' else loss}, {solver}",
                )
            other = f"{usual:,} rows" if what == "features" else f"{own[0]['features']} features"
            axes.set(xscale="log", yscale="log", xlabel=f"{what} ({other})")
            axes.spines[["top", "right"]].set_visible(False)
        figure.axes[0].set_ylabel("seconds to a certified gap of 1e-4")
        figure.axes[0].legend(frameon=False, fontsize=8)
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
    if options.check:
        return 0
    draw(json.loads((HERE / "results" / "wide.json").read_text(encoding="utf-8"))["growth"]["lines"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
