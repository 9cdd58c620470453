"""Features that are the same in every row: they are left out, and nothing that is said changes."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, certify, solve
from dualcore.data.rows import as_rows
from dualcore.solvers.moving.narrow import ChosenColumns, choose_columns
from pairs import every_value


def draw(seed=0, n=120, constants=(0.0, 0.3, 1.0)):
    rng = np.random.default_rng(seed)
    X = rng.random((n, 4))
    y = np.where(X[:, 0] - X[:, 1] + 0.2 * rng.normal(size=n) > 0.0, 1.0, -1.0)
    wide = np.insert(X, [0, 2, 4], np.array(constants), axis=1)
    return X, wide, y


@every_value(norm=["l1", "l2", "linf"], settings=[{}, {"label_cost": 0.8}, {"ridge": 0.05}, {"loss": "huber"}])
def test_the_optimum_is_that_without_them(norm, settings):
    X, wide, y = draw()
    problem = Problem(**{"loss": "logistic", "radius": 0.05, "norm": norm, "support": (0.0, 1.0)} | settings)
    known, found = solve(problem, X, y), solve(problem, wide, y)
    assert found.value == pytest.approx(known.value, rel=2e-6)
    assert found.lower_bound <= known.value
    np.testing.assert_array_equal(found.coef[[0, 3, 6]], 0.0)
    assert problem.risk(found.coef, found.intercept, wide, y) == pytest.approx(found.value, rel=1e-9)
    assert certify(problem, found, wide, y).relative_gap <= 1e-5


@pytest.mark.parametrize("make", [np.asarray, np.asfortranarray, sp.csr_array, lambda X: X.astype(np.uint8)])
def test_chosen_columns(make, monkeypatch):
    X = np.random.default_rng(0).integers(0, 9, size=(700, 6)).astype(float)
    for most in (0, 10**9):
        monkeypatch.setattr("dualcore.solvers.moving.narrow._FEW_COPIED", most)
        rows = choose_columns(as_rows(make(X)), np.array([1, 4]))
        assert isinstance(rows, ChosenColumns) is (most == 0)
        assert (rows.n, rows.m) == (700, 2)
        np.testing.assert_array_equal(np.concatenate([block for _, block in rows.dense_blocks()]), X[:, [1, 4]])
        np.testing.assert_allclose(rows.dot(np.array([1.0, -2.0])), X[:, [1, 4]] @ [1.0, -2.0])
        taken = rows.take(np.array([3, 5]))
        np.testing.assert_array_equal(taken.toarray() if sp.issparse(taken) else taken, X[[3, 5]][:, [1, 4]])
