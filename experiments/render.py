"""The figures that the paper prints, means over trials beside them, and Markdown tables of both.

Huang, Huang, Liu, Ding: Coresets for Wasserstein Distributionally Robust Optimization Problems. NeurIPS 2022. The
folder ``paper`` holds one file per table.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from experiments.methods import ALONE, FIT, WHOLE, WHOLE_CONIC
from experiments.records import Record
from experiments.settings import STUDIES, Table

OUTSIDE = "†"


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
    file = Path(__file__).parent / "paper" / f"{table}.csv"
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


def beaten_rows(table: Table, records: list[Record], ours: str = ALONE, theirs: str = "DualCore") -> dict[str, bool]:
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


class Layout(NamedTuple):
    """A table of texts: title, header, lines, and a note below.

    Examples
    --------
    >>> print(Layout("Title", ["c", "Fit"], [["1%", "0.5"]], "Note.").markdown())
    **Title**
    <BLANKLINE>
    | c | Fit |
    |---|---|
    | 1% | 0.5 |
    <BLANKLINE>
    Note.
    """

    title: str
    header: list[str]
    lines: list[list[str]]
    note: str

    def markdown(self) -> str:
        """Return the table in Markdown, between its title and its note."""
        lines = ["| " + " | ".join(line) + " |" for line in (self.header, *self.lines)]
        lines.insert(1, "|" + "---|" * len(self.header))
        return "\n".join([f"**{self.title}**", "", *lines, "", self.note])


def lay_out(table: Table, records: list[Record]) -> Layout:
    """Return the table: what the paper prints, and what the records of its study say; other cells stay empty."""
    layouts = {"risk": _values, "score": _values, "seconds": _times, "excess": _scale}
    return layouts[table.value](table, records)


def _values(table: Table, records: list[Record]) -> Layout:
    """Each method's printed figures, then ours."""
    study, ours, printed = STUDIES[table.study], summarise(table, records), printed_figures(table.name)
    outside = set() if table.own_split else {(c.row, c.method) for c in compare(table, records) if not c.within}
    beaten = beaten_rows(table, records)
    columns: list[tuple[str, bool]] = []
    for method in (WHOLE, *study.methods):
        if any(name == method and row != "all" for row, name in printed):
            columns.append((method, True))
        if any(name == method and row in study.cases for row, name in ours):
            columns.append((method, False))
    lines = []
    for row in study.cases:
        line = [row]
        for method, is_printed in columns:
            if is_printed:
                line.append(_printed_text(printed.get((row, method)), table))
                continue
            text = _cell_text(ours.get((row, method)), table)
            if (row, method) in outside:
                text += OUTSIDE
            line.append(f"**{text}**" if text and method == ALONE and beaten.get(row) else text)
        lines.append(line)
    header = [table.head, *(f"{method} (paper)" if is_printed else method for method, is_printed in columns)]
    return Layout(table.title, header, lines, _value_note(table, records, bool(outside), any(beaten.values())))


def _value_note(table: Table, records: list[Record], any_outside: bool, any_beaten: bool) -> str:
    parts = [_trials(records)]
    found, theirs = whole_risk(records), printed_whole(table.name)
    if table.value == "risk" and found is not None:
        parts.append(f"Whole: {found - table.offset:.{table.digits}f}")
        if theirs is not None:
            parts[-1] += f", printed {theirs - table.offset:.{table.digits}f}"
    if any_outside:
        parts.append(f"{OUTSIDE}: further than two of the paper's standard deviations from the printed mean")
    if any_beaten:
        parts.append(
            "bold: better than the printed DualCore" + (", each less its own Whole" if table.own_split else "")
        )
    return "; ".join(parts) + "."


def _times(table: Table, records: list[Record]) -> Layout:
    """CPU time over Whole's: the paper's, then ours over the fast solver, then over the conic one."""
    study, printed = STUDIES[table.study], printed_figures(table.name)
    header, columns = [table.head], []
    for method in ("UniSamp", "DualCore"):
        if any(name == method for _, name in printed):
            header.append(f"{method} (paper)")
            columns.append({row: f"{found.mean:g}" for (row, name), found in printed.items() if name == method})
    for baseline, label in ((WHOLE, "fast"), (WHOLE_CONIC, "conic")):
        ratios = summarise(table, records, baseline)
        if any((row, FIT) not in ratios for row in study.cases):
            continue
        for method in ("UniSamp", "DualCore", FIT):
            header.append(f"{method} / {label}")
            columns.append(
                {row: f"{cell.mean:.{table.digits}f}" for (row, name), cell in ratios.items() if name == method}
            )
    lines = [[row, *(column.get(row, "") for column in columns)] for row in study.cases]
    seconds = {
        label: [record.seconds for record in records if record.method == method]
        for method, label in ((WHOLE, "the fast solver"), (WHOLE_CONIC, "the conic solver"))
    }
    takes = [f"{sum(times) / len(times):.3g} s with {label}" for label, times in seconds.items() if times]
    note = f"{_trials(records)}; Whole takes {' and '.join(takes)}." if takes else f"{_trials(records)}."
    return Layout(table.title, header, lines, note)


def _scale(table: Table, records: list[Record]) -> Layout:
    """Excess risk, certified gap and time of ours; excess of the others."""
    study, excess = STUDIES[table.study], summarise(table, records)
    gaps = relative_gaps(records)
    seconds = summarise(Table("", "", table.study, "seconds"), records)
    sizes = {(record.row, record.method): record.size for record in records}
    header = [table.head, "rows", *study.methods, "certified gap of Fit", "CPU time of Fit / Whole"]
    lines = []
    for row in study.cases:
        size = sizes.get((row, ALONE))
        lines.append(
            [
                row,
                "" if size is None else str(size),
                *(_scientific(excess.get((row, method))) for method in study.methods),
                _scientific(gaps.get((row, FIT))),
                "" if (row, FIT) not in seconds else f"{seconds[row, FIT].mean:.2f}",
            ]
        )
    return Layout(table.title, header, lines, f"{_trials(records)}.")


def _trials(records: list[Record]) -> str:
    counts: dict[str, set[int]] = {}
    for record in records:
        if not record.method.startswith(WHOLE):
            counts.setdefault(record.row, set()).add(record.trial)
    least, most = (f(map(len, counts.values()), default=0) for f in (min, max))
    return f"{most} trial{'' if most == 1 else 's'} a row" if least == most else f"{least} to {most} trials a row"


def _cell_text(cell: Cell | None, table: Table) -> str:
    if cell is None:
        return ""
    mean = f"{cell.mean - table.offset:.{table.digits}f}"
    return mean if cell.trials == 1 else f"{mean} ± {cell.std:.{table.digits}f}"


def _printed_text(found: Printed | None, table: Table) -> str:
    if found is None:
        return ""
    mean = f"{found.mean - table.offset:.{table.digits}f}"
    return mean if found.std is None else f"{mean} ± {found.std:g}"


def _scientific(cell: Cell | None) -> str:
    return "" if cell is None else f"{cell.mean:.1e}"
