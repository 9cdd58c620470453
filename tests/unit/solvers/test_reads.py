"""Exact training over reads: the model and the certificate of rows in memory, from every source."""

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem, certify, open_source, solve
from dualcore.certificates import RowBounds
from dualcore.data.sources import ArraySource, Chunk, PartsSource, TransformedSource
from dualcore.data.sources.base import LocalSource
from dualcore.problem import Data
from dualcore.solvers import IncompatibleError
from dualcore.solvers.descent.reads import ReadsOracle
from dualcore.solvers.pilot import draw_pilot
from dualcore.solvers.remembered import RememberedRows
from pairs import every_value

N, M = 24_000, 30


@pytest.fixture(autouse=True)
def few_rows_count_as_many(monkeypatch):
    """Sources of some megabytes would be loaded; here they are read."""
    monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", 1000)


def classes(n=N, m=M, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * np.linspace(0.5, 2.0, m)
    y = np.where(X @ rng.normal(size=m) / np.sqrt(m) + 0.3 + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, y


def targets(n=N, m=M, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    return X, X @ rng.normal(size=m) + 5.0 + rng.standard_t(3, size=n)


def in_parts(X, y, weights=None, size=3000):
    def parts():
        for start in range(0, X.shape[0], size):
            span = slice(start, start + size)
            yield (X[span], y[span]) if weights is None else (X[span], y[span], weights[span])

    return PartsSource(parts)


class Guarded(LocalSource):
    """Chunks that fail where more than a share of the rows is looked up, or held at once."""

    def __init__(self, X, y, most):
        super().__init__()
        self._X, self._y, self._most = X, y, most
        self._n_rows, self.n_features = X.shape
        self.chunk_rows, self.handed = 1000, 0

    def _pieces(self, *, features, wanted):
        if wanted is not None and wanted.size > self._most * self._n_rows:
            raise AssertionError(f"{wanted.size} rows of {self._n_rows} were looked up")
        for start in range(0, self._n_rows, self.chunk_rows):
            span = slice(start, start + self.chunk_rows)
            yield lambda span=span: [Chunk(span.start, self._X[span] if features else None, self._y[span], None)]


# The same model


PROBLEMS = {
    "logistic l2": Problem("logistic", radius=0.02),
    "logistic l1": Problem("logistic", radius=0.02, norm="l1"),
    "logistic linf": Problem("logistic", radius=0.02, norm="linf"),
    "logistic flips": Problem("logistic", radius=0.05, label_cost=1.0),
    "logistic ridge": Problem("logistic", radius=0.0, ridge=0.01),
    "logistic no intercept": Problem("logistic", radius=0.02, fit_intercept=False),
    "hinge": Problem("hinge", radius=0.02),
    "hinge linf flips": Problem("hinge", radius=0.05, norm="linf", label_cost=1.0),
    "squared hinge": Problem("squared_hinge", radius=0.02),
    "huber": Problem("huber", radius=0.02),
    "huber target": Problem("huber", radius=0.02, label_cost=1.0),
    "pinball": Problem("pinball", radius=0.02),
    "squared": Problem("squared", radius=0.02),
    "squared l1 ridge": Problem("squared", radius=0.02, norm="l1", ridge=0.1),
}
# Reads beyond those that count rows and look at targets.
MOST_READS = {"logistic flips": 16, "hinge": 13, "hinge linf flips": 13, "pinball": 13}


@pytest.mark.parametrize("name", PROBLEMS)
def test_reads_give_the_model_and_the_certificate_of_rows_in_memory(name):
    problem = PROBLEMS[name]
    X, y = classes() if problem.is_classification else targets()
    whole = solve(problem, X, y, tol=1e-7)
    found = solve(problem, in_parts(X, y), tol=1e-6)
    assert found.converged
    assert found.relative_gap <= 1e-6
    assert found.value <= whole.value * (1.0 + 1e-6)
    assert found.lower_bound <= whole.value + whole.rounding
    assert found.value == pytest.approx(problem.risk(found.coef, found.intercept, X, y), rel=1e-12)
    assert found.dual_variable == pytest.approx(problem.multiplier(found.coef, found.intercept, X, y), rel=1e-6)
    assert 3 <= found.n_reads <= MOST_READS.get(name, 11) + 2


@pytest.mark.parametrize(("shape", "condition"), [((50_000, 100), 1.0), ((20_000, 300), 100.0)])
def test_smooth_problems_take_few_reads(shape, condition):
    rng = np.random.default_rng(0)
    n, m = shape
    axes = np.linalg.qr(rng.normal(size=(m, m)))[0]
    X = (rng.normal(size=(n, m)) * np.geomspace(1.0, 1.0 / condition, m)) @ axes
    X /= X.std(axis=0)
    y = np.where(X @ rng.normal(size=m) / np.sqrt(m) + rng.logistic(size=n) > 0.0, 1.0, -1.0)
    problem, source = Problem("logistic", radius=0.02), in_parts(X, y)
    assert solve(problem, source, tol=1e-3).n_reads <= 8
    assert solve(problem, source, tol=1e-6).n_reads <= 20


@every_value(weighted=[False, True], kind=["npy", "npz", "parquet", "csv", "dask", "parts", "csr parts", "prepared"])
def test_every_source_gives_the_same_model(kind, weighted, tmp_path):
    X, y = classes(9000, 12)
    weights = np.random.default_rng(1).integers(0, 4, size=y.size).astype(float) if weighted else None
    problem = Problem("logistic", radius=0.02)
    source = open_kind(kind, tmp_path, X, y, weights)
    found = solve(problem, source, tol=1e-6)
    whole = solve(problem, X, y, weights, tol=1e-8)
    assert found.converged
    assert found.n_reads > 1
    assert found.relative_gap <= 1e-6
    assert found.value == pytest.approx(problem.risk(found.coef, found.intercept, X, y, weights), rel=1e-12)
    np.testing.assert_allclose(found.coef, whole.coef, atol=2e-3 * np.abs(whole.coef).max())
    assert found.lower_bound <= whole.value + whole.rounding


def open_kind(kind, folder, X, y, weights):
    if kind == "npy":
        np.save(folder / "X.npy", X.astype(np.float64))
        return open_source(folder / "X.npy", y, weights)
    if kind == "npz":
        arrays = {"X": X, "y": y} | ({} if weights is None else {"w": weights})
        np.savez(folder / "rows.npz", **arrays)
        return open_source(folder / "rows.npz", "y", None if weights is None else "w")
    if kind in ("parquet", "csv"):
        pandas = pytest.importorskip("pandas")
        frame = pandas.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y)
        names = {} if weights is None else {"sample_weight": "w"}
        if weights is not None:
            frame = frame.assign(w=weights)
        path = folder / f"rows.{kind}"
        if kind == "parquet":
            pytest.importorskip("pyarrow")
            frame.to_parquet(path, row_group_size=2500)
        else:
            frame.to_csv(path, index=False)
        return open_source(path, "y", **names)
    if kind == "dask":
        array = pytest.importorskip("dask.array")
        given = None if weights is None else array.from_array(weights, chunks=2500)
        return open_source(array.from_array(X, chunks=(2500, -1)), array.from_array(y, chunks=2500), given)
    if kind == "prepared":
        np.save(folder / "X.npy", X)
        return TransformedSource(open_source(folder / "X.npy", (y > 0.0) * 7.0, weights), classes=(0.0, 7.0))
    return in_parts(sp.csr_array(X) if kind == "csr parts" else X, y, weights)


def test_columns_and_targets_far_from_the_origin_lose_no_digits():
    X, y = targets()
    problem = Problem("huber", radius=0.02)
    X[:, 0] += 1e5
    y += 1e6
    whole = solve(problem, X, y)
    found = solve(problem, in_parts(X, y))
    assert found.converged
    assert found.value == pytest.approx(whole.value, rel=2e-6)
    assert found.lower_bound <= whole.value + whole.rounding


def test_unpriced_coefficients_are_certified_over_reads_too():
    X, y = classes(20_000)
    found = solve(Problem("logistic", radius=0.0), in_parts(X, y))
    assert found.converged
    assert found.value == pytest.approx(solve(Problem("logistic"), X, y).value, rel=1e-6)


@pytest.mark.parametrize("name", ["logistic l2", "hinge", "logistic flips"])
def test_rows_are_never_all_loaded(name):
    X, y = classes(60_000, 20)
    found = solve(PROBLEMS[name], Guarded(X, y, most=0.4))
    assert found.converged


# Boxes


@pytest.mark.parametrize("settings", [{"loss": "hinge", "norm": "l1"}, {"loss": "logistic", "norm": "linf"}])
def test_boxes_are_trained_over_reads(settings):
    X, y = classes(6000, 5)
    X = np.clip(X / 12.0 + 0.5, 0.0, 1.0)
    problem = Problem(support=(0.0, 1.0), radius=0.05, **settings)
    source, seen = Guarded(X, y, most=0.4), []
    found = solve(problem, source, tol=1e-2, callback=seen.append)
    assert found.converged
    assert found.relative_gap <= 1e-2
    assert found.n_reads == source.n_reads <= 60
    assert len(seen) > 2
    assert found.value == pytest.approx(problem.risk(found.coef, found.intercept, X, y), rel=1e-7)
    assert found.lower_bound <= solve(problem, X, y, tol=1e-2).value


def test_a_row_outside_the_support_is_named():
    X, y = classes(5_000, 5)
    X = np.clip(X / 12.0 + 0.5, 0.0, 1.0)
    X[4_123, 3] = 1.5
    with pytest.raises(ValueError, match=r"Row 4123 lies outside the support: feature 3 is 1\.5"):
        solve(Problem("hinge", norm="l1", support=(0.0, 1.0), radius=0.05), in_parts(X, y))


# Reads, and what is told about them


def test_reads_are_counted_and_told():
    X, y = classes()
    source, seen = in_parts(X, y), []
    source.survey()
    before = source.n_reads
    found = solve(Problem("logistic", radius=0.02), source, callback=seen.append)
    assert found.n_reads == source.n_reads - before
    reads, gaps = [done.iteration for done in seen], [done.gap for done in seen]
    assert reads == sorted(reads)
    assert reads[-1] == found.n_reads
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] == pytest.approx(found.gap, rel=1e-3, abs=1e-12)


def test_a_warm_start_takes_no_more_reads():
    X, y = classes()
    source, problem = in_parts(X, y), Problem("logistic", radius=0.02)
    first = solve(problem, source)
    again = solve(problem, source, warm_start=first)
    assert again.converged
    assert again.n_reads <= first.n_reads
    with pytest.raises(ValueError, match="warm_start has 30 coefficients but the rows have 40 features"):
        solve(problem, in_parts(*classes(5000, 40)), warm_start=first)


def test_a_limit_of_reads_ends_with_a_warning_and_the_gap_reached():
    X, y = classes()
    with pytest.warns(match="Iteration limit reached"):
        found = solve(Problem("logistic", radius=0.02), in_parts(X, y), tol=1e-9, max_iter=2)
    assert 0.0 < found.relative_gap < 1.0
    assert found.lower_bound <= solve(Problem("logistic", radius=0.02), X, y).value


def test_few_rows_are_loaded_in_one_read_and_rows_in_memory_in_none(monkeypatch):
    X, y = classes(2000, 10)
    monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", X.size)
    problem = Problem("logistic", radius=0.02)
    whole = solve(problem, X, y)
    source = in_parts(X, y)
    source.survey()
    found = solve(problem, source)
    assert found.value == pytest.approx(whole.value, rel=1e-9)
    assert found.n_reads == 1
    source = ArraySource(*classes())
    assert solve(problem, source).n_reads == source.n_reads == 0
    np.testing.assert_array_equal(solve(problem, ArraySource(X, y)).coef, whole.coef)


def test_what_needs_rows_in_memory_is_refused_before_work():
    X, y = classes()
    source = in_parts(X, y)
    with pytest.raises(IncompatibleError, match=r"solver='conic' needs rows in memory.*Use solver='auto'"):
        solve(Problem("logistic", radius=0.02), source, solver="conic")
    with pytest.raises(IncompatibleError, match="cannot be trained over reads of a source"):
        solve(Problem("squared_hinge", radius=0.02, label_cost=1.0), source)
    with pytest.raises(ValueError, match="Unknown solver 'simplex'"):
        solve(Problem("logistic"), source, solver="simplex")
    with pytest.raises(ValueError, match="feature_weights holds 2 prices but the source has 30 features"):
        solve(Problem("logistic", radius=0.1, feature_weights=[1.0, 2.0]), source)


# The oracle


def oracle_of(problem, X, y, size=4000):
    source = in_parts(X, y)
    pilot = draw_pilot(problem, source, size).data
    return source, ReadsOracle(problem, Data(RememberedRows(source), y, None), pilot, total_weight=float(y.size))


def test_one_evaluation_is_one_read_whatever_the_points_and_a_certificate_is_none():
    X, y = classes()
    problem = Problem("logistic", radius=0.05, label_cost=1.0)
    source, oracle = oracle_of(problem, X, y)
    points = [oracle.columns.point(coef, 0.1)._replace(size=3.0) for coef in np.eye(M)[:3]]
    before = source.n_reads
    found = oracle.evaluate(points, 0.1)
    again = oracle.evaluate(points[1:2], 0.1)
    assert source.n_reads == before + 1
    assert again[0] is found[1]
    certified = oracle.certify(points[1], 0.1)
    assert source.n_reads == before + 1
    assert certified.upper == pytest.approx(problem.risk(np.eye(M)[1], 0.1, X, y), rel=1e-12)
    data = problem.validate(X, y)
    bound = RowBounds(problem, data, certified.upper).bound(certified.dual, repair=False).value
    assert certified.lower == pytest.approx(bound, rel=1e-9)
    oracle.close()


def test_tasks_carry_no_rows():
    import pickle

    X, y = classes()
    sizes = []

    class Watched(PartsSource):
        def map(self, function):
            sizes.append(len(pickle.dumps(function)))
            return super().map(function)

    source = Watched(lambda: iter([(X[:9000], y[:9000]), (X[9000:], y[9000:])]))
    solve(Problem("logistic", radius=0.02), source)
    assert sizes
    assert max(sizes) < 20_000


@pytest.mark.needs("dask")
def test_a_cluster_gets_models_and_gives_sums_and_scores():
    import dask.array as da
    from distributed import Client, LocalCluster

    X, y = classes(20_000, 40)
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster,
        Client(cluster),
    ):
        source = open_source(da.from_array(X, chunks=(5000, -1)), da.from_array(y, chunks=5000))
        before = source.bytes_moved
        for problem in (Problem("logistic", radius=0.02), Problem("hinge", radius=0.02)):
            found = solve(problem, source, tol=1e-3)
            assert found.converged
        rows = X.nbytes
        assert source.bytes_moved - before < 3 * rows


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_bounds_hold_on_random_problems():
    rng = np.random.default_rng(3)
    for trial in range(6):
        n, m = 4000, int(rng.integers(5, 40))
        X, y = classes(n, m, seed=trial)
        X *= 10.0 ** rng.uniform(-3.0, 3.0, size=m)
        norm = ("l1", "l2", "linf")[trial % 3]
        problem = Problem(("logistic", "hinge")[trial % 2], radius=10.0 ** rng.uniform(-3.0, 0.0), norm=norm)
        with np.errstate(all="ignore"):
            found = solve(problem, in_parts(X, y), tol=1e-4)
        best = certify(problem, solve(problem, X, y, tol=1e-6), X, y)
        assert found.lower_bound <= best.upper * (1.0 + 1e-12)
        assert found.value >= best.lower - best.rounding
