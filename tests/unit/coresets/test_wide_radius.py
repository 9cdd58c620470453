"""`suggest_radius` where features outnumber rows: the same rule, in the memory of a few draws."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, suggest_radius
from dualcore.coresets.path import choose


def text(n: int, m: int) -> tuple[sp.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sp.random(n, m, 0.02, "csr", random_state=rng)
    return X, np.where(X @ rng.normal(size=m) + 0.2 * rng.normal(size=n) > 0, 1.0, -1.0)


def test_draws_are_taken_a_few_at_a_time():
    X, y = text(200, 2500)
    suggest_radius(Problem("logistic"), X, y, draws=10, random_state=0)  # what is imported at the first solve
    tracemalloc.start()
    suggest_radius(Problem("logistic"), X, y, draws=2000, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * 2000 * 2500 * 8


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_draws_row_by_row_agree_with_the_covariance(monkeypatch, norm):
    """Norms vary by a tenth between draws; quantiles of 2,000 and the radius of the first model by far less."""
    X, y = text(120, 300)
    problem = Problem("logistic", norm=norm)
    exact = suggest_radius(problem, X, y, random_state=0)
    monkeypatch.setattr(choose, "_COVARIANCE_FEATURES", 100)
    drawn = suggest_radius(problem, X, y, random_state=0)
    assert drawn != exact
    assert drawn == pytest.approx(exact, rel=0.05)
