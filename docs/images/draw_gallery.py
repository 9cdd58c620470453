"""Run the examples and draw the tables that they print: ``PYTHONPATH=. python docs/images/draw_gallery.py``.

What they print is kept in ``docs/data/gallery.json``; ``--drawn`` draws again from there.
"""

from __future__ import annotations

import contextlib
import io
import json
import runpy
import sys
from pathlib import Path
from typing import NamedTuple

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.fingerprint import REPOSITORY, fingerprint

HERE = Path(__file__).resolve().parent
STORED = HERE.parent / "data" / "gallery.json"
BLUE, RED, GREY = "#1f6fb4", "#c4421a", "#777777"
OTHERS = {"plain": GREY, "tuned ridge": "#b08d2e", "tuned lasso": "#6b8e4e", "tuned ridge, numbers alone": "#6b8e4e"}


class Picture(NamedTuple):
    """How the table of an example is drawn: all columns over the numbers of its head, or some of them as dots."""

    columns: int
    label: str
    dots: dict[str, int] | None = None
    over: str = ""


PICTURES = {
    "poisoned_labels": Picture(1, "accuracy on clean rows", {"": 0}),
    "shifted_features": Picture(3, "accuracy", over="shift of every feature against the model"),
    "choose_radius": Picture(3, "accuracy", {"as in training": 1, "with noise added": 2}),
    "mixed_data": Picture(4, "accuracy", over="share of the cities changed against the model"),
    "coreset_with_sklearn": Picture(5, "log-loss on all rows", {"": 2}),
    "neural_network": Picture(3, "relative error", {"uniform": 0, "sorted by loss": 1, "grid coreset": 2}),
}


def printed_by(script: Path) -> str:
    """Return what an example prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        runpy.run_path(str(script), run_name="__main__")
    return out.getvalue()


def table_of(text: str, columns: int) -> tuple[list[float], dict[str, list[float]]]:
    """Return the numbers of the head, if it has nothing else, and those of every line with a name."""
    head, lines = list[float](), dict[str, list[float]]()
    for line in text.splitlines():
        words = line.split()
        try:
            values = [float(word) for word in words[-columns:]]
        except ValueError:
            continue
        if len(words) == columns:
            head = values
        else:
            lines[" ".join(words[:-columns])] = values
    return head, lines


def draw(axes: Axes, picture: Picture, head: list[float], lines: dict[str, list[float]]) -> None:
    """Draw one table."""
    if picture.dots is None:
        ours = iter((BLUE, RED))
        for name, values in lines.items():
            axes.plot(head, values, "o-", color=OTHERS.get(name) or next(ours), label=name, linewidth=2, markersize=4)
        axes.set(xlabel=picture.over, ylabel=picture.label, xticks=head)
        axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        for colour, (name, column) in zip((BLUE, RED, GREY), picture.dots.items(), strict=False):
            axes.plot([values[column] for values in lines.values()], list(lines), "o", color=colour, label=name)
        axes.invert_yaxis()
        axes.margins(x=0.1, y=0.2)
        axes.set(xlabel=picture.label)
        axes.grid(axis="y", color="#dddddd")
        if len(picture.dots) > 1:
            axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.spines[["top", "right"]].set_visible(False)


def main() -> None:
    """Write a picture of every example that prints a table, and what all of them print."""
    if "--drawn" not in sys.argv:
        printed = {path.stem: printed_by(path) for path in sorted((REPOSITORY / "examples").glob("*.py"))}
        stored = {"code": fingerprint("gallery"), "printed": printed}
        STORED.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")
    printed = json.loads(STORED.read_text(encoding="utf-8"))["printed"]
    for name, picture in PICTURES.items():
        with rc_context({"svg.hashsalt": name, "font.size": 10, "svg.fonttype": "path"}):
            figure = Figure(figsize=(7.0, 2.6 if picture.dots is None else 1.9), layout="constrained")
            draw(figure.subplots(), picture, *table_of(printed[name], picture.columns))
            figure.savefig(HERE / f"{name}.svg", metadata={"Date": None})


if __name__ == "__main__":
    main()
