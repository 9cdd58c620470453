"""Items 1 to 6: statements that were false."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from dualcore import CoresetStream, Problem, assess, certify, fit_coreset
from reported_parts.outcomes import Check, Outcome, labels, quietly

RESIDUALS: dict[str, tuple[str, dict[str, float]]] = {
    "pinball .05": ("pinball", {"quantile": 0.05}),
    "pinball .95": ("pinball", {"quantile": 0.95}),
    "absolute": ("absolute", {}),
    "huber 1": ("huber", {"delta": 1.0}),
    "huber 100": ("huber", {"delta": 100.0}),
    "squared": ("squared", {}),
}
# A stream takes about half a second.
_STREAMS = 60
MARGINS = ("logistic", "hinge", "smooth_hinge", "squared_hinge")


def foreign_solutions() -> Outcome:
    """Item 1: `certify` with a solution of another problem."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(200, 3))
    y = X @ [1.0, -1.0, 0.5] + 3.0 * rng.standard_t(2, 200)
    problems: list[list[tuple[Problem, Any]]] = [
        [(Problem(name, **settings), y) for name, settings in RESIDUALS.values()],
        [(Problem(name), labels(y)) for name in MARGINS],
    ]
    false, pairs, first = 0, 0, np.nan
    for group in problems:
        solved = [quietly(problem, X, target) for problem, target in group]
        for (a, theirs), (b, own) in itertools.permutations(enumerate(solved), 2):
            problem, target = group[b]
            lower = certify(problem, theirs, X, target).lower
            false += lower > own.value * (1.0 + 1e-9) + own.rounding
            pairs += 1
            if group is problems[0] and (a, b) == (1, 0):
                first = lower
    best = quietly(Problem("pinball", quantile=0.05), X, y).value
    now = f"pinball .95 -> .05: lower {first:.3f}, optimum {best:.3f}; {false} of {pairs} pairs false"
    return Outcome("lower 1.266, optimum 0.732; 19 of 52 pairs of losses false", now, false == 0)


def large_means() -> Outcome:
    """Item 2: OPTIMAL far from the optimum where the target has a large mean."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, 3))
    noise = rng.normal(size=500)
    said, ok = [], True
    for loss, settings in (("huber", {"delta": 1.0}), ("power", {"power": 7.3})):
        for mean in (1.7e12, 1.7e9):
            y = mean + 3.0 * X[:, 0] - 2.0 * X[:, 1] + noise
            problem = Problem(loss, radius=0.01, **settings)
            here, there = quietly(problem, X, y), quietly(problem, X, y - mean)
            ok &= here.status.name != "OPTIMAL" or here.value <= there.value * (1.0 + 2e-6)
            ok &= here.lower_bound <= there.value * (1.0 + 1e-9) + here.rounding
            said.append(f"{loss} {mean:.1e}: {here.status.name} {here.value:.6g}, centred {there.value:.6g}")
    return Outcome(
        "Huber at 1.7e12: OPTIMAL 24.2, optimum 0.976; power 7.3: OPTIMAL 1e6, optimum 3e-18", "; ".join(said), ok
    )


def streams_with_flips() -> Outcome:
    """Item 3: `anchor_risk` of a stream with the squared hinge and flips."""
    wrong = 0
    for seed in range(_STREAMS):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(int(rng.integers(60, 300)), 3)) * rng.uniform(0.3, 3.0)
        y = labels(X[:, 0] + rng.uniform(0.1, 1.0) * rng.normal(size=len(X)))
        cost, norm = float(rng.uniform(0.2, 2.0)), ("l1", "l2", "linf")[seed % 3]
        problem = Problem("squared_hinge", radius=float(rng.uniform(0.02, 0.8)), label_cost=cost, norm=norm)
        stream = CoresetStream(problem, size=30, random_state=seed)
        stream.update(X, y)
        coreset = stream.coreset()
        risk = problem.risk(coreset.anchor.coef, coreset.anchor.intercept, X, y)
        wrong += abs(coreset.details["anchor_risk"] - risk) > 1e-9 * risk
    return Outcome("too low in 32, too high in 197 of 381", f"not the risk in {wrong} of {_STREAMS}", wrong == 0)


def separable_without_radius() -> Outcome:
    """Item 4: the squared hinge at radius 0 with a finite label cost, separable rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = labels(X[:, 0])
    X[:, 0] += 0.5 * y
    problem = Problem("squared_hinge", label_cost=1.0)
    fit = fit_coreset(problem, X, y, coreset=40, random_state=0)
    loss = float(np.mean(np.maximum(1.0 - y * (X @ fit.solution.coef + fit.solution.intercept), 0.0) ** 2))
    upper = assess(problem, fit.solution, X, y).upper
    ok = abs(upper - loss) <= 1e-12 + 1e-9 * loss and abs(fit.certificate.upper - loss) <= 1e-12 + 1e-9 * loss
    now = f"assess {upper:.3g}, fit_coreset {fit.certificate.upper:.3g}, true {loss:.3g}"
    return Outcome("assess().upper inf (true 0); fit_coreset 241.6 (true 0.0176)", now, ok)


def nearly_collinear() -> Outcome:
    """Item 5: columns that differ by rounding, at radius 0 and with infinite prices."""
    false, said = 0, []
    for difference in (1e-10, 1e-11, 1e-12):
        rng = np.random.default_rng(0)
        x, wobble = rng.normal(size=60), rng.normal(size=60)
        X = np.column_stack([x, x * (1.0 + difference * wobble)])
        y = labels(x + 2.0 * x * wobble + 0.1 * rng.normal(size=60))
        apart = np.column_stack([x, (X[:, 1] - x) / difference])
        for loss in ("logistic", "hinge"):
            best = quietly(Problem(loss), apart, y).value  # what a model with coefficients of 1 / difference attains
            plain = quietly(Problem(loss), X, y)
            priced = quietly(Problem(loss, radius=0.1, feature_weights=[np.inf, np.inf]), X, y)
            coreset = fit_coreset(Problem(loss), X, y, coreset=20, random_state=0).certificate
            bounds = [plain.lower_bound, priced.lower_bound, coreset.lower]
            false += sum(bound > best * (1.0 + 1e-6) for bound in bounds)
            if difference == 1e-11:
                said.append(f"{loss}: {plain.status.name}, lower {plain.lower_bound:.3f}, another model {best:.3f}")
    return Outcome(
        "OPTIMAL with lower .836 where another model has .246; a coreset's lower 6 % high",
        f"{'; '.join(said)}; {false} of 18 bounds false",
        false == 0,
    )


def rounding() -> Outcome:
    """Item 6: problems shifted exactly, and softmax on separable rows at radius 0."""
    false = 0
    for seed in range(340):
        rng = np.random.default_rng(seed)
        X = np.round(rng.normal(size=(40, 3)) * 1024.0) / 1024.0
        y = np.round(1024.0 * (X @ [1.0, -1.0, 0.5] + rng.normal(size=40))) / 1024.0
        loss = ("huber", "absolute", "logistic", "hinge")[seed % 4]
        problem = Problem(loss, radius=float(rng.choice([0.0, 0.1])), **({"delta": 1.0} if loss == "huber" else {}))
        target = labels(y) if problem.is_classification else y
        near = quietly(problem, X, target)
        if problem.is_classification or seed % 8 < 4:
            far = quietly(problem, X + np.array([2.0**20, 0.0, -(2.0**21)]), target)
        else:
            far = quietly(problem, X, target + 2.0**30)
        false += far.lower_bound > near.value * (1.0 + 1e-9) + near.rounding
    rng = np.random.default_rng(1)
    y = np.arange(60) % 3
    X = 8.0 * np.eye(3)[y] + 0.1 * rng.normal(size=(60, 3))
    lower = quietly(Problem("softmax", n_classes=3), X, y).lower_bound
    now = f"{false} of 340 shifted problems; softmax: lower {lower:.2g}"
    return Outcome("lower too high in 8 of 340; softmax: lower 7.5e-9, infimum 0", now, false == 0 and lower <= 0.0)


CHECKS: dict[int, Check] = {
    1: foreign_solutions,
    2: large_means,
    3: streams_with_flips,
    4: separable_without_radius,
    5: nearly_collinear,
    6: rounding,
}
