"""The part of a report about categories: which of them the adversary changes most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dualcore.cli.plots import plot_changes, to_png
from dualcore.cli.report import Picture, Section
from dualcore.data.arrays import FloatArray
from dualcore.problem import Problem
from dualcore.problem.worstcase import changed_categories, worst_case_distribution


def explain_changes(
    problem: Problem,
    coef: FloatArray,
    intercept: float,
    X: Any,
    y: FloatArray,
    *,
    names: Sequence[str],
    unseen: Sequence[str] = (),
    most: int = 10,
) -> Section:
    """Say which categories the adversary changes most against a model: a table and a picture.

    Parameters
    ----------
    problem : Problem
        With categories.
    coef, intercept
        Of the model.
    X, y
        The full data; labels -1 and +1 in classification.
    names : sequence of str
        Of the features.
    unseen : sequence of str
        What to call the category without a column, for every group; "none" by default.
    most : int, default=10
        Changes shown.
    """
    worst = worst_case_distribution(problem, coef, intercept, X, y)
    changes = changed_categories(problem, worst, X)
    title = "Categories that change most"
    if not changes:
        return Section(title, f"In the worst case within radius {problem.radius:g} no category changes.")

    def called(group: int, column: int | None) -> str:
        return names[column] if column is not None else unseen[group] if unseen else "none"

    shown = [(called(c.group, c.before), called(c.group, c.after), c.mass) for c in changes[:most]]
    rest, total = len(changes) - len(shown), sum(change.mass for change in changes)
    picture = Picture(
        "categories",
        title,
        "The share of all rows that makes each change in the worst case.",
        to_png(plot_changes([f"{old} to {new}" for old, new, _ in shown], [mass for *_, mass in shown])),
        narrow=True,
    )
    return Section(
        title,
        f"The worst case within radius {problem.radius:g} changes a category in {total:.2%} of the rows; "
        "a row that changes two counts twice."
        + (f" The {len(shown)} largest of {len(changes)} changes are shown." if rest else ""),
        (("category", "becomes", "share of rows"), *((old, new, f"{mass:.2%}") for old, new, mass in shown)),
        (picture,),
    )
