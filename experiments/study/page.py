"""Put the stored study into ``docs/should_i_use_it.md``, and draw its picture.

A block of the page begins with ``<!-- study NAME: begin -->`` and ends with ``<!-- study: end -->``; see `BLOCKS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import gmean

from dualcore.data.arrays import FloatArray
from experiments.study.models import METHODS, REFERENCE
from experiments.study.run import Cell
from experiments.study.scores import Score
from experiments.study.tables import TABLES
from experiments.study.troubles import TROUBLES

PAGES = (Path("docs/should_i_use_it.md"), Path("README.md"))
PICTURE = Path("docs/images/study.svg")
BLOCK = re.compile(r"(<!-- study (?P<name>[\w-]+): begin -->).*?(<!-- study: end -->)", re.DOTALL)
CLASSES = [name for name, table in TABLES.items() if table.classes is not None]
TARGETS = [name for name in TABLES if name not in CLASSES]
OTHERS = [name for name in METHODS if name != REFERENCE]
COLUMNS = [METHODS.index(name) for name in OTHERS]
DRAWN = {
    "fixed ridge": {"color": "#888888", "marker": "s"},
    "ours, CV": {"color": "#1f6fb4", "marker": "o"},
    "ours, radius 0.1": {"color": "#c4421a", "marker": "D"},
}


class Results:
    """The stored scores, and how they compare with those of the tuned ridge.

    A gain is the error of the ridge less that of a method, in points. A method is better or worse where the mean gain
    over the splits is more than two of its standard errors from zero.
    """

    def __init__(self, cells: dict[str, Cell]) -> None:
        self._scores: dict[str, FloatArray] = {}
        for name in TABLES:
            found = [list(cell.values()) for key, cell in cells.items() if key.startswith(f"{name}/")]
            if len(found) < 2:
                raise ValueError(f"The stored study has no two splits of {name}. Run more of it first.")
            self._scores[name] = np.array(found)

    def score(self, name: str, table: str) -> FloatArray:
        """Return a score, of shape (splits, troubles, methods)."""
        return self._scores[table][..., Score._fields.index(name)]

    def gains(self, tables: Iterable[str], over: str = REFERENCE) -> tuple[FloatArray, FloatArray]:
        """Return mean gains and their standard errors over the splits, of shape (tables, troubles, methods)."""
        found = (self.score("error", table) for table in tables)
        less = [errors[..., [METHODS.index(over)]] - errors for errors in found]
        deviations = [own.std(axis=0, ddof=1) / np.sqrt(len(own)) for own in less]
        return np.stack([own.mean(axis=0) for own in less]), np.stack(deviations)

    def ratios(self, name: str) -> FloatArray:
        """Return risks over those of the tuned ridge, (troubles, methods): geometric mean over tables with classes."""
        means = np.stack([self.score(name, table).mean(axis=0) for table in CLASSES])
        return np.asarray(gmean(means / means[..., [METHODS.index(REFERENCE)]], axis=0), dtype=np.float64)


def count(mean: FloatArray, error: FloatArray) -> list[int]:
    """Return how many gains are better, level, worse."""
    better, worse = int(np.sum(mean > 2.0 * error)), int(np.sum(mean < -2.0 * error))
    return [better, mean.size - better - worse, worse]


def _markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rows = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _points(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−") if abs(value) >= 0.05 else "0.0"


def _verdicts(results: Results, tables: list[str]) -> str:
    """Lay out the mean gain, and how many tables are better, level, worse."""
    mean, error = results.gains(tables)
    ridges = [results.score("error", table)[..., METHODS.index(REFERENCE)] for table in tables]
    ridge = np.mean([errors.mean(axis=0) for errors in ridges], axis=0)
    lines = []
    for k, title in enumerate([*(trouble.title for trouble in TROUBLES.values()), "all of them"]):
        own = [k] if k < len(TROUBLES) else slice(None)
        cells = [(mean[:, own, m], error[:, own, m]) for m in COLUMNS]
        shown = [f"{_points(gain.mean())} ({'/'.join(map(str, count(gain, noise)))})" for gain, noise in cells]
        lines.append([title, f"{ridge[own].mean():.1f}", *shown])
    return _markdown(["trouble", f"{REFERENCE}, error", *OTHERS], lines)


def _details(results: Results) -> str:
    """Lay out gains and standard errors of every table."""
    mean, error = results.gains(TABLES)
    parts = []
    for k, trouble in enumerate(TROUBLES.values()):
        lines = [
            [table.title, *(f"{_points(mean[t, k, m])} ± {error[t, k, m]:.1f}" for m in COLUMNS)]
            for t, table in enumerate(TABLES.values())
        ]
        shown = _markdown(["table", *OTHERS], lines)
        parts.append(f"<details markdown><summary>{trouble.title}</summary>\n\n{shown}\n\n</details>")
    return "\n\n".join(parts)


def _worst(results: Results) -> str:
    """Lay out worst-case risks over those of the tuned ridge: features move, and labels may flip too."""
    worst, flips = results.ratios("worst"), results.ratios("flips")
    lines = [
        [trouble.title, *(f"{worst[k, m]:.2f} / {flips[k, m]:.2f}" for m in COLUMNS)]
        for k, trouble in enumerate(TROUBLES.values())
    ]
    return _markdown(["trouble", *OTHERS], lines)


def _tables(results: Results) -> str:
    """Lay out the tables of the study."""
    lines = [
        [table.title, *(f"{n:,}" for n in (*table.shape, table.n_train, len(results.score("error", name))))]
        for name, table in TABLES.items()
    ]
    return _markdown(["table", "rows", "columns", "training rows", "splits"], lines)


def _sentence(results: Results) -> str:
    """Say what a sceptic would accept."""
    mean, error = results.gains(CLASSES)
    names = ("ours, CV", "fixed ridge", "strong ridge", "ours, radius 0.1", "ours, belief")
    ours, fixed, strong, robust, stated = map(METHODS.index, names)
    better, level, worse = count(mean[..., ours], error[..., ours])
    moved = mean[:, [list(TROUBLES).index(name) for name in ("drift", "noise", "attack")]].mean(axis=(0, 1))
    above, _, below = count(*(found[..., robust] for found in results.gains(CLASSES, over="fixed ridge")))
    attacked = results.ratios("worst")[list(TROUBLES).index("attack")]
    return (
        f"> With the radius chosen by cross-validation the robust model is about as accurate as a tuned ridge: level "
        f"in {level} of {better + level + worse} pairs of table and trouble, better in {better}, worse in {worse}. "
        f"Where test features are moved, a radius of 0.1 gains {moved[robust]:.2f} points and a ridge of fixed "
        f"strength {moved[fixed]:.2f}: that gain comes from stronger shrinkage. Of these two the radius is better in "
        f"{above} pairs, worse in {below}, level in the others. By construction no linear model has a smaller "
        f"worst-case risk on the training rows at the stated radius. On the test rows, at radius 0.3, it is "
        f"{attacked[stated]:.2f} of that of the tuned ridge; a strong ridge, picked for it, has {attacked[strong]:.2f}."
    )


def _summary(results: Results) -> str:
    """Say how accurate cross-validation of the radius is, for README."""
    better, level, worse = count(*(found[..., METHODS.index("ours, CV")] for found in results.gains(CLASSES)))
    return (
        f"- **About the accuracy of a tuned ridge.** With the radius chosen by cross-validation it is level in "
        f"{level} of {better + level + worse} comparisons, better in {better} and worse in {worse}: {len(CLASSES)} "
        f"tables with two classes, each with {len(TROUBLES)} kinds of trouble, such as wrong labels or drift."
    )


BLOCKS: dict[str, Callable[[Results], str]] = {
    "summary": _summary,
    "sentence": _sentence,
    "tables": _tables,
    "classes": lambda results: _verdicts(results, CLASSES),
    "targets": lambda results: _verdicts(results, TARGETS),
    "worst": _worst,
    "details": _details,
}


def render(page: str, cells: dict[str, Cell]) -> str:
    """Return the page with every block made anew from the stored cells."""
    results = Results(cells)
    return BLOCK.sub(lambda found: f"{found[1]}\n\n{BLOCKS[found['name']](results)}\n\n{found[3]}", page)


def draw_picture(cells: dict[str, Cell], path: Path) -> None:
    """Draw gains with two standard errors, a panel for each trouble; the same cells give the same bytes."""
    from matplotlib import rc_context  # only the picture needs it
    from matplotlib.figure import Figure

    mean, error = Results(cells).gains(CLASSES)
    places = np.arange(len(CLASSES))
    with rc_context({"svg.hashsalt": path.stem, "font.size": 7}):
        figure = Figure(figsize=(5.2, 8.4), layout="constrained")
        panels: Any = figure.subplots(4, 2, sharex=True, sharey=True)
        for k, (axes, trouble) in enumerate(zip(panels.flat, TROUBLES.values(), strict=True)):
            axes.axvline(0.0, color="black", linewidth=0.8)
            for number, (method, style) in enumerate(DRAWN.items()):
                m = METHODS.index(method)
                own = {"linestyle": "", "elinewidth": 0.8, "markersize": 3, "label": method, **style}
                axes.errorbar(mean[:, k, m], places + 0.22 * (number - 1), xerr=2.0 * error[:, k, m], **own)
            axes.set_title(trouble.title, fontsize=8)
            # Linear up to two points, then logarithmic: a few cells are far off.
            axes.set_xscale("symlog", linthresh=2.0)
            axes.set_xticks([-20, -5, -2, -1, 0, 1, 2, 5], ["−20", "−5", "−2", "", "0", "", "2", "5"])
            axes.spines[["top", "right"]].set_visible(False)
        panels[0, 0].set_yticks(places, [TABLES[table].title for table in CLASSES])
        panels[0, 0].invert_yaxis()
        for axes in panels[-1]:
            axes.set_xlabel("fewer errors than the tuned ridge, points")
        figure.legend(
            *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=len(DRAWN), frameon=False
        )
        figure.savefig(path, metadata={"Date": None})
