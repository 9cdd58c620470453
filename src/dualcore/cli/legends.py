"""Legends of the report: every line and point of a picture says what it is, classes by the names the user gave them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dualcore.cli import plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def to_png(figure: Figure, classes: Sequence[Any] | None = None) -> bytes:
    """Return a figure, with its legends, as the bytes of a PNG file."""
    add_legends(figure, classes)
    return plots.to_png(figure)


def add_legends(figure: Figure, classes: Sequence[Any] | None = None) -> None:
    """Give every panel of a figure a legend; a colour bar is one already.

    Parameters
    ----------
    figure : Figure
    classes : (negative, positive), optional
        What the labels -1 and +1 stand for.
    """
    for axes in figure.axes:
        if axes.images or axes.get_label() == "<colorbar>":
            continue
        if classes is not None:
            _name_classes(axes, classes)
        _name_the_rest(axes)
        axes.legend(fontsize=8, **plots.LEGEND)


def _name_classes(axes: Axes, classes: Sequence[Any]) -> None:
    names = {"class -1": str(classes[0]), "class +1": str(classes[1])}
    for drawn in axes.collections:
        label = str(drawn.get_label())
        drawn.set_label(names.get(label, label))


def _name_the_rest(axes: Axes) -> None:
    """Name what has no name: reference lines by what they mark, other lines by the title of the panel."""
    title, known = axes.get_title().partition(",")[0], set()
    others = any(not str(line.get_label()).startswith("_") for line in axes.lines)
    for line in axes.lines:
        if not str(line.get_label()).startswith("_"):
            continue
        places = np.asarray(line.get_xdata(), dtype=float)
        if places.size == 2 and places[0] == places[1]:  # an upright line of `plot_path`
            name = "a new coreset from here" if line.get_linestyle() == ":" else "radius of the model"
        else:
            name = "other features" if others else title.lower()  # `plot_path` names the largest coefficients only
        if name not in known:
            line.set_label(name)
            known.add(name)
    scatter = [drawn for drawn in axes.collections if not axes.lines and str(drawn.get_label()).startswith("_")]
    if scatter:
        scatter[0].set_label("row of the coreset")
