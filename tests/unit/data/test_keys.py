"""Row keys: uniform, of their own row alone, and a sampler once sorted."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dualcore.data.keys import row_keys, seed_from

SEEDS = (0, 1, 2, 2**32, 2**63, 2**64 - 1)


@pytest.mark.parametrize("seed", SEEDS)
def test_keys_are_uniform_and_depend_on_seed_and_row_alone(seed):
    rows = np.arange(5000)
    keys = row_keys(seed, rows)
    assert keys.shape == rows.shape
    assert keys.dtype == np.float64
    assert keys.min() >= 0.0
    assert keys.max() < 1.0
    order = np.random.default_rng(1).permutation(rows.size)
    np.testing.assert_array_equal(row_keys(seed, rows[order]), keys[order])
    np.testing.assert_array_equal(row_keys(seed, rows[7:].astype(np.uint32)), keys[7:])
    np.testing.assert_array_equal(rows, np.arange(5000))
    # By Kolmogorov and Smirnov; a good generator fails each of these with probability 1e-6.
    keys = row_keys(seed, np.arange(100_000))
    assert stats.kstest(keys, "uniform").pvalue > 1e-6
    # The lowest of the 53 bits are as even as the highest.
    low = (keys * 2.0**53).astype(np.uint64) & np.uint64(255)
    assert stats.chisquare(np.bincount(low.astype(np.int64), minlength=256)).pvalue > 1e-6
    # Neighbours are not correlated: 6 standard errors, two-sided probability 2e-9.
    assert abs(np.corrcoef(keys[:-1], keys[1:])[0, 1]) < 6.0 / np.sqrt(keys.size)


def test_nearby_seeds_are_neither_copies_nor_shifted_copies():
    """Two sets of 50,000 random 53-bit numbers meet with probability 3e-7."""
    streams = [row_keys(seed, np.arange(50_000)) for seed in (0, 1, 2)]
    for one, other in combinations(streams, 2):
        assert np.intersect1d(one, other).size == 0
        assert abs(np.corrcoef(one, other)[0, 1]) < 6.0 / np.sqrt(one.size)


def test_the_smallest_keys_are_a_uniform_sample_of_rows_and_of_pairs():
    """4,000 samples of 4 of 12 rows; each chi-square test fails by chance with probability 1e-6."""
    n, q, trials = 12, 4, 4000
    rows, pairs = np.zeros(n), np.zeros((n, n))
    for trial in range(trials):
        chosen = np.sort(np.argsort(row_keys(seed_from(trial), np.arange(n)))[:q])
        rows[chosen] += 1
        for i, j in combinations(chosen, 2):
            pairs[i, j] += 1
    # Without replacement counts vary less than multinomial ones: (n - 1) / (n - q) makes it a chi-square of n - 1.
    expected = trials * q / n
    statistic = ((rows - expected) ** 2).sum() / expected * (n - 1) / (n - q)
    assert stats.chi2.sf(statistic, n - 1) > 1e-6
    upper = pairs[np.triu_indices(n, 1)]
    share = q * (q - 1) / (n * (n - 1))
    # Bonferroni over the 66 pairs, two-sided binomial.
    worst = min(stats.binomtest(int(count), trials, share).pvalue for count in upper)
    assert worst * upper.size > 1e-6


def test_seeds_are_reproducible_streams_apart_and_others_refused():
    assert seed_from(5) == seed_from(5) == seed_from(np.int64(5))
    assert len({seed_from(5, stream) for stream in range(50)} | {seed_from(6, stream) for stream in range(50)}) == 100
    assert len({seed_from(None) for _ in range(20)}) == 20
    assert all(0 <= seed_from(base, 1) < 2**64 for base in range(50))
    assert seed_from(2**64 - 1, 3) == seed_from(2**64 - 1, 3)
    with pytest.raises(ValueError, match="non-negative, got -1"):
        seed_from(-1)
    for wrong in ["7", 1.5, True, [1]]:
        with pytest.raises(TypeError, match=f"random_state must be .* got {type(wrong).__name__}"):
            seed_from(wrong)


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_drawn_from_and_moves_on(make):
    one, other = make(3), make(3)
    first = seed_from(one)
    assert first == seed_from(other)
    assert seed_from(one) != first
