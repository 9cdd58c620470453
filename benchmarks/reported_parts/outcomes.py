"""What the checks share: the record of one, and calls that must not warn or that must refuse."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore import Problem, Solution, solve

Check = Callable[[], "Outcome"]


class Outcome(NamedTuple):
    """What was reported, what is printed now, and whether that is right."""

    reported: str
    now: str
    ok: bool


def quietly(problem: Problem, X: Any, y: Any, sample_weight: Any = None, **settings: Any) -> Solution:
    """Solve without a warning about convergence: the status is looked at by the caller."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return solve(problem, X, y, sample_weight, **settings)


def labels(values: np.ndarray) -> np.ndarray:
    """Return +1 where a value is positive, else -1."""
    return np.where(values > 0.0, 1.0, -1.0)


def refusal(call: Callable[[], Any]) -> str | None:
    """Return the message with which a call is refused; None where it is not, or not by a documented error."""
    try:
        call()
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def exceptions(calls: list[Callable[[], Any]]) -> list[str]:
    """Return the exceptions of some calls, by name."""
    found = []
    for call in calls:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                call()
        except Exception as error:
            found.append(f"{type(error).__name__}: {error}")
    return found
