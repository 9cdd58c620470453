"""Which solver "auto" takes: by shape, loss and norm."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dualcore import Problem
from dualcore.data.rows import as_rows
from dualcore.problem import Data
from dualcore.solvers.choose import choose_solver


def taken(problem: Problem, n: int, m: int, *, sparse: bool = False) -> str:
    X = sp.csr_matrix((n, m)) if sparse else np.broadcast_to(1.0, (n, m))
    return choose_solver(problem, Data(as_rows(X), np.resize([-1.0, 1.0], n), None), "auto").name


@pytest.mark.parametrize(
    ("settings", "shape", "name"),
    [
        ({"loss": "logistic"}, (2000, 20), "structured"),
        ({"loss": "logistic"}, (2000, 50), "descent"),
        ({"loss": "logistic"}, (1000, 50), "structured"),
        ({"loss": "logistic", "norm": "linf"}, (100_000, 50), "descent"),
        ({"loss": "logistic", "norm": "l1"}, (2000, 100), "structured"),
        ({"loss": "logistic", "norm": "l1"}, (20_000, 100), "structured"),
        ({"loss": "hinge"}, (2000, 100), "structured"),
        ({"loss": "hinge"}, (20_000, 20), "descent"),
        ({"loss": "hinge", "norm": "linf"}, (20_000, 20), "structured"),
        ({"loss": "hinge"}, (20_000, 50), "descent"),
        ({"loss": "hinge", "norm": "l1"}, (20_000, 100), "structured"),
        ({"loss": "hinge", "norm": "l1"}, (3000, 800), "structured"),
        ({"loss": "hinge", "norm": "l1"}, (100_000, 600), "descent"),
        ({"loss": "hinge", "norm": "linf"}, (20_000, 50), "descent"),
        ({"loss": "hinge", "label_cost": 2.0}, (20_000, 50), "structured"),
        ({"loss": "logistic", "label_cost": 2.0, "norm": "l1"}, (20_000, 50), "structured"),
        ({"loss": "logistic", "label_cost": 2.0, "norm": "l1"}, (50_000, 200), "descent"),
        ({"loss": "logistic", "label_cost": 2.0, "norm": "l1"}, (3000, 1000), "structured"),
        ({"loss": "logistic", "label_cost": 2.0}, (20_000, 80), "structured"),
        ({"loss": "logistic", "label_cost": 2.0, "norm": "linf"}, (3000, 400), "descent"),
        ({"loss": "logistic", "radius": 0.0}, (20_000, 50), "structured"),
        ({"loss": "logistic", "feature_weights": [np.inf] + [1.0] * 49}, (20_000, 50), "structured"),
        ({"loss": "logistic"}, (500, 1000), "descent"),
    ],
)
def test_auto_takes_what_the_grid_shows_to_be_cheaper(settings, shape, name):
    assert taken(Problem(**({"radius": 0.05} | settings)), *shape) == name


def test_sparse_rows_are_handed_over_by_their_work():
    problem = Problem("logistic", radius=0.05)
    assert taken(problem, 20_000, 60, sparse=True) == "structured"
    assert taken(problem, 20_000, 300, sparse=True) == "descent"


@pytest.mark.parametrize(
    ("settings", "n_features", "name"),
    [
        ({}, 10, "descent"),
        ({"label_cost": 1.0}, 10, "structured"),
        ({"label_cost": 1.0}, 50, "descent"),
        ({"radius": 0.0}, 10, "structured"),
    ],
)
def test_few_classes_with_flips_or_without_penalty_are_for_newton(settings, n_features, name):
    problem = Problem("softmax", n_classes=3, **({"radius": 0.1} | settings))
    data = Data(as_rows(np.ones((90, n_features))), np.resize([0.0, 1.0, 2.0], 90), None)
    assert choose_solver(problem, data, "auto").name == name
