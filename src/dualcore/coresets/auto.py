"""What ``coreset="auto"`` chooses: all rows, or a coreset of them.

A coreset pays where rows are many, features few, and the loss has kinks or labels flip; and over reads, where the
tolerance asks for no more than a coreset gives.
"""

from __future__ import annotations

from typing import NamedTuple

from dualcore.problem import Problem

AUTO = "auto"
# Fewer numbers (rows times features), or more features: all rows are quicker, or as quick and exact.
_MANY_NUMBERS, _FEW_FEATURES = 5_000_000, 100
# The certified gap that a coreset is asked for.
_CORESET_GAP = 1e-3
# Rows of the coreset, for each feature and at least.
_ROWS_PER_FEATURE, _FEWEST_ROWS = 50, 2000


class Choice(NamedTuple):
    """How many rows the coreset has, None for all rows, and why."""

    size: int | None
    reason: str


def choose_rows(problem: Problem, n_rows: int, n_features: int, *, in_memory: bool, tol: float) -> Choice:
    """Return whether to train on all rows or on a coreset, by what either costs.

    Examples
    --------
    >>> choose_rows(Problem("hinge", radius=0.1), 2_000_000, 20, in_memory=True, tol=1e-6)
    Choice(size=2000, reason='many rows, few features and a loss with kinks: a coreset is quicker')
    >>> choose_rows(Problem("hinge", radius=0.1), 20_000, 20, in_memory=True, tol=1e-6).size is None
    True
    """
    if not problem.family.is_closed:
        return Choice(None, "on a support the certificate of a coreset costs as much as training")
    if n_features > _FEW_FEATURES:
        return Choice(None, f"more than {_FEW_FEATURES} features: products with all rows are cheaper than a coreset")
    if n_rows * n_features < _MANY_NUMBERS:
        return Choice(None, "few rows: all of them are quicker than a coreset, and exact")
    size = max(_ROWS_PER_FEATURE * n_features, _FEWEST_ROWS)
    flips = problem.family.flips
    if problem.loss.kinks or flips:
        what = "label flips" if flips else "a loss with kinks"
        return Choice(size, f"many rows, few features and {what}: a coreset is quicker")
    if not in_memory and tol >= _CORESET_GAP:
        return Choice(size, f"a coreset takes fewer reads to a gap of {_CORESET_GAP:g}")
    return Choice(None, "a smooth loss: all rows take about as long as a coreset, and are exact")
