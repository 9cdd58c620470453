"""`Problem`: worked examples, the constants of the theory, what it refuses, and what it leaves alone."""

from __future__ import annotations

from functools import partial
from itertools import product

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem
from dualcore.problem.geometry import get_norm
from dualcore.problem.losses import LOSSES
from pairs import every_value

CLASSIFICATION = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
X = np.array([[1.0, 2.0], [-1.0, 0.5], [0.3, -2.0], [2.0, 1.0]])
LABELS = np.array([1.0, -1.0, -1.0, 1.0])
TARGETS = np.array([0.5, -1.0, 2.0, 0.0])
COEF, INTERCEPT = np.array([0.8, -0.6]), 0.1


def targets(loss: str) -> np.ndarray:
    return LABELS if loss in CLASSIFICATION else TARGETS


def test_a_hinge_worked_out_by_hand():
    """Two rows with margin 1: the losses are 0, and moving mass costs one unit of loss a unit of distance."""
    data = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    problem = Problem("hinge", radius=0.5)
    assert problem.risk([1.0], 0.0, *data) == 0.5
    assert problem.multiplier([1.0], 0.0, *data) == 1.0
    # At label cost 1/2 a flip earns 2 for 1/2, four times what moving earns, and the radius pays for all of them.
    problem = Problem("hinge", radius=0.5, label_cost=0.5)
    assert problem.multiplier_interval([1.0], 0.0, *data) == (1.0, 4.0)
    assert problem.risk([1.0], 0.0, *data) == pytest.approx(2.0)
    # Half of that radius pays for half of the mass.
    problem = problem.replace(radius=0.25)
    assert problem.risk([1.0], 0.0, *data) == pytest.approx(1.0)
    assert problem.multiplier([1.0], 0.0, *data) == pytest.approx(4.0)


def test_squared_losses_worked_out_by_hand():
    data = np.array([[1.0], [2.0]]), np.array([0.0, 0.0])
    problem = Problem("squared", radius=0.5)
    rms = np.sqrt(2.5)
    assert problem.risk([1.0], 0.0, *data) == pytest.approx((rms + 0.5) ** 2, rel=1e-14)
    assert problem.multiplier([1.0], 0.0, *data) == pytest.approx(1.0 + rms / 0.5, rel=1e-14)
    assert problem.price == 0.25
    # A target that moves for half of a unit makes K = 2.
    assert problem.replace(label_cost=1.0).risk([1.0], 0.0, *data) == pytest.approx((rms + 1.0) ** 2, rel=1e-14)
    margins = np.array([[0.0], [-3.0]]), np.array([1.0, -1.0])
    problem = Problem("squared_hinge", radius=0.5)
    assert problem.risk([1.0], 0.0, *margins) == pytest.approx((np.sqrt(0.5) + 0.5) ** 2, rel=1e-14)


def test_replace_changes_what_it_is_told_to():
    problem = Problem("huber", delta=0.5, radius=0.1, norm="l1", label_cost=3.0, ridge=0.2, fit_intercept=False)
    changes = {"radius": 0.4, "norm": "linf", "label_cost": np.inf, "ridge": 0.0, "fit_intercept": True}
    assert problem.replace(**changes) == Problem("huber", delta=0.5, **changes)
    assert problem.replace(loss="squared").geometry.order == 2
    assert problem.radius == 0.1
    priced = Problem("hinge", radius=0.1).replace(feature_weights=[1.0, 4.0])  # prices outlive a change of norm
    assert priced.kappa(COEF) == pytest.approx(np.hypot(0.8, 0.15), rel=1e-14)
    assert priced.replace(norm="l1").kappa(COEF) == pytest.approx(0.8, rel=1e-14)


def test_the_growth_constants_worked_out_by_hand():
    assert Problem("hinge").growth([0.0], -2.0) == 3.0
    assert Problem("hinge").growth([5.0], -2.0) == 5.0
    assert Problem("logistic").growth([0.0], 0.0) == pytest.approx(np.log(2.0))
    assert Problem("huber", delta=0.5, label_cost=4.0).growth([0.0], 0.0) == 0.25
    assert Problem("huber", delta=0.5, label_cost=4.0).growth([0.0], -3.0) == 1.5
    assert Problem("absolute").growth([1.0], 1.0, y=[-4.0, 2.0]) == 5.0
    assert Problem("squared_hinge").growth([0.0], 1.0) == 8.0


def test_the_constants_worked_out_by_hand():
    points = np.array([[3.0, 4.0], [0.0, 1.0]])
    assert Problem("hinge", label_cost=7.0, fit_intercept=False).constants(points) == (5.0, 7.0)
    assert Problem("hinge", label_cost=7.0).constants(points).parameters == pytest.approx(np.sqrt(26.0))
    assert Problem("hinge").constants(points).multiplier == 0.0
    assert Problem("huber", delta=2.0, label_cost=7.0, fit_intercept=False).constants(points) == (10.0, 0.0)
    with pytest.raises(ValueError, match="exist for order 1 only"):
        Problem("squared").constants(points)
    # A radius of zero bounds no multiplier.
    assert Problem("hinge").multiplier_bound(COEF, INTERCEPT, X, LABELS) == np.inf
    assert Problem("squared").multiplier_interval(COEF, INTERCEPT, X, TARGETS)[1] == np.inf


@pytest.mark.parametrize("loss", LOSSES)
def test_large_margins_and_zero_coefficients_are_safe(loss):
    """Margins near 1e8, of both signs, and models of zeros, under arithmetic that raises."""
    for label_cost, radius in product((0.5, np.inf), (0.0, 0.3)):
        problem = Problem(loss, radius=radius, label_cost=label_cost)
        for coef, intercept, data in ((COEF, INTERCEPT, 1e8 * X), *((np.zeros(2), b, X) for b in (0.0, 1.0, -3.0))):
            assert np.isfinite(problem.risk(coef, intercept, data, targets(loss)))
            gradient = problem.gradient(coef, intercept, data, targets(loss))
            assert np.isfinite([*gradient.coef, gradient.intercept]).all()
    assert np.isfinite(problem.multiplier_bound(COEF, INTERCEPT, 1e8 * X, targets(loss)))


def test_ties_among_flips_are_spent_within_the_radius():
    """A hundred equal rows: the radius pays for a third of their flips, and the gradient shares it out."""
    rows, y = np.vstack([np.full((100, 1), 3.0), [[-3.0]]]), np.append(np.ones(100), -1.0)
    problem = Problem("hinge", radius=0.3, label_cost=1.0)
    risk = problem.risk([1.0], 0.0, rows, y)
    assert risk == pytest.approx(0.3 * 4.0, rel=1e-12)
    gradient = problem.gradient([1.0], 0.0, rows, y)
    step = 1e-6
    rise = problem.risk([1.0 + step], 0.0, rows, y) - problem.risk([1.0 - step], 0.0, rows, y)
    assert gradient.coef[0] == pytest.approx(rise / (2.0 * step), rel=1e-6)


def test_settings_that_make_no_sense_are_refused():
    for settings, error, message in [
        *(
            ({name: bad}, ValueError, f"{name} must be finite and non-negative, got")
            for name in ("radius", "ridge")
            for bad in (-0.1, np.nan, np.inf)
        ),
        *(({"label_cost": bad}, ValueError, "label_cost must be .*, got") for bad in (0.0, -1.0, np.nan, -np.inf)),
        ({"radius": "0.1"}, TypeError, "radius must be a number, got"),
        ({"radius": True}, TypeError, "radius must be a number, got"),
        ({"ridge": None}, TypeError, "ridge must be a number, got"),
        ({"label_cost": [0.1]}, TypeError, "label_cost must be a number, got"),
        ({"order": 1}, TypeError, r"does not take the parameters \['order'\]"),  # the loss has it
        ({"loss": "quadratic"}, ValueError, r"Unknown loss 'quadratic'\. Use one of"),
        ({"norm": "l0"}, ValueError, r"Unknown norm 'l0'\. Use one of"),
        ({"gamma": 3.0}, TypeError, r"does not take the parameters \['gamma'\]"),
        ({"norm": get_norm("l2"), "feature_weights": [1.0, 2.0]}, TypeError, "norm is already a Norm"),
    ]:
        with pytest.raises(error, match=message):
            Problem(**({"loss": "hinge"} | settings))


def every_call(problem: Problem, coef, intercept, data, y):
    """Yield the public methods that take data, with everything else filled in."""
    for name in ("h", "bounds", "objective"):
        yield partial(getattr(problem, name), coef, intercept, 100.0, data, y)
    for name in ("risk", "multiplier", "gradient", "multiplier_interval", "multiplier_bound"):
        yield partial(getattr(problem, name), coef, intercept, data, y)


@pytest.mark.parametrize(
    ("data", "y", "message"),
    [
        (np.empty((0, 2)), [], r"0 sample\(s\)"),
        (np.empty((4, 0)), LABELS, r"0 feature\(s\)"),
        (X[:, 0], LABELS, "Expected 2D array, got 1D array"),
        (X, LABELS[:3], "X has 4 rows but y has 3: give one target per row"),
        (X, np.ones(4), r"y holds one class only \(\+1\); a classifier needs rows of both classes"),
        (X, [0, 1, 1, 0], r"needs the labels -1 and \+1, found \[0.0, 1.0\] in y. Map your classes"),
        (X, [1, 2, 3, 1], r"found \[1.0, 2.0, 3.0\]"),
        (np.ones((10, 2)), np.arange(10), r"found \[0.0, 1.0, 2.0, 3.0, 4.0\] and more in y\."),
        (X, np.zeros(4), r"A classifier needs the labels -1 and \+1, found \[0.0\]"),
        (X, ["a", "b", "a", "b"], "y must be numeric here; found dtype <U1"),
        (X, [1.0, -1.0, np.nan, 1.0], "y has a NaN or infinite value"),
        (X, LABELS[:, None], r"y must be one-dimensional, got shape \(4, 1\). Use y.ravel"),
    ],
)
def test_data_that_cannot_be_used_are_described_by_every_method(data, y, message):
    for call in every_call(Problem("hinge", radius=0.1), COEF, INTERCEPT, data, y):
        with pytest.raises(ValueError, match=message):
            call()


@every_value(
    kind=[np.asarray, np.asfortranarray, np.float32, sp.csr_matrix, sp.csc_matrix],
    loss=["hinge", "absolute", "squared", "squared_hinge"],
    bad=[np.nan, np.inf, -np.inf],
)
def test_values_that_are_not_finite_are_found_by_every_method(kind, loss, bad):
    data, problem = X.copy(), Problem(loss, radius=0.1)
    data[2, 1], data[3, 1] = bad, -bad
    for call in every_call(problem, COEF, INTERCEPT, kind(data), targets(loss)):
        with pytest.raises(ValueError, match="X has a NaN or infinite value"):
            call()
    with pytest.raises(ValueError, match="X has a NaN or infinite value in row 2"):
        problem.risk(np.array([1.0, 0.0]), 0.0, kind(data), targets(loss))  # under a zero coefficient too
    if problem.geometry.order == 1:
        with pytest.raises(ValueError, match="X has a NaN or infinite value"):
            problem.constants(kind(data))


def test_weights_models_and_prices_that_cannot_be_used_are_described():
    problem = Problem("hinge", radius=0.1)
    for weights, message in [
        ([1.0, np.nan, 1.0, 1.0], "sample_weight has a NaN or infinite value"),
        ([1.0, -1.0, 1.0, 1.0], "sample_weight has negative values"),
        (np.zeros(4), "sample_weight sums to zero"),
        (np.ones(3), r"one number per row \(4\), got shape \(3,\)"),
    ]:
        for call in (problem.risk, problem.multiplier, problem.gradient):
            with pytest.raises(ValueError, match=message):
                call(COEF, INTERCEPT, X, LABELS, weights)
        with pytest.raises(ValueError, match=message):
            problem.objective(COEF, INTERCEPT, 10.0, X, LABELS, weights)
    priced = [problem.replace(feature_weights=[1.0, 2.0, 3.0]), problem.replace(norm=get_norm("l2", [1.0, 2.0, 3.0]))]
    for asked, coef, intercept, message in [
        (problem, np.ones(3), 0.0, r"coef must hold one number per feature \(2\), got shape \(3,\)"),
        (problem, np.ones((2, 1)), 0.0, r"got shape \(2, 1\)"),
        (problem, 1.0, 0.0, r"got shape \(\)"),
        (problem, [np.nan, 1.0], 0.0, "coef and intercept must be finite"),
        (problem, [1.0, 1.0], np.inf, "coef and intercept must be finite"),
        *((each, COEF, 0.0, "feature_weights holds 3 prices but X has 2 features") for each in priced),
    ]:
        for call in (asked.risk, asked.multiplier, asked.gradient, asked.multiplier_interval):
            with pytest.raises(ValueError, match=message):
                call(coef, intercept, X, LABELS)
    with pytest.raises(ValueError, match=r"multiplier 0\.5 is below kappa = 1\.0"):
        problem.gradient(COEF, INTERCEPT, X, LABELS, multiplier=0.5)


@pytest.mark.parametrize("loss", LOSSES)
def test_inputs_are_never_modified_and_may_be_lists(loss):
    y, weights, coef = targets(loss).copy(), np.array([1.0, 2.0, 0.0, 3.0]), COEF.copy()
    data = X.copy()
    for array in (data, y, weights, coef):
        array.flags.writeable = False  # a write raises
    for label_cost in (0.5, np.inf):
        problem = Problem(loss, radius=0.2, label_cost=label_cost, ridge=0.1)
        for call in every_call(problem, coef, INTERCEPT, data, y):
            call()
        problem.gradient(coef, INTERCEPT, data, y, weights, multiplier=100.0)
        problem.growth(coef, INTERCEPT, y)
    found = problem.risk(coef.tolist(), INTERCEPT, data.tolist(), y.tolist(), [1, 2, 0, 3])
    assert found == problem.risk(coef, INTERCEPT, data, y, weights)
    assert isinstance(found, float)
    assert isinstance(problem.multiplier(coef, INTERCEPT, data, y), float)
