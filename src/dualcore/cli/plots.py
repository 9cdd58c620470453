"""Pictures: weights against h, the certified gap per read, the radius path.

Every function returns a matplotlib Figure that belongs to no window, so it draws on machines without a screen; `to_png`
turns it into a file. Needs matplotlib: ``pip install 'dualcore[plots]'``.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualcore.coresets.coreset import Coreset
from dualcore.coresets.path import RadiusPath
from dualcore.coresets.samplers import Round
from dualcore.data.arrays import FloatArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Lines pass behind a legend, not through its words.
LEGEND: dict[str, Any] = {"fontsize": 8, "framealpha": 0.85, "edgecolor": "none"}
_BLUE, _RED, _GREY, _GREEN, _GOLD = "#1f5a99", "#b5432a", "#6b6b6b", "#2c7a4b", "#b8860b"
_STYLE: Any = {"font.size": 10, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True}
_STYLE |= {"grid.color": "#e3e3e3", "axes.axisbelow": True, "figure.facecolor": "white"}


def plot_weights(coreset: Coreset, h: FloatArray, classes: Sequence[Any] | None = None) -> Figure:
    """Draw the weight of every row of a coreset against its dual loss ``h``, shape (size,).

    A weight is shown as the number of rows it stands for; ``classes`` are what the labels -1 and +1 stand for.
    """
    figure, (axes,) = _figure(1, width=4.7)
    counts = coreset.weights * coreset.n_rows
    labels = np.unique(coreset.y)
    if labels.size == 2:
        names = [f"class {label:+g}" for label in labels] if classes is None else map(str, classes)
        for label, name, colour in zip(labels, names, (_RED, _BLUE), strict=True):
            own = coreset.y == label
            axes.scatter(h[own], counts[own], s=7, alpha=0.5, color=colour, linewidths=0, label=name)
    else:
        axes.scatter(h, counts, s=7, alpha=0.5, color=_BLUE, linewidths=0, label="row of the coreset")
    axes.set(yscale="log", xlabel="dual loss h of the row", ylabel="rows it stands for")
    axes.set_title(f"Weights of {len(coreset):,} rows for {coreset.n_rows:,}")
    axes.legend(markerscale=2.5, **LEGEND)
    return figure


def plot_changes(labels: Sequence[str], shares: Sequence[float]) -> Figure:
    """Draw which share of the rows makes each change of category, as bars under their labels.

    The figure is narrow, and labels stand above the bars, so that a phone shows it without scrolling.
    """
    figure, (axes,) = _figure(1, width=4.0, height=0.9 + 0.5 * len(labels))
    positions = np.arange(len(labels))
    axes.barh(positions, [100.0 * share for share in shares], height=0.35, color=_BLUE)
    for position, label in zip(positions, labels, strict=True):
        shown = label if len(label) <= 40 else label[:39] + "\N{HORIZONTAL ELLIPSIS}"  # what fits a narrow figure
        axes.text(0.0, position - 0.24, shown, va="bottom", ha="left", fontsize=9)
    axes.set(ylim=(len(labels) - 0.5, -0.75), yticks=[], xlabel="share of the rows, %")
    axes.grid(False, axis="y")
    return figure


def plot_rounds(history: Sequence[Round]) -> Figure:
    """Draw what is known after every read: the certified relative gap, and the two bounds it is between."""
    figure, (left, right) = _figure(2)
    reads = [done.read for done in history]
    gaps = np.maximum([done.relative_gap for done in history], 1e-16)
    left.plot(reads, gaps, "o-", color=_BLUE, label="certified relative gap")
    left.set(yscale="log", title="Certified relative gap")
    right.fill_between(reads, [d.lower for d in history], [d.upper for d in history], color=_BLUE, alpha=0.15)
    right.plot(reads, [done.upper for done in history], "o-", color=_BLUE, label="best model so far")
    right.plot(reads, [done.lower for done in history], "o-", color=_GREY, label="no model is below")
    right.set_title("Worst-case risk on the full data")
    for axes in (left, right):
        axes.legend(**LEGEND)
        axes.set(xlabel="reads of the data", xticks=reads)
    return figure


def plot_path(path: RadiusPath, *, marked: float | None = None, names: Sequence[str] = ()) -> Figure:
    """Draw a radius path: risk between its bounds, coefficients, certified gaps.

    The radius ``marked`` is pointed out; of the features the largest few are labelled by their ``names``.
    """
    figure, (left, middle, right) = _figure(3, width=11.5)
    radii, risk = path.radii, path.risk
    lower = np.array([point.certificate.lower for point in path.points])
    left.fill_between(radii, lower, risk, color=_BLUE, alpha=0.15)
    left.plot(radii, risk, "o-", ms=3, color=_BLUE, label="model")
    left.plot(radii, lower, "-", lw=1, color=_GREY, label="no model is below")
    left.set_title("Worst-case risk")
    coef = path.coef
    largest = np.argsort(-np.abs(coef).max(axis=0), kind="stable")
    lines = middle.plot(radii, coef[:, largest[::-1]], lw=1, color=_BLUE, alpha=0.35)
    lines[0].set_label("other features" if names else "coefficients")
    for rank, j in enumerate(largest[:4] if names else ()):
        colour = (_BLUE, _RED, _GREEN, _GOLD)[rank]
        middle.plot(radii, coef[:, j], lw=1.6, color=colour, label=str(names[j]))
    middle.set_title("Coefficients")
    gaps = np.maximum(path.relative_gap, 1e-16)
    right.plot(radii, gaps, "o-", ms=3, color=_BLUE, label="certified relative gap")
    right.set(yscale="log", title="Certified relative gap")
    for axes in (left, middle, right):
        if radii[0] > 0.0:
            _logarithmic(axes)
        axes.set_xlabel("radius")
        if marked is not None:
            axes.axvline(marked, color=_RED, lw=1, label="radius of the model")
        axes.legend(**LEGEND)
    return figure


def to_png(figure: Figure, **settings: Any) -> bytes:
    """Return a figure as the bytes of a PNG file; settings are those of ``Figure.savefig``."""
    buffer = io.BytesIO()
    # Without the library's version in it the file depends on the figure alone.
    figure.savefig(buffer, format="png", dpi=110, metadata={"Software": None}, **settings)
    return buffer.getvalue()


def to_panels(figure: Figure) -> tuple[bytes, tuple[bytes, ...]]:
    """Return a figure as a PNG file, and its panels, left to right, each as one: a phone shows them one by one."""
    from matplotlib.transforms import Bbox

    whole, inches = to_png(figure), figure.dpi_scale_trans.inverted()
    boxes = [box for box in (axes.get_tightbbox() for axes in figure.axes) if box is not None]
    return whole, tuple(to_png(figure, bbox_inches=Bbox(inches.transform(box)).padded(0.05)) for box in boxes)


def _logarithmic(axes: Axes) -> None:
    """Make the x axis logarithmic, with plain numbers at 1, 2 and 5 of every decade."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def _figure(columns: int, *, width: float = 8.6, height: float = 3.4) -> tuple[Figure, list[Axes]]:
    """Return a figure that belongs to no window, and its axes in a row."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("Pictures need matplotlib. Install it with: pip install 'dualcore[plots]'") from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        axes = figure.subplots(1, columns, squeeze=False)
    return figure, list(axes[0])
