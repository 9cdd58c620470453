"""Certificates of wide data cost a few products with the data."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, certify, solve
from dualcore.certificates import rounding


def test_no_factor_of_all_columns_for_a_smaller_allowance(monkeypatch):
    """Of 50,000 x 768 rows it took over 100 s, of a solve that takes 2 s."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1400, 900)).astype(np.float32)
    y = np.where(X @ rng.normal(size=900) / 15.0 + rng.logistic(size=1400) > 0.0, 1.0, -1.0)
    monkeypatch.setattr(rounding.RowLevelSet, "_factor", lambda *_: pytest.fail("all columns were factored"))
    problem = Problem("logistic", radius=0.05, norm="l1")
    solution = solve(problem, X, y, tol=1e-3, solver="descent")
    assert solution.converged
    assert certify(problem, solution, X, y).relative_gap <= 1e-3
