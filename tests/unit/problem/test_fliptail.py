"""The tail of flips stays an upper bound, whatever is kept of it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from dualcore import Problem
from dualcore.problem.fliptail import FlipTail


@pytest.mark.parametrize("radius", [0.001, 0.05, 0.3, 2.0])
def test_the_histogram_is_an_upper_bound_and_a_tight_one(radius):
    rng = np.random.default_rng(0)
    n, kappa, gamma = 200_000, 0.7, 1.5
    delta, mass = kappa + rng.gamma(2.0, 0.4, n), rng.random(n)
    mass *= 0.6 / mass.sum()
    tail = FlipTail.join([FlipTail(delta, mass)])
    assert tail.delta.size == 0
    assert tail.n_rows == n
    assert tail.bins.size < 10_000
    form = Problem("logistic", radius=radius, label_cost=gamma).form
    found = form.minimise_tail(0.0, 1.0, tail, kappa)
    truth = form.minimise_sums(0.0, delta, mass, kappa).value
    assert truth <= found.value <= truth * (1.0 + 1e-5)
    attained = radius * found.multiplier + gamma * float(mass @ np.maximum(delta - found.multiplier, 0.0))
    assert attained * (1.0 - 1e-12) <= found.value <= attained * (1.0 + 1e-9)


@pytest.mark.parametrize("kept", [10, 10_000])
def test_the_brackets_of_a_tail_bound_sums_of_convex_functions(kept, monkeypatch):
    monkeypatch.setattr("dualcore.problem.fliptail._MOST_TAIL", kept)
    rng = np.random.default_rng(0)
    delta, mass = 1.0 + rng.exponential(size=4000), rng.uniform(0.0, 1.0 / 2000, size=4000)
    tail = FlipTail.join([FlipTail(delta[:1000], mass[:1000]), FlipTail(delta[1000:], mass[1000:])])
    value, masses, least = tail.brackets()
    assert (tail.bins.size == 0) == (kept > delta.size)  # few rows are kept as they are
    for function in (np.square, lambda v: np.maximum(v - 1.7, 0.0), lambda v: np.maximum(2.0 - v, 0.0) ** 2):
        exact = float(mass @ function(delta))
        assert exact * (1.0 - 1e-12) <= float(masses @ function(value)) <= exact * (1.0 + 1e-5)
    falling = np.maximum(2.0 - delta, 0.0) ** 2
    assert 0.99 * float(mass @ falling) <= float(least @ np.maximum(2.0 - value, 0.0) ** 2)
    assert float(least @ np.maximum(2.0 - value, 0.0) ** 2) <= float(mass @ falling) * (1.0 + 1e-12)


def test_many_long_tails_are_joined_one_by_one():
    rng = np.random.default_rng(0)
    parts = [FlipTail(rng.uniform(0.1, 9.0, size=60_000), np.full(60_000, 1e-7)) for _ in range(12)]
    tracemalloc.start()
    joined = FlipTail.join(parts)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12e6  # of all rows at once it would be 80 MB
    assert joined.n_rows == 720_000
    other = FlipTail.join([FlipTail.join(parts[:5]), *parts[:4:-1]])  # the order does not show
    np.testing.assert_array_equal(joined.bins, other.bins)
    np.testing.assert_array_equal(joined.counts, other.counts)
    np.testing.assert_allclose(joined.scaled(4.0).brackets()[1], 4.0 * joined.brackets()[1], rtol=1e-12)
