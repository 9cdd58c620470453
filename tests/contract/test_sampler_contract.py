"""What every sampler promises, asked of every sampler. A new one is covered by its line in ``SAMPLERS``."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import (
    Coreset,
    DualCoreset,
    GridCoreset,
    ImportanceCoreset,
    LayeredCoreset,
    Problem,
    UniformCoreset,
    solve,
)
from dualcore.coresets import samplers
from dualcore.coresets.samplers import Sampler
from dualcore.data.sources import ArraySource
from dualcore.problem.losses import LOSSES
from pairs import every_value

SAMPLERS: dict[str, Callable[..., Sampler]] = {
    "uniform": UniformCoreset,
    "importance": ImportanceCoreset,
    "layered": LayeredCoreset,
    "algorithm 1": GridCoreset,
    "dual": DualCoreset,
    "dual, one round": lambda **o: DualCoreset(rounds=1, **o),
}
PROBLEMS = {
    **{name: Problem(name, radius=0.1) for name in LOSSES},
    "logistic that flips": Problem("logistic", radius=0.1, norm="l1", label_cost=1.0),
    "hinge that flips": Problem("hinge", radius=0.1, norm="linf", label_cost=1.0, ridge=0.01),
    "huber with a floor": Problem("huber", radius=0.1, label_cost=2.0),
    "no radius": Problem("logistic", ridge=0.1),
    "squared, no radius": Problem("squared", ridge=0.1),
    "squared hinge, no radius": Problem("squared_hinge", ridge=0.1),
    "no intercept": Problem("hinge", radius=0.1, fit_intercept=False),
}
each_sampler = pytest.mark.parametrize("make", SAMPLERS.values(), ids=SAMPLERS)
each_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
LOGISTIC = PROBLEMS["logistic that flips"]


def sample(problem: Problem, n: int = 400, m: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    y = X @ np.array([1.5, -1.0, 0.3])[:m] + 0.3 + rng.normal(size=n)
    return X, np.where(y > 0.0, 1.0, -1.0) if problem.is_classification else y


def assert_valid(coreset: Coreset, X: np.ndarray, y: np.ndarray, *, classes: bool) -> None:
    """Row numbers ascend and name the rows, weights are masses, no class is lost, the provenance is JSON."""
    assert len(coreset) == coreset.indices.size == coreset.weights.size == coreset.y.size == coreset.X.shape[0] > 0
    assert coreset.n_rows == len(y)
    assert (np.diff(coreset.indices) > 0).all()
    assert coreset.indices[0] >= 0
    assert coreset.indices[-1] < len(y)
    np.testing.assert_array_equal(coreset.X.toarray() if sp.issparse(coreset.X) else coreset.X, X[coreset.indices])
    np.testing.assert_array_equal(coreset.y, y[coreset.indices])
    assert np.isfinite(coreset.weights).all()
    assert (coreset.weights >= 0.0).all()
    assert abs(coreset.weights.sum() - 1.0) <= 1e-12
    if classes:
        assert {label for label, w in zip(coreset.y, coreset.weights, strict=True) if w > 0.0} == {-1.0, 1.0}
    json.dumps(coreset.details)


def built(make: Callable[..., Sampler], problem: Problem, X, y, weights=None, *, size=60, **options) -> Coreset:
    """A coreset, once it is known to be valid."""
    coreset = make(size=size, random_state=3, **options).build(problem, X, y, weights)
    assert_valid(coreset, X, y, classes=problem.is_classification)
    return coreset


def quietly(make: Callable[..., Sampler], problem: Problem, X, y, **settings) -> tuple[Coreset | None, str]:
    """A valid coreset, and what was said; None where a clear error refused (what was said is then the error)."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            coreset = make(**settings).build(problem, X, y)
        except ValueError as error:
            return None, str(error)
    assert_valid(coreset, X, y, classes=problem.is_classification)
    return coreset, " ".join(str(warning.message) for warning in caught)


def test_the_contract_covers_every_sampler_and_every_loss():
    made = {type(make(size=5)) for make in SAMPLERS.values()}
    assert made == {
        thing for thing in vars(samplers).values() if isinstance(thing, type) and issubclass(thing, Sampler)
    } - {Sampler}
    assert {type(problem.loss) for problem in PROBLEMS.values()} >= set(LOSSES.values())


def test_the_check_of_this_file_can_fail():
    X, y = sample(LOGISTIC)
    good = UniformCoreset(size=20, random_state=0).build(LOGISTIC, X, y)
    assert_valid(good, X, y, classes=True)
    one = np.flatnonzero(good.y > 0.0)
    for changes in (
        {"weights": good.weights * 1.001},
        {"weights": -good.weights},
        {"indices": good.indices[::-1]},
        {"X": good.X + 1.0},
        {"y": -good.y},
        {"details": {"seed": object()}},
        {"indices": good.indices[one], "X": good.X[one], "y": good.y[one], "weights": np.full(one.size, 1 / one.size)},
    ):
        with pytest.raises((AssertionError, TypeError)):
            assert_valid(replace(good, **changes), X, y, classes=True)


# Build


@every_value(each_sampler, each_problem)
def test_a_coreset_is_valid(make, problem):
    coreset = built(make, problem, *sample(problem), size=0.1)
    assert len(coreset) <= 40
    assert coreset.method == make(size=1).name
    assert coreset.details["seed"] >= 0


@each_sampler
def test_the_seed_decides_and_nothing_else(make):
    X, y = sample(LOGISTIC)
    sampler = make(size=60, random_state=3)
    one, same = (sampler.build(LOGISTIC, X, y) for _ in range(2))
    np.testing.assert_array_equal(one.indices, same.indices)
    np.testing.assert_array_equal(one.weights, same.weights)
    assert sampler == make(size=60, random_state=3) == copy.deepcopy(sampler)
    nonsense = make(size="nonsense", random_state="nonsense")  # nothing is looked at before `build`
    with pytest.raises(TypeError, match="size must be"):
        nonsense.build(LOGISTIC, X, y)
    for seeds in ((3, 4), (None, None)):
        found = [make(size=60, random_state=seed).build(LOGISTIC, X, y).indices for seed in seeds]
        assert not np.array_equal(*found)


@pytest.mark.needs("pandas")
@each_sampler
def test_containers_do_not_show(make, tmp_path):
    X, y = sample(LOGISTIC)
    X = np.where(np.abs(X) > 0.3, X, 0.0)
    plain = built(make, LOGISTIC, X, y)
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    frame = pytest.importorskip("pandas").DataFrame(X)
    for container in (np.asfortranarray(X), mapped, frame, sp.csr_matrix(X), sp.csc_matrix(X), ArraySource(X, y)):
        targets = () if isinstance(container, ArraySource) else (y,)
        coreset = make(size=60, random_state=3).build(LOGISTIC, container, *targets)
        assert_valid(coreset, X, y, classes=True)
        if sp.issparse(container) and coreset.excess is not None:
            # Sparse products round differently, and a vertex is decided by the last digit: the model is the same.
            assert abs(coreset.excess) <= 1e-6
            continue
        np.testing.assert_array_equal(coreset.indices, plain.indices)
        np.testing.assert_allclose(coreset.weights, plain.weights, rtol=1e-6)


@pytest.mark.parametrize("make", [LayeredCoreset, GridCoreset])
def test_a_given_anchor_is_used(make):
    X, y = sample(LOGISTIC)
    anchors = [solve(LOGISTIC, X[rows], y[rows]) for rows in (slice(50), slice(50, 90))]
    one, other = (make(size=60, anchor=anchor, random_state=3).build(LOGISTIC, X, y) for anchor in anchors)
    np.testing.assert_array_equal(one.anchor.coef, anchors[0].coef)
    assert not np.array_equal(one.weights, other.weights)


# Fit


@every_value(each_sampler, each_problem)
def test_a_fit_is_scored_and_certified_on_the_full_data(make, problem):
    X, y = sample(problem)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=len(y))
    for array in (X, y, weights):
        array.flags.writeable = False  # inputs are left alone
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = make(size=80, random_state=3).fit(problem, X, y, weights)
        best = solve(problem, X, y, weights)
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, X, y, weights)
    assert fit.certificate.upper == fit.solution.value == pytest.approx(risk, rel=1e-9)
    assert fit.certificate.lower <= best.value * (1.0 + 1e-8)
    assert fit.certificate.upper >= best.lower_bound * (1.0 - 1e-8)
    assert fit.certificate.lower == fit.solution.lower_bound <= fit.certificate.upper
    assert fit.certificate.n_reads == fit.history[-1].read >= 1
    assert_valid(fit.coreset, X, y, classes=problem.is_classification)


@every_value(each_sampler, size=[10, 80])
def test_where_squared_hinges_flip_the_certificate_is_an_honest_bound(make, size):
    problem = Problem("squared_hinge", radius=0.1, label_cost=1.0)
    X, y = sample(problem)
    fit = make(size=size, random_state=3).fit(problem, X, y)
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, X, y)
    assert fit.certificate.lower <= solve(problem, X, y).value
    assert risk <= fit.certificate.upper * (1.0 + 1e-9)
    if make is UniformCoreset:
        assert fit.certificate.upper == pytest.approx(risk, rel=1e-6)


# All rows, one row, few rows


# Importance sampling draws with replacement.
@every_value(each_problem, make={name: make for name, make in SAMPLERS.items() if make is not ImportanceCoreset})
def test_all_rows_are_the_full_data(make, problem):
    X, y = sample(problem, n=60)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, size=60)
    for size in (1.0, 500):
        coreset = make(size=size, random_state=3).build(problem, X, y, weights)
        np.testing.assert_array_equal(coreset.indices, np.arange(60))
        np.testing.assert_allclose(coreset.weights, weights / weights.sum(), rtol=1e-12)


@every_value(make=SAMPLERS, name=["logistic that flips", "hinge", "smooth_hinge", "huber", "absolute"], size=[1, 2, 3])
def test_a_few_rows_are_a_coreset_or_a_clear_error(make, name, size):
    problem = PROBLEMS[name]
    X, y = sample(problem)
    coreset, said = quietly(make, problem, X, y, size=size, random_state=3)
    if coreset is None:
        assert size == 1
        assert "class" in said
    else:
        assert len(coreset) <= size or (len(coreset) == 2 and "one row cannot hold both classes" in said)


@pytest.mark.parametrize("make", [GridCoreset, DualCoreset])
def test_a_pilot_that_fits_exactly_is_no_obstacle_of_order_two(make):
    hinge, squared = Problem("squared_hinge", radius=0.1), Problem("squared", radius=0.1, label_cost=1.0)
    for problem, size in ((hinge, 2), (hinge, 4), (squared, 1)):
        X, y = sample(problem)
        assert_valid(built(make, problem, X, y, size=size), X, y, classes=problem.is_classification)


# Odd data


@every_value(each_sampler, name=["logistic that flips", "hinge", "huber", "squared"])
def test_repeated_rows(make, name):
    problem = PROBLEMS[name]
    X, y = sample(problem, n=4)
    y = np.array([1.0, 1.0, -1.0, -1.0]) if problem.is_classification else y
    X, y = np.tile(X, (100, 1)), np.tile(y, 100)
    built(make, problem, X, y, size=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit = make(size=40, random_state=3).fit(problem, X, y)
    assert fit.certificate.lower <= solve(problem, X, y).value * (1.0 + 1e-8)


@each_sampler
def test_h_that_is_zero_everywhere(make):
    """Perfectly separable, and the anchor separates with margin: nothing to layer, nothing to calibrate."""
    problem = Problem("hinge", radius=1e-4)
    X, y = sample(problem)
    X[:, 0] = y * np.random.default_rng(0).uniform(5.0, 6.0, size=400)
    anchor = solve(problem, X, y)
    wide = replace(anchor, coef=1.5 * anchor.coef, dual_variable=1.5 * anchor.dual_variable)
    assert problem.h(wide.coef, wide.intercept, wide.dual_variable, X, y).max() == 0.0
    options = {"anchor": wide} if hasattr(make(), "anchor") else {}
    built(make, problem, X, y, size=40, **options)
    fit = make(size=40, random_state=3, **options).fit(problem, X, y)
    assert fit.certificate.lower <= anchor.value * (1.0 + 1e-6)
    assert fit.certificate.upper == pytest.approx(problem.risk(fit.solution.coef, fit.solution.intercept, X, y))


@every_value(each_sampler, name=["huber", "logistic"])
def test_one_row_with_nearly_all_of_h(make, name):
    problem = PROBLEMS[name]
    X, y = sample(problem)
    if problem.is_classification:
        X[17] = -1e7 * y[17] * np.array([1.5, -1.0, 0.3])
    else:
        y[17] = 1e8
    anchor = solve(problem, X[18:], y[18:])
    h = problem.h(anchor.coef, anchor.intercept, anchor.dual_variable, X, y)
    assert h[17] > 0.999 * h.sum()
    options = {"anchor": anchor} if hasattr(make(), "anchor") else {}
    coreset = built(make, problem, X, y, size=40, **options)
    if options:
        assert 17 in coreset.indices  # it has a layer to itself
        assert coreset.weights @ h[coreset.indices] == pytest.approx(h.mean(), rel=1e-3)
    if make is DualCoreset and name == "huber":
        # The mean of h is far beyond that of any row drawn: matching it would put all weight on one of them.
        assert len(coreset) > 20
        assert coreset.weights.max() < 0.5


@every_value(each_sampler, loss=["logistic", "hinge"], size=[20, 100])
def test_a_class_of_one_in_a_thousand_is_not_lost_without_a_word(make, loss, size):
    problem = Problem(loss, radius=0.05)
    rng = np.random.default_rng(7)
    X, y = rng.normal(size=(4000, 3)), np.full(4000, -1.0)
    y[rng.choice(4000, size=4, replace=False)] = 1.0
    for seed in range(3):
        coreset, said = quietly(make, problem, X, y, size=size, random_state=seed)
        assert coreset is not None or "class" in said


# Weights of the user


@each_sampler
def test_weights_of_the_user_are_kept(make):
    X, y = sample(LOGISTIC)
    heavy = np.ones(400)
    heavy[5] = 399.0
    coreset = built(make, LOGISTIC, X, y, heavy, size=200)
    assert 5 not in coreset.indices or coreset.weights[coreset.indices == 5] > 0.2  # half of all mass
    coreset = built(make, LOGISTIC, X, y, np.tile([1.0, 0.0], 200))
    assert (coreset.indices % 2 == 0).all()
    for call in ("build", "fit"):
        with pytest.raises(ValueError, match="class -1"):  # not: that it was put back
            getattr(make(size=60, random_state=3), call)(LOGISTIC, X, y, y > 0.0)


@every_value(
    each_sampler,
    pytest.mark.parametrize(
        ("spoil", "message"),
        [
            (lambda X, y: (np.where(np.arange(400)[:, None] == 3, np.nan, X), y), "NaN"),
            (lambda X, y: (X, np.where(np.arange(400) == 3, np.nan, y)), "NaN"),
            (lambda X, y: (X, np.ones(400)), "one class only"),
            (lambda X, y: (X, y + 1.0), "labels -1 and"),
            (lambda X, y: (X[:10], y), "10 rows but y has 400"),
        ],
    ),
)
def test_bad_data_are_refused(make, spoil, message):
    with pytest.raises(ValueError, match=message):
        make(size=60, random_state=3).build(LOGISTIC, *spoil(*sample(LOGISTIC)))
