"""What the package is asked about a case, and all it says: bounds, status, time, warnings, exceptions."""

from __future__ import annotations

import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

import dualcore

from .cases import MARGIN_LOSSES, ORDER_ONE, RESIDUAL_LOSSES, Case

TOLERANCE = 1e-6


class TimeoutSignal(BaseException):
    """A call took longer than it may; no `except Exception` of the package can catch it."""


@dataclass
class Claim:
    """One statement: this model has this risk, and no model has less than that."""

    what: str
    lower: float
    upper: float
    rounding: float
    coef: Any
    intercept: Any
    seconds: float
    radius: float | None = None
    status: str | None = None


@dataclass
class Trouble:
    """A call that returned nothing: an exception with its text, or a time limit."""

    what: str
    kind: str
    text: str
    seconds: float
    place: str = ""


@dataclass
class Answers:
    """All that was said about one case."""

    claims: list[Claim] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def call(self, what: str, work: Callable[[], Any], limit: float) -> tuple[Any, float]:
        """Return what ``work`` returns and its processor time; None where it raised or took too long."""
        began = time.process_time()
        result, trouble = None, None
        with warnings.catch_warnings(record=True) as said, np.errstate(all="warn", under="ignore"):
            warnings.simplefilter("always")
            try:
                with time_limit(limit):
                    result = work()
            except TimeoutSignal:
                trouble = ("timeout", f"still running after {limit:g} s", "")
            except Exception as error:  # every kind: which ones are documented is judged later
                last = traceback.extract_tb(error.__traceback__)[-1]
                trouble = (type(error).__name__, str(error)[:500], f"{last.filename.rsplit('/', 2)[-1]}:{last.lineno}")
        seconds = time.process_time() - began
        self.slowest = max(self.slowest, seconds)
        notable = [each for each in said if not issubclass(each.category, ConvergenceWarning)]
        self.warnings += [f"{what}: {each.category.__name__}: {each.message}" for each in notable]
        if trouble is not None:
            kind, text, place = trouble
            self.troubles.append(Trouble(what, kind, text, seconds, place))
        return result, seconds

    def certified(self, what: str, model: Any, said: Any, seconds: float, radius: float | None = None) -> None:
        """Take note of a certificate about a model, where there is one."""
        if said is not None:
            bounds = float(said.lower), float(said.upper), rounding_of(said)
            self.claims.append(Claim(what, *bounds, model.coef, model.intercept, seconds, radius))

    def solved(self, what: str, found: Any, seconds: float) -> None:
        """Take note of a solution, which is a model with its bounds and a status."""
        bounds = float(found.lower_bound), float(found.value), rounding_of(found)
        self.claims.append(Claim(what, *bounds, found.coef, found.intercept, seconds, status=found.status.name))


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeoutSignal` after this many seconds of processor time; only where signals can be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        raise TimeoutSignal

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def rounding_of(said: Any) -> float:
    """Return the allowance for rounding that a certificate or solution states, 0 where it states none."""
    return float(getattr(said, "rounding", 0.0) or 0.0)


def ask(case: Case, limit: float) -> Answers:
    """Solve, certify the solution and other models; of some cases another loss, a coreset and a path of radii too."""
    answers, is_linear = Answers(), case.family != "softmax"
    # All is drawn first, so that an exception does not change what is asked later.
    rng = np.random.default_rng([case.seed, case.number, int(case.small), 1])
    foreign = _foreign(case, rng) if is_linear else None
    asks = {name: rng.random() < share for name, share in _SHARES.items()}
    outputs = () if is_linear else (case.n_classes,)
    noise = rng.normal(size=(*outputs, case.X.shape[1] + 1))
    size = int(rng.integers(10, 60) if is_linear else rng.integers(30, 80))
    data = (case.X, case.y, case.weights)

    def call(what: str, function: Callable[..., Any], *arguments: Any, **settings: Any) -> tuple[Any, float]:
        return answers.call(what, lambda: function(*arguments, **settings), limit)

    def certified(what: str, model: Any) -> None:
        answers.certified(what, model, *call(what, dualcore.certify, problem, model, *data))

    problem, _ = call("Problem", dualcore.Problem, **case.settings())
    if problem is None:
        return answers
    solution, seconds = call("solve", dualcore.solve, problem, *data, tol=TOLERANCE)
    if solution is not None:
        answers.solved("solve", solution, seconds)
        certified("certify", solution)
        if not case.moves_rows:  # far from the optimum most of a dual point has to be repaired or paid for
            zeros = [np.zeros_like(part)[()] for part in (solution.coef, solution.intercept)]
            certified("certify zero", SimpleNamespace(coef=zeros[0], intercept=zeros[1]))
        bare = SimpleNamespace(coef=solution.coef, intercept=solution.intercept)
        if asks["bare"] and is_linear:
            certified("certify bare", bare)
        if asks["perturbed"]:
            certified("certify perturbed", _perturbed(case, solution, noise))
        if asks["assess"] and is_linear and not case.moves_rows:
            answers.certified("assess", bare, *call("assess", dualcore.assess, problem, bare, *data))
    if asks["foreign"] and foreign is not None:
        found, _ = call("solve foreign", dualcore.solve, dualcore.Problem(**foreign), *data, tol=TOLERANCE)
        if found is not None:
            certified("certify foreign", found)
    few = case.X.shape[0] > size
    if asks["coreset"] and few:
        fit, seconds = call(
            "fit_coreset", dualcore.fit_coreset, problem, case.X, case.y, size, case.weights, random_state=0
        )
        if fit is not None:
            answers.certified("fit_coreset", fit.solution, fit.certificate, seconds)
    if asks["path"] and is_linear and case.radius > 0.0 and case.numbers <= 20_000:
        radii = case.radius * np.array([0.5, 1.0, 1.3, 4.0])
        chosen = size if few and not case.moves_rows else None
        path, seconds = call(
            "radius_path", dualcore.radius_path, problem, case.X, case.y, radii, chosen, case.weights, random_state=0
        )
        for point in () if path is None else path.points:
            answers.certified("radius_path", point.solution, point.certificate, seconds, point.radius)
    return answers


_SHARES = {"bare": 0.3, "perturbed": 0.4, "foreign": 0.3, "assess": 0.3, "coreset": 0.3, "path": 0.1}


def _foreign(case: Case, rng: np.random.Generator) -> dict[str, Any]:
    """Return the same problem with another loss for the same targets; of order 1 where rows move on their own."""
    names = [name for name in (MARGIN_LOSSES if case.is_classification else RESIDUAL_LOSSES) if name != "power"]
    if case.moves_rows:
        names = [name for name in names if name in ORDER_ONE]
    name = str(rng.choice(names))
    parameters = {"huber": {"delta": 10.0 ** rng.uniform(-2, 3)}, "pinball": {"quantile": rng.uniform(0.05, 0.95)}}
    kept = {each: value for each, value in case.settings().items() if each not in case.parameters}
    return kept | {"loss": name} | parameters.get(name, {})


def _perturbed(case: Case, solution: Any, noise: Any) -> SimpleNamespace:
    """Return the model with coefficients changed by a hundredth of their size, the same at the mean row."""
    before = np.asarray(solution.coef)
    coef = before * (1.0 + 0.01 * noise[..., :-1])
    intercept = np.asarray(solution.intercept)
    if case.fit_intercept:
        intercept = intercept + (before - coef) @ case.dense.mean(axis=0)
    return SimpleNamespace(coef=coef, intercept=intercept if intercept.ndim else float(intercept))
