"""Rows that leave the Newton system: what they add is exact, and a wrong guess is taken back."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from dualcore.solvers import activerows, interior
from dualcore.solvers.activerows import ActiveRows, fix_rows
from dualcore.solvers.design import Design
from dualcore.solvers.interior import InteriorPoint
from dualcore.solvers.rowmodel import Pieces, RowState
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


@every_case
def test_what_fixed_rows_add_is_their_pieces(loss, more):
    problem = Problem(loss, radius=0.1, **more)
    design = Design(problem, problem.validate(*rows_of(problem)))
    model, lam = np.array([0.5, -0.2, 0.1, 0.0, 0.3]), 2.0
    rows = RowState(Pieces(problem), design.weights, design.signal(model))
    rows.start_above(lam, 1e-4)
    found = fix_rows(rows, design, lam, np.full(rows.z.size, 1e-3), 1e-3)
    assert found is not None
    kept, piece, part = found
    assert kept.size < 0.1 * rows.z.size
    fixed = np.setdiff1d(np.arange(rows.z.size), kept)
    np.testing.assert_array_equal(piece, rows.heights(lam).argmax(axis=0))
    assert part.value == pytest.approx(design.weights[fixed] @ rows.heights(lam).max(axis=0)[fixed])
    # Linear as long as no row changes its piece.
    step, dlam = 1e-4 * np.ones(5), 1e-4
    rows.at(design.signal(model + step))
    moved = design.weights[fixed] @ rows.heights(lam + dlam).max(axis=0)[fixed]
    assert moved == pytest.approx(part.value + part.model @ step + part.multiplier * dlam, abs=1e-12)


def test_few_or_undecided_rows_all_stay():
    problem = Problem("hinge", radius=0.1)
    for n, change in ((100, 1e-6), (3000, 10.0)):
        design = Design(problem, problem.validate(*rows_of(problem, n)))
        rows = RowState(Pieces(problem), design.weights, design.signal(np.ones(5)))
        rows.start_above(1.0, 1e-4)
        assert fix_rows(rows, design, 1.0, np.full(n, change), 0.0) is None


def test_multipliers_of_all_rows_and_what_a_wrong_piece_costs():
    active = ActiveRows(np.array([1]), np.array([0, 0, 1]))
    p = active.multipliers(np.array([[0.3], [0.7]]))
    np.testing.assert_array_equal(p, [[1.0, 0.3, 0.0], [0.0, 0.7, 1.0]])
    heights = np.array([[1.0, 5.0, 4.0], [3.0, 9.0, 2.0]])
    assert active.excess(heights, np.array([0.5, 0.25, 0.25])) == pytest.approx(0.5 * 2.0 + 0.25 * 2.0)


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
    monkeypatch.setattr(activerows, "_SAFETY", 1e-3)
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
