"""Radius paths of families that have no closed form: models are scored one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris

from dualcore import ArraySource, Problem, open_source, radius_path, select_radius, solve


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
    assert path.n_builds == len(path.coresets) == 1
    assert steps[-1].n_reads == path.n_reads
    for point in path.points:
        best = solve(problem.replace(radius=point.radius), X, y, tol=1e-3)
        assert point.certificate.lower <= best.value * (1.0 + 1e-9) + point.certificate.rounding
        assert point.certificate.upper == pytest.approx(
            problem.replace(radius=point.radius).risk(point.solution.coef, point.solution.intercept, X, y), rel=1e-8
        )
        assert point.certificate.upper <= 1.2 * best.value


def test_many_classes_have_a_path_and_a_radius_chosen_by_folds():
    X, y = load_iris(return_X_y=True)
    problem = Problem("softmax", n_classes=3)
    path = radius_path(problem, X, y, [0.2, 0.02], tol=1e-6)
    for point in path.points:
        best = solve(problem.replace(radius=point.radius), X, y, tol=1e-6)
        assert point.solution.value == pytest.approx(best.value, rel=1e-5)
        assert point.certificate.lower <= best.value * (1.0 + 1e-9)
    for scoring in ("loss", "error"):
        chosen = select_radius(problem, X, y, [0.01, 3.0], cv=3, scoring=scoring, random_state=0)
        assert chosen.radius == 0.01
        assert (chosen.scores[0] < chosen.scores[1]).all()


def test_many_classes_have_a_path_of_coresets_on_a_source():
    X, y = load_iris(return_X_y=True)
    problem = Problem("softmax", n_classes=3)
    path = radius_path(problem, open_source(X, y), None, [0.02, 0.1], coreset=60, random_state=0)
    for point in path.points:
        at = problem.replace(radius=point.radius)
        best = solve(at, X, y, tol=1e-6)
        assert point.certificate.lower <= best.value * (1.0 + 1e-9)
        assert point.certificate.upper == pytest.approx(
            at.risk(point.solution.coef, point.solution.intercept, X, y), rel=1e-8
        )


@pytest.mark.parametrize("scoring", ["loss", "error"])
@pytest.mark.parametrize("chunk_rows", [1, 7])
def test_chunks_without_a_row_of_some_fold(chunk_rows, scoring):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] + 0.3 * rng.normal(size=60) > 0.0, 1.0, -1.0)
    whole, cut = (
        select_radius(
            Problem("logistic"), ArraySource(X, y, chunk_rows=rows), None, [0.01, 0.1], scoring=scoring, random_state=0
        )
        for rows in (60, chunk_rows)
    )
    np.testing.assert_allclose(whole.scores, cut.scores, rtol=1e-12)
