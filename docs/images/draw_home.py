"""Draw the picture of the home page from stored records: ``python docs/images/draw_home.py``."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
RECORDS = HERE.parent / "data" / "experiments" / "letter-minmax-logistic.csv"
LINES = {
    "UniSamp": ("uniform sample", "#777777", "s"),
    "DualCore": ("the paper's coreset", "#1f6fb4", "o"),
    "Ours": ("dualcore", "#c4421a", "D"),
}
SMALLEST = 1e-7  # means below this are rounding


def excesses() -> dict[str, dict[float, float]]:
    """Return, for every method, the mean risk above that of all rows in percent of it, by percent of rows."""
    risks: dict[tuple[str, str], list[float]] = defaultdict(list)
    with RECORDS.open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            risks[line["method"], line["row"]].append(float(line["risk"]))
    best = min(risks["Whole", "all"])
    found: dict[str, dict[float, float]] = {method: {} for method in LINES}
    for (method, row), values in risks.items():
        if method in LINES and row != "all":
            found[method][float(row.rstrip("%"))] = max(100.0 * (float(np.mean(values)) / best - 1.0), SMALLEST)
    return found


def main() -> None:
    """Write ``excess.svg`` beside this file."""
    with rc_context({"svg.hashsalt": "home", "font.size": 11, "svg.fonttype": "path"}):
        figure = Figure(figsize=(6.4, 3.4), layout="constrained")
        axes = figure.subplots()
        for method, points in excesses().items():
            label, colour, marker = LINES[method]
            order = sorted(points)
            axes.plot(order, [points[share] for share in order], color=colour, marker=marker, label=label)
        axes.set(yscale="log", xlabel="rows kept (%)", ylabel="risk above the optimum (%)")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False)
        figure.savefig(HERE / "excess.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
