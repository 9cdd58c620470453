"""`DualCoreset`: Algorithm 1 as written, calibration, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Anchor, Coreset, DualCoreset, Problem, fit_coreset, grid_coreset, solve
from dualcore.coresets.refine import as_sampler
from dualcore.data.sources import ArraySource
from pairs import every_value

LOGISTIC = Problem("logistic", radius=0.1, label_cost=1.0)
HINGE = Problem("hinge", radius=0.1, label_cost=1.0)
HUBER = Problem("huber", radius=0.1)


def sample(n: int = 1200, m: int = 3, seed: int = 0, *, labels: bool = True) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    score = 2.0 * X[:, 0] - X[:, 1] + 0.3
    return X, np.where(score + rng.normal(size=n) > 0.0, 1.0, -1.0) if labels else score + rng.normal(size=n)


def means(problem: Problem, anchor: Anchor, X, y, weights=None) -> np.ndarray:
    """Mean ``h`` and its mean gradient in (theta, b, lambda) at the anchor."""
    h = problem.h(anchor.coef, anchor.intercept, anchor.multiplier, X, y)
    # `Problem.gradient` adds the ridge and the price of the multiplier, which do not depend on the rows.
    slope = problem.gradient(anchor.coef, anchor.intercept, X, y, weights, multiplier=anchor.multiplier)
    mean = h.mean() if weights is None else weights @ h
    return np.concatenate([[mean, slope.intercept, slope.multiplier], slope.coef])


# Algorithm 1 as written


@pytest.mark.parametrize("problem", [LOGISTIC, HINGE, HUBER], ids=lambda problem: problem.loss.name)
def test_algorithm_one_is_the_grid_of_h_at_the_anchor(problem):
    X, y = sample(labels=problem.is_classification)
    anchor = solve(problem, X[:200], y[:200])
    coreset = DualCoreset(size=60, calibrate=False, focus=False, anchor=anchor, random_state=4).build(problem, X, y)
    h = problem.h(anchor.coef, anchor.intercept, anchor.dual_variable, X, y)
    if problem.is_classification:
        stays = problem.loss.value(y * (X @ anchor.coef + anchor.intercept))
        assert (h > stays + 1e-9).mean() > 0.05  # flips are active: h is not the plain loss
    expected = grid_coreset(h, h, size=60, slack=float(h.mean()), random_state=0)
    assert coreset.details["cells"] == expected.grid.n_cells
    cell = expected.grid.cell[coreset.indices]
    np.testing.assert_array_equal(np.bincount(cell, minlength=expected.draws.size), expected.draws)
    np.testing.assert_allclose(coreset.weights, expected.grid.counts[cell] / (1200 * expected.draws[cell]), rtol=1e-12)


def test_algorithm_one_reads_once_more_only_to_score():
    X, y = sample()
    source = ArraySource(X, y)
    sampler = DualCoreset(size=60, calibrate=False, focus=False, random_state=0)
    sampler.build(LOGISTIC, source)
    assert source.n_reads == 1
    assert sampler.fit(LOGISTIC, X, y).certificate.n_reads == 2


# Calibration


@every_value(
    pytest.mark.parametrize("problem", [LOGISTIC, HINGE, HUBER], ids=lambda problem: problem.loss.name),
    focus=[True, False],
)
def test_mean_and_gradient_of_h_at_the_anchor_are_reproduced(problem, focus):
    X, y = sample(labels=problem.is_classification)
    anchor = solve(problem, X[:200], y[:200])
    coreset = DualCoreset(size=150, focus=focus, anchor=anchor, random_state=4).build(problem, X, y)
    full = means(problem, coreset.anchor, X, y)
    few = means(problem, coreset.anchor, coreset.X, coreset.y, coreset.weights)
    np.testing.assert_allclose(few, full, atol=1e-8)
    assert coreset.details["calibration_residual"] <= 1e-7
    loose = DualCoreset(size=150, focus=focus, calibrate=False, anchor=anchor, random_state=4)
    if focus:  # without focus this is Algorithm 1
        other = loose.build(problem, X, y)
        assert np.abs(means(problem, anchor_of(other), other.X, other.y, other.weights) - full).max() > 1e-4


def anchor_of(coreset: Coreset) -> Anchor:
    assert coreset.anchor is not None
    return coreset.anchor


def test_the_mass_of_the_classes_is_reproduced():
    X, y = sample()
    coreset = DualCoreset(size=150, random_state=4).build(LOGISTIC, X, y)
    assert coreset.weights[coreset.y > 0.0].sum() == pytest.approx((y > 0.0).mean(), abs=1e-8)


@pytest.mark.parametrize("size", [2, 3, 5, 10, 20])
def test_fewer_rows_than_moments_still_make_a_coreset(size):
    X, y = sample(m=30)
    coreset = DualCoreset(size=size, random_state=1).build(LOGISTIC, X, y)
    assert 1 < len(coreset) <= size
    assert set(coreset.y) == {-1.0, 1.0}
    assert (coreset.weights > 0.0).all()
    assert coreset.weights.sum() == pytest.approx(1.0, abs=1e-14)
    assert np.isfinite(coreset.details["calibration_residual"])


def test_calibration_beats_the_plain_draw_near_the_anchor():
    """Mean over 10 seeds of the largest relative error at 30 models within a tenth of the anchor's norm."""
    X, y = sample(4000)
    anchor = solve(LOGISTIC, X[:300], y[:300])
    errors = [
        np.mean(
            [
                DualCoreset(size=200, calibrate=calibrate, focus=False, anchor=anchor, random_state=seed)
                .build(LOGISTIC, X, y)
                .measure(LOGISTIC, X, y, queries=30, ascents=0)
                .epsilon
                for seed in range(10)
            ]
        )
        for calibrate in (True, False)
    ]
    assert errors[0] < 0.5 * errors[1]


# Weights


def test_equal_weights_are_no_weights():
    X, y = sample()
    plain = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y)
    equal = DualCoreset(size=80, random_state=1).build(LOGISTIC, X, y, np.full(len(y), 5.0))
    np.testing.assert_array_equal(plain.indices, equal.indices)
    np.testing.assert_allclose(plain.weights, equal.weights, rtol=1e-6)


def test_weighted_moments_are_reproduced():
    X, y = sample()
    weights = np.random.default_rng(0).uniform(0.1, 3.0, size=len(y))
    anchor = solve(LOGISTIC, X[:200], y[:200])
    coreset = DualCoreset(size=150, anchor=anchor, random_state=4).build(LOGISTIC, X, y, weights)
    full = means(LOGISTIC, coreset.anchor, X, y, weights / weights.sum())
    few = means(LOGISTIC, coreset.anchor, coreset.X, coreset.y, coreset.weights)
    np.testing.assert_allclose(few, full, atol=1e-8)


# Anchors


@pytest.mark.parametrize(
    ("anchor", "error", "message"),
    [
        (Anchor(np.ones(2), 0.0, 9.0), ValueError, "2 coefficients but X has 3"),
        (Anchor(np.ones(3), 0.0, 0.5), ValueError, r"multiplier 0.5 is below kappa = 1.73\d*: h is infinite"),
        ((np.ones(3), 0.0), TypeError, "must be an Anchor or a Solution, got tuple"),
    ],
)
def test_what_is_no_anchor_is_refused(anchor, error, message):
    X, y = sample()
    for options in ({}, {"calibrate": False, "focus": False}):
        with pytest.raises(error, match=message):
            DualCoreset(size=80, anchor=anchor, **options).build(LOGISTIC, X, y)


@pytest.mark.parametrize("options", [{}, {"calibrate": False, "focus": False}])
def test_an_anchor_that_is_not_finite_is_refused(options):
    X, y = sample()
    with pytest.raises(ValueError, match="finite"):
        DualCoreset(size=80, anchor=Anchor(np.full(3, np.nan), 0.0, 9.0), **options).build(LOGISTIC, X, y)


# All rows


def test_the_certificate_of_all_rows_is_as_good_as_the_solver():
    """`solve` proves a gap of 1e-6 on these very rows; a fit through all of them should not forget it."""
    X, y = sample()
    fit = DualCoreset(size=1.0, random_state=0).fit(HINGE, X, y)
    assert fit.certificate.relative_gap <= 1e-5


# Refusals


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number of at least 1, got 0"),
        ({"rounds": True}, "rounds must be a whole number"),
        ({"rounds": 2.0}, "rounds must be a whole number"),
        ({"target_gap": 0.0}, "target_gap must be positive"),
        ({"target_gap": np.nan}, "target_gap must be positive"),
        ({"epsilon": 0.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        ({"epsilon": 1.0, "parameter_radius": 1.0}, "strictly between 0 and 1"),
        ({"epsilon": 0.1}, "needs a positive parameter_radius"),
        ({"epsilon": 0.1, "parameter_radius": -1.0}, "needs a positive parameter_radius"),
        ({"calibrate": False, "focus": False, "rounds": 2}, "Algorithm 1 draws once"),
        ({"size": None}, "size is None"),
        ({"size": 0}, "at least one row"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_build_and_fit(options, message):
    X, y = sample(100)
    for call in ("build", "fit"):
        with pytest.raises(ValueError, match=message):
            getattr(DualCoreset(**({"random_state": 0} | options)), call)(LOGISTIC, X, y)


def test_one_row_is_enough_for_a_target():
    X, y = sample(100, labels=False)
    fit = DualCoreset(size=1, random_state=0).fit(HUBER, X, y)
    assert len(fit.coreset) == 1
    assert fit.coreset.weights.tolist() == [1.0]
    assert fit.certificate.lower <= solve(HUBER, X, y).value <= fit.certificate.upper * (1.0 + 1e-9)


# The one call behind the estimators


def test_a_number_is_a_calibrated_refined_coreset():
    sampler = as_sampler(0.1, 7)
    assert sampler == DualCoreset(size=0.1, rounds=4, target_gap=1e-3, random_state=7)


def test_a_sampler_without_a_seed_takes_the_estimators():
    assert as_sampler(DualCoreset(size=5), 7).random_state == 7
    assert as_sampler(DualCoreset(size=5, random_state=3), 7).random_state == 3


def test_what_is_no_coreset_is_refused():
    for wrong in ["0.1", True, None]:
        with pytest.raises(TypeError, match=r"coreset must be a size .* or a sampler"):
            as_sampler(wrong)


def test_fit_coreset_is_the_fit_of_its_sampler():
    X, y = sample()
    one = fit_coreset(LOGISTIC, X, y, coreset=0.1, random_state=3)
    other = DualCoreset(size=0.1, rounds=4, target_gap=1e-3, random_state=3).fit(LOGISTIC, X, y)
    np.testing.assert_array_equal(one.solution.coef, other.solution.coef)
    # So few rows are certified once more with all of them at hand.
    assert one.certificate.upper == other.certificate.upper
    assert one.certificate.lower >= other.certificate.lower
