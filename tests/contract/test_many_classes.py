"""Softmax problems through every sampler and stream; `test_matrix` holds them against every source."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import (
    ArraySource,
    Coreset,
    CoresetStream,
    DualCoreset,
    GridCoreset,
    LayeredCoreset,
    PartsSource,
    Problem,
    SourceError,
    UniformCoreset,
    assess,
    certify,
    fit_coreset,
    solve,
)
from dualcore.coresets.stream import DriftWarning
from source_kinds import Table

K, M, N = 4, 3, 900
PROBLEM = Problem("softmax", n_classes=K, radius=0.05, label_cost=1.0, ridge=0.01)
SAMPLERS = {
    "uniform": UniformCoreset(size=60, random_state=3),
    "layered": LayeredCoreset(size=60, random_state=3),
    "algorithm 1": GridCoreset(size=60, random_state=3),
    "dual": DualCoreset(size=60, random_state=3),
}
each_sampler = pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)


def make_rows(*, weighted: bool = False) -> Table:
    """Rows sorted by class, the last class three rows only; some rows of no weight."""
    rng = np.random.default_rng(5)
    y = np.sort(np.where(np.arange(N) < 3, 3, rng.integers(K - 1, size=N))).astype(np.float64)
    X = (rng.normal(size=(K, M))[y.astype(int)] + rng.normal(size=(N, M))).astype(np.float32)
    X[np.abs(X) < 0.3] = 0.0
    weights = np.where(np.arange(N) % 7 == 2, 0.0, rng.uniform(0.1, 2.0, size=N)) if weighted else None
    return Table(X, y, weights)


@pytest.fixture(scope="module", params=[False, True], ids=["equal", "weighted"])
def table(request) -> Table:
    return make_rows(weighted=request.param)


def assert_same(one: Coreset, other: Coreset, rtol: float = 0.0) -> None:
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.weights, other.weights, rtol=rtol)
    np.testing.assert_array_equal(one.y, other.y)


@each_sampler
def test_no_class_is_lost(sampler, table):
    coreset = sampler.build(PROBLEM, *table)
    assert len(coreset) <= 60
    np.testing.assert_array_equal(coreset.y, table.y[coreset.indices])
    masses = np.full(N, 1.0 / N) if table.weights is None else table.weights / table.weights.sum()
    held = np.bincount(coreset.y.astype(int), coreset.weights, K)
    np.testing.assert_allclose(held, np.bincount(table.y.astype(int), masses, K), rtol=1e-6)
    sparse = sampler.build(PROBLEM, sp.csr_matrix(table.X), table.y, table.weights)
    if sparse.excess is None:
        assert_same(sparse, coreset, rtol=1e-6)
    else:  # sparse products round differently, and a vertex is decided by the last digit
        assert abs(sparse.excess) <= 1e-4


def test_a_read_knows_the_exact_risk(table):
    """The risk of every round is the risk, not a bound on it, though rows change label there."""
    rounds = []
    sampler = DualCoreset(size=90, rounds=3, random_state=0)
    fit = fit_coreset(PROBLEM, table.X, table.y, sampler, table.weights, callback=rounds.append)
    exact = PROBLEM.risk(fit.solution.coef, fit.solution.intercept, *table)
    assert min(done.risk for done in rounds) >= exact * (1.0 - 1e-9)
    model = solve(PROBLEM, table.X[::3], table.y[::3])
    flips = PROBLEM.gradient(model.coef, model.intercept, *table, multiplier=PROBLEM.kappa(model.coef))
    assert flips.multiplier < PROBLEM.radius  # some labels change there
    known = assess(PROBLEM, model, ArraySource(*table, chunk_rows=64))
    assert known.upper == pytest.approx(PROBLEM.risk(model.coef, model.intercept, *table), rel=1e-12)
    assert known.lower == pytest.approx(certify(PROBLEM, model, *table).lower, rel=1e-6)


@each_sampler
def test_a_row_of_another_class_and_a_class_without_weight_are_named(sampler):
    table = make_rows()
    y = table.y.copy()
    y[417] = 2.5
    source = PartsSource(lambda: [(table.X[:400], y[:400]), (table.X[400:], y[400:])])
    with pytest.raises(SourceError, match=r"0 to 3, found 2\.5 \(.*17"):
        sampler.build(PROBLEM, source)
    weights = np.where(table.y == 2.0, 0.0, 1.0)
    with pytest.raises(ValueError, match="No row of class 2 has a weight"):
        sampler.build(PROBLEM, ArraySource(table.X, table.y, weights))


# Streams


LONG = 5000  # more than a few leaves


def shuffled(table: Table) -> Table:
    """Rows of every class in any order, many times over."""
    order = np.random.default_rng(1).integers(N, size=LONG)
    return Table(*(part[order] for part in table))


# One class has three rows of 900. Where none of them comes first a stream begins at the zero model, and its coreset is
# drawn again around a better one.
begins_at_zero = pytest.mark.filterwarnings("ignore:The first rows do not stand for all")


def stream_of(table: Table, step: int, *, size: int = 300, **options) -> CoresetStream:
    stream = CoresetStream(PROBLEM, size=size, random_state=0, **options)
    for start in range(0, len(table.y), step):
        stream.update(*table.cut(start, start + step))
    return stream


@begins_at_zero
@pytest.mark.parametrize("given", [False, True], ids=["learned", "given"])
def test_a_stream_does_not_depend_on_its_updates(given):
    table = make_rows(weighted=True)
    rows = shuffled(table)
    anchor = solve(PROBLEM, table.X[::-5], table.y[::-5]) if given else None
    one, other = (stream_of(rows, step, anchor=anchor).coreset() for step in (LONG, 137))
    assert_same(one, other)
    assert set(one.y) == set(range(K))
    assert one.anchor.coef.shape == (K, M)
    exact = PROBLEM.risk(one.anchor.coef, one.anchor.intercept, *rows)
    if "drift" in one.details:  # the new anchor's risk on all rows is not known
        assert not given
        assert "anchor_risk" not in one.details
        assert exact < PROBLEM.risk(np.zeros((K, M)), np.zeros(K), *rows)
    else:
        assert one.details["anchor_risk"] == pytest.approx(exact, rel=1e-9)
    if given:
        np.testing.assert_array_equal(one.anchor.coef, anchor.coef)


def test_a_stream_of_sorted_classes_begins_at_the_zero_model_and_says_so():
    rows = Table(*(np.repeat(part, 10, axis=0) for part in make_rows(weighted=True)))
    stream = stream_of(rows, 1000, size=50)
    with pytest.warns(DriftWarning, match="do not stand for all"):
        coreset = stream.coreset()
    assert not stream.read.task.anchor.coef.any()
    assert coreset.anchor.coef.any()
    assert coreset.anchor.intercept.shape == (K,)
    assert set(coreset.y) == set(range(K))


@begins_at_zero
def test_a_stream_comes_back_from_its_file_and_merges(tmp_path):
    rows = shuffled(make_rows(weighted=True))
    whole, part = stream_of(rows, LONG).coreset(), CoresetStream(PROBLEM, size=300, random_state=0)
    part.update(*rows.cut(0, 4500))
    part.save(tmp_path / "stream")
    back = CoresetStream.load(tmp_path / "stream", PROBLEM)
    second = back.sibling(first_row=4500)
    second.update(*rows.cut(4500, LONG))
    assert_same(back.merge(second).coreset(), whole)
    with pytest.raises(ValueError, match="is about"):
        CoresetStream.load(tmp_path / "stream", PROBLEM.replace(radius=0.1))
    whole.save(tmp_path / "coreset.npz")
    found = Coreset.load(tmp_path / "coreset.npz")
    assert_same(found, whole)
    np.testing.assert_array_equal(found.anchor.coef, whole.anchor.coef)
    np.testing.assert_array_equal(found.anchor.intercept, whole.anchor.intercept)
    measured = found.measure(PROBLEM, *rows, queries=5, ascents=1)
    assert measured.coef.shape == (K, M)
    assert 0.0 < measured.epsilon < 1.0


def test_a_stream_refuses_other_labels():
    stream = CoresetStream(PROBLEM, size=50)
    with pytest.raises(ValueError, match=r"0 to 3, found 4\.0"):
        stream.update(np.ones((2, M)), np.array([0, 4]))
    with pytest.raises(ValueError, match="cannot hold 4 classes"):
        CoresetStream(PROBLEM, size=3)


def test_two_classes_are_many_classes_too():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 3))
    y = (X[:, 0] + rng.normal(size=200) > 0.0).astype(float)
    joint, binary = Problem("softmax", n_classes=2, radius=0.1), Problem("logistic", radius=0.1)
    best = solve(binary, X, 2.0 * y - 1.0).value
    for sampler in SAMPLERS.values():
        fit = sampler.fit(joint, X, y)
        assert fit.certificate.lower <= best * (1.0 + 1e-9) <= fit.certificate.upper * (1.0 + 1e-6)
        risk = joint.risk(fit.solution.coef, fit.solution.intercept, X, y)
        assert fit.certificate.upper == fit.solution.value == pytest.approx(risk, rel=1e-9)
