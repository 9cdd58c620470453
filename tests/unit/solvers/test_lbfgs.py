"""The compact forms of limited-memory BFGS."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.solvers.lbfgs import LimitedMemory


@pytest.mark.parametrize("n_pairs", [0, 1, 5, 9])
def test_it_is_the_recursion_over_the_last_pairs(n_pairs):
    """``H -> (I - s y' / s.y)' H (I - s y' / s.y) + s s' / s.y``, pair by pair, of the six pairs that are kept."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(12, 12))
    curvature, memory, pairs = root @ root.T + np.eye(12), LimitedMemory(12, 6), []
    for _ in range(n_pairs):
        step = rng.normal(size=12)
        assert memory.add(step, curvature @ step)
        assert not memory.add(step, -step)  # no convex function changes like that
        pairs.append((step, curvature @ step))
    inverse, diagonal = np.eye(12), rng.uniform(0.5, 2.0, size=12)
    if pairs:
        step, change = pairs[-1]
        inverse *= (step @ change) / (change @ change)
    hessian = np.diag(diagonal)
    for step, change in pairs[-6:]:
        left = np.eye(12) - np.outer(change, step) / (step @ change)
        inverse = left.T @ inverse @ left + np.outer(step, step) / (step @ change)
        image = hessian @ step
        hessian = hessian + np.outer(change, change) / (step @ change) - np.outer(image, image) / (step @ image)
    gradient = rng.normal(size=12)
    np.testing.assert_allclose(memory.direction(gradient), -inverse @ gradient, rtol=1e-9, atol=1e-12)
    wide, core = memory.correction(diagonal)
    np.testing.assert_allclose(np.diag(diagonal) - wide.T @ core @ wide, hessian, rtol=1e-9, atol=1e-9)
    memory.clear()
    np.testing.assert_array_equal(memory.direction(gradient), -gradient)
