"""Order above 1 where labels stay: exact fits, residuals of every size, powers near 1 and far from it."""

import numpy as np
import pytest

from dualcore import Problem, UniformCoreset, assess, solve
from expected import may_stop_early
from pairs import every_pair, every_value


def regression(seed, *, n, m, noise, shift=0.0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * 10.0 ** rng.uniform(-2.0, 2.0, size=m)
    y = X @ (rng.normal(size=m) / X.std(axis=0)) + noise * rng.standard_t(3, n) + shift
    return X, y


def root(problem, model, X, y):
    """Return ``N + sigma K`` in long double: a referee that shares nothing with the package."""
    coef, wide = np.asarray(model.coef, dtype=np.longdouble), X.astype(np.longdouble)
    p = np.longdouble(problem.geometry.order)
    score = wide @ coef + np.longdouble(model.intercept)
    short = np.maximum(1.0 - y * score, 0.0) if problem.is_classification else np.abs(score - y)
    sizes = {"l1": np.abs(coef).max(), "l2": np.sqrt(coef @ coef), "linf": np.abs(coef).sum()}
    steep = sizes[problem.geometry.norm.name]
    if not problem.is_classification:
        steep = max(steep, 2.0 / np.longdouble(problem.geometry.label_cost))
    return float(np.mean(short**p) ** (1.0 / p) + problem.radius * steep)


CASES = [
    {"n": n, "m": m, "noise": noise, "shift": shift}
    for n, m in ((60, 4), (8, 8), (6, 20))
    for noise, shift in ((0.0, 0.0), (1e-8, 100.0), (1e-3, 0.0), (1.0, 100.0))
]


@may_stop_early
@every_value(case=CASES, radius=[0.0, 1e-6, 0.05, 3.0], norm=["l1", "l2", "linf"])
def test_power_two_is_the_squared_loss_however_well_the_data_are_fitted(case, radius, norm):
    X, y = regression(len(norm), **case)
    settings = {"radius": radius, "norm": norm}
    power, squared = Problem("power", power=2.0, **settings), Problem("squared", **settings)
    ours = root(power, solve(power, X, y), X, y)
    cones = root(squared, solve(squared, X, y, solver="conic"), X, y)
    rounding = 1e-12 * np.sqrt(np.mean(y**2))
    assert ours == pytest.approx(cones, rel=1e-6, abs=rounding)
    # No more than the best of two models that are easily had.
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(len(y))]), y)[0]
    for coef, intercept in ((exact[:-1], exact[-1]), (np.zeros(X.shape[1]), y.mean())):
        simple = type("Model", (), {"coef": coef, "intercept": intercept})
        assert ours <= root(power, simple, X, y) * (1.0 + 1e-7) + rounding


@every_value(
    pytest.mark.parametrize(("n", "m", "radius"), [(60, 3, 0.0), (60, 3, 0.05), (6, 12, 0.0)]),
    power=[1.2, 1.5, 2.5, 4.0, 8.0],
)
def test_an_exact_fit_is_found_for_every_power(power, radius, n, m):
    X, y = regression(1, n=n, m=m, noise=0.0, shift=10.0)
    problem = Problem("power", power=power, radius=radius)
    found = solve(problem, X, y)
    exact = np.linalg.lstsq(np.column_stack([X, np.ones(n)]), y)[0]
    fit = type("Model", (), {"coef": exact[:-1], "intercept": exact[-1]})
    assert root(problem, found, X, y) <= root(problem, fit, X, y) * (1.0 + 1e-6) + 1e-12
    assert found.converged


@pytest.mark.needs("cvxpy")
@every_pair(power=[1.2, 1.5, 3.0, 8.0], noise=[1e-4, 1.0], norm=["l1", "l2", "linf"])
def test_powers_agree_with_cvxpy(power, noise, norm):
    import cvxpy as cp

    X, y = regression(2, n=40, m=5, noise=noise)
    X = X / X.std(axis=0)
    y = (y - y.mean()) / y.std()
    coef, intercept = cp.Variable(5), cp.Variable()
    mean = cp.pnorm(40 ** (-1.0 / power) * (X @ coef + intercept - y), power)
    size = cp.norm(coef, {"l1": "inf", "l2": 2, "linf": 1}[norm])
    with np.errstate(all="ignore"):
        referee = cp.Problem(cp.Minimize(mean + 0.02 * size)).solve(solver=cp.CLARABEL)
    problem = Problem("power", power=power, radius=0.02, norm=norm)
    found = solve(problem, X, y)
    assert found.converged
    assert root(problem, found, X, y) == pytest.approx(referee, rel=1e-6)


def test_a_high_power_of_a_target_with_a_large_mean():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    noise = 1e-2 * rng.uniform(-1.0, 1.0, size=300)
    plain, far = (solve(Problem("power", power=7.3), X, X @ [3.0, -2.0, 0.0] + noise + c) for c in (0.0, 2.0**20))
    assert plain.converged
    assert far.value == pytest.approx(plain.value, rel=1e-5)


# The squared hinge


def margins(seed, *, separable=False):
    rng = np.random.default_rng(seed)
    n, m = int(rng.integers(50, 400)), int(rng.integers(1, 8))
    X = rng.normal(size=(n, m))
    score = X @ rng.normal(size=m) + (0.1 if separable else rng.normal(size=n))
    return X, np.where(score > 0.0, 1.0, -1.0)


@every_value(label_cost=[1.0, np.inf], seed=range(4))
def test_separable_rows_without_a_radius_have_no_risk_anywhere(seed, label_cost):
    """Without a radius no label flips, whatever a flip costs: not in a solution, in a read, nor through a coreset."""
    X, y = margins(seed, separable=True)
    problem = Problem("squared_hinge", label_cost=label_cost)
    found = solve(problem, X, y)
    assert found.converged
    assert found.value == 0.0
    assert assess(problem, found, X, y).upper == 0.0
    brought = solve(problem.replace(radius=0.5), X, y)  # with the multiplier of another problem
    assert assess(problem, brought, X, y).upper == pytest.approx(problem.risk(brought.coef, brought.intercept, X, y))
    fit = UniformCoreset(size=40, random_state=0).fit(problem, X, y)
    assert fit.certificate.upper == pytest.approx(problem.risk(fit.solution.coef, fit.solution.intercept, X, y))


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("norm", ["l1", "l2", "linf"])
def test_separable_rows_and_a_small_radius_have_the_widest_margin(norm):
    import cvxpy as cp

    X, y = margins(3, separable=True)
    coef, intercept = cp.Variable(X.shape[1]), cp.Variable()
    size = cp.norm(coef, {"l1": "inf", "l2": 2, "linf": 1}[norm])
    with np.errstate(all="ignore"):
        referee = cp.Problem(cp.Minimize(size), [cp.multiply(y, X @ coef + intercept) >= 1.0]).solve(solver=cp.CLARABEL)
    problem = Problem("squared_hinge", radius=1e-7, norm=norm)
    for solver in ("auto", "conic"):
        found = solve(problem, X, y, solver=solver)
        assert root(problem, found, X, y) == pytest.approx(1e-7 * referee, rel=1e-5)


# The form


@every_value(loss=[{"loss": "power", "power": 1.01}, {"loss": "power", "power": 8.0}], radius=[1e-45, 1e-6, 1.0])
def test_powers_near_one_and_tiny_radii_stay_in_the_range_of_numbers(loss, radius):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 2))
    problem = Problem(radius=radius, **loss)
    coef = np.array([300.0, 40.0])
    risk, multiplier = problem.evaluate(coef, 0.0, problem.validate(X, X[:, 0]))
    model = type("Model", (), {"coef": coef, "intercept": 0.0})
    assert risk == pytest.approx(root(problem, model, X, X[:, 0]) ** problem.geometry.order, rel=1e-9)
    assert multiplier >= problem.kappa(coef)
    assert np.isfinite(problem.h(coef, 0.0, 2.0 * problem.kappa(coef), X, X[:, 0])).all()
    gradient = problem.gradient(coef, 0.0, X, X[:, 0], multiplier=2.0 * problem.kappa(coef))
    assert np.isfinite(gradient.coef).all()


def test_a_flip_at_a_forbidding_price_is_as_good_as_forbidden():
    X, y = margins(0)
    coef = np.full(X.shape[1], 0.3)
    risks = [Problem("squared_hinge", radius=0.1, label_cost=cost).risk(coef, 0.1, X, y) for cost in (1e45, np.inf)]
    assert risks[0] == risks[1]
