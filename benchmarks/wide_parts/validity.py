"""Random problems: how tight certificates are, and that none is false."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from dualcore import Problem, fit_coreset, solve
from wide_parts.measured import Asked, Line

_LOSSES = ("logistic", "hinge", "smooth_hinge", "huber", "absolute")
_NORMS = ("l1", "l2", "linf")
# A bound must hold wherever a solver stops, so a rough solve need not converge: so many rounds of 50 evaluations.
_ROUGH = 4


def _draw(rng: np.random.Generator, n: int, m: int, *, scaled: bool) -> tuple[Problem, np.ndarray, np.ndarray]:
    """Return a random problem and rows for it; ``scaled`` columns have sizes from 1e-6 to 1e6."""
    loss = str(rng.choice(_LOSSES))
    classify = loss in ("logistic", "hinge", "smooth_hinge")
    settings: dict[str, Any] = {"radius": float(10.0 ** rng.uniform(-3.0, -0.5)), "norm": str(rng.choice(_NORMS))}
    if classify and rng.random() < 0.5:
        settings["label_cost"] = float(rng.uniform(0.5, 4.0))
    if rng.random() < 0.3:
        settings["ridge"] = float(10.0 ** rng.uniform(-4.0, -1.0))
    X = rng.standard_normal((n, m)) @ np.diag(10.0 ** rng.uniform(-1.0, 0.0, m))
    score = X @ rng.standard_normal(m) / np.sqrt(m) * 3.0
    y = np.where(score + rng.logistic(size=n) > 0.0, 1.0, -1.0) if classify else score + rng.standard_t(3, size=n)
    if scaled:
        X = X * 10.0 ** rng.uniform(-6.0, 6.0, m)
    return Problem(loss, **settings), X, y


def _problems(asked: Asked, count: int) -> tuple[range, Callable[[], bool]]:
    """Return the numbers of the problems that are still to do, and what says that the time for them is over."""
    done = asked.before.get("done", 0) if asked.before else 0
    ends = time.perf_counter() + asked.seconds
    return range(done if done < count else 0, count), lambda: time.perf_counter() > ends


def tightness(asked: Asked) -> list[Line]:
    """300 random narrow problems through coresets: median of certified gap over true excess (at most 20)."""
    numbers, over = _problems(asked, 20 if asked.quick else 300)
    ratios: list[float] = list(asked.before["ratios"]) if asked.before and numbers.start else []
    done = numbers.start
    for number in numbers:
        if over():
            break
        rng = np.random.default_rng([0, number])
        problem, X, y = _draw(rng, 3000, int(rng.integers(2, 12)), scaled=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fit = fit_coreset(problem, X, y, coreset=300, random_state=number)
            best = solve(problem, X, y, tol=1e-10)
        excess = (fit.certificate.upper - best.value) / best.value
        if excess > 1e-9:
            ratios.append(float(f"{fit.certificate.relative_gap / excess:.4g}"))
        done = number + 1
    line = {"setting": "tightness", "done": done, "problems": len(ratios), "median": float(np.median(ratios))}
    return [{**line, "most": 20.0, "ratios": ratios}]


def valid(asked: Asked) -> list[Line]:
    """1,000 random wide and narrow problems: bounds of rough solves against converged ones; 0 may be above."""
    numbers, over = _problems(asked, 40 if asked.quick else 1000)
    known = asked.before if asked.before and numbers.start else {}
    false, loose, done = known.get("false", 0), known.get("optimal_above_tol", 0), numbers.start
    for number in numbers:
        if over():
            break
        rng = np.random.default_rng([1, number])
        wide = number % 2 == 0
        n, m = (40, int(rng.integers(30, 80))) if wide else (150, int(rng.integers(2, 10)))
        problem, X, y = _draw(rng, n, m, scaled=number % 4 < 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rough = solve(problem, X, y, solver="descent", tol=1e-2, max_iter=_ROUGH)
            best = solve(problem, X, y, solver="structured", tol=1e-8)
        if rough.lower_bound > best.value + best.rounding + 1e-12 * abs(best.value):
            false += 1
            print(f"  valid {number}: bound {rough.lower_bound!r} above {best.value!r}: {problem!r}", flush=True)
        loose += int(rough.converged and rough.relative_gap > 1e-2)
        done = number + 1
    return [{"setting": "valid", "done": done, "problems": done, "false": false, "optimal_above_tol": loose}]
