"""Figures from stored records: excess risk, accuracy, the 45 MNIST pairs, larger data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from experiments.methods import ALONE, FIT, WHOLE
from experiments.records import Record
from experiments.render import Cell, printed_figures, printed_whole, relative_gaps, summarise, whole_risk
from experiments.settings import STUDIES, TABLES, Table

Records = Callable[[str], list[Record]]
STYLES: dict[str, dict[str, Any]] = {
    "UniSamp": {"color": "#888888", "marker": "s"},
    "DualCore": {"color": "#1f6fb4", "marker": "o"},
    ALONE: {"color": "#c4421a", "marker": "D"},
    WHOLE: {"color": "black", "linestyle": ":", "marker": ""},
}
LETTERS = (
    "letter-minmax-logistic-accuracy",
    "letter-alfa-logistic-accuracy",
    "letter-minmax-svm-accuracy",
    "letter-alfa-svm-accuracy",
)


def _panels(name: str) -> tuple[list[Any], list[Any]]:
    """Return figures of one panel each, and their axes: side by side on a page, below each other on a phone."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'dualcore[plots]'") from None
    figures = [Figure(figsize=(3.5, 3.3), layout="constrained") for _ in range(PANELS[name])]
    return figures, [figure.subplots() for figure in figures]


def _line(axes: Any, points: dict[float, float], method: str, *, printed: bool = False) -> None:
    style = STYLES[method] | ({"linestyle": "--", "markerfacecolor": "white"} if printed else {})
    order = sorted(points)
    label = f"{method} (paper)" if printed else method
    axes.plot([100.0 * c for c in order], [points[c] for c in order], label=label, linewidth=1.2, markersize=4, **style)


def _legend(axes: Any, columns: int = 3) -> None:
    """Put the legend below the axes: a panel is so narrow that it would cover lines."""
    axes.figure.legend(loc="outside lower center", ncols=columns, fontsize=7, frameon=False)


def _by_share(table: Table, cells: dict[tuple[str, str], Any], method: str) -> dict[float, float]:
    cases = STUDIES[table.study].cases
    return {cases[row].share: found.mean for (row, name), found in cells.items() if name == method and row in cases}


def excess_risk(records: Records) -> list[Any]:
    """Tables 1 to 3: mean risk less that of Whole, against the share of rows."""
    figures, panels = _panels("excess-risk")
    for axes, name in zip(panels, ("table1", "table2", "table3"), strict=True):
        table = TABLES[name]
        found = records(table.study)
        ours, theirs = summarise(table, found), printed_figures(name)
        best, printed_best = whole_risk(found) or 0.0, printed_whole(name) or 0.0
        for method in ("UniSamp", "DualCore"):
            over = {c: v - printed_best for c, v in _by_share(table, theirs, method).items()}
            _line(axes, over, method, printed=True)
        for method in ("UniSamp", "DualCore", ALONE):
            # Below the solver's tolerance a difference means nothing.
            over = {
                c: max(v - best, 1e-6 * abs(best - table.offset)) for c, v in _by_share(table, ours, method).items()
            }
            _line(axes, over, method)
        axes.set(title=name.replace("table", "Table "), xlabel="rows in the coreset (%)", yscale="log")
        axes.set_ylabel("worst-case risk less Whole's")
        _legend(axes)
    return figures


def letter_accuracy(records: Records) -> list[Any]:
    """The four LETTER tables of the appendix."""
    figures, panels = _panels("letter-accuracy")
    for axes, name in zip(panels, LETTERS, strict=True):
        table = TABLES[name]
        cells, theirs = summarise(table, records(table.study)), printed_figures(name)
        for method in ("UniSamp", "DualCore"):
            _line(axes, _by_share(table, theirs, method), method, printed=True)
        for method in ("UniSamp", "DualCore", ALONE):
            _line(axes, _by_share(table, cells, method), method)
        if ("all", WHOLE) in cells:
            axes.axhline(cells["all", WHOLE].mean, label=WHOLE, linewidth=1.0, color="black", linestyle=":")
        axes.set(xlabel="rows in the coreset (%)", ylabel="test accuracy (%)")
        axes.set_title(STUDIES[table.study].title.replace(", ", ",\n", 1), fontsize=8)
        _legend(axes)
    return figures


def mnist_pairs(records: Records) -> list[Any]:
    """Each pair of digits: the printed accuracy of DualCore against ours, one standard deviation either way."""
    figures, (axes,) = _panels("mnist-pairs")
    table = TABLES["mnist-accuracy"]
    cells, theirs = summarise(table, records(table.study)), printed_figures(table.name)
    for method in ("DualCore", ALONE):
        pairs = [(theirs[row, "DualCore"], cells[row, method]) for row, name in cells if name == method]
        style = {"color": STYLES[method]["color"], "fmt": STYLES[method]["marker"], "markersize": 3}
        axes.errorbar(
            [printed.mean for printed, _ in pairs],
            [cell.mean for _, cell in pairs],
            yerr=[cell.std for _, cell in pairs],
            elinewidth=0.5,
            label=method,
            **style,
        )
    axes.plot([55, 100], [55, 100], color="black", linewidth=0.8)
    axes.set(xlabel="DualCore as printed, accuracy (%)", ylabel="here, accuracy (%)", title="MNIST, 0.5 % of the rows")
    _legend(axes)
    return figures


def larger_data(records: Records) -> list[Any]:
    """Excess, certified gap and time of ours against the share of rows, for larger data."""
    figures, panels = _panels("larger-data")
    table = TABLES["scale"]
    found, cases = records(table.study), STUDIES[table.study].cases
    curves: tuple[tuple[Any, dict[tuple[str, str], Cell], str], ...] = (
        (panels[0], relative_gaps(found), "certified"),
        (panels[0], summarise(table, found), "true"),
        (panels[1], summarise(Table("", "", table.study, "seconds"), found), "time"),
    )
    wholes = list(STUDIES[table.study].wholes())
    for axes, cells, kind in curves:
        for number, whole in enumerate(wholes):
            points = {
                cases[row].share: cell.mean
                for (row, method), cell in cells.items()
                if method == FIT and row in cases and cases[row].whole == whole
            }
            order = sorted(points)
            axes.plot(
                [100.0 * c for c in order],
                [max(points[c], 1e-9) for c in order],
                color=f"C{number}",
                linestyle="--" if kind == "true" else "-",
                marker="o",
                markersize=3,
                label=None if kind == "true" else whole,
            )
    panels[0].set(xlabel="rows in the coreset (%)", ylabel="relative gap (dashes: true)", yscale="log")
    panels[1].set(xlabel="rows in the coreset (%)", ylabel="CPU time over Whole's", yscale="log")
    for axes in panels:
        _legend(axes, columns=2)
    return figures


FIGURES: dict[str, Callable[[Records], list[Any]]] = {
    "excess-risk": excess_risk,
    "letter-accuracy": letter_accuracy,
    "mnist-pairs": mnist_pairs,
    "larger-data": larger_data,
}


# How many panels they have.
PANELS = {"excess-risk": 3, "letter-accuracy": 4, "mnist-pairs": 1, "larger-data": 2}


def figure_files(name: str) -> list[str]:
    """Return the names of the files of a figure, one for each panel.

    Examples
    --------
    >>> figure_files("mnist-pairs"), figure_files("larger-data")
    (['mnist-pairs.svg'], ['larger-data-1.svg', 'larger-data-2.svg'])
    """
    count = PANELS[name]
    return [f"{name}-{number}.svg" for number in range(1, count + 1)] if count > 1 else [f"{name}.svg"]


def draw(records: Records, folder: Path, names: Iterable[str] = tuple(FIGURES)) -> list[Path]:
    """Write some of `FIGURES` as SVG into a folder, from the ``records`` of studies: the same give the same bytes.

    A figure of several panels has a file for each: `figure_files`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        panels = FIGURES[name](records)
        from matplotlib import rc_context

        for file, panel in zip(figure_files(name), panels, strict=True):
            path = folder / file
            with rc_context({"svg.hashsalt": path.stem}):
                panel.savefig(path, metadata={"Date": None})
            written.append(path)
    return written
