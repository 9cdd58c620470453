"""The compact form of limited-memory BFGS."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.solvers.softmax import lbfgs as module
from dualcore.solvers.softmax.lbfgs import Memory


@pytest.mark.parametrize("n_pairs", [0, 1, 5, 9])
def test_it_is_the_recursion_over_the_last_pairs(n_pairs, monkeypatch):
    """``H -> (I - s y' / s.y)' H (I - s y' / s.y) + s s' / s.y``, pair by pair, of the six pairs that are kept."""
    monkeypatch.setattr(module, "_MOST_PAIRS", 6)
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    curvature, memory, pairs = root @ root.T + np.eye(12), Memory(12), []
    for _ in range(n_pairs):
        step = rng.normal(size=12)
        memory.add(step, curvature @ step)
        memory.add(step, -step)  # no convex function changes like that
        pairs.append((step, curvature @ step))
    inverse = np.eye(12)
    if pairs:
        step, change = pairs[-1]
        inverse *= (step @ change) / (change @ change)
    for step, change in pairs[-6:]:
        left = np.eye(12) - np.outer(change, step) / (step @ change)
        inverse = left.T @ inverse @ left + np.outer(step, step) / (step @ change)
    gradient = rng.normal(size=12)
    np.testing.assert_allclose(memory.direction(gradient), -inverse @ gradient, rtol=1e-9, atol=1e-12)
    memory.clear()
    np.testing.assert_array_equal(memory.direction(gradient), -gradient)
