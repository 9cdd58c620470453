"""Draw the pictures of coresets from stored results: ``python docs/images/draw_home.py``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
STORED = HERE.parents[1] / "benchmarks" / "results" / "exact.json"
LINES = {
    "uniform sample": ("uniform sample", "#777777", "s"),
    "Algorithm 1": ("the paper's coreset", "#1f6fb4", "o"),
    "exact coreset": ("exact coreset, solved alone", "#c4421a", "D"),
    "fit": ("a fit that hands out 5,000 rows", "#2e8b57", "^"),
    "all rows": ("all rows, in memory", "black", "*"),
}
SMALLEST = 1e-10  # excesses below this are rounding


def draw_costs(lines: list[dict[str, Any]]) -> Figure:
    """Risk above the optimum against seconds; a number beside a mark is the reads of all rows."""
    figure = Figure(figsize=(6.4, 3.8), layout="constrained")
    axes = figure.subplots()
    for name, (label, colour, marker) in LINES.items():
        own = [line for line in lines if line["setting"].startswith(name)]
        x, y = [line["seconds"] for line in own], [max(line["excess"], SMALLEST) for line in own]
        axes.plot(x, y, color=colour, marker=marker, markersize=7, linewidth=1.0, label=label)
        for line, at_x, at_y in zip(own, x, y, strict=True):
            rows = f"{line['coreset']:,} rows" if line["coreset"] < line["rows"] else "all rows"
            reads = f", {line['reads']} reads" if line["reads"] > 1 else ""
            place = (5, -9) if name == "fit" else (5, 4)  # its mark is nearly that of the coreset
            axes.annotate(rows + reads, (at_x, at_y), place, textcoords="offset points", fontsize=7, color=colour)
    axes.set(xscale="log", yscale="log", xlabel="CPU seconds to the model", ylabel="risk above the optimum (relative)")
    axes.set_xlim(right=6.0 * max(line["seconds"] for line in lines))  # room for what is written beside the marks
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    return figure


def draw_path(picture: dict[str, list[float]], rows: int) -> Figure:
    """Risk above the optimum at every radius, of one coreset and of a uniform sample."""
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    for key, label, colour, marker in (
        ("theirs", f"uniform sample, {rows} rows", "#777777", "s"),
        ("ours", f"exact coreset, {rows} rows", "#c4421a", "D"),
    ):
        excess = [max(value, SMALLEST) for value in picture[key]]
        axes.plot(picture["radii"], excess, color=colour, marker=marker, label=label)
    axes.set(xscale="log", yscale="log", xlabel="radius", ylabel="risk above that of all rows (relative)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def main() -> None:
    """Write ``costs.svg`` and ``path.svg`` beside this file."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    large = stored["path"]["lines"][-1]
    with rc_context({"svg.hashsalt": "home", "font.size": 11, "svg.fonttype": "path"}):
        draw_costs(stored["costs"]["lines"]).savefig(HERE / "costs.svg", metadata={"Date": None})
        draw_path(large["picture"], large["coreset"]).savefig(HERE / "path.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
