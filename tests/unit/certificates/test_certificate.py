"""Certificates: exact above, rigorous below, tight at the optimum, and honest about everything else."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize_scalar

from dualcore import Certificate, Problem, certify, solve
from dualcore.certificates import DualPoint, lower_bound, rounding, trivial_bound
from dualcore.problem.losses import LOSSES
from pairs import every_value
from solver_cases import data_for as sample

NORMS = ("l1", "l2", "linf")
every_loss = pytest.mark.parametrize("loss", [name for name in LOSSES if name != "softmax"])
every_norm = pytest.mark.parametrize("norm", NORMS)


def model(coef, intercept: float = 0.0) -> SimpleNamespace:
    return SimpleNamespace(coef=np.asarray(coef, dtype=float), intercept=intercept)


def test_a_certificate_is_two_numbers_and_a_sentence():
    certificate = Certificate(upper=2.0, lower=1.9, n_reads=3)
    assert certificate.gap == pytest.approx(0.1)
    assert certificate.relative_gap == pytest.approx(0.05)
    assert all(part in str(certificate) for part in ("2", "1.9", "5 %"))
    assert Certificate(0.0, 0.0).relative_gap == 0.0
    with pytest.raises(dataclasses.FrozenInstanceError):
        certificate.upper = 1.0


@every_value(every_norm, every_loss)
def test_a_model_is_certified_without_a_dual_point(loss, norm):
    """The slopes at a good model are a good dual point; only their tiny infeasibility is to be repaired."""
    problem = Problem(loss, radius=0.1, norm=norm)
    X, y = sample(problem, n=300)
    solution = solve(problem, X, y, tol=1e-9)
    bare = certify(problem, model(solution.coef, solution.intercept), X, y)
    assert bare.lower <= solution.value
    assert bare.relative_gap <= (0.05 if problem.loss.kinks else 1e-4)


@every_value(every_norm, loss=["logistic", "smooth_hinge", "squared_hinge", "huber", "squared"])
def test_a_model_from_a_fifth_of_the_rows_is_certified_within_percents(loss, norm):
    problem = Problem(loss, radius=0.1, norm=norm)
    X, y = sample(problem, n=2000)
    rough = solve(problem, X[:400], y[:400])
    assert certify(problem, rough, X, y).relative_gap <= 0.1


def test_a_dual_point_of_the_wrong_length_is_not_used():
    problem = Problem("hinge", radius=0.1)
    X, y = sample(problem)
    best = solve(problem, X, y)
    cut = dataclasses.replace(best, dual=DualPoint(best.dual.stay[:-1]))
    assert certify(problem, cut, X, y).lower <= best.value


def test_weights_and_containers():
    problem = Problem("logistic", radius=0.1, label_cost=1.0)
    X, y = sample(problem)
    weights = np.where(np.arange(len(y)) % 4 == 0, 0.0, 1.0)
    solution, kept = solve(problem, X, y, weights), weights > 0.0
    bare = model(solution.coef, solution.intercept)
    expected = certify(problem, bare, X, y, weights).lower
    assert certify(problem, bare, sp.csr_array(X), y, weights).lower == pytest.approx(expected, rel=1e-9)
    assert certify(problem, bare, X[kept], y[kept]).lower == pytest.approx(expected, rel=1e-6)


def test_separable_data_without_penalty_are_bounded_by_zero():
    X = np.array([[1.0], [2.0], [-1.0], [-2.0]])
    y = np.array([1.0, 1.0, -1.0, -1.0])
    certificate = certify(Problem("logistic"), model([30.0]), X, y)
    assert 0.0 <= certificate.lower <= certificate.upper < 1e-12


@pytest.mark.parametrize(
    ("problem", "bound"),
    [
        (Problem("hinge", radius=3.0, label_cost=0.5), 1.0),
        (Problem("huber", radius=3.0), 0.0),
        (Problem("huber", radius=3.0, label_cost=0.5, delta=0.7), 3.0 * 0.7 * 4.0),
        (Problem("pinball", radius=3.0, label_cost=0.5, quantile=0.2), 3.0 * 0.8 * 4.0),
        (Problem("squared", radius=3.0, label_cost=0.5), (3.0 * 4.0) ** 2),
        (Problem("squared_hinge", radius=3.0, label_cost=0.5), 1.0),
    ],
    ids=repr,
)
def test_the_price_of_moving_targets_is_paid_by_every_model(problem, bound):
    assert trivial_bound(problem) == pytest.approx(bound)
    X, y = sample(problem)
    rng = np.random.default_rng(1)
    assert all(problem.risk(rng.normal(size=3), rng.normal(), X, y) >= bound for _ in range(20))


def test_a_bound_of_one_row_by_hand():
    """Rows at +1 and -1, hinge, slope ``theta``: ``R = max(0, 1 - theta) + 0.5 theta``, least at 1 with 0.5."""
    X, y = np.array([[1.0], [-1.0]]), np.array([1.0, -1.0])
    problem = Problem("hinge", radius=0.5)
    truth = minimize_scalar(lambda a: problem.risk([a], 0.0, X, y), bounds=(0.0, 3.0), method="bounded")
    assert truth.fun == pytest.approx(0.5, abs=1e-5)
    data = problem.validate(X, y)
    # Slope -a on both rows has the moment -a, which the radius covers up to a = 0.5; the bound is a.
    for a, bound in ((0.25, 0.25), (0.5, 0.5)):
        assert lower_bound(problem, data, DualPoint(np.full(2, -a)), 1.0, repair=False) == pytest.approx(bound)
    # Beyond that the slopes are scaled back to what the radius covers.
    assert lower_bound(problem, data, DualPoint(np.full(2, -1.0)), 1.0, repair=False) == pytest.approx(0.5)


@pytest.mark.parametrize("offsets", [(3e4, -1.4e10), (1e9, 7e9)])
def test_columns_far_from_the_origin_are_certified_without_an_intercept(offsets):
    """Two such columns differ in their last digits, and their Gram matrix holds the square of that difference."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(40, 2)) + np.array(offsets), 100.0 * rng.normal(size=40)
    found = solve(Problem("squared", radius=0.02, fit_intercept=False), X, y)
    assert found.converged


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        (Problem("softmax", n_classes=3, radius=0.02), 3),
        (Problem("logistic", radius=0.1, norm="l1", support=(0.0, 1.0)), 2),
        (Problem("hinge", radius=0.1), 2),
    ],
)
def test_answers_are_plain_numbers(problem, labels):
    """Not numbers of NumPy, which print as such and do not go into JSON."""
    rng = np.random.default_rng(0)
    X, y = rng.uniform(size=(60, 3)), np.arange(60) % labels
    y = y if labels > 2 else 2.0 * y - 1.0
    solution = solve(problem, X, y)
    found = certify(problem, solution, X, y)
    numbers = [getattr(solution, name) for name in ("value", "lower_bound", "gap", "dual_variable", "rounding")]
    numbers += [getattr(found, name) for name in ("upper", "lower", "gap", "relative_gap", "rounding")]
    assert {type(number) for number in numbers} == {float}


class Factored(Exception):  # noqa: N818
    """All columns were factored."""


@pytest.mark.parametrize(("work", "factors"), [(1e3, False), (1e12, True)])
def test_all_columns_are_factored_for_a_smaller_allowance_where_that_is_cheap_only(work, factors, monkeypatch):
    """Of 50,000 x 768 rows it took over 100 s, of a solve that takes 2 s."""
    problem = Problem("logistic", radius=0.05, norm="l1")
    X, y = sample(problem, m=5)
    solution = solve(problem, X, y)

    def factor(*_):
        raise Factored

    monkeypatch.setattr(rounding, "_MOST_WORK", work)
    monkeypatch.setattr(rounding.RowLevelSet, "is_small", lambda *_: False)
    monkeypatch.setattr(rounding, "largest_share", factor)
    if factors:
        with pytest.raises(Factored):
            certify(problem, solution, X, y)
    else:
        assert certify(problem, solution, X, y).relative_gap <= 1e-3
