"""Orders above 1: powers of the residual, their dual, closed form and certificate; estimators of squared losses."""

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from dualcore import Problem, WassersteinLinearRegression, WassersteinLinearSVC, certify, solve
from dualcore.problem.losses import Power, check_loss
from dualcore.solvers import IncompatibleError
from expected import warns_of_gap
from pairs import every_pair, every_value
from reference.referee import referee_of
from solver_cases import targets

POWERS = (1.5, 3.0, 4.0)


@pytest.mark.parametrize("power", [2.0, 3.0, 4.0])  # below 2 the curvature has a pole, which looks like a kink
def test_the_loss_keeps_its_promises(power):
    assert f"order {power:g}" in check_loss(Power(power)).replace(".0,", ",")


@every_value(power=POWERS, label_cost=[1.0, np.inf])
def test_h_is_the_best_move_of_a_row(power, label_cost):
    """``sup_s (|r| + K s)^p - lam s^p`` by a search over ``s``."""
    problem = Problem("power", power=power, radius=0.1, label_cost=label_cost)
    coef = np.array([0.7, -0.4])
    steep = max(float(np.linalg.norm(coef)), 2.0 / label_cost)
    for factor in (1.05, 1.5, 4.0):
        lam = factor * steep**power
        assert problem.kappa(coef) == pytest.approx(steep**power)
        for residual in (-1.3, 0.0, 0.4, 2.0):

            def missed(s, lam=lam, residual=residual):
                return lam * s**power - (abs(residual) + steep * s) ** power

            far = minimize_scalar(missed, bounds=(0.0, 1e3), method="bounded").x
            near = minimize_scalar(
                missed, bounds=(0.5 * far, 2.0 * far + 1e-12), method="bounded", options={"xatol": 1e-12}
            )
            h = problem.h(coef, residual, lam, np.zeros((1, 2)), np.zeros(1))[0]
            assert h == pytest.approx(max(-near.fun, abs(residual) ** power), rel=1e-6, abs=1e-9)


@every_pair(
    pytest.mark.parametrize(("label_cost", "ridge"), [(np.inf, 0.0), (3.0, 0.0), (np.inf, 0.1), (3.0, 0.1)]),
    power=POWERS,
    norm=["l1", "l2", "linf"],
)
def test_the_solver_reproduces_the_closed_form(power, norm, label_cost, ridge):
    """``R = (N + radius K)^p``, certified, and no less than the minimum over the multiplier."""
    X, y = targets(200)
    weights = np.linspace(0.5, 1.5, 200)
    problem = Problem("power", power=power, radius=0.2, norm=norm, label_cost=label_cost, ridge=ridge)
    solution = solve(problem, X, y, weights)
    assert solution.solver == "descent"
    assert solution.relative_gap <= 1e-6
    assert certify(problem, solution, X, y, weights).relative_gap <= 1e-6
    referee = referee_of(problem, X, y, weights)
    closed = float(referee.risk(referee.point(solution.coef, solution.intercept)))
    assert solution.value == pytest.approx(closed, rel=1e-10)
    model, lam = (solution.coef, solution.intercept), solution.dual_variable
    for factor in (0.99, 1.0, 1.01):
        objective = problem.objective(*model, factor * lam, X, y, weights)
        assert objective == pytest.approx(solution.value, rel=1e-9 if factor == 1.0 else 1e-2)
        assert objective >= solution.value * (1.0 - 1e-12)


def test_the_estimator_takes_a_power():
    X, y = targets(200)
    weights = np.linspace(0.5, 1.5, 200)
    model = WassersteinLinearRegression(power=1.5, radius=0.1).fit(X, y, sample_weight=weights)
    assert model.worst_case_risk_ == pytest.approx(solve(Problem("power", power=1.5, radius=0.1), X, y, weights).value)
    assert WassersteinLinearRegression(radius=0.1).fit(X, y).problem_.loss.name == "squared"


@warns_of_gap
@pytest.mark.parametrize(
    ("estimator", "settings", "off"),
    [
        (WassersteinLinearRegression, {}, 0.01),
        (WassersteinLinearSVC, {"loss": "squared_hinge", "label_cost": 1.0}, 0.05),
    ],
)
def test_estimators_of_order_two_train_whole_and_through_coresets(estimator, settings, off):
    X, y = targets(400)
    y = y if estimator is WassersteinLinearRegression else np.where(y > 2.0, "up", "down")
    whole = estimator(radius=0.1, **settings).fit(X, y)
    small = estimator(radius=0.1, coreset=0.3, random_state=0, **settings).fit(X, y)
    assert whole.certificate_.relative_gap <= 1e-6
    assert whole.worst_case_risk_ <= small.worst_case_risk_ * (1.0 + 1e-9) <= (1.0 + off) * whole.worst_case_risk_
    assert small.certificate_.lower <= whole.worst_case_risk_


def test_what_cannot_be_done_is_said():
    X, y = targets(30)
    for power in [1.0, 0.5, np.inf, "2", None]:
        with pytest.raises((TypeError, ValueError), match="power"):
            Problem("power", power=power, radius=0.1)
    with pytest.raises(IncompatibleError, match="'descent'"):
        solve(Problem("power", power=3.0, radius=0.1), X, y, solver="structured")
    with pytest.raises(ValueError, match="order 1"):
        Problem("power", power=3.0, radius=0.1, support=(0.0, 1.0))
    with pytest.raises(ValueError, match="loss must be one of"):
        WassersteinLinearSVC(loss="huber").fit(X, np.sign(y))
