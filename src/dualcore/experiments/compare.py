"""The figures that the paper prints, and means over trials beside them.

Huang, Huang, Liu, Ding: Coresets for Wasserstein Distributionally Robust Optimization Problems. NeurIPS 2022. The
folder ``paper`` holds one file per table.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np

from dualcore.experiments.methods import WHOLE
from dualcore.experiments.records import Record
from dualcore.experiments.settings import STUDIES, Table


class Printed(NamedTuple):
    """A mean of 50 trials, and their standard deviation where the paper gives it."""

    mean: float
    std: float | None


@cache
def printed_figures(table: str) -> dict[tuple[str, str], Printed]:
    """Return what the paper prints in a table, by row and method; nothing if it has no such table.

    Examples
    --------
    >>> printed_figures("table1")["5%", "DualCore"]
    Printed(mean=0.60986, std=0.0097)
    """
    file = files("dualcore.experiments") / "paper" / f"{table}.csv"
    if not file.is_file():
        return {}
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return {
        (line["row"], line["method"]): Printed(float(line["mean"]), float(line["std"]) if line["std"] else None)
        for line in csv.DictReader(lines)
    }


def printed_whole(table: str) -> float | None:
    """Return the value of training on all rows, where the paper gives one for the table.

    Examples
    --------
    >>> printed_whole("table1")
    0.59267
    """
    found = printed_figures(table).get(("all", "Whole"))
    return None if found is None else found.mean


class Cell(NamedTuple):
    """Mean and standard deviation of the trials of one cell."""

    mean: float
    std: float
    trials: int


class Comparison(NamedTuple):
    """A cell of ours beside the printed one."""

    row: str
    method: str
    ours: Cell
    printed: Printed

    @property
    def within(self) -> bool:
        """Whether our mean is within two of the paper's standard deviations of the printed one."""
        return abs(self.ours.mean - self.printed.mean) <= 2.0 * (self.printed.std or 0.0)


def means(records: Iterable[Record], value: Callable[[Record], float]) -> dict[tuple[str, str], Cell]:
    """Return mean and standard deviation of a value, by row and method."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for record in records:
        groups[record.row, record.method].append(value(record))
    return {
        key: Cell(float(np.mean(group)), float(np.std(group, ddof=1)) if len(group) > 1 else 0.0, len(group))
        for key, group in groups.items()
    }


def summarise(table: Table, records: list[Record], baseline: str = WHOLE) -> dict[tuple[str, str], Cell]:
    """Return the numbers of a table, by row and method, before its offset.

    ``baseline`` is the training on all rows whose time is the unit of a table of times.
    """
    if table.value == "risk":
        return means(records, lambda record: record.risk)
    if table.value == "score":
        return means(records, lambda record: record.score)
    wholes = {name: case.whole for name, case in STUDIES[table.study].cases.items()}
    if table.value == "seconds":
        seconds = means(records, lambda record: record.seconds)
        unit = {row: cell.mean for (row, method), cell in seconds.items() if method == baseline}
        timed = [record for record in records if wholes.get(record.row, record.row) in unit]
        return means(timed, lambda record: record.seconds / unit[wholes.get(record.row, record.row)])
    best = {(record.row, record.trial): record.risk for record in records if record.method == WHOLE}

    def excess(record: Record) -> float:
        row = wholes.get(record.row, record.row)
        return record.risk / best.get((row, record.trial), best[row, 0]) - 1.0

    return means(records, excess)


def relative_gaps(records: Iterable[Record]) -> dict[tuple[str, str], Cell]:
    """Return ``(risk - lower) / risk`` where a method proves a lower bound."""
    proved = [record for record in records if record.lower is not None]
    return means(proved, lambda record: (record.risk - (record.lower or 0.0)) / record.risk)


def whole_risk(records: Iterable[Record], row: str = "all") -> float | None:
    """Return the worst-case risk of training on all rows."""
    cell = means(records, lambda record: record.risk).get((row, WHOLE))
    return None if cell is None else cell.mean


def compare(
    table: Table, records: list[Record], methods: tuple[str, ...] = ("UniSamp", "DualCore")
) -> list[Comparison]:
    """Return our cells beside the printed ones."""
    ours = summarise(table, records)
    return [
        Comparison(row, method, ours[row, method], found)
        for (row, method), found in printed_figures(table.name).items()
        if method in methods and (row, method) in ours
    ]


def beaten_rows(table: Table, records: list[Record], ours: str = "Ours", theirs: str = "DualCore") -> dict[str, bool]:
    """Return for every row whether the mean of ``ours`` is better than what is printed for ``theirs``.

    Where the split of the data is not the paper's each is taken from its own Whole, or not compared if none is printed.
    """
    mine, printed = summarise(table, records), printed_figures(table.name)
    sign = 1.0 if table.better == "lower" else -1.0
    shift, printed_shift = 0.0, 0.0
    if table.own_split:
        best, printed_best = whole_risk(records), printed_whole(table.name)
        if best is None or printed_best is None:
            return {}
        shift, printed_shift = best, printed_best
    return {
        row: sign * (mine[row, ours].mean - shift) < sign * (found.mean - printed_shift)
        for (row, method), found in printed.items()
        if method == theirs and (row, ours) in mine
    }
