"""Rows that leave the Newton system: what they add is exact, and a wrong guess is taken back."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.solvers import interior
from dualcore.solvers.activerows import fix_rows
from dualcore.solvers.interior import InteriorPoint
from pairs import every_value
from solver_cases import every_norm

CASES = [
    ("hinge", {}),
    ("hinge", {"label_cost": 1.0}),
    ("absolute", {}),
    ("pinball", {"quantile": 0.2, "label_cost": 2.0}),
    ("epsilon_insensitive", {}),
]
every_case = pytest.mark.parametrize(("loss", "more"), CASES)


def rows_of(problem: Problem, n: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 4)) + rng.normal(size=(n, 1))
    score = X @ [1.0, -0.5, 0.2, 0.0] + rng.logistic(size=n)
    return X, np.where(score > 0.0, 1.0, -1.0) if problem.is_classification else score


@every_value(every_norm, every_case)
def test_fixing_rows_changes_no_answer(loss, more, norm, monkeypatch):
    problem = Problem(loss, radius=0.05, norm=norm, **more)
    X, y = rows_of(problem)
    left = []
    original = InteriorPoint._fix_rows

    def watched(self, *args):
        original(self, *args)
        left.append(self.w.size)

    monkeypatch.setattr(InteriorPoint, "_fix_rows", watched)
    quick = solve(problem, X, y, solver="structured")
    assert min(left) < 1500
    monkeypatch.setattr(interior, "_NEAR_ENOUGH", 0.0)
    whole = solve(problem, X, y, solver="structured")
    assert quick.converged
    assert quick.value == pytest.approx(whole.value, rel=1e-6)
    assert quick.lower_bound <= whole.value * (1.0 + 1e-12)


def test_a_wrong_guess_is_taken_back(monkeypatch):
    """Rows fixed far too early, by a rule that trusts every lead."""
    problem = Problem("hinge", radius=0.05, norm="l1")
    X, y = rows_of(problem)
    restored = []
    original = InteriorPoint._restore
    monkeypatch.setattr(InteriorPoint, "_restore", lambda self: (restored.append(self.w.size), original(self)))
    monkeypatch.setattr(interior, "fix_rows", partial(fix_rows, safety=1e-3))
    monkeypatch.setattr(interior, "_NEAR_ENOUGH", np.inf)
    found = solve(problem, X, y, solver="structured")
    assert restored
    assert found.converged


@pytest.mark.parametrize("loss", ["hinge", "absolute", "epsilon_insensitive"])
def test_rows_that_a_model_fits_without_a_loss_do_not_all_leave(loss):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 8))
    score = X @ rng.normal(size=8)
    problem = Problem(loss, radius=0.0)
    y = np.where(score > 0.0, 1.0, -1.0) if problem.is_classification else score
    assert solve(problem, X, y, solver="structured").value < 1e-6
