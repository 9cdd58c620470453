"""How many passes descent takes, and what it spares: metrics, sizes as variables, second certificates."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.solvers.descent.memory import MemoryOracle


def made(n: int = 6000, m: int = 60) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = rng.standard_normal((n, m), dtype=np.float32)
    score = X @ rng.standard_normal(m)
    score *= 2.0 / score.std()
    return X, np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0)


class Counted:
    """Counts passes over all rows and certificates."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, n_rows: int) -> None:
        self.passes = self.certificates = 0
        evaluate, certify = MemoryOracle.evaluate, MemoryOracle.certify

        def counted(oracle, points, width):
            before = oracle.n_evaluations
            found = evaluate(oracle, points, width)
            self.passes += (oracle.n_evaluations - before) * (oracle.n_rows == n_rows)
            return found

        def certified(oracle, point, width):
            self.certificates += oracle.n_rows == n_rows
            return certify(oracle, point, width)

        monkeypatch.setattr(MemoryOracle, "evaluate", counted)
        monkeypatch.setattr(MemoryOracle, "certify", certified)


@pytest.mark.parametrize(
    ("settings", "tol", "most"),
    [
        ({}, 1e-5, 14),
        ({"norm": "l1"}, 1e-4, 16),
        ({"norm": "linf", "radius": 0.01}, 1e-4, 14),
        ({"label_cost": 2.0}, 1e-3, 36),
    ],
)
def test_independent_columns_take_few_passes(monkeypatch, settings, tol, most):
    X, y = made()
    count = Counted(monkeypatch, len(X))
    found = solve(Problem("logistic", **({"radius": 0.05} | settings)), X, y, solver="descent", tol=tol)
    assert found.converged
    assert count.passes <= most
    assert count.certificates <= 2


@pytest.mark.parametrize("scale", [1e-22, 1.0, 1e22])
def test_columns_of_single_precision_at_the_ends_of_its_range(scale):
    X, y = made(500, 4)
    X = (X * np.float32(scale)).astype(np.float32)
    problem = Problem("logistic", radius=0.05 * scale)
    oracle = MemoryOracle(problem, problem.validate(X, y))
    np.testing.assert_allclose(oracle.columns.scale, X.astype(np.float64).std(axis=0), rtol=1e-3)
    np.testing.assert_allclose(
        oracle.data.rows.column_sizes(None), np.sqrt((X.astype(np.float64) ** 2).mean(axis=0)), rtol=1e-3
    )
