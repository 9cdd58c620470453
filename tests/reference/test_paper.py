"""Tables 1 to 3 of the paper: its Whole values to all printed digits, and five trials of its DualCore and UniSamp.

Tables 1 and 2 of the paper print the worst-case risk of the model trained on every row. The SVM's contains a ridge of
``||theta||^2 / 400`` that its text does not mention; without it the same model has the risk 0.48819. A mean of five
trials lies within two of the paper's standard deviations unless it is off by more than four of its own, if our spread
is the paper's; the seeds are fixed.
"""

from __future__ import annotations

import numpy as np
import pytest

from dualcore import Problem, solve
from experiments import TABLES, reproduce
from experiments.render import beaten_rows, compare, printed_figures, summarise, whole_risk
from pairs import every_value

WHOLE = {
    "table 1": (Problem("logistic", radius=0.3, norm="l1", label_cost=7.0), "0.59267"),
    "table 2": (Problem("hinge", radius=0.1, norm="l2", label_cost=7.0, ridge=1.0 / 200.0), "0.49734"),
}


@pytest.fixture(scope="module")
def letter(shared_data):
    with np.load(shared_data / "letter_authors.npz", allow_pickle=False) as file:
        return file["X_mm"], file["y_mm"]


@pytest.fixture(params=WHOLE)
def whole(request):
    return WHOLE[request.param]


@pytest.mark.parametrize("solver", ["structured", "conic"])
def test_the_value_of_the_paper_to_all_printed_digits(letter, whole, solver):
    problem, printed = whole
    solution = solve(problem, *letter, solver=solver, tol=1e-8 if solver == "structured" else 1e-6)
    assert solution.converged
    assert solution.relative_gap <= 1e-6
    # The whole certified interval rounds to what the paper prints, so no better solver would print anything else.
    assert f"{solution.lower_bound:.5f}" == f"{solution.value:.5f}" == printed
    # No flip pays at this label cost, so every h_i is the plain loss: the settings do not exercise the dual term.
    assert solution.dual_variable == pytest.approx(problem.kappa(solution.coef), rel=1e-12)
    if problem.ridge:
        risk = problem.replace(ridge=0.0).risk(solution.coef, solution.intercept, *letter)
        assert f"{risk:.5f}" == "0.48819"


@every_value(
    pytest.mark.parametrize(
        ("loss", "norm", "radius", "label_cost", "share"),
        [
            ("logistic", "l1", 0.3, 3.0, 0.013),
            ("logistic", "l1", 0.3, 2.0, 0.127),
            ("hinge", "l2", 0.1, 2.0, 0.0),
            ("hinge", "l2", 0.1, 1.0, 0.073),
            ("hinge", "l2", 0.1, 0.5, 0.20),
        ],
    ),
    solver=["structured", "conic"],
)
def test_cheaper_labels_flip(letter, solver, loss, norm, radius, label_cost, share):
    """The share of rows whose flip pays at the optimum without ridge, as an independent conic solver measured it.

    Some rows are tied between staying and flipping; how many of them count depends on the last digit of the multiplier.
    """
    X, y = letter
    problem = Problem(loss, radius=radius, norm=norm, label_cost=label_cost)
    solution = solve(problem, X, y, solver=solver)
    assert solution.relative_gap <= 1e-6
    margins = y * (X @ solution.coef + solution.intercept)
    gain, price = problem.loss.flip_gain(margins), label_cost * solution.dual_variable
    certain, possible = (gain > price * (1.0 + 1e-4)).mean(), (gain > price * (1.0 - 1e-4)).mean()
    assert certain - 5e-4 <= share <= possible + 5e-4


def test_one_trial_of_table_1(shared_data, tmp_path):
    made = reproduce("table1", trials=1, data_home=shared_data, folder=tmp_path, n_jobs=1, progress=False)
    assert f"{whole_risk(made.records):.5f}" == "0.59267"
    assert all(beaten_rows(TABLES["table1"], made.records).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("table1", "0.59267"),
        ("table2", "0.49734"),
        # The paper's 0.00435 is another random half of the data; over eight halves it is 0.0040 with deviation 0.0001.
        ("table3", "0.00407"),
    ],
)
def test_five_trials(name, whole, shared_data, tmp_path):
    table = TABLES[name]
    made = reproduce(name, trials=5, data_home=shared_data, folder=tmp_path, n_jobs=1, progress=False)
    assert f"{whole_risk(made.records) - table.offset:.5f}" == whole

    if not table.own_split:
        cells = compare(table, made.records)
        assert len(cells) == 20
        assert sum(cell.within for cell in cells) >= 18

    beaten = beaten_rows(table, made.records)
    assert len(beaten) == 10
    assert [row for row, better in beaten.items() if not better and row != "1%"] == []

    cells = summarise(table, made.records)
    printed = printed_figures(name)
    ours = sum(cells[row, "Fit"].std for row in beaten)
    assert ours < sum(cells[row, "DualCore"].std for row in beaten)
    assert ours < sum(printed[row, "DualCore"].std for row in beaten)
    assert made.markdown().count("\n| ") == 11
