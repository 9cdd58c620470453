"""Radius paths of families that have no closed form: a coreset for every radius."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, open_source, radius_path, solve


def data(n: int = 120) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(n, 3))
    score = X @ np.array([1.0, -1.0, 0.5])
    return X, np.where(score + 0.3 * rng.normal(size=n) > np.median(score), 1.0, -1.0)


def test_a_box_has_a_path_on_a_source():
    problem, (X, y) = Problem("hinge", norm="l1", support=(0.0, 1.0)), data()
    steps = []
    path = radius_path(
        problem, open_source(X, y), None, [0.02, 0.1, 0.05], coreset=40, random_state=0, tol=1e-3, callback=steps.append
    )
    assert path.radii.tolist() == [0.02, 0.05, 0.1]
    assert path.n_builds == len(path.coresets) == len(steps) == 3
    assert steps[-1].n_reads == path.n_reads
    for point in path.points:
        best = solve(problem.replace(radius=point.radius), X, y, tol=1e-3)
        assert point.certificate.lower <= best.value * (1.0 + 1e-9) + point.certificate.rounding
        assert point.certificate.upper == pytest.approx(
            problem.replace(radius=point.radius).risk(point.solution.coef, point.solution.intercept, X, y), rel=1e-8
        )
        assert point.certificate.upper <= 1.2 * best.value
