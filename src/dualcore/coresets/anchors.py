"""Samples of the rows of a source by their keys, and anchors: models with a multiplier at which ``h`` is finite."""

from __future__ import annotations

from typing import Any

import numpy as np

from dualcore.coresets.coreset import normalised
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Source
from dualcore.problem import Anchor, Problem
from dualcore.solvers import Solution
from dualcore.solvers.pilot import Pilot, draw_pilot


def uniform_sample(problem: Problem, source: Source, size: int, seed: int, held: Any = None) -> tuple[Pilot, str]:
    """Return ``size`` rows of smallest keys with their own masses, and a message for the user, possibly empty.

    ``held`` are rows in memory, ascending; if they contain all that are drawn, the data are not read.
    """
    if problem.family.n_outputs > 1:  # drawn within the classes, so that none is missing
        check_size(problem, size)
        return draw_pilot(problem, source, size, seed), ""
    found = source.smallest(seed, size)
    return drawn_rows(problem, source, found.rows, found.masses, seed, held)


def drawn_rows(
    problem: Problem, source: Source, rows: Any, masses: FloatArray, seed: int, held: Any = None
) -> tuple[Pilot, str]:
    """Return drawn rows, ascending, and a message if a class was missing.

    The row of smallest key of a missing class replaces the last row drawn.
    """
    order = np.argsort(rows)
    is_held = held is not None and np.isin(rows, held.rows).all()
    X, y = held.pick(np.searchsorted(held.rows, rows[order]))[1:3] if is_held else source.take(rows[order])
    for label in problem.family.strata if problem.family.n_outputs == 1 else ():
        if not (y == label).any():
            extra = source.smallest(seed, 1, label)
            if extra.rows.size == 0:
                raise ValueError(f"No row of class {label:+g} has weight; a classifier needs both classes.")
            message = f"The draw missed class {label:+g}; its row of smallest key took the place of the last row drawn."
            if rows.size == 1:
                message = f"A coreset of one row cannot hold both classes: one row of class {label:+g} was added."
            kept = slice(max(rows.size - 1, 1))
            rows, masses = np.append(rows[kept], extra.rows), np.append(masses[kept], extra.masses)
            return drawn_rows(problem, source, rows, masses, seed)[0], message
    return Pilot(rows[order].astype(np.int64), X, y, normalised(masses[order])), ""


def check_size(problem: Problem, size: int) -> None:
    """Raise ValueError if ``size`` rows cannot include a row of each class."""
    n_strata = len(problem.family.strata)
    if size < n_strata:
        raise ValueError(f"A coreset of {size} rows cannot hold {n_strata} classes: size must be at least {n_strata}.")


def check_whole(name: str, value: Any, least: int) -> None:
    """Raise ValueError if a setting is not an integer of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, got {value!r}.")


def anchor_at(problem: Problem, solution: Solution) -> Anchor:
    """Return the solution as an anchor, with a multiplier at which ``h`` of every row is finite."""
    multiplier = problem.family.feasible_multiplier(solution.coef, solution.dual_variable)
    return Anchor(solution.coef, solution.intercept, multiplier)
