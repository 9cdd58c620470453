"""Algorithm 1: layers, their grid, draws and weights."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import grid_coreset
from dualcore.coresets.samplers.grid import build_grid, draw_grid, layers, resolve_size


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
