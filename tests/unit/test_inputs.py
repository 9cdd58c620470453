"""Data and settings that would be used wrongly without a word: a right answer, or a clear refusal."""

from __future__ import annotations

import copy
import pickle
import warnings
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

import dualcore
from dualcore import ArraySource, CoresetStream, PartsSource, Problem, SourceError, fit_coreset, open_source, solve
from dualcore.data.rows import as_rows, as_target, as_weights
from dualcore.problem.geometry import Box, L1Norm, L2Norm, get_norm
from dualcore.problem.losses import Huber, MarginLoss
from many_classes import softmax_of
from pairs import every_value

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3))
LABELS = np.where(X[:, 0] + RNG.normal(size=120) > 0.0, 1.0, -1.0)
TARGETS = X @ [1.0, -1.0, 0.5] + RNG.normal(size=120)


@every_value(
    dtype=[np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_, np.float32],
    kind=[sp.csr_matrix, sp.csc_matrix, np.asarray],
    norm=["l1", "l2", "linf"],
)
def test_whole_numbers_do_not_wrap_around(dtype, kind, norm):
    large = {np.bool_: 1, np.float32: 2.0**70}.get(dtype) or np.iinfo(dtype).max
    plain = np.array([[large, 0, large], [0, large, 0], [large, large, large]], dtype=dtype)
    if np.issubdtype(dtype, np.signedinteger):
        plain[1, 1] = np.iinfo(dtype).min  # abs() of it is itself
    wide, prices = plain.astype(np.float64), np.array([2.0, 1.0, 3.0])
    orders = {"l1": 1, "l2": 2, "linf": np.inf}
    rows = as_rows(kind(plain))
    np.testing.assert_allclose(rows.row_norms(norm), np.linalg.norm(wide, ord=orders[norm], axis=1), rtol=1e-12)
    np.testing.assert_allclose(
        rows.row_norms(norm, prices), np.linalg.norm(wide * prices, ord=orders[norm], axis=1), rtol=1e-12
    )
    for whole in (rows.block(slice(0, 3)), rows.take(np.arange(3)), next(rows.dense_blocks())[1]):
        assert whole.dtype == np.float64
    np.testing.assert_allclose(rows.gram(np.ones(3)), wide.T @ wide, rtol=1e-12)
    for problem in (Problem("hinge", label_cost=7.0, norm=norm), Problem("huber", norm=norm, radius=0.1)):
        assert problem.constants(kind(plain)) == pytest.approx(problem.constants(wide), rel=1e-12)
    labels = np.array([1.0, -1.0, 1.0])
    hinge = Problem("hinge", radius=0.1, norm=norm)
    bounds = [hinge.multiplier_bound(np.ones(3), 0.0, A, labels) for A in (kind(plain), wide)]
    assert bounds[0] == pytest.approx(bounds[1], rel=1e-12)


def masked(values):
    mask = np.zeros(np.shape(values), dtype=bool)
    mask.reshape(-1)[0] = True
    return np.ma.masked_array(values, mask=mask)


CALLS = {
    "risk": lambda X, y, w: Problem("huber", radius=0.1).risk(np.ones(3), 0.0, X, y, w),
    "solve": lambda X, y, w: solve(Problem("huber", radius=0.1), X, y, w),
    "fit_coreset": lambda X, y, w: fit_coreset(Problem("huber", radius=0.1), X, y, 50, sample_weight=w),
    "open_source": lambda X, y, w: open_source(X, y, w).survey(),
    "ArraySource": lambda X, y, w: ArraySource(X, y, w),
    "PartsSource": lambda X, y, w: PartsSource([(X, y, w)]),
    "estimator": lambda X, y, w: dualcore.WassersteinHuberRegressor().fit(X, y, w).predict(X),
    "CoresetStream": lambda X, y, w: CoresetStream(Problem("huber", radius=0.1), size=50).update(X, y, w),
}


@pytest.mark.filterwarnings("ignore")  # numpy only warns that the imaginary part is gone
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize(
    ("spoil", "message"),
    [(masked, "masked values"), (lambda values: values + 1j, "(?i)complex")],
    ids=["mask", "complex"],
)
def test_masked_values_and_complex_numbers_are_refused_everywhere(call, spoil, message):
    good = [X, TARGETS, np.ones(120)]
    call(*map(np.ma.masked_array, good))  # a mask that hides nothing loses nothing
    for place in range(3):
        with pytest.raises(ValueError, match=message):
            call(*good[:place], spoil(good[place]), *good[place + 1 :])
    for kind in (sp.csr_matrix, sp.csc_matrix):
        with pytest.raises(ValueError, match=r"(?i)complex"):
            call(kind(X + 1j), *good[1:])


def test_masks_and_complex_numbers_in_settings_are_refused():
    for bad in (masked([1.0, 2.0]), np.array([1.0, 2.0 + 1j])):
        with pytest.raises(ValueError, match="feature_weights"):
            Problem("hinge", feature_weights=bad)
        with pytest.raises(ValueError, match="support"):
            Problem("hinge", support=(bad, 5.0))
    with pytest.raises(ValueError, match="y has masked values"):
        softmax_of(Problem("logistic"), 2).validate(X, masked((LABELS > 0).astype(int)))


@pytest.mark.needs("dask", "pandas")
def test_masked_partitions_and_complex_frames_are_refused():
    import dask.array as da
    import pandas as pd

    with pytest.raises(ValueError, match="Complex data not supported"):
        as_rows(pd.DataFrame({"a": [1.0, 2.0], "b": [1j, 2.0]}))
    source = open_source(da.from_array(masked(X), chunks=(60, 3)), da.from_array(TARGETS, chunks=60))
    with pytest.raises(ValueError, match="X has masked values"):
        source.fold(lambda chunk: float(chunk.X.sum()), sum)
    with pytest.raises(SourceError, match="features are complex128"):
        open_source(da.from_array(X + 1j, chunks=(60, 3)), da.from_array(TARGETS, chunks=60))


DIFFERENT = {
    "plain": Problem("huber", radius=0.1),
    "loss": Problem("absolute", radius=0.1),
    "parameter": Problem("huber", delta=2.0, radius=0.1),
    "radius": Problem("huber", radius=0.2),
    "norm": Problem("huber", radius=0.1, norm="l1"),
    "prices": Problem("huber", radius=0.1, feature_weights=[1.0, 2.0]),
    "other prices": Problem("huber", radius=0.1, feature_weights=[1.0, 2.5]),
    "immovable": Problem("huber", radius=0.1, feature_weights=[1.0, np.inf]),
    "label cost": Problem("huber", radius=0.1, label_cost=3.0),
    "support": Problem("huber", radius=0.1, support=(0, 1)),
    "support by feature": Problem("huber", radius=0.1, support=([0, 0], [1, 2])),
    "ridge": Problem("huber", radius=0.1, ridge=0.5),
    "no intercept": Problem("huber", radius=0.1, fit_intercept=False),
    "order": Problem("squared", radius=0.1),
}


def test_problems_are_equal_only_if_everything_is():
    for (one, left), (other, right) in product(DIFFERENT.items(), repeat=2):
        assert (left == right) is (one == other)
        assert (left != right) is (one != other)
        assert (repr(left) == repr(right)) is (one == other)
    names = {"Problem": Problem, "inf": np.inf} | {type(p.loss).__name__: type(p.loss) for p in DIFFERENT.values()}
    for problem in DIFFERENT.values():
        written = eval(repr(problem), {"__builtins__": {}}, names)
        for twin in (problem.replace(), copy.deepcopy(problem), pickle.loads(pickle.dumps(problem)), written):
            assert twin is not problem
            assert twin == problem
            assert hash(twin) == hash(problem)
            assert repr(twin) == repr(problem)
        assert problem != "Problem"


class Ramp(MarginLoss):
    """A loss of one's own whose parameter its text does not show."""

    name = "ramp"
    lipschitz = 1.0

    def __init__(self, place):
        self._place = place

    def value(self, t):
        return np.logaddexp(0.0, self._place - t)

    def slope(self, t):
        return -1.0 / (1.0 + np.exp(t - self._place))


def test_losses_of_ones_own_are_compared_by_what_they_hold():
    assert Problem(Ramp(1.0)) == Problem(Ramp(1.0))
    assert Problem(Ramp(1.0)) != Problem(Ramp(2.0))
    assert Problem(Ramp(np.array([1.0, 2.0]))) == Problem(Ramp(np.array([1.0, 2.0])))
    assert Problem(Ramp([1.0, {"a": [2.0]}])) == Problem(Ramp([1.0, {"a": [2.0]}]))
    assert hash(Problem(Ramp([1.0, {"a": [2.0]}]))) == hash(Problem(Ramp([1.0, {"a": [2.0]}])))
    assert Problem(Huber(delta=1.0)) == Problem("huber", delta=1)


def test_prices_belong_to_the_problem():
    prices = np.array([1.0, 2.0])
    problem = Problem("hinge", feature_weights=prices)
    prices[0] = 5.0
    assert problem == Problem("hinge", feature_weights=[1.0, 2.0])
    given = L2Norm(prices)
    prices[0] = 7.0
    assert given == L2Norm(np.array([5.0, 2.0]))


def test_norms_boxes_and_softmax_problems_by_value():
    assert get_norm("l1", [1.0, 2.0]) == L1Norm(np.array([1.0, 2.0]))
    assert get_norm("l1") != get_norm("l2")
    assert len({get_norm("l1"), L1Norm(), get_norm("l1", [1.0]), get_norm("l1", [1.0])}) == 2
    assert Box.of((0, [1, 2])) == Box.of((0.0, (1.0, 2.0)))
    assert len({Box.of((0, 1)), Box.of((0.0, 1.0)), Box.of(([0], [1]))}) == 2
    one, other = (softmax_of(Problem("logistic", feature_weights=w), 3) for w in ([1.0, 2.0], [1.0, 3.0]))
    assert one != other
    assert one == softmax_of(Problem("logistic", feature_weights=[1.0, 2.0]), 3)
    assert one != softmax_of(Problem("logistic", feature_weights=[1.0, 2.0]), 4)
    assert len({one, other}) == 2
    with pytest.raises(TypeError, match="n_classes must be a whole number"):
        softmax_of(Problem("logistic"), 2.5)


LOGISTIC = Problem("logistic", radius=0.1)
OVERFLOWING = {
    "solve": lambda A: solve(LOGISTIC, A, LABELS),
    "fit_coreset": lambda A: fit_coreset(LOGISTIC, A, LABELS, 50),
    "constants": lambda A: LOGISTIC.constants(A),
    "risk": lambda A: LOGISTIC.risk(np.full(3, 1e200), 0.0, A, LABELS),
    "multiplier_bound": lambda A: LOGISTIC.multiplier_bound(np.ones(3), 0.0, A, LABELS),
    "source": lambda A: open_source(A, LABELS).fold(lambda chunk: 1, sum),
    "stream": lambda A: CoresetStream(LOGISTIC, size=50).update(A, LABELS),
}


@pytest.mark.parametrize("call", OVERFLOWING.values(), ids=OVERFLOWING)
def test_features_whose_products_overflow_are_refused(call):
    for size, kind in product((1e307, -1e200), (np.asarray, np.asfortranarray, sp.csr_matrix, sp.csc_matrix)):
        large = X.copy()
        large[7, 1] = size
        with pytest.raises(ValueError, match=r"X has a value beyond 1e\+50.*row 7"):
            call(kind(large))


def test_targets_whose_products_overflow_are_refused():
    large = np.where(np.arange(120) == 7, -1e200, TARGETS)
    for call in (lambda y: solve(Problem("squared", radius=0.1), X, y), lambda y: as_target(y, 120)):
        with pytest.raises(ValueError, match=r"y has a value beyond 1e\+50"):
            call(large)
    with pytest.raises(SourceError, match=r"The target has a value beyond 1e\+50; .* \(row 7\)"):
        open_source(X, large).fold(lambda chunk: 1, sum)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "huber", "squared", "pinball"])
def test_numbers_up_to_the_limit_are_computed_with(loss):
    y = LABELS if loss in ("logistic", "hinge", "squared_hinge") else TARGETS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # whether it converges is another question
        found = solve(Problem(loss, radius=1e47), X * 1e48, y)
    assert np.isfinite([found.value, found.lower_bound]).all()
    assert found.lower_bound <= found.value
    assert Problem(loss, radius=1e47).risk(found.coef, found.intercept, X * 1e48, y) == found.value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("label_cost", 1e-320), ("label_cost", 1e-200), ("label_cost", 1e200), ("radius", 1e-320), ("radius", 1e300),
        ("ridge", 1e300), ("feature_weights", [1e-320, 1.0, 1.0]), ("feature_weights", [1.0, 1e300, 1.0]),
    ],
)  # fmt: skip
def test_settings_that_overflow_are_refused(name, value):
    for loss in ("logistic", "squared_hinge", "huber", "squared"):
        with pytest.raises(ValueError, match=rf"{name} must lie between 1e-50 and 1e\+50, got 1e"):
            Problem(loss, **({"radius": 0.1} | {name: value}))


def test_a_target_that_moves_for_next_to_nothing_is_refused():
    with pytest.raises(ValueError, match="makes every worst-case risk overflow"):
        Problem("squared", radius=0.1, label_cost=1e-45)
    assert solve(Problem("huber", delta=1.0, radius=0.1, label_cost=1e-45), X, TARGETS).value == pytest.approx(2e44)
    cheap = solve(Problem("logistic", radius=0.1, label_cost=1e-45), X, LABELS)  # labels that say nothing
    assert cheap.value == pytest.approx(np.log(2.0), rel=1e-6)
    assert Problem("logistic", ridge=1e-320).ridge == 1e-320


@pytest.mark.parametrize("scale", [1e-320, 5e-324, 1e-300, 1e300, 1.7e308])
def test_weights_of_any_size_become_masses(scale):
    weights, problem = np.full(120, scale), Problem("huber", radius=0.1)
    np.testing.assert_allclose(as_weights(weights, 120), 1.0 / 120.0, rtol=1e-14)
    plain = solve(problem, X, TARGETS)
    assert solve(problem, X, TARGETS, weights).value == pytest.approx(plain.value, rel=1e-9)
    whole = fit_coreset(problem, X, TARGETS, 120, sample_weight=weights, random_state=0)
    assert whole.certificate.upper == pytest.approx(plain.value, rel=1e-6)


@pytest.mark.parametrize("scale", [1e-320, 1e300])
def test_weights_that_cannot_be_summed_as_they_come_are_refused(scale):
    weights = np.full(120, scale)
    with pytest.raises(SourceError, match=r"The weights sum to|The weight is beyond"):
        PartsSource([(X, TARGETS, weights)]).survey()
    with pytest.raises(ValueError, match="a weight is 0 or between 1e-250"):
        CoresetStream(Problem("huber", radius=0.1), size=50).update(X, TARGETS, weights)
