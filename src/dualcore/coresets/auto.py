"""What ``coreset="auto"`` chooses: all rows, or a coreset of them.

Measured on two shared cores (seconds; tolerance 1e-6 on all rows, four rounds of a `DualCoreset` of 50 rows for each
feature, at least 2000; in brackets the certified relative gap of the coreset and the reads):

| rows x features | loss | in memory: all, coreset | from parts: all, coreset |
|---|---|---|---|
| 20,000 x 10 | logistic, l2 | 0.10, 0.20 (1e-4) | loaded |
| 20,000 x 50 | hinge, l2 | 0.6, 1.0 (1e-4) | loaded |
| 100,000 x 10 | logistic, flips | 0.7, 1.8 (1e-5) | 1.0 (15 reads), 2.3 (7 reads) |
| 500,000 x 10 | logistic, l2 | 0.8, 0.4 (3e-4) | 2.0 (5 reads), 0.4 (3 reads) |
| 500,000 x 10 | hinge, l2 | 2.0, 0.9 (7e-4) | 3.0 (11 reads), 1.0 (5 reads) |
| 500,000 x 10 | hinge, linf, flips | 5.4, 1.5 (2e-3) | 7.4 (13 reads), 2.1 (6 reads) |
| 100,000 x 50 | hinge, l2 | 4.1, 1.3 (6e-4) | 2.3 (11 reads), 1.3 (6 reads) |
| 300,000 x 50 | logistic, flips | 3.9, 1.5 (5e-2) | |
| 50,000 x 200 | logistic, l2 | 0.9, 2.6 (1e-4) | 1.3 (7 reads) |
| 50,000 x 200 | hinge, l2 | 4.0, 7.4 (4e-4) | |

So a coreset pays where rows are many, features few, and the loss has kinks or labels flip; and over reads, where the
tolerance asks for no more than a coreset gives.
"""

from __future__ import annotations

from typing import NamedTuple

from dualcore.problem import Problem

__all__ = ["AUTO", "Choice", "choose_rows"]

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
    """Return whether to train on all rows or on a coreset, by measured cost.

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
