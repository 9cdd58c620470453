"""The page of the experiments: a text with places for tables, filled from stored records.

A place is written ``{{what name}}``: ``{{table table1}}``, ``{{figure excess-risk}}``, ``{{within table1}}``.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import fmean

from experiments.figures import FIGURES, draw, figure_files
from experiments.methods import ALONE, FIT, WHOLE, WHOLE_CONIC
from experiments.records import ENVIRONMENTS, Record, Store
from experiments.render import beaten_rows, compare, lay_out, means, printed_figures, summarise
from experiments.settings import STUDIES, get_table

PLACE = re.compile(r"\{\{(\w+)(?: ([^}]+))?\}\}")


def write_document(folder: str | os.PathLike[str], output: str | os.PathLike[str], *, figures: bool = True) -> Path:
    """Write the page to a Markdown file, and its figures (which need matplotlib) beside the records; nothing is run."""
    folder, output = Path(folder), Path(output)

    @cache
    def records(study: str) -> list[Record]:
        return Store(folder, study).read()

    def figure(name: str) -> str:
        if figures:
            draw(records, folder, [name])
        text = (FIGURES[name].__doc__ or name).splitlines()[0]
        links = [Path(os.path.relpath(folder / file, output.parent)).as_posix() for file in figure_files(name)]
        more = [f" Panel {number} of {len(links)}." if len(links) > 1 else "" for number in range(1, len(links) + 1)]
        return "\n".join(f"![{text}{part}]({link})" for part, link in zip(more, links, strict=True))

    of_table: dict[str, Callable[[str, list[Record]], str]] = {
        "table": lambda name, found: lay_out(get_table(name), found).markdown(),
        "within": within_sentence,
        "beaten": beaten_sentence,
        "spread": spread_sentence,
        "wholes": whole_sentence,
    }
    others: dict[str, Callable[[str], str]] = {
        "times": lambda study: time_sentence(records(study)),
        "cost": lambda _: cost_sentence([record for study in STUDIES for record in records(study)]),
        "environments": lambda _: environment_lines(folder),
        "figure": figure,
    }

    def fill(place: re.Match[str]) -> str:
        what, name = place[1], place[2] or ""
        if what in of_table:
            return of_table[what](name, records(get_table(name).study))
        if what not in others:
            raise ValueError(f"The page has a place for {what!r}; there are only {sorted({*of_table, *others})}.")
        return others[what](name)

    template = Path(__file__).with_name("document.md").read_text(encoding="utf-8")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(PLACE.sub(fill, template), encoding="utf-8")
    return output


def within_sentence(name: str, records: list[Record]) -> str:
    """Return how many cells agree with the paper, and which do not."""
    table = get_table(name)
    found = compare(table, records)
    outside = [
        f"{c.method} at {c.row} ({c.ours.mean:.{table.digits}f}, printed {c.printed.mean:g} ± {c.printed.std:g})"
        for c in found
        if not c.within
    ]
    inside = len(found) - len(outside)
    text = f"{inside} of {len(found)} cells of UniSamp and DualCore are within two of the paper's standard deviations"
    return f"{text}; not {', '.join(outside)}." if outside else f"{text}."


def beaten_sentence(name: str, records: list[Record]) -> str:
    """Return in how many rows ours is better than the printed DualCore, and in which it is not if these are few."""
    rows = beaten_rows(get_table(name), records)
    lost = [row for row, better in rows.items() if not better]
    text = f"The coreset alone is better than the printed DualCore in {len(rows) - len(lost)} of {len(rows)} rows"
    return f"{text}; not at {', '.join(lost)}." if 0 < len(lost) <= 5 else f"{text}."


def spread_sentence(name: str, records: list[Record]) -> str:
    """Return the standard deviations, averaged over rows."""
    ours, theirs = summarise(get_table(name), records), printed_figures(name)
    rows = [row for row, method in ours if method == ALONE and (row, "DualCore") in theirs]
    if not rows:
        return "Nothing is stored yet."
    digits = get_table(name).digits
    mine, dual = (fmean(ours[row, method].std for row in rows) for method in (ALONE, "DualCore"))
    printed = fmean(theirs[row, "DualCore"].std or 0.0 for row in rows)
    return (
        f"Averaged over rows the standard deviation of the coreset alone is {mine:.{digits}f}, that of DualCore here "
        f"{dual:.{digits}f}, as printed {printed:.{digits}f}."
    )


def whole_sentence(name: str, records: list[Record]) -> str:
    """Return how far Whole is from what is printed for it, over rows."""
    ours, theirs = summarise(get_table(name), records), printed_figures(name)
    off = [abs(ours[key].mean - found.mean) for key, found in theirs.items() if key[1] == WHOLE and key in ours]
    if not off:
        return "Nothing is stored yet."
    return f"Whole is {fmean(off):.2f} from the printed value on average, {max(off):.2f} at most, over {len(off)} rows."


def time_sentence(records: list[Record]) -> str:
    """Return the mean CPU times of a study, and what they are over Whole's with either solver where that was timed."""
    seconds = means(records, lambda record: record.seconds)
    rows = {row for row, method in seconds if method == WHOLE_CONIC}
    if not rows:
        return "Whole was not timed with the conic solver here."
    parts = []
    for method in ("UniSamp", "DualCore", FIT):
        # A Whole that belongs to one row is compared with that row, one that belongs to all with all of them.
        own = [cell.mean for (row, name), cell in seconds.items() if name == method and (row in rows or "all" in rows)]
        if own:
            fast, conic = (fmean(seconds[row, whole].mean for row in rows) for whole in (WHOLE, WHOLE_CONIC))
            mean = fmean(own)
            parts.append(
                f"{method} {mean:.3g} s, {mean / fast:.2g} of Whole (fast), {mean / conic:.2g} of Whole (conic)"
            )
    return "CPU time a model: " + "; ".join(parts) + "."


def cost_sentence(records: list[Record]) -> str:
    """Return how long all that is stored took to train."""
    minutes = sum(record.seconds for record in records) / 60.0
    return f"The {len(records):,} models took {minutes:.0f} minutes of CPU time to train, scoring not counted."


def environment_lines(folder: Path) -> str:
    """Return what the records were made with."""
    path = folder / ENVIRONMENTS
    if not path.exists():
        return "Nothing is stored yet."
    with path.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    return "\n".join(
        f"- `{line.pop('environment')}`: " + ", ".join(f"{name} {value}" for name, value in line.items())
        for line in lines
    )
