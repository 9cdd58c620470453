"""Every family on every source with every sampler: the same coreset bit for bit, and certificates that hold.

A new family is a line in ``FAMILIES``, a new source one in `source_kinds`, a new sampler one in ``SAMPLERS``. What
mathematics forbids is in ``FORBIDDEN``, with the reason that the error must give.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, Solution, assess, solve
from dualcore.coresets.samplers import (
    DualCoreset,
    GridCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    Sampler,
    UniformCoreset,
)
from dualcore.data.sources import ArraySource, Source
from own_losses import LogCosh
from pairs import every_pair, every_value
from source_kinds import KINDS, Table, each_of, make_table

FAMILIES: dict[str, Problem] = {
    "margins that flip": Problem("logistic", radius=0.1, norm="l1", label_cost=1.0),
    "margins with a kink": Problem("hinge", radius=0.1, norm="linf", ridge=0.01),
    "residuals": Problem("huber", radius=0.1, label_cost=3.0),
    "own loss": Problem(LogCosh(), radius=0.1),
    "squared": Problem("squared", radius=0.2),
    "power": Problem("power", power=3.0, radius=0.1),
    "squared hinge that flips": Problem("squared_hinge", radius=0.05, label_cost=3.0),
    "box, classes": Problem("logistic", radius=0.1, label_cost=2.0, support=(-8.0, 8.0)),
    "box, residuals": Problem("huber", radius=0.1, norm="l1", support=(-8.0, 8.0)),
    "categories, classes": Problem("logistic", radius=0.1, label_cost=2.0, categories=[[1, 2], [None, 3]]),
    "categories, residuals": Problem(
        "huber", radius=0.1, norm="l1", support=(-8.0, 8.0), categories=[[1, 2], [None, 3]], category_cost=[1.0, 2.0]
    ),
    "many classes": Problem("softmax", n_classes=4, radius=0.05, label_cost=1.0, ridge=0.01),
}
SAMPLERS: dict[str, Sampler] = {
    "uniform": UniformCoreset(size=40, random_state=1),
    "importance": ImportanceCoreset(size=40, random_state=1),
    "layered": LayeredCoreset(size=40, random_state=1),
    "algorithm 1": GridCoreset(size=40, random_state=1),
    "calibrated": DualCoreset(size=40, random_state=1),
    "refined": DualCoreset(size=40, rounds=2, random_state=1),
    "epsilon": GridCoreset(size=None, epsilon=0.9, parameter_radius=1e-3, random_state=1),
}
# (family, sampler): what the error says.
FORBIDDEN: dict[tuple[str, str], str] = {
    **{(name, "epsilon"): "needs a loss of order 1" for name in ("squared", "power", "squared hinge that flips")},
    **{(name, "epsilon"): "knows no constants" for name in FAMILIES if name.startswith(("box", "categories", "many"))},
    ("many classes", "importance"): "knows no bounds for softmax",
}
ROWS, FEATURES = 450, 3


def table_of(problem: Problem) -> Table:
    """Rows sorted by target, so that chunks hold one class only; every ninth row has no weight, few the last class."""
    several = problem.family.n_outputs > 1
    table = make_table(ROWS, FEATURES, weighted=True, classification=problem.is_classification and not several, seed=3)
    y = np.digitize(table.y, [-0.5, 1.0, 2.5]).astype(float) if several else table.y
    order = np.argsort(y, kind="stable")
    weights = table.weights[order]
    weights[::9] = 0.0
    return Table(one_hot(problem, table.X[order]), y[order], weights)


def one_hot(problem: Problem, X: np.ndarray) -> np.ndarray:
    """Of a problem with categories: signs in the place of the second and the third number."""
    if problem.geometry.categories is None:
        return X
    return np.column_stack([X[:, 0], X[:, 1] > 0.0, X[:, 1] <= 0.0, X[:, 2] > 0.0]).astype(X.dtype)


def in_tiny_chunks(table: Table, folder: Path) -> Source:
    return ArraySource(table.X, table.y, table.weights, chunk_rows=37)


def sparse(table: Table, folder: Path) -> Source:
    return ArraySource(sp.csr_matrix(table.X.astype(np.float64)), table.y, table.weights, chunk_rows=101)


SOURCES: dict[str, Callable[[Table, Path], Source]] = {**KINDS, "tiny chunks": in_tiny_chunks}


def built(problem: Problem, sampler: Sampler, source: Source):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return sampler.build(problem, source)


@pytest.fixture(scope="module")
def expected():
    known = {}

    def of(family: str, name: str):
        if (family, name) not in known:
            problem = FAMILIES[family]
            known[family, name] = built(problem, SAMPLERS[name], ArraySource(*table_of(problem)))
        return known[family, name]

    return of


QUICK = ("tiny chunks", "parquet folder", "dask frame")
OTHERS = [kind for kind in SOURCES if kind not in QUICK]
each_kind = pytest.mark.parametrize("kind", [*each_of(QUICK), *each_of(OTHERS, pytest.mark.slow)])


@every_pair(each_kind, name=list(SAMPLERS), family=list(FAMILIES))
def test_the_same_coreset_comes_from_every_source(family, name, kind, expected, tmp_path):
    problem = FAMILIES[family]
    source = SOURCES[kind](table_of(problem), tmp_path)
    if (family, name) in FORBIDDEN:
        with pytest.raises(ValueError, match=FORBIDDEN[family, name]):
            built(problem, SAMPLERS[name], source)
        return
    coreset, wanted = built(problem, SAMPLERS[name], source), expected(family, name)
    np.testing.assert_array_equal(coreset.indices, wanted.indices)
    np.testing.assert_array_equal(coreset.weights, wanted.weights)
    assert set(np.unique(coreset.y)) >= set(problem.family.strata)


def few_of(problem: Problem) -> Table:
    return Table(*(part[::4] for part in table_of(problem)))


@cache
def best_of(family: str) -> Solution:
    return solve(FAMILIES[family], *few_of(FAMILIES[family]))


@every_value(kind=each_of(["array", "sparse", "parquet folder", "parts"]), family=list(FAMILIES))
def test_certificates_hold_on_every_source(family, kind, tmp_path):
    problem, best = FAMILIES[family], best_of(family)
    table = few_of(problem)
    source = (SOURCES | {"sparse": sparse})[kind](table, tmp_path)
    fit = DualCoreset(size=40, rounds=2, random_state=0).fit(problem, source)
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, *table)
    assert fit.solution.value == fit.certificate.upper
    assert fit.certificate.upper >= best.lower_bound * (1.0 - 1e-9) - fit.certificate.rounding
    for known in (fit.certificate, assess(problem, fit.solution, source)):
        assert known.upper == pytest.approx(risk, rel=1e-8)
        assert known.lower <= best.value * (1.0 + 1e-9) + known.rounding


class Weighed(ArraySource):
    """A source that notes the size of every task, as it would travel to the workers of a cluster."""

    def __init__(self, *data) -> None:
        super().__init__(*data, chunk_rows=1000)
        self.sizes: list[int] = []

    def _run(self, function, merge=None, **settings):
        cloudpickle = pytest.importorskip("cloudpickle")
        self.sizes.append(len(cloudpickle.dumps((function, merge))))
        return super()._run(function, merge, **settings)


@every_value(
    name=[name for name in SAMPLERS if name != "epsilon"], family=["margins that flip", "residuals", "box, classes"]
)
def test_no_task_carries_the_data(family, name):
    problem = FAMILIES[family]
    source = Weighed(*make_table(4_000, FEATURES, weighted=True, classification=problem.is_classification))
    built(problem, SAMPLERS[name], source)
    assert max(source.sizes) < 20_000  # the rows are 112 kB; a basis of what is matched is the largest thing sent
