"""Draws shared among cells: at least one, at most all, none lost; and cells merged where there are too many."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualcore.coresets.samplers.grid import allocate, merge_cells

cells_of = st.lists(st.tuples(st.integers(0, 50), st.floats(0.0, 1e6)), min_size=1, max_size=12)


@given(cells=cells_of, extra=st.integers(0, 300))
def test_every_cell_gives_between_one_and_all_and_the_budget_is_spent(cells, extra):
    counts, scores = np.array([c for c, _ in cells]), np.array([s for _, s in cells])
    size = int(np.count_nonzero(counts)) + extra
    draws = allocate(size, counts, scores)
    assert (draws <= counts).all()
    assert (draws[counts > 0] >= 1).all()
    assert draws.sum() == min(size, counts.sum())


@pytest.mark.parametrize(
    ("size", "counts", "scores", "draws"),
    [
        (14, [2, 100, 100], [1e9, 1.0, 1.0], [2, 6, 6]),  # what a full cell cannot take goes to the others
        (7, [100, 100, 100], [0.5, 0.3, 0.2], [3, 2, 2]),  # beyond one row each 2, 1.2 and 0.8: by largest remainder
        (9, [4, 50, 50], [np.inf, 1.0, 1.0], [4, 3, 2]),
        *((12, [3, 50, 50, 50], [u, u, 0.0, u], [3, 4, 1, 4]) for u in (5e-324, 1e-320, 1e300, np.finfo(float).max)),
    ],
)
def test_draws_follow_scores_of_any_magnitude(size, counts, scores, draws):
    np.testing.assert_array_equal(allocate(size, np.array(counts), np.array(scores)), draws)


def test_what_cannot_be_shared_is_refused():
    with pytest.raises(ValueError, match="2 draws cannot cover 3 non-empty cells"):
        allocate(2, np.array([5, 1, 0, 4]), np.ones(4))
    with pytest.raises(ValueError, match="NaN"):
        allocate(9, np.array([4, 50]), np.array([np.nan, 1.0]))


# Merging


@given(cells=st.lists(st.integers(0, 9), min_size=1, max_size=60), size=st.integers(1, 12))
def test_merged_cells_are_runs_of_neighbours(cells, size):
    old = np.unique(cells, return_inverse=True)[1]
    new = merge_cells(old, size)
    occupied = int(old.max()) + 1
    # One new cell a old cell, and in the same order: so each new cell is a run of old ones.
    pairs = sorted(set(zip(old.tolist(), new.tolist(), strict=True)))
    assert len(pairs) == occupied
    assert [b for _, b in pairs] == sorted(b for _, b in pairs)
    assert set(new.tolist()) == set(range(min(occupied, size)))


def test_the_smallest_cell_joins_its_smaller_neighbour():
    old = np.repeat([0, 1, 2, 3], [10, 1, 3, 20])
    np.testing.assert_array_equal(np.unique(merge_cells(old, 3), return_counts=True)[1], [10, 4, 20])


@pytest.mark.parametrize("size", range(2, 9))
def test_cells_on_two_sides_of_a_border_are_not_merged(size):
    cells = np.concatenate([np.random.default_rng(size).integers(0, 6, size=200), [6]])
    merged = merge_cells(cells, size, np.array([0, 0, 0, 0, 0, 0, 1]))
    assert merged.max() + 1 <= size
    assert not set(merged[cells < 6]) & set(merged[cells == 6])
