"""Algorithm 1: layers, their grid, the draws of each cell, and weights."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dualcore import grid_coreset
from dualcore.coresets.samplers.grid import allocate, build_grid, draw_grid, layers, merge_cells, resolve_size


def heavy_tailed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).lognormal(sigma=1.5, size=n)


# Layers


@pytest.mark.parametrize("mean", [1.0, 0.1, 3.7, 1e-200, 1e200, 5e-320])
def test_layers_obey_their_inequality_at_any_scale(mean):
    values = mean * np.array([0.0, 0.3, 1.0, 1.1, 1.9, 2.0, 2.1, 63.0, 64.0, 65.0])
    layer = layers(values, mean)
    assert (values <= np.ldexp(mean, layer) * (1.0 + 1e-15)).all()
    above = layer > 0
    assert (values[above] > np.ldexp(mean, layer[above] - 1) * (1.0 - 1e-15)).all()


# The grid


def test_the_grid_is_the_intersection_of_two_partitions():
    lower = heavy_tailed(400)
    upper = lower * np.random.default_rng(1).uniform(1.0, 5.0, size=400)
    grid = build_grid(lower, upper)
    assert grid.lower_mean == pytest.approx(lower.mean())
    assert grid.upper_mean == pytest.approx(upper.mean())
    assert len(set(zip(grid.lower_layer, grid.upper_layer, strict=True))) == grid.counts.size > 3
    np.testing.assert_array_equal(grid.lower_layer[grid.cell], layers(lower, grid.lower_mean))
    np.testing.assert_array_equal(grid.upper_layer[grid.cell], layers(upper, grid.upper_mean))
    np.testing.assert_array_equal(grid.counts, np.bincount(grid.cell))
    np.testing.assert_allclose(grid.masses, grid.counts / 400)
    for cell in range(grid.counts.size):
        rows = grid.cell == cell
        assert grid.ranges[cell] == pytest.approx(upper[rows].max() - lower[rows].min())


# Draws


@pytest.mark.parametrize("size", [12, 40, 199, 200])
def test_weights_are_the_share_of_the_cell_over_the_draws_from_it(size):
    h = heavy_tailed(200)
    grid = build_grid(h, h)
    draw = draw_grid(grid, size, 5)
    assert not draw.merged
    assert len(draw.indices) == draw.draws.sum() == size
    assert (np.diff(draw.indices) > 0).all()
    cell = grid.cell[draw.indices]
    np.testing.assert_array_equal(np.bincount(cell, minlength=grid.counts.size), draw.draws)
    np.testing.assert_allclose(draw.weights, grid.counts[cell] / (200 * draw.draws[cell]), rtol=1e-14)
    # No mass is lost: that of every cell is what it was, where draws are prescribed too.
    given = draw_grid(grid, np.full(grid.counts.size, 3), 0)
    np.testing.assert_array_equal(given.draws, np.minimum(grid.counts, 3))
    for one in (draw, given):
        np.testing.assert_allclose(np.bincount(grid.cell[one.indices], one.weights), grid.masses, rtol=1e-13)


def test_slack_moves_draws_from_wide_cells_to_large_ones():
    h = np.concatenate([np.full(900, 1.0), np.random.default_rng(0).uniform(10.0, 11.9, size=100)])
    grid = build_grid(h, h)
    tight, loose = (draw_grid(grid, 50, 0, slack=slack).draws for slack in (0.0, 100.0))
    first = grid.cell[0]
    assert tight[first] == 1  # where h is constant one row tells all
    assert loose[first] == pytest.approx(45, abs=2)


# The front door


def test_sample_weight_is_a_mass():
    # Rounding in the bounds is forgiven.
    np.testing.assert_allclose(grid_coreset([1.0, 2.0], [1.0, 2.0 - 1e-13], size=2, random_state=0).weights, 0.5)
    h, weights = heavy_tailed(30), np.arange(30.0) + 1.0
    all_rows = grid_coreset(h, h, size=30, sample_weight=weights, random_state=0)
    np.testing.assert_allclose(all_rows.weights, weights / weights.sum(), rtol=1e-13)
    one, scaled = (grid_coreset(h, h, size=9, sample_weight=f * weights, random_state=0) for f in (1.0, 1e5))
    np.testing.assert_allclose(scaled.weights, one.weights)


def test_no_mass_is_lost_where_most_rows_of_a_cell_have_none():
    """One row of weight among a thousand without, in a cell of its own: it stands for the cell, or the mean is off."""
    h = np.concatenate([np.full(1000, 8.0), np.full(1000, 1.0)])
    weights = np.concatenate([np.zeros(999), [1.0], np.full(1000, 1e-3)])
    draw = grid_coreset(h, h, size=20, sample_weight=weights, random_state=0)
    assert draw.weights @ h[draw.indices] == pytest.approx(weights @ h / weights.sum())


@pytest.mark.parametrize(
    ("lower", "upper", "options", "message"),
    [
        ([1.0, 2.0], [1.0], {}, "vectors of one length"),
        ([[1.0]], [[1.0]], {}, "vectors of one length"),
        ([], [], {}, "vectors of one length"),
        ([np.nan], [1.0], {}, "finite"),
        ([1.0], [np.inf], {}, "finite"),
        ([-1.0], [1.0], {}, "Row 0 has the bounds -1.0 and 1.0"),
        ([1.0, 3.0], [1.0, 2.0], {}, "Row 1 has the bounds 3.0 and 2.0.* 0 <= lower <= upper"),
        ([1.0], [1.0], {"slack": -1.0}, "slack must not be negative"),
        *(([1.0, 2.0], [1.0, 2.0], {"sample_weight": w}, "weight") for w in ([1], [-1, 2], [0, 0], [np.nan, 1])),
    ],
)
def test_what_is_no_bound_and_no_weight_is_refused(lower, upper, options, message):
    with pytest.raises(ValueError, match=message):
        grid_coreset(lower, upper, size=1, **options)


# What a user means by ``size``


def test_a_size_is_a_count_or_a_fraction():
    for size, rows in ((1, 1), (1000, 100), (0.05, 5), (1.0, 100), (1e-9, 1), (np.int32(3), 3), (np.float64(0.5), 50)):
        assert resolve_size(size, 100) == rows
        assert type(resolve_size(size, 100)) is int
    for sizes, error, message in (
        ([0, -3], ValueError, "at least one row"),
        ([0.0, -0.1, 1.5, 20.0, np.nan], ValueError, r"in \(0, 1\], got .* whole number"),
        (["5", None, True, [5]], TypeError, "size must be a number of rows"),
    ):
        for size in sizes:
            with pytest.raises(error, match=message):
                resolve_size(size, 100)


# Draws of each cell

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
