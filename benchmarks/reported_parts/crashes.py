"""Items 7 to 16: crashes, wrong ways out, and runs that took too long."""

from __future__ import annotations

import time
import warnings

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, WassersteinLogisticRegressionCV, fit_coreset, radius_path
from reported_parts.outcomes import Check, Outcome, exceptions, labels, quietly


def infinite_price_and_ridge() -> Outcome:
    """Item 7: order above 1 with an infinite price and a ridge."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    y = X @ [1.0, -1.0, 0.5] + rng.normal(size=60)
    settings = {"radius": 0.1, "ridge": 0.1, "feature_weights": [np.inf, 1.0, 2.0]}
    found = [
        quietly(Problem(loss, **extra, **settings), X, labels(y) if loss == "squared_hinge" else y)
        for loss, extra in (("squared", {}), ("squared_hinge", {}), ("power", {"power": 3.0}))
    ]
    now = ", ".join(f"{each.status.name} {each.value:.4g}" for each in found)
    return Outcome("ValueError: Optimization bounds must be finite scalars", now, all(each.converged for each in found))


def coresets_of_the_squared_loss() -> Outcome:
    """Item 8: `fit_coreset` of the squared loss at radius 0 with a ridge, l1."""

    def fit(seed: int) -> None:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(100, 2))
        problem = Problem("squared", ridge=0.1, norm="l1")
        fit_coreset(problem, X, X @ [1.0, -1.0] + rng.normal(size=100), coreset=20, random_state=seed)

    found = exceptions([lambda seed=seed: fit(seed) for seed in range(12)])
    return Outcome("IndexError in 8 of 12 seeds", f"exceptions in {len(found)} of 12 seeds", not found)


def wide_with_offsets() -> Outcome:
    """Item 9: `solve` on 9 x 60 with columns offset by up to 1e6."""

    def run(seed: int) -> None:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(9, 60)) + 10.0 ** rng.uniform(0.0, 6.0, size=60)
        quietly(Problem("huber", radius=1e-6, norm="l1", delta=33.0), X, rng.normal(size=9))

    found = exceptions([lambda seed=seed: run(seed) for seed in range(200)])
    return Outcome("LinAlgError in 62 of 200", f"exceptions in {len(found)} of 200", not found)


def small_coresets_on_a_path() -> Outcome:
    """Item 10: `radius_path` with a coreset of 20 rows, and the cross-validated estimator."""

    def data(seed: int) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 3))
        return X, labels(X[:, 0] + rng.normal(size=200) - 1.5)

    def path(seed: int) -> None:
        problem = Problem("logistic", radius=0.1)
        radius_path(problem, *data(seed), [0.01, 0.1, 1.0], 20, random_state=seed)

    def estimator() -> None:
        WassersteinLogisticRegressionCV(coreset=40, random_state=0).fit(*data(0))

    found = exceptions([lambda seed=seed: path(seed) for seed in range(30)] + [estimator])
    return Outcome(
        "'Every row of class -1 has zero weight' in 81 of 300; also the CV estimator with coreset=40",
        f"exceptions in {len(found)} of 30 paths and one CV estimator",
        not found,
    )


def exact_fits() -> Outcome:
    """Item 11: the power solver where an exact fit exists."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(8, 12))
    y = rng.normal(size=8)
    power, squared = (
        quietly(Problem(loss, radius=0.05, **settings), X, y)
        for loss, settings in (("power", {"power": 2.0}), ("squared", {}))
    )
    same = abs(power.value - squared.value) <= 1e-6 * squared.value
    return Outcome(
        "p = 2 returns .2616, the squared loss .0216", f"p = 2 {power.value:.8f}, squared {squared.value:.8f}", same
    )


def plain_squared_hinges() -> Outcome:
    """Item 12: the squared hinge at radius 0 on plain data."""
    bad = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(200, 4))
        bad += not quietly(Problem("squared_hinge"), X, labels(X[:, 0] + rng.normal(size=200))).converged
    return Outcome("INACCURATE in 37 of 40 plain data sets", f"not converged in {bad} of 40", bad == 0)


def prices_and_ridge() -> Outcome:
    """Item 13: feature weights with a ridge, l1 and l2."""
    bad, worst = 0, 0.0
    for seed in range(69):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(80, 5))
        y = X @ rng.normal(size=5) + rng.normal(size=80)
        loss = ("logistic", "hinge", "huber")[seed % 3]
        settings = {"radius": 0.2, "norm": ("l1", "l2")[seed % 2], "ridge": 0.3}
        problem = Problem(loss, **settings, feature_weights=10.0 ** rng.uniform(-1, 1, size=5))
        found = quietly(problem, X, labels(y) if problem.is_classification else y)
        bad, worst = bad + (not found.converged), max(worst, found.relative_gap)
    now = f"not converged in {bad} of 69, largest relative gap {worst:.1e}"
    return Outcome("INACCURATE (gap .6 to 4.5 %) in 36 of 69", now, bad == 0)


def sparse_integers() -> Outcome:
    """Item 14: the constants of sparse integer rows."""
    rng = np.random.default_rng(0)
    whole = 60000.0 * rng.integers(0, 2, size=(50, 4))
    problem = Problem("logistic", radius=0.1)
    small, large = problem.constants(sp.csr_array(whole.astype(np.int32))), problem.constants(whole)
    same = bool(np.allclose(small, large, rtol=1e-12))
    return Outcome("sparse integer X overflows", f"the same constants as of dense floats: {same}", same)


def near_the_best() -> Outcome:
    """Item 15: not converged although within 1e-6 of the best."""
    bad, boxes = 0, 0
    for seed in range(71):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(60, 4)) * 10.0 ** rng.uniform(-2, 2, size=4)
        y = labels(X @ (1.0 / X.std(axis=0)) + rng.normal(size=60))
        loss, norm = ("logistic", "hinge", "smooth_hinge")[seed % 3], ("l1", "l2", "linf")[seed % 3]
        problem = Problem(loss, radius=0.05, norm=norm, label_cost=1.0)
        bad += not quietly(problem, X, y).converged
        if seed < 26:
            walls = (X.min(axis=0) - 0.1, X.max(axis=0) + 0.1)
            boxes += not quietly(problem.replace(support=walls), X, y).converged
    now = f"not converged: {bad} of 71 and {boxes} of 26 on boxes"
    return Outcome("59 of 71 near the best are not converged (22 of 26 on boxes)", now, bad + boxes == 0)


def boxes_in_time() -> Outcome:
    """Item 16: processor seconds of small problems on boxes."""
    seconds = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        n, m = int(rng.integers(8, 120)), int(rng.integers(1, 8))
        X = rng.uniform(size=(n, m))
        y = labels(X[:, 0] - 0.5 + 0.3 * rng.normal(size=n))
        if np.unique(y).size < 2:
            y[0] = -y[0]
        norm = ("l1", "l2", "linf")[seed % 3]
        cost = float(rng.choice([0.5, 2.0, np.inf]))
        radius = float(10.0 ** rng.uniform(-3, 0))
        problem = Problem("logistic", radius=radius, norm=norm, label_cost=cost, support=(0.0, 1.0))
        began = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            quietly(problem, X, y)
        seconds.append(time.process_time() - began)
    longest, over = max(seconds), sum(each > 10.0 for each in seconds)
    now = f"{over} of 100 over 10 s of processor time, the longest {longest:.1f} s"
    return Outcome("one box problem of 20 rows over 90 s; 25 of 300 over 10 s", now, over == 0)


CHECKS: dict[int, Check] = {
    7: infinite_price_and_ridge,
    8: coresets_of_the_squared_loss,
    9: wide_with_offsets,
    10: small_coresets_on_a_path,
    11: exact_fits,
    12: plain_squared_hinges,
    13: prices_and_ridge,
    14: sparse_integers,
    15: near_the_best,
    16: boxes_in_time,
}
