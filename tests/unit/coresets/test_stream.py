"""Streams: bounded, exact where exactness is promised, and back after a crash."""

from __future__ import annotations

import copy
import json
from itertools import pairwise

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dualcore import Anchor, Coreset, Problem, certify, solve
from dualcore.coresets.stream import CoresetStream
from pairs import every_value
from source_kinds import Table, make_table

PROBLEM = Problem("logistic", radius=0.1, label_cost=2.0)
N = 30_000


@pytest.fixture(scope="module", params=[False, True], ids=["equal", "weighted"])
def table(request) -> Table:
    return make_table(N, 5, weighted=request.param)


def feed(stream: CoresetStream, table: Table, ends: list[int]) -> CoresetStream:
    for start, stop in pairwise(ends):
        stream.update(*table.cut(start, stop))
    return stream


def new(size: int = 300, problem: Problem = PROBLEM, **options) -> CoresetStream:
    return CoresetStream(problem, size, random_state=4, **options)


def assert_same(found: Coreset, expected: Coreset) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.weights, expected.weights)
    np.testing.assert_array_equal(found.X, expected.X)
    assert found.n_rows == expected.n_rows


# What a coreset of a stream is worth


@every_value(loss=["logistic", "hinge", "huber", "squared"], size=[60, 300], weighted=[False, True])
def test_a_model_from_the_stream_is_nearly_the_best_one(loss, size, weighted):
    """Heavy rows are more likely to be kept: with a uniform sample such weights cost 50 times as much."""
    table = make_table(N, 5, classification=loss in ("logistic", "hinge"))
    weights = np.random.default_rng(0).exponential(size=N) ** 3 if weighted else None
    table, problem = Table(table.X, table.y, weights), Problem(loss, radius=0.1)
    coreset = feed(new(size, problem), table, [0, 1000, 9000, N]).coreset()
    assert len(coreset) <= size
    assert coreset.weights.min() >= 0.0
    assert coreset.weights.sum() == pytest.approx(1.0, rel=1e-12)
    model, best = solve(problem, coreset.X, coreset.y, coreset.weights), solve(problem, *table)
    assert problem.risk(model.coef, model.intercept, *table) <= (1.003 if loss == "hinge" else 1.001) * best.value


def gradient_of(problem: Problem, anchor: Anchor, *rows) -> np.ndarray:
    found = problem.gradient(anchor.coef, anchor.intercept, *rows, multiplier=anchor.multiplier)
    return np.append(found.coef, found.intercept)


def test_sums_are_those_of_all_rows(table):
    coreset = feed(new(), table, [0, 777, 5000, N]).coreset()
    anchor = coreset.anchor
    part = gradient_of(PROBLEM, anchor, coreset.X, coreset.y, coreset.weights)
    np.testing.assert_allclose(part, gradient_of(PROBLEM, anchor, *table), atol=1e-5)
    risk = PROBLEM.risk(anchor.coef, anchor.intercept, *table)
    assert coreset.details["anchor_risk"] == pytest.approx(risk, rel=1e-9)
    assert coreset.details["anchor_lower"] <= solve(PROBLEM, *table).value


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_columns_that_the_first_rows_do_not_have_are_matched_too(loss):
    """One is zero before row 20,000, another in all rows but one of five hundred."""
    rng, n = np.random.default_rng(2), 40_000
    X = rng.normal(size=(n, 4))
    X[:20_000, 2] = 0.0
    X[:, 3] = np.where(np.arange(n) % 500 == 499, 5.0, 0.0)
    y = np.where(X @ [1.0, -1.0, 0.5, 0.2] + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    problem = Problem(loss, radius=0.01)
    stream = CoresetStream(problem, 200, anchor=solve(problem, X[:500], y[:500]), random_state=0)
    coreset = feed(stream, Table(X, y, None), [0, 7000, n]).coreset()
    part = gradient_of(problem, coreset.anchor, coreset.X, coreset.y, coreset.weights)
    np.testing.assert_allclose(part, gradient_of(problem, coreset.anchor, X, y), atol=1e-6)


# How the rows arrive


@settings(max_examples=10)
@given(st.lists(st.integers(1, 5999), max_size=20, unique=True).map(sorted))
def test_updates_of_any_size_give_the_same_coreset(ends):
    table = make_table(6000, 3)
    assert_same(feed(new(100), table, [0, *ends, 6000]).coreset(), feed(new(100), table, [0, 6000]).coreset())


def test_the_state_is_bounded_and_a_coreset_on_the_way_changes_nothing(table):
    stream = new()
    for start, stop in pairwise([0, 100, 500, 12_345, N]):
        stream.update(*table.cut(start, stop))
        assert stream.coreset().n_rows == stream.n_rows == stop
        assert stream.state_rows <= 4096 + 150 + 8192
    assert_same(stream.coreset(), feed(new(), table, [0, N]).coreset())


def test_empty_parts_and_parts_of_one_class():
    table = make_table(4000, 3)
    order = np.argsort(table.y, kind="stable")
    stream = new(100)
    stream.update(table.X[:0], table.y[:0])
    for start in range(0, 4000, 250):
        part = order[start : start + 250]
        stream.update(table.X[part], table.y[part])
    coreset = stream.coreset()
    assert set(coreset.y) == {-1.0, 1.0}
    assert coreset.weights @ (coreset.y == 1.0) == pytest.approx(np.mean(table.y == 1.0), rel=1e-9)


def test_rows_of_many_features_are_drawn(monkeypatch):
    table = make_table(9000, 6)
    for module in ("stream", "streamread"):
        monkeypatch.setattr(f"dualcore.coresets.{module}.MOST_NUMBERS", 5)
    drawn = feed(new(200), table, [0, 5000, 9000]).coreset()
    assert len(drawn) == 200
    assert drawn.weights @ (drawn.y > 0.0) == pytest.approx(np.mean(table.y > 0.0))


def test_rows_that_do_not_teach_an_anchor_yet_give_the_best_of_them():
    table = make_table(2000, 5)
    coreset = feed(new(100), table, [0, 1500, 2000]).coreset()
    model, best = solve(PROBLEM, coreset.X, coreset.y, coreset.weights), solve(PROBLEM, *table)
    assert len(coreset) <= 100
    assert PROBLEM.risk(model.coef, model.intercept, *table) == pytest.approx(best.value, rel=1e-6)
    assert coreset.details["anchor_lower"] <= best.value <= coreset.details["anchor_risk"] * (1.0 + 1e-9)
    one_class = new(100)
    one_class.update(table.X[table.y > 0.0], table.y[table.y > 0.0])
    assert len(one_class.coreset()) == 100


# Streams together


def test_siblings_merge_exactly_in_any_order_and_grouping(table):
    first = feed(new(), table, [0, 5000])
    others = []
    for start, stop in ((5000, 9001), (9001, 9002), (9002, 21_000), (21_000, N)):
        sibling = first.sibling(first_row=start)
        others.append(feed(sibling, table, [start, (start + stop) // 2, stop] if stop > start + 1 else [start, stop]))
    expected = feed(new(), table, [0, N]).coreset()
    a, b, c, d = others
    left = copy.deepcopy(first).merge(d).merge(b)
    # Rows are missing within leaves: what is there is summed all the same.
    found, rows = left.coreset(), np.r_[0:5000, 9001:9002, 21_000:N]
    so_far = [None if part is None else part[rows] for part in table]
    risk = PROBLEM.risk(found.anchor.coef, found.anchor.intercept, *so_far)
    assert found.details["anchor_risk"] == pytest.approx(risk, rel=1e-9)
    left.merge(a).merge(c)
    right = copy.deepcopy(c).merge(copy.deepcopy(b).merge(copy.deepcopy(d).merge(first))).merge(a)
    assert_same(left.coreset(), expected)
    assert_same(right.coreset(), expected)
    assert left.n_rows == N


def test_streams_that_have_not_learned_yet_merge_exactly(table):
    one, two = feed(new(), table, [0, 100]), new(first_row=100)
    feed(two, table, [100, 250])
    assert_same(copy.deepcopy(one).merge(two).coreset(), copy.deepcopy(two).merge(one).coreset())
    merged = one.merge(two)
    assert merged.coreset().n_rows == 250
    learned = feed(new(first_row=250), table, [250, N])
    assert_same(copy.deepcopy(merged).merge(learned).coreset(), copy.deepcopy(learned).merge(merged).coreset())


def test_streams_of_different_anchors_merge_within_the_guarantee(table, tmp_path):
    """H~ at each stream's own anchor is exact for its own rows, so the risk of the union is a mean of good ones."""
    streams = []
    for k in range(3):
        start, stop = k * N // 3, (k + 1) * N // 3
        stream = CoresetStream(PROBLEM, 300, random_state=k, first_row=k << 40)
        streams.append(feed(stream, table, [start, stop]))
    forwards, backwards = copy.deepcopy(streams[0]), copy.deepcopy(streams[-1])
    for stream in streams[1:]:
        forwards.merge(stream)
    for stream in streams[-2::-1]:
        backwards.merge(stream)
    backwards.save(tmp_path / "state.npz")
    loaded = CoresetStream.load(tmp_path / "state.npz", PROBLEM)
    assert_same(loaded.coreset(), backwards.coreset())
    best = solve(PROBLEM, *table).value
    for merged in (forwards, backwards):
        coreset = merged.coreset()
        assert len(coreset) <= 300
        assert "anchor_risk" not in coreset.details
        assert coreset.n_rows == N
        assert np.unique(coreset.indices).size == len(coreset)
        model = solve(PROBLEM, coreset.X, coreset.y, coreset.weights)
        assert PROBLEM.risk(model.coef, model.intercept, *table) <= 1.002 * best
        assert merged.state_rows <= 5 * 8192


def test_parts_of_many_leaves_do_not_wait_for_ever():
    table = make_table(12_000, 3)
    first = feed(new(100), table, [0, 5000])
    for k in range(70):
        other, start = first.sibling(first_row=10**6 * (k + 1)), 5000 + 80 * k
        other.update(*table.cut(start, start + 80))
        first.merge(other)
    assert first.state_rows <= 2 * 8192
    coreset = first.coreset()
    assert coreset.n_rows == first.n_rows == 5000 + 70 * 80
    model = solve(PROBLEM, coreset.X, coreset.y, coreset.weights)
    assert certify(PROBLEM, model, *table).upper <= 1.02 * solve(PROBLEM, *table).value


def test_streams_that_do_not_fit_are_refused(table):
    one, narrow = feed(new(), table, [0, 1000]), new(first_row=5000)
    narrow.update(table.X[:10, :2], table.y[:10], None if table.weights is None else table.weights[:10])
    for other, error, said in (
        (3, TypeError, "Only a CoresetStream"),
        (CoresetStream(Problem("hinge", radius=0.1), 300), ValueError, "different problems or sizes"),
        (narrow, ValueError, "features, sparse, weighted"),
        (feed(new(), table, [0, 500]), ValueError, r"Rows 0 to 499 are in both.*first_row"),
    ):
        with pytest.raises(error, match=said):
            one.merge(other)
    assert one.n_rows == 1000
    with pytest.raises(ValueError, match="not known yet: 1000 rows have arrived of the first 4096"):
        one.sibling(5)


def outside(X, y):
    return np.where(np.arange(20)[:, None] == 7, 9.0, X), y


@pytest.mark.parametrize(
    ("settings", "spoil", "fault"),
    [
        ({}, lambda X, y: (X, y + 1.0), "labels -1 and"),
        ({}, lambda X, y: (np.nan * X, y), "NaN"),
        ({}, lambda X, y: (X[:, :3], y), "features, sparse, weighted"),
        ({}, lambda X, y: (X, y[:-1]), "20 rows but y has 19"),
        ({"support": (-6.0, 6.0)}, outside, "Row 6007 lies outside the support"),
        ({"categories": [[0, 1, 2]]}, outside, "Row 6007 is not one-hot"),
        ({"feature_weights": [1.0, 2.0, 1.0, 1.0]}, lambda X, y: (X[:, :3], y), "4 prices but X has 3"),
    ],
)
def test_a_bad_part_is_refused_as_it_comes_and_leaves_no_trace(settings, spoil, fault):
    """It was taken in, and every coreset after it refused: the stream was lost with all that came before."""
    rng = np.random.default_rng(0)
    X = np.column_stack([np.eye(3)[rng.integers(0, 3, 6100)], rng.normal(size=6100)])
    table = Table(X, np.where(X[:, 0] + rng.normal(size=6100) > 0.3, 1.0, -1.0), None)
    problem = Problem("hinge", radius=0.05, norm="l1", **settings)
    stream, alone = (feed(new(50, problem), table, [0, 4000, 6000]) for _ in "ab")
    with pytest.raises(ValueError, match=fault):
        stream.update(*spoil(X[:20], table.y[:20]))
    assert stream.n_rows == 6000
    assert_same(*(feed(each, table, [6000, 6100]).coreset() for each in (stream, alone)))


def test_bad_settings_are_refused():
    for options, said in (({"size": 1}, "size must be a whole number"), ({"first_row": -1}, "first_row")):
        with pytest.raises(ValueError, match=said):
            CoresetStream(PROBLEM, **options)
    stream = new(2)
    with pytest.raises(ValueError, match="No row has arrived"):
        stream.coreset()
    stream.update(np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.zeros(4))
    with pytest.raises(ValueError, match="weight zero"):
        stream.coreset()


# To disk and back


KINDS = {
    "weighted": PROBLEM,
    "sparse": PROBLEM,
    "long tail of flips": Problem("logistic", radius=0.05, label_cost=0.3),
    "support": Problem("hinge", radius=0.1, norm="l1", label_cost=1.0, support=(-9, 9)),
    "given anchor": PROBLEM,
}


@every_value(kind=[*KINDS], stop=[30, 3000, 9000])
def test_a_stream_that_was_saved_goes_on_as_if_nothing_had_happened(tmp_path, monkeypatch, kind, stop):
    monkeypatch.setattr("dualcore.problem.fliptail._MOST_TAIL", 500)
    problem, table = KINDS[kind], make_table(10_000, 5, weighted=kind == "weighted")
    X = np.where(np.abs(table.X) > 1.0, table.X, 0.0)
    table = table._replace(X=sp.csr_matrix(X) if kind == "sparse" else X)
    anchor = Anchor(np.array([1.0, 0.0, -1.0, 0.5, 0.0]), 0.5, 3.0) if kind == "given anchor" else None
    stream, whole = new(40, problem, anchor=anchor), feed(new(40, problem, anchor=anchor), table, [0, 10_000])
    buffer = table.X[:stop].copy()
    stream.update(buffer, *(table.cut(0, stop)[1:]))
    buffer *= 0.0  # the caller may use the array again
    assert kind != "long tail of flips" or stop < 9000 or stream.state.found[0].summary.tail.bins.size
    stream.save(tmp_path / "state.npz")
    loaded = CoresetStream.load(tmp_path / "state.npz", problem)
    assert loaded.next_row == loaded.n_rows == stop
    np.testing.assert_array_equal(loaded.coreset().weights, stream.coreset().weights)
    found, expected = feed(loaded, table, [stop, 10_000]).coreset(), whole.coreset()
    assert sp.issparse(found.X) == (kind == "sparse")
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.weights, expected.weights)
    assert found.details["anchor_risk"] == expected.details["anchor_risk"]
    assert anchor is None or loaded.anchor.intercept == found.anchor.intercept == 0.5


def test_what_is_no_stream_is_refused(table, tmp_path):
    path = tmp_path / "state.npz"
    with pytest.raises(FileNotFoundError):
        CoresetStream.load(path, PROBLEM)
    feed(new(), table, [0, 1000]).save(path)
    with pytest.raises(ValueError, match="is about Problem"):
        CoresetStream.load(path, Problem("hinge", radius=0.1))
    with np.load(path) as file:
        arrays = dict(file)
    header = json.loads(arrays["header"].tobytes())
    for other in (5, 99):
        arrays["header"] = np.frombuffer(json.dumps(header | {"format": other}).encode(), dtype=np.uint8)
        np.savez(path, **arrays)
        with pytest.raises(ValueError, match=rf"format {other} of another edition, and this one reads 9"):
            CoresetStream.load(path, PROBLEM)
