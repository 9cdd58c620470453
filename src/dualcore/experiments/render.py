"""Tables from stored records: laid out once, written as Markdown or LaTeX."""

from __future__ import annotations

from typing import NamedTuple

from dualcore.experiments.compare import (
    Cell,
    Printed,
    beaten_rows,
    compare,
    printed_figures,
    printed_whole,
    relative_gaps,
    summarise,
    whole_risk,
)
from dualcore.experiments.methods import WHOLE, WHOLE_CONIC
from dualcore.experiments.records import Record
from dualcore.experiments.settings import STUDIES, Table

OUTSIDE = "†"


class Layout(NamedTuple):
    """A table of texts: title, header, lines, and a note below."""

    title: str
    header: list[str]
    lines: list[list[str]]
    note: str


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
            line.append(f"**{text}**" if text and method == "Ours" and beaten.get(row) else text)
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
        if any((row, "Ours") not in ratios for row in study.cases):
            continue
        for method in ("UniSamp", "DualCore", "Ours"):
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
    header = [table.head, "rows", *study.methods, "certified gap of Ours", "CPU time of Ours / Whole"]
    lines = []
    for row in study.cases:
        size = sizes.get((row, "Ours"))
        lines.append(
            [
                row,
                "" if size is None else str(size),
                *(_scientific(excess.get((row, method))) for method in study.methods),
                _scientific(gaps.get((row, "Ours"))),
                "" if (row, "Ours") not in seconds else f"{seconds[row, 'Ours'].mean:.2f}",
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


def as_markdown(layout: Layout) -> str:
    """Return a Markdown table with its note.

    Examples
    --------
    >>> print(as_markdown(Layout("Title", ["c", "Ours"], [["1%", "0.5"]], "Note.")))
    **Title**
    <BLANKLINE>
    | c | Ours |
    |---|---|
    | 1% | 0.5 |
    <BLANKLINE>
    Note.
    """
    lines = ["| " + " | ".join(line) + " |" for line in (layout.header, *layout.lines)]
    lines.insert(1, "|" + "---|" * len(layout.header))
    return "\n".join([f"**{layout.title}**", "", *lines, "", layout.note])


def as_latex(layout: Layout) -> str:
    r"""Return a LaTeX table, for ``\usepackage{booktabs}``.

    Examples
    --------
    >>> print(as_latex(Layout("Title", ["c", "Ours"], [["1%", "**0.5 ± 0.1**"]], "Note.")).splitlines()[6])
    1\% & \textbf{0.5 $\pm$ 0.1} \\
    """
    body = [" & ".join(map(_latex_text, line)) + r" \\" for line in layout.lines]
    return "\n".join(
        [
            r"\begin{table}",
            r"\centering",
            r"\begin{tabular}{l" + "r" * (len(layout.header) - 1) + "}",
            r"\toprule",
            " & ".join(map(_latex_text, layout.header)) + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            rf"\caption{{{_latex_text(layout.title)}. {_latex_text(layout.note)}}}",
            r"\end{table}",
        ]
    )


def _latex_text(text: str) -> str:
    if text.startswith("**") and text.endswith("**"):
        return rf"\textbf{{{_latex_text(text[2:-2])}}}"
    for sign, written in (("%", r"\%"), ("±", r"$\pm$"), (OUTSIDE, r"\textsuperscript{\textdagger}")):
        text = text.replace(sign, written)
    return text
