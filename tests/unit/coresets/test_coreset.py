"""`Coreset`: what it holds, how it is measured, saved, shown, and used with scikit-learn."""

from __future__ import annotations

import gc
import json
import pickle
import sys
import warnings

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Anchor, Coreset, DualCoreset, LayeredCoreset, Problem, UniformCoreset, fit_coreset, solve
from pairs import every_value

PROBLEM = Problem("logistic", radius=0.1, label_cost=1.0)


def sample(n: int = 800, m: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, m))
    return X, np.where(2.0 * X[:, 0] + rng.normal(size=n) > 0.0, 1.0, -1.0)


@pytest.fixture(scope="module")
def coreset() -> Coreset:
    return DualCoreset(size=60, random_state=1).build(PROBLEM, *sample())


def assert_same(one: Coreset, other: Coreset) -> None:
    for name in ("indices", "y", "weights"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), strict=True)
    np.testing.assert_array_equal(*(c.X.toarray() if sp.issparse(c.X) else c.X for c in (one, other)))
    anchors = [
        None if c.anchor is None else (c.anchor.coef.tolist(), c.anchor.intercept, c.anchor.multiplier)
        for c in (one, other)
    ]
    assert anchors[0] == anchors[1]
    assert (one.n_rows, one.method, one.details) == (other.n_rows, other.method, other.details)


# What it holds


def test_it_says_what_it_is(coreset):
    assert len(coreset) == coreset.indices.size
    assert repr(coreset) == f"<Coreset of {len(coreset)} rows for 800, by DualCoreset>"
    by_hand = Coreset(np.array([3]), np.ones((1, 2)), np.ones(1), np.ones(1), n_rows=10)
    assert repr(by_hand) == "<Coreset of 1 rows for 10, by hand>"
    with pytest.raises(AttributeError):
        by_hand.n_rows = 3


# On disk


@pytest.mark.parametrize("anchored", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
def test_saved_and_loaded_it_is_the_same(tmp_path, anchored, sparse):
    X, y = sample()
    X = np.where(np.abs(X) > 0.7, X, 0.0)
    X = sp.csr_matrix(X) if sparse else X
    sampler = DualCoreset(size=60, random_state=1) if anchored else UniformCoreset(size=60, random_state=1)
    coreset = sampler.build(PROBLEM, X, y)
    coreset.save(tmp_path / "coreset.npz")
    loaded = Coreset.load(tmp_path / "coreset.npz")
    assert_same(coreset, loaded)
    assert sp.issparse(loaded.X) == sparse
    # A name without an ending stays one, and a string is a path.
    coreset.save(str(tmp_path / "plain"))
    assert_same(coreset, Coreset.load(str(tmp_path / "plain")))


def test_nothing_in_the_file_is_a_pickle(tmp_path, coreset, monkeypatch):
    for name in ("load", "loads"):
        monkeypatch.setattr(pickle, name, lambda *_: pytest.fail("something was unpickled"))
    coreset.save(tmp_path / "c.npz")
    with np.load(tmp_path / "c.npz", allow_pickle=False) as file:
        assert not any(array.dtype.hasobject for array in file.values())
        assert json.loads(file["header"].tobytes())["format"] == 5
    assert_same(coreset, Coreset.load(tmp_path / "c.npz"))


def test_files_that_are_no_coreset_are_refused(tmp_path):
    np.savez(tmp_path / "evil.npz", header=np.array([{"format": 1}], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "new.npz", header=np.frombuffer(b'{"format": 99}', dtype=np.uint8))
    for name, said in (("evil", r"evil\.npz is not a coreset file"), ("new", "format 99 of another edition")):
        with pytest.raises(ValueError, match=said):
            Coreset.load(tmp_path / f"{name}.npz")


def test_a_damaged_file_is_closed(tmp_path, coreset):
    path = tmp_path / "c.npz"
    coreset.save(path)
    path.write_bytes(path.read_bytes()[:-2000])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ValueError, match="not a coreset file"):
            Coreset.load(path)
        gc.collect()
    assert [w for w in caught if issubclass(w.category, ResourceWarning)] == []


# As a table


@pytest.mark.needs("pandas")
@pytest.mark.parametrize("container", [np.asarray, sp.csr_matrix])
def test_the_frame_has_rows_weights_targets_and_features(container):
    X, y = sample()
    coreset = DualCoreset(size=40, random_state=1).build(PROBLEM, container(X), y)
    frame = coreset.to_frame()
    assert list(frame.columns) == ["row", "weight", "y", "x0", "x1", "x2"]
    np.testing.assert_array_equal(frame["row"], coreset.indices)
    np.testing.assert_array_equal(frame["weight"], coreset.weights)
    np.testing.assert_array_equal(frame["y"], y[coreset.indices])
    np.testing.assert_array_equal(frame[["x0", "x1", "x2"]].to_numpy(), X[coreset.indices])


def test_without_pandas_the_error_names_what_to_install(coreset, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match=r"needs pandas\. Install it with: pip install 'dualcore\["):
        coreset.to_frame()


# Measured epsilon


MEASURED = {
    "flips": PROBLEM,
    "hinge": Problem("hinge", radius=0.1),
    "no intercept": Problem("hinge", radius=0.1, fit_intercept=False),
    "order 2": Problem("squared_hinge", radius=0.2),
}


@every_value(problem=MEASURED, weighted=[False, True])
def test_the_measured_error_is_found_where_it_says(problem, weighted):
    X, y = sample()
    weights = np.random.default_rng(3).uniform(0.2, 2.0, size=len(y)) if weighted else np.ones(len(y))
    weights /= weights.sum()
    coreset = LayeredCoreset(size=60, random_state=1).build(problem, X, y, weights)
    measured = coreset.measure(problem, X, y, weights, queries=50, radius=0.3)
    assert measured.epsilon >= measured.random_epsilon > 0.0
    model = (measured.coef, measured.intercept, measured.multiplier)
    full, few = weights @ problem.h(*model, X, y), coreset.weights @ problem.h(*model, coreset.X, coreset.y)
    assert abs(few / full - 1.0) == pytest.approx(measured.epsilon, rel=1e-9)
    step = np.append(measured.coef - coreset.anchor.coef, measured.intercept - coreset.anchor.intercept)
    assert np.linalg.norm(step) <= 0.3 * (1.0 + 1e-9)
    low, high = problem.multiplier_interval(measured.coef, measured.intercept, X, y)
    assert low * (1.0 - 1e-9) <= measured.multiplier <= high * (1.0 + 1e-9)
    assert measured.n_queries > 50


def test_the_ascent_finds_more_than_chance(coreset):
    X, y = sample()
    found = [coreset.measure(PROBLEM, X, y, queries=20, radius=0.5, random_state=seed) for seed in range(5)]
    assert all(m.epsilon > 1.1 * m.random_epsilon for m in found)
    still = coreset.measure(PROBLEM, X, y, queries=20, radius=0.5, ascents=0)
    assert still.epsilon == still.random_epsilon
    assert still.n_queries == 20


def test_a_calibrated_coreset_is_exact_to_first_order(coreset):
    """The error falls with the square of the radius, or as fast as rounding lets it."""
    X, y = sample()
    problem = PROBLEM.replace(label_cost=np.inf)
    smooth = DualCoreset(size=100, random_state=1).build(problem, X, y)
    near, far = (smooth.measure(problem, X, y, radius=radius, queries=30).epsilon for radius in (0.01, 0.1))
    assert near < far / 30.0


def test_what_cannot_be_measured_says_why(coreset):
    X, y = sample()
    with pytest.raises(ValueError, match="no anchor to measure around"):
        UniformCoreset(size=20, random_state=0).build(PROBLEM, X, y).measure(PROBLEM, X, y)
    with pytest.raises(ValueError, match="queries must be at least 1, got 0"):
        coreset.measure(PROBLEM, X, y, queries=0)


def test_an_objective_of_zero_is_reproduced_or_infinitely_wrong():
    """All margins exceed 1 in the whole ball: the hinge loss is 0 there, on the full data and on any coreset."""
    X = np.array([[5.0], [-5.0], [6.0], [-6.0]])
    y = np.array([1.0, -1.0, 1.0, -1.0])
    anchor = Anchor(np.ones(1), 0.0, 1.0)
    half = Coreset(np.array([0, 1]), X[:2], y[:2], np.full(2, 0.5), 4, anchor)
    assert half.measure(Problem("hinge", radius=0.1), X, y, queries=5, radius=0.1).epsilon == 0.0


# As plain sample weights


@pytest.mark.parametrize(("loss", "norm"), [("logistic", "l2"), ("logistic", "l1"), ("smooth_hinge", "l2")])
def test_the_gap_of_small_data_is_of_the_order_of_the_excess(loss, norm):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(3000, 6))
    y = np.where(X @ rng.normal(size=6) + rng.logistic(size=3000) > 0.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.05, norm=norm)
    fit = fit_coreset(problem, X, y, coreset=300, random_state=0)
    best = solve(problem, X, y, tol=1e-9)
    excess = (fit.certificate.upper - best.value) / best.value
    assert fit.certificate.relative_gap <= 20.0 * excess + 1e-8
