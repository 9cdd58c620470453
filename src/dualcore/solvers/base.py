"""The interface of solvers: a check of compatibility before any work, and a `Solution` with a status sentence."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar

import numpy as np

from dualcore.certificates import DualPoint
from dualcore.data.arrays import FloatArray
from dualcore.problem import Data, Problem
from dualcore.problem.forms import Minimum


class IncompatibleError(TypeError):
    """A solver was asked for something it cannot do; the message names one that can."""


class Status(Enum):
    """How a solve ended, bound to one sentence."""

    OPTIMAL = "Solved: the certified relative gap is within tolerance."
    INACCURATE = "Stopped early: the best point found is returned with the gap it reached."
    MAX_ITER = "Iteration limit reached: the best point found is returned with the gap it reached."
    UNCERTIFIED = (
        "Not certified: rounding decides. Columns that nothing penalises (radius 0 or an infinite price, ridge 0) are "
        "dependent up to rounding or separate a class, or columns or targets far from the origin leave too few digits "
        "for the model. The best point found is returned; use radius > 0 or ridge > 0, fit an intercept, drop such "
        "columns, or subtract the mean of columns and targets."
    )
    UNBOUNDED = (
        "No minimiser exists: the data are separable and nothing penalises large coefficients (radius 0, ridge 0). "
        "The best point found is returned; use radius > 0 or ridge > 0 for a unique answer."
    )


@dataclass(frozen=True)
class Iterate:
    """One line of a solver's history."""

    iteration: int
    value: float
    gap: float


# The callback for every iteration of a solver.
_OBSERVER: ContextVar[Callable[[Iterate], None] | None] = ContextVar("observer", default=None)


@contextmanager
def observed(callback: Callable[[Iterate], None] | None) -> Iterator[None]:
    """Call ``callback`` after every iteration within the block, with values in the units of the solver."""
    token = _OBSERVER.set(callback)
    try:
        yield
    finally:
        _OBSERVER.reset(token)


def tell(done: Iterate) -> None:
    """Call the callback of `observed`, if there is one, with an iteration."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer(done)


@dataclass(frozen=True, eq=False)
class RawSolution:
    """Result of a solver before scoring: a primal point, a dual point, and how the solver ended."""

    coef: FloatArray
    intercept: Any
    dual: DualPoint | None
    iterations: int
    history: tuple[Iterate, ...] = ()
    stopped_early: bool = False
    # A lower bound that the solver proves without a dual point, if any, and the allowance for rounding in it.
    lower: float = -np.inf
    rounding: float = 0.0
    # Whether rounding kept that bound from being computed, and the limit on iterations where it is not ``max_iter``.
    withheld: bool = False
    limit: int | None = None
    # The exact risk of the model and the multiplier that attains it, if the solver computed them.
    risk: Minimum | None = None


@dataclass(frozen=True, eq=False)
class Solution:
    """Result of `solve`: a model with its risk and a lower bound on the data it was trained on.

    Attributes
    ----------
    coef : ndarray of shape (n_features,), or of shape (n_classes, n_features) for a softmax problem
    intercept : float, or ndarray of shape (n_classes,)
    dual_variable : float
        The multiplier lambda at which the worst-case risk of this point is attained.
    value : float
        Exact worst-case risk, ridge included.
    lower_bound : float
        No model has a smaller worst-case risk on these data.
    gap : float
        ``value - lower_bound``.
    status : Status
        Its value is one sentence.
    solver : str
        Which solver ran.
    iterations : int
    history : tuple of Iterate
    seconds : float
    dual : DualPoint or None
        The dual point behind ``lower_bound``, one entry a row; `certify` on the same rows starts from it.
    rounding : float
        Bound on the effect of rounding: the allowance subtracted in ``lower_bound``, plus the error of ``value``.
    problem : Problem or None
        The problem that was solved. The dual point is valid for this problem only.
    n_reads : int
        How often the rows of a source were read; 0 for rows in memory.

    Examples
    --------
    >>> from dualcore import Problem, solve
    >>> solution = solve(Problem("hinge", radius=0.5), [[2.0], [1.0], [-1.0], [-2.0]], [1.0, 1.0, -1.0, -1.0])
    >>> solution.converged, solution.status.value
    (True, 'Solved: the certified relative gap is within tolerance.')
    """

    coef: FloatArray
    intercept: Any
    dual_variable: float
    value: float
    lower_bound: float
    gap: float
    status: Status
    solver: str
    iterations: int
    history: tuple[Iterate, ...] = field(default=(), repr=False)
    seconds: float = 0.0
    dual: DualPoint | None = field(default=None, repr=False, compare=False)
    rounding: float = 0.0
    problem: Problem | None = field(default=None, repr=False, compare=False)
    n_reads: int = 0

    def __post_init__(self) -> None:
        for name in ("dual_variable", "value", "lower_bound", "gap", "rounding"):  # Python floats, not NumPy scalars
            object.__setattr__(self, name, float(getattr(self, name)))

    @property
    def relative_gap(self) -> float:
        """``gap / max(|value|, tiny)``."""
        return self.gap / max(abs(self.value), np.finfo(float).tiny)

    @property
    def converged(self) -> bool:
        """Whether the gap met the tolerance."""
        return self.status is Status.OPTIMAL


class Solver(ABC):
    """A method that minimises the worst-case risk on validated data."""

    name: ClassVar[str] = ""

    @abstractmethod
    def obstacle(self, problem: Problem, data: Data) -> str | None:
        """Return why this solver cannot take the problem, naming one that can; None if it can."""

    @abstractmethod
    def run(
        self, problem: Problem, data: Data, *, tol: float, max_iter: int, start: tuple[FloatArray, Any] | None
    ) -> RawSolution:
        """Minimise; return the best point found, without raising, where the method does not converge."""


def able_solver(problem: Problem) -> str:
    """Return the name of a solver that takes the problem, for error messages."""
    if not problem.family.is_closed:
        return "box"
    if problem.family.linear_in_multiplier:
        return "structured"
    return "conic" if problem.family.flips else "descent"
