"""The best moves at one multiplier by a few looks: those that the order of the walls gives, and none is better."""

from __future__ import annotations

import numpy as np

from dualcore import Problem
from dualcore.problem.anchor import Anchor
from dualcore.problem.families import box
from dualcore.problem.families.boxl2walls import L2Walls
from dualcore.problem.families.boxlinf import LinfWalls
from dualcore.problem.families.boxmoves import get_path
from dualcore.problem.families.boxsearch import Walls
from pairs import every_value

LOSSES = ("hinge", "logistic", "smooth_hinge", "huber", "absolute", "pinball")
NORMS = ("l2", "linf")
DRAWS = ("uniform", "corners", "levels", "uneven")


def draw(loss, norm, kind, seed, m, n=40):
    """Return a problem, slopes, caps, starts and the side of the move; many walls coincide where X has few levels."""
    rng = np.random.default_rng(seed)
    problem = Problem(loss, norm=norm, radius=0.1, support=(0.0, 1.0))
    coef = rng.normal(size=m) * 10.0 ** rng.uniform(-1.5, 1.0)
    X = rng.random((n, m))
    if kind == "corners":
        X = np.round(X)
    elif kind == "levels":
        X = np.round(8.0 * X) / 8.0
    elif kind == "uneven":
        coef *= 10.0 ** rng.uniform(-3.0, 0.0, size=m)
    side = -1.0 if problem.is_classification else float(rng.choice([-1.0, 1.0]))
    caps = np.where(side * coef > 0.0, 1.0 - X, X)
    start = rng.normal(size=n) * rng.choice([1.0, float(np.abs(coef).sum())])
    return problem, np.abs(coef), caps, start, side


def earned(problem, slopes, caps, start, side, multiplier, key):
    """Return what the moves to ``key`` (n_rows,) earn, by the definition of the path."""
    v = np.minimum(caps, key[:, None] * (slopes if problem.geometry.norm.name == "l2" else 1.0))
    return problem.loss.value(start + side * (v @ slopes)) - multiplier * problem.family.lengths(v)


def check(problem, slopes, caps, start, side, share):
    multiplier = share * problem.loss.lipschitz * problem.geometry.norm.dual(slopes)
    path, kept = (get_path(problem.geometry.norm, slopes, caps) for _ in range(2))
    kept.is_kept = True
    found = path.best(problem.loss, start, side, multiplier)
    exact = kept.best(problem.loss, start, side, multiplier)
    rounding = 1e-13 * problem.loss.lipschitz * (np.abs(start) + caps @ slopes)
    width = rounding + (problem.family.enclosure * 1.01) * np.maximum(1.0, problem.loss.value(start))
    assert (found.lower <= found.upper + rounding).all()
    assert (found.upper - found.lower <= width).all()
    assert (np.abs(found.lower - exact.lower) <= width).all()
    attained = earned(problem, slopes, caps, start, side, multiplier, found.key)
    assert (np.abs(attained - found.lower) <= 10.0 * rounding).all()
    farthest = (caps / slopes if problem.geometry.norm.name == "l2" else caps).max(axis=1)
    for tried in np.geomspace(1e-4, 1.0, 40):
        assert (
            earned(problem, slopes, caps, start, side, multiplier, tried * farthest) <= found.upper + rounding
        ).all()


@every_value(kind=DRAWS, norm=NORMS, loss=LOSSES)
def test_a_few_looks_find_what_sums_find(loss, norm, kind):
    for seed, m in enumerate((1, 2, 5, 64, 140)):
        for share in (0.01, 0.3, 0.7, 0.99):
            check(*draw(loss, norm, kind, seed, m), share)


# One limit of the search at a time, lower than any row needs, or so low that the other way of searching is taken.
LIMITS = {
    "looks": {(Walls, "most_looks"): 2},
    "splits": {(Walls, "most_splits"): 0, (LinfWalls, "most_corners"): 0},
    "answers": {(L2Walls, "most_answers"): 1},
    "tangents": {(LinfWalls, "narrow"): 0, (LinfWalls, "most_corners"): 0},
    "no list of corners": {(LinfWalls, "most_corners"): 0},
}


@every_value(name=list(LIMITS), norm=NORMS)
def test_rows_whose_search_does_not_end_are_left_to_the_sums(norm, name, monkeypatch):
    for (walls, limit), value in LIMITS[name].items():
        monkeypatch.setattr(walls, limit, value)
    for loss in LOSSES:
        check(*draw(loss, norm, "uniform", 3, 20), 0.5)


@every_value(kind=DRAWS, norm=NORMS, loss=LOSSES)
def test_no_row_earns_more_than_the_ceiling_of_one_look(loss, norm, kind):
    for seed, m in enumerate((1, 5, 64, 140)):
        for share in (0.01, 0.3, 0.7, 0.99):
            problem, slopes, caps, start, side = draw(loss, norm, kind, seed, m)
            multiplier = share * problem.loss.lipschitz * problem.geometry.norm.dual(slopes)
            path, far = get_path(problem.geometry.norm, slopes, caps), caps @ slopes
            found, rows = path.best(problem.loss, start, side, multiplier), np.flatnonzero(far > 0.0)
            walls = path.walls(caps[rows], slopes, path.length, far[rows])
            ceiling = walls.ceiling(problem.loss, start[rows], side, multiplier)
            ceiling = np.maximum(ceiling, problem.loss.value(start[rows]))
            rounding = 1e-13 * problem.loss.lipschitz * (np.abs(start) + far)[rows]
            assert (found.lower[rows] <= ceiling + rounding).all()


@every_value(norm=["l1", *NORMS], loss=["hinge", "logistic", "huber"])
def test_blocks_do_not_change_what_rows_do(loss, norm, monkeypatch):
    rng = np.random.default_rng(1)
    problem = Problem(loss, norm=norm, radius=0.1, support=(0.0, 1.0))
    X, coef = rng.random((70, 6)), rng.normal(size=6)
    y = np.where(rng.random(70) < 0.5, 1.0, -1.0)
    model = Anchor(coef, 0.1, 0.4 * problem.loss.lipschitz * problem.size(coef))
    whole = problem.family.rows(model, X, y)
    monkeypatch.setattr(box, "_CACHED", 60)
    cut = problem.family.rows(model, X, y)
    for a, b in zip(whole[:5], cut[:5], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@every_value(norm=NORMS, loss=LOSSES)
def test_tiny_multipliers_and_far_walls_are_no_floating_point_faults(loss, norm):
    """Squares of tiny prices are zero, and where all walls are met a feature that is free has no weight."""
    for share in (1e-250, 1e-170, 1e-30, 1e-9, 1e-3):
        for scale in (1e-3, 1.0, 1e5):
            problem, slopes, caps, start, side = draw(loss, norm, "levels", 0, 6)
            check(problem, slopes / scale, caps * scale, start, side, share)
    caps = np.zeros((3, 9))
    caps[:, :3] = 1e5
    check(
        Problem(loss, norm=norm, radius=0.1, support=(0.0, 1.0)), np.ones(9), caps, np.array([0.0, 1e5, 5e5]), -1.0, 0.3
    )
