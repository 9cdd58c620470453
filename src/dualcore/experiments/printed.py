"""The figures that the paper prints.

Huang, Huang, Liu, Ding: Coresets for Wasserstein Distributionally Robust Optimization Problems. NeurIPS 2022. The
folder ``paper`` holds one file per table.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files
from typing import NamedTuple


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
