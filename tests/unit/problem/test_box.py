"""Problems on a box support: dual losses, risk, worst case, training, coresets."""

import numpy as np
import pytest

from dualcore import (
    GridCoreset,
    LayeredCoreset,
    Problem,
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    certify,
    solve,
    worst_case_distribution,
)
from dualcore.problem.geometry import Box
from dualcore.solvers import IncompatibleError
from pairs import every_value
from reference.referee import ORDERS, least_risk, plain_loss

LOSSES = ("hinge", "logistic", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")
NORMS = ("l1", "l2", "linf")


def make_data(n, m, problem, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, m))
    score = (X - 0.5) @ rng.normal(size=m) * 4.0
    if problem.is_classification:
        return X, np.where(score + 0.7 * rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, score + 0.3 * rng.standard_t(3, size=n)


def make_problem(loss, norm, **settings):
    parameters = {"pinball": {"quantile": 0.3}, "huber": {"delta": 0.5}}.get(loss, {})
    return Problem(loss, **({"radius": 0.1, "norm": norm, "support": (0.0, 1.0)} | parameters | settings))


@pytest.mark.parametrize("norm", NORMS)
def test_no_random_move_earns_more(norm):
    """Thirty moves of each of 3,360 (theta, lam, row), by the definition of ``h``."""
    rng = np.random.default_rng(7)
    for loss in LOSSES * 10:
        problem = make_problem(loss, norm, label_cost=float(rng.choice([0.5, 2.0, np.inf])))
        coef, intercept = rng.normal(size=4) * rng.choice([0.3, 2.0]), float(rng.normal())
        lam = max(problem.kappa(coef), float(rng.uniform(0.0, 1.2)) * problem.size(coef))
        X, y = rng.random((48, 4)), np.where(rng.random(48) < 0.5, 1.0, -1.0)
        points = np.clip(X + rng.normal(size=(30, 48, 4)) * rng.random((30, 48, 1)), 0.0, 1.0)
        score, cost = points @ coef + intercept, np.linalg.norm(points - X, ord=ORDERS[norm], axis=-1)
        earned = plain_loss(problem, score, y) - lam * cost
        if problem.is_classification and np.isfinite(problem.geometry.label_cost):
            earned = np.maximum(earned, plain_loss(problem, score, -y) - lam * (cost + problem.geometry.label_cost))
        upper = problem.h(coef, intercept, lam, X, y)
        assert (earned.max(axis=0) <= upper + 1e-12 * np.maximum(1.0, np.abs(upper))).all()


def test_without_a_budget_walls_do_not_matter():
    problem = make_problem("hinge", "l2", radius=0.0, label_cost=1.0)
    X, y = make_data(30, 3, problem)
    free = problem.replace(support=None)
    assert problem.risk([1.0, 2.0, 3.0], 0.1, X, y) == pytest.approx(free.risk([1.0, 2.0, 3.0], 0.1, X, y))
    solution = solve(problem, X, y)
    assert certify(problem, solution, X, y).relative_gap <= 1e-6


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize(
    ("loss", "norm", "ridge"),
    [
        ("hinge", "l2", 0.01), ("pinball", "l1", 0.01), ("hinge", "linf", 0.01),
        ("logistic", "l1", 0.0), ("smooth_hinge", "linf", 0.0), ("huber", "l2", 0.0),
    ],
)  # fmt: skip
def test_finds_the_optimum_of_the_referee(loss, norm, ridge):
    problem = make_problem(loss, norm, label_cost=1.0, ridge=ridge)
    X, y = make_data(30, 2, problem)
    reference = least_risk(problem, X, y)
    solution = solve(problem, X, y, tol=1e-7)
    assert solution.value == pytest.approx(reference, rel=1e-6)
    assert solution.lower_bound <= reference * (1.0 + 1e-7)


@every_value(norm=NORMS, loss=["hinge", "logistic"])
def test_a_feature_that_does_not_vary_is_no_obstacle(loss, norm):
    problem = make_problem(loss, norm, label_cost=1.0)
    X, y = make_data(100, 3, problem)
    best = solve(problem, X, y)
    for value in (0.5, 1.0):
        found = solve(problem, np.column_stack([X, np.full(100, value)]), y, solver="box")
        assert found.relative_gap <= 1e-6
        assert found.value == pytest.approx(best.value, rel=1e-6)


@pytest.mark.parametrize("norm", NORMS)
def test_rows_a_rounding_error_outside_are_taken_where_they_are(norm):
    problem = make_problem("hinge", norm, label_cost=1.0)
    X, y = make_data(100, 3, problem)
    X[:50] = np.where(X[:50] > 0.5, 1.0 + 1e-7, -1e-7)
    found = solve(problem, X, y)
    assert found.relative_gap <= 1e-6
    wide = solve(problem.replace(support=(-1e-7, 1.0 + 1e-7)), X, y)
    assert found.lower_bound <= wide.value  # those few can move a little further
    assert found.value == pytest.approx(wide.value, rel=1e-5)
    worst = worst_case_distribution(problem, found.coef, found.intercept, X, y)
    assert worst.X.min() >= -1e-7
    assert worst.X.max() <= 1.0 + 1e-7
    with pytest.raises(ValueError, match="outside the support"):
        solve(problem, X + 1e-4, y)


@pytest.mark.parametrize("loss", ["hinge", "huber"])
def test_a_tiny_radius_is_certified_by_what_nothing_moved_costs(loss):
    problem = make_problem(loss, "l2", label_cost=1.0, radius=1e-8)
    X, y = make_data(300, 3, problem)
    found = solve(problem, X, y)
    assert found.relative_gap <= 1e-6
    assert found.value == pytest.approx(solve(problem.replace(radius=0.0), X, y).value, rel=1e-5)


def test_constant_features_and_no_intercept():
    problem = make_problem("logistic", "l2", support=([0.0, 0.5], [1.0, 0.5]))
    X, y = make_data(60, 2, problem)
    X[:, 1] = 0.5
    assert solve(problem, X, y).relative_gap <= 1e-6
    bare = problem.replace(fit_intercept=False)
    with pytest.raises(IncompatibleError, match="ridge > 0"):
        solve(bare, X, y)
    held = bare.replace(ridge=0.1)
    solution = solve(held, X, y)
    assert solution.relative_gap <= 1e-6
    assert solution.coef[1] != 0.0  # it stands for the intercept that is not there
    assert held.risk(solution.coef * [1.0, 0.9], 0.0, X, y) >= solution.lower_bound


def test_the_papers_bounds_span_a_true_grid():
    problem = make_problem("hinge", "linf", label_cost=0.5)
    X, y = make_data(600, 6, problem)
    anchor = solve(problem, X, y, tol=1e-4)
    settings = {"size": 100, "anchor": anchor, "random_state": 0}
    paper = GridCoreset(bounds="paper", **settings).build(problem, X, y)
    assert paper.details["cells"] > LayeredCoreset(**settings).build(problem, X, y).details["cells"]


def test_estimators_take_a_support():
    problem = make_problem("hinge", "l2", label_cost=1.0)
    X, y = make_data(150, 3, problem)
    whole = WassersteinLinearSVC(radius=0.1, label_cost=1.0, support=(0, 1)).fit(X, y)
    assert whole.worst_case_risk_ == pytest.approx(solve(problem, X, y).value, rel=1e-6)
    assert whole.worst_case_distribution(X, y).attained
    assert whole.get_params()["support"] == (0, 1)
    with pytest.raises(ValueError, match="outside the support"):
        whole.worst_case_risk(X + 1.0, y)
    part = WassersteinHuberRegressor(radius=0.1, support=(0, 1), coreset=0.5, random_state=0).fit(X, X @ [1, 2, 3])
    assert part.certificate_.lower <= part.worst_case_risk_
    with pytest.raises(ValueError, match="order 1"):
        WassersteinLinearRegression(support=(0, 1)).fit(X, X[:, 0])


@pytest.mark.parametrize(
    ("support", "message"),
    [
        ((1.0, 0.0), "low must not exceed high"),
        (([0.0, 2.0], 1.0), "feature 1"),
        (([0.0, 0.0], [1.0, 1.0, 1.0]), "low holds 2 numbers but high holds 3"),
        ((np.nan, 1.0), "not NaN"),
        (3.0, "a pair"),
        (("a", "b"), "a pair"),
        (([[0.0]], 1.0), "low must be a number"),
    ],
)
def test_supports_that_make_no_sense(support, message):
    with pytest.raises(ValueError, match=message):
        Problem("hinge", support=support)


def test_what_a_box_cannot_do_is_said():
    X, y = np.array([[0.5, 0.2], [0.1, 0.7]]), [1.0, -1.0]
    asked = ([1.0, 1.0], 0.0, 2.0, X, y)
    closed, opened = make_problem("hinge", "l2"), make_problem("hinge", "l2", support=(0.0, np.inf))
    outside = r"Row 1 lies outside the support: feature 1 is 0.7, allowed are \[0, 0.5\]"
    for call, message in [
        (lambda: solve(closed.replace(support=(0.0, [1.0, 0.5])), X, y), outside),
        (lambda: closed.replace(support=(np.zeros(3), 1.0)).h(*asked), "3 numbers a side but X has 2"),
        (lambda: closed.form, "no function of its margin"),
        (lambda: closed.replace(loss="squared"), "order 1"),
        (lambda: opened.bounds(*asked, rule="paper"), "all its limits"),
        (lambda: opened.bounds(*asked, rule="loose"), "rule must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()


def test_replace_and_repr_keep_it():
    problem = make_problem("hinge", "l2", support=(0.0, 1.0))
    assert "support=(0.0, 1.0)" in repr(problem.replace(radius=0.3))
    assert problem.replace(support=None).family.is_closed
    assert Box.of((-np.inf, np.inf)) is None
    assert "support" not in repr(Problem("hinge"))


@pytest.mark.parametrize("loss", ["hinge", "logistic", "huber"])
@pytest.mark.parametrize("tiny", [1e-90, 1e-170, 1e-310])
def test_coefficients_next_to_zero_move_nothing(loss, tiny):
    """The ratio of a limit to such a coefficient has no finite square; floating-point faults are errors."""
    problem = Problem(loss, norm="l2", radius=0.05, support=(0.0, 1.0))
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(30, 4))
    y = np.where(X[:, 0] > 0.5, 1.0, -1.0)
    coef = np.array([1.0, tiny, -0.5, -tiny])
    without = np.where(np.abs(coef) < 1e-3, 0.0, coef)
    assert problem.risk(coef, -0.3, X, y) == pytest.approx(problem.risk(without, -0.3, X, y), rel=1e-9)
    for multiplier in (0.0, 1e-100, 1e-3, 0.1):
        h = problem.h(coef, -0.3, multiplier, X, y)
        np.testing.assert_allclose(h, problem.h(without, -0.3, multiplier, X, y), rtol=1e-8, atol=1e-9)


def test_l2_limits_on_one_side_are_searched_where_digits_are_left() -> None:
    """Coefficients of 1e6 and a price near ``Lip ||theta||``: a search out to where costs are 1e16 missed the peak."""
    delta = 10.75
    low = np.array([-0.18, -np.inf, -0.84, -0.34])
    high = np.array([0.40, np.inf, np.inf, 0.22])
    problem = Problem("huber", delta=delta, radius=1.4e-5, norm="l2", support=(low, high))
    coef = np.array([-519863.0, 852621.0, -474471.0, 292806.0])
    X = np.array([[-0.124, 0.049, 0.299, 0.119], [-0.063, 0.025, 0.151, 0.060], [0.348, -0.138, -0.836, -0.334]])
    y = X @ coef + np.array([2.6, -4.2, 0.65])
    steepest = delta * float(np.linalg.norm(coef))
    values = []
    for share in np.linspace(0.99, 1.0 - 1e-9, 60):
        lower, upper = problem.bounds(coef, 0.0, share * steepest, X, y)
        assert (lower <= upper).all()
        np.testing.assert_allclose(lower, upper, rtol=1e-8, atol=1e-8)
        values.append(upper)
    falls = np.diff(values, axis=0)
    assert (falls <= 1e-7).all()  # h does not rise with the multiplier
    assert (np.diff(falls, axis=0) >= -1e-6 * np.max(values)).all()  # and is convex in it
    lam = np.linspace(0.99, 1.01, 201) * steepest
    means = [problem.radius * each + problem.bounds(coef, 0.0, each, X, y)[1].mean() for each in lam]
    assert problem.risk(coef, 0.0, X, y) <= min(means) * (1.0 + 1e-9)
