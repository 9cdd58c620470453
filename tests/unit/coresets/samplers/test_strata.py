"""From a read to a coreset: cells that the budget can cover, draws from them, the mass of each kept."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Anchor, Problem
from dualcore.coresets.samplers.strata import cell_scores, draw_cells, keep_fractions
from dualcore.data.keys import row_keys
from dualcore.data.sources import ArraySource
from dualcore.reading.cells import cell_rule, spread_of
from dualcore.reading.reading import Reading, read
from dualcore.reading.summary import CellRule, Pass
from pairs import every_value

HINGE, HUBER = Problem("hinge", radius=0.1), Problem("huber", radius=0.1)


def reading(rule: CellRule, keep: float = 1.0, weights: np.ndarray | None = None, n: int = 600) -> Reading:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 2))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0.0, 1.0, -1.0)
    anchor = Anchor(np.array([1.2, 0.1]), 0.1, 2.0)
    return read(ArraySource(X, y, weights), Pass(HINGE, anchor, rule, 9, np.full(rule.n_cells, keep)))


@pytest.mark.parametrize("problem", [HINGE, HUBER])
@pytest.mark.parametrize("focused", [True, False])
def test_a_larger_budget_has_more_cells_but_never_too_many_to_cover(problem, focused):
    before = 0
    for size in (2, 10, 50, 200, 1000, 10**5):
        rule = cell_rule(2 if problem.is_classification else 1, 0.5, size, 0.1, focused=focused)
        assert before <= rule.n_cells <= max(2 if problem.is_classification else 1, size)
        assert rule.n_strata == (2 if problem.is_classification else 1)
        before = rule.n_cells
    assert before >= 12


def test_rows_that_bend_deserve_more_than_rows_on_a_line():
    rule = CellRule(scale=1.0, width=1.0, n_curvatures=4, n_layers=2)
    scores = cell_scores(rule, np.ones(rule.n_cells)).reshape(4, 2)
    assert (np.diff(scores, axis=0) < 0.0).all()
    assert (np.diff(scores, axis=1) > 0.0).all()
    assert (scores > 0.0).all()
    np.testing.assert_allclose(cell_scores(rule, np.full(rule.n_cells, 3.0)), 3.0 * scores.ravel())


def test_enough_keys_are_kept_for_the_planned_draws():
    rule = CellRule(scale=1.0, width=1.0, n_curvatures=3, n_layers=2)
    mass = np.array([0.3, 0.2, 0.2, 0.1, 0.2, 0.0])
    keep = keep_fractions(rule, mass, size=200, n_rows=10**6)
    assert ((keep > 0.0) & (keep <= 1.0)).all()
    scores = cell_scores(rule, mass)
    planned = 200 * scores / scores.sum()
    assert (keep * 10**6 * mass >= planned - 1e-9).all()
    assert (keep * 10**6 * mass).sum() < 5 * 200 + 1000
    assert (keep_fractions(rule, mass, size=200, n_rows=100) == 1.0).all()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("keep", [1.0, 0.2])
def test_an_uncalibrated_draw_keeps_the_mass_of_every_cell(weighted, keep):
    rule = CellRule(scale=0.5, width=0.3, n_curvatures=4, n_layers=2, n_strata=2)
    weights = np.random.default_rng(0).dirichlet(np.ones(600)) if weighted else None
    found = reading(rule, keep, weights)
    coreset = draw_cells(found, 80, calibrated=False)
    lookup = dict(zip(found.sample.rows.tolist(), found.sample.cells.tolist(), strict=True))
    cells = np.array([lookup[row] for row in coreset.indices.tolist()])
    np.testing.assert_allclose(np.bincount(cells, coreset.weights, rule.n_cells), found.cell_mass, rtol=1e-10)
    assert len(coreset) == 80
    assert coreset.details["cells"] == np.count_nonzero(found.cell_count)
    # Of every cell it is the smallest keys that were taken.
    keys = row_keys(9, np.arange(600))
    for cell in np.unique(cells):
        members = found.sample.rows[found.sample.cells == cell]
        taken = coreset.indices[cells == cell]
        assert set(taken) == set(members[np.argsort(keys[members])][: taken.size])


@every_value(size=[2, 3, 5, 9], calibrated=[False, True])
def test_more_cells_than_rows_are_merged(size, calibrated):
    rule = CellRule(scale=0.3, width=0.1, n_curvatures=6, n_layers=4, n_strata=2)
    found = reading(rule)
    assert np.count_nonzero(found.cell_count) > 9
    coreset = draw_cells(found, size, calibrated=calibrated)
    assert 1 <= len(coreset) <= size
    assert coreset.weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert (coreset.weights > 0.0).all()
    assert set(coreset.y) == {-1.0, 1.0}


def test_the_spread_is_a_weighted_standard_deviation():
    t, weights = np.array([1.0, 2.0, 5.0]), np.array([0.5, 0.25, 0.25])
    assert spread_of(t, weights) == pytest.approx(np.sqrt(weights @ (t - weights @ t) ** 2))
    assert spread_of(np.ones(3), weights) > 0.0


@every_value(size=[2, 3, 5], calibrated=[True, False])
def test_a_rare_class_survives_when_cells_are_merged(size, calibrated):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(600, 2))
    y = np.where(np.arange(600) == 17, -1.0, 1.0)
    rule = CellRule(scale=0.3, width=0.5, n_curvatures=4, n_layers=3, n_strata=2)
    task = Pass(HINGE, Anchor(np.array([1.2, 0.1]), 0.1, 2.0), rule, 9, np.ones(rule.n_cells))
    coreset = draw_cells(read(ArraySource(X, y), task), size, calibrated=calibrated)
    assert min(coreset.weights[coreset.y == label].sum() for label in (-1.0, 1.0)) > 1e-4
    assert len(coreset) <= size


def test_a_row_of_next_to_no_mass_can_stand_for_its_cell():
    """Its weight is its share of what was drawn, times the mass of the cell: no quotient of the two overflows."""
    weights = np.where(np.arange(600) % 2, 1e-320, 1.0)
    for seed in range(20):
        rule = CellRule(scale=1.0, width=1.0, n_curvatures=1, n_layers=1, n_strata=2)
        found = reading(rule, weights=weights)
        found.task = found.task._replace(seed=seed)
        coreset = draw_cells(found, 2, calibrated=False, redraw=seed + 1)
        np.testing.assert_allclose(np.sort(coreset.weights), np.sort(found.cell_mass), rtol=1e-9)
