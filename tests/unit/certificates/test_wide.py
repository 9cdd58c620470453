"""Certificates of wide data cost a few products with the data."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from dualcore.certificates import rounding


class Factored(Exception):  # noqa: N818
    """All columns were factored."""


@pytest.mark.parametrize(("work", "factors"), [(1e3, False), (1e12, True)])
def test_all_columns_are_factored_for_a_smaller_allowance_where_that_is_cheap_only(work, factors, monkeypatch):
    """Of 50,000 x 768 rows it took over 100 s, of a solve that takes 2 s."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    y = np.where(X[:, 0] + rng.normal(size=60) > 0.0, 1.0, -1.0)
    problem = Problem("logistic", radius=0.05, norm="l1")
    solution = solve(problem, X, y)

    def factor(*_):
        raise Factored

    monkeypatch.setattr(rounding, "_MOST_WORK", work)
    monkeypatch.setattr(rounding.RowLevelSet, "is_small", lambda *_: False)
    monkeypatch.setattr(rounding, "largest_share", factor)
    if factors:
        with pytest.raises(Factored):
            certify(problem, solution, X, y)
    else:
        assert certify(problem, solution, X, y).relative_gap <= 1e-3
