"""Rows in several blocks: the first look makes the cuts of all of them."""

import numpy as np
import pytest

from dualcore import ParquetSource, Problem, solve
from dualcore.solvers.assess import certify_rows

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
N = 300
X = np.column_stack([RNG.normal(size=N), np.eye(3)[RNG.integers(0, 3, N)]])
Y = np.where(X @ [1.0, 2.0, 0.0, -1.0] + RNG.logistic(size=N) > 0.5, 1.0, -1.0)


@pytest.mark.parametrize("size", [64, N])
def test_cuts_do_not_depend_on_blocks(tmp_path, size):
    pq.write_table(pa.table({"y": Y} | {f"x{j}": X[:, j] for j in range(4)}), tmp_path / "rows.parquet", size)
    problem = Problem("logistic", radius=0.05, categories=[[1, 2, 3]])
    best = solve(problem, X, Y, tol=1e-8)
    known, _ = certify_rows(problem, ParquetSource(tmp_path / "rows.parquet", "y"), best)
    assert known.lower <= best.value * (1.0 + 1e-9)
    assert known.relative_gap < 1e-5
