"""Figures from stored records: excess risk, accuracy, the 45 MNIST pairs, larger data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dualcore.experiments.methods import WHOLE
from dualcore.experiments.records import Record
from dualcore.experiments.render import Cell, printed_figures, printed_whole, relative_gaps, summarise, whole_risk
from dualcore.experiments.settings import STUDIES, TABLES, Table

Records = Callable[[str], list[Record]]
STYLES: dict[str, dict[str, Any]] = {
    "UniSamp": {"color": "#888888", "marker": "s"},
    "DualCore": {"color": "#1f6fb4", "marker": "o"},
    "Ours": {"color": "#c4421a", "marker": "D"},
    WHOLE: {"color": "black", "linestyle": ":", "marker": ""},
}
LETTERS = (
    "letter-minmax-logistic-accuracy",
    "letter-alfa-logistic-accuracy",
    "letter-minmax-svm-accuracy",
    "letter-alfa-svm-accuracy",
)


def _figure(columns: int, rows: int = 1) -> tuple[Any, list[Any]]:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Figures need matplotlib. Install it with: pip install 'dualcore[plots]'") from None
    figure = Figure(figsize=(4.2 * columns, 3.4 * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def _line(axes: Any, points: dict[float, float], method: str, *, printed: bool = False) -> None:
    style = STYLES[method] | ({"linestyle": "--", "markerfacecolor": "white"} if printed else {})
    order = sorted(points)
    label = f"{method} (paper)" if printed else method
    axes.plot([100.0 * c for c in order], [points[c] for c in order], label=label, linewidth=1.2, markersize=4, **style)


def _by_share(table: Table, cells: dict[tuple[str, str], Any], method: str) -> dict[float, float]:
    cases = STUDIES[table.study].cases
    return {cases[row].share: found.mean for (row, name), found in cells.items() if name == method and row in cases}


def excess_risk(records: Records) -> Any:
    """Tables 1 to 3: mean risk less that of Whole, against the share of rows."""
    figure, panels = _figure(3)
    for axes, name in zip(panels, ("table1", "table2", "table3"), strict=True):
        table = TABLES[name]
        found = records(table.study)
        ours, theirs = summarise(table, found), printed_figures(name)
        best, printed_best = whole_risk(found) or 0.0, printed_whole(name) or 0.0
        for method in ("UniSamp", "DualCore"):
            over = {c: v - printed_best for c, v in _by_share(table, theirs, method).items()}
            _line(axes, over, method, printed=True)
        for method in ("UniSamp", "DualCore", "Ours"):
            # Below the solver's tolerance a difference means nothing.
            over = {
                c: max(v - best, 1e-6 * abs(best - table.offset)) for c, v in _by_share(table, ours, method).items()
            }
            _line(axes, over, method)
        axes.set(title=name.replace("table", "Table "), xlabel="rows in the coreset (%)", yscale="log")
    panels[0].set_ylabel("worst-case risk less Whole's")
    panels[0].legend(fontsize=7)
    return figure


def letter_accuracy(records: Records) -> Any:
    """The four LETTER tables of the appendix."""
    figure, panels = _figure(2, 2)
    for axes, name in zip(panels, LETTERS, strict=True):
        table = TABLES[name]
        cells, theirs = summarise(table, records(table.study)), printed_figures(name)
        for method in ("UniSamp", "DualCore"):
            _line(axes, _by_share(table, theirs, method), method, printed=True)
        for method in ("UniSamp", "DualCore", "Ours"):
            _line(axes, _by_share(table, cells, method), method)
        if ("all", WHOLE) in cells:
            axes.axhline(cells["all", WHOLE].mean, label=WHOLE, linewidth=1.0, color="black", linestyle=":")
        axes.set(title=STUDIES[table.study].title, xlabel="rows in the coreset (%)", ylabel="test accuracy (%)")
        axes.title.set_fontsize(8)
    panels[0].legend(fontsize=7)
    return figure


def mnist_pairs(records: Records) -> Any:
    """Each pair of digits: the printed accuracy of DualCore against ours, one standard deviation either way."""
    figure, (axes,) = _figure(1)
    table = TABLES["mnist-accuracy"]
    cells, theirs = summarise(table, records(table.study)), printed_figures(table.name)
    for method in ("DualCore", "Ours"):
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
    axes.legend(fontsize=7)
    return figure


def larger_data(records: Records) -> Any:
    """Excess, certified gap and time of ours against the share of rows, for larger data."""
    figure, panels = _figure(2)
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
                if method == "Ours" and row in cases and cases[row].whole == whole
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
    panels[0].set(
        xlabel="rows in the coreset (%)", ylabel="relative gap: certified (line), true (dashes)", yscale="log"
    )
    panels[1].set(xlabel="rows in the coreset (%)", ylabel="CPU time over Whole's", yscale="log")
    panels[1].legend(fontsize=7)
    return figure


FIGURES: dict[str, Callable[[Records], Any]] = {
    "excess-risk": excess_risk,
    "letter-accuracy": letter_accuracy,
    "mnist-pairs": mnist_pairs,
    "larger-data": larger_data,
}


def draw(records: Records, folder: Path, names: Iterable[str] = tuple(FIGURES)) -> list[Path]:
    """Write some of `FIGURES` as SVG into a folder, from the ``records`` of studies: the same give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names:
        figure = FIGURES[name](records)
        from matplotlib import rc_context

        path = folder / f"{name}.svg"
        with rc_context({"svg.hashsalt": name}):
            figure.savefig(path, metadata={"Date": None})
        written.append(path)
    return written
