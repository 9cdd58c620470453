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
from dualcore.problem.losses import Softmax

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
    gap: float | None = None


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
        self.warnings += [f"{what}: {each.category.__name__}: {each.message}" for each in said if _is_notable(each)]
        if trouble is not None:
            kind, text, place = trouble
            self.troubles.append(Trouble(what, kind, text, seconds, place))
        return result, seconds


def _is_notable(warning: warnings.WarningMessage) -> bool:
    return not issubclass(warning.category, ConvergenceWarning)


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
    """Ask the package everything that was drawn for this case."""
    return ASKING[case.family](case, limit)


def ask_linear(case: Case, limit: float) -> Answers:
    """Solve, certify the solution, certify other models, sometimes a coreset and a path of radii."""
    rng, answers = _asking_rng(case), Answers()
    # All is drawn first, so that an exception does not change what is asked later.
    other, other_parameters = _foreign(case, rng)
    asks = {name: rng.random() < share for name, share in _SHARES.items()}
    noise, size = rng.normal(size=case.X.shape[1] + 1), int(rng.integers(10, 60))
    problem, _ = answers.call("Problem", lambda: dualcore.Problem(case.loss, **case.settings()), limit)
    if problem is None:
        return answers
    X, y, w = case.X, case.y, case.weights
    solution, seconds = answers.call("solve", lambda: dualcore.solve(problem, X, y, w, tol=TOLERANCE), limit)
    if solution is not None:
        _claim_solution(answers, "solve", solution, seconds)
        _certify(answers, "certify", problem, solution, case, limit)
        if not case.moves_rows:  # far from the optimum most of a dual point has to be repaired or paid for
            zero = SimpleNamespace(coef=np.zeros(X.shape[1]), intercept=0.0)
            _certify(answers, "certify zero", problem, zero, case, limit)
        bare = SimpleNamespace(coef=solution.coef, intercept=solution.intercept)
        if asks["bare"]:
            _certify(answers, "certify bare", problem, bare, case, limit)
        if asks["perturbed"]:
            _certify(answers, "certify perturbed", problem, _perturbed(case, solution, noise), case, limit)
        if asks["assess"] and not case.moves_rows:
            said, seconds = answers.call("assess", lambda: dualcore.assess(problem, bare, X, y, w), limit)
            _claim_certificate(answers, "assess", said, bare, seconds)
    if asks["foreign"]:
        settings = case.settings()
        for name in case.parameters:
            del settings[name]
        strange = dualcore.Problem(other, **settings, **other_parameters)
        found, _ = answers.call("solve foreign", lambda: dualcore.solve(strange, X, y, w, tol=TOLERANCE), limit)
        if found is not None:
            _certify(answers, "certify foreign", problem, found, case, limit)
    if asks["coreset"] and case.X.shape[0] > size:
        fit, seconds = answers.call(
            "fit_coreset", lambda: dualcore.fit_coreset(problem, X, y, size, w, random_state=0), limit
        )
        if fit is not None:
            _claim_certificate(answers, "fit_coreset", fit.certificate, fit.solution, seconds)
    if asks["path"] and case.radius > 0.0 and case.numbers <= 20_000:
        radii = case.radius * np.array([0.5, 1.0, 1.3, 4.0])
        chosen = size if case.X.shape[0] > size and not case.moves_rows else None
        path, seconds = answers.call(
            "radius_path", lambda: dualcore.radius_path(problem, X, y, radii, chosen, w, random_state=0), limit
        )
        for point in () if path is None else path.points:
            _claim_certificate(answers, "radius_path", point.certificate, point.solution, seconds, point.radius)
    return answers


_SHARES = {"bare": 0.3, "perturbed": 0.4, "foreign": 0.3, "assess": 0.3, "coreset": 0.3, "path": 0.1}


def ask_softmax(case: Case, limit: float) -> Answers:
    """Solve, certify, certify a perturbed model, sometimes a coreset."""
    rng, answers = _asking_rng(case), Answers()
    asks = {name: rng.random() < share for name, share in _SHARES.items()}
    noise, size = rng.normal(size=(case.n_classes, case.X.shape[1] + 1)), int(rng.integers(30, 80))
    base, _ = answers.call("Problem", lambda: dualcore.Problem("logistic", **case.settings()), limit)
    if base is None:
        return answers
    problem = base.replace(loss=Softmax(case.n_classes))
    X, y, w = case.X, case.y, case.weights
    solution, seconds = answers.call("solve", lambda: dualcore.solve(problem, X, y, w, tol=TOLERANCE), limit)
    if solution is None:
        return answers
    _claim_solution(answers, "solve", solution, seconds)
    zero = SimpleNamespace(coef=np.zeros_like(solution.coef), intercept=np.zeros_like(solution.intercept))
    models = [("certify", solution), ("certify zero", zero)]
    if asks["perturbed"]:
        models.append(("certify perturbed", _perturbed(case, solution, noise)))
    for what, model in models:
        said, seconds = answers.call(what, lambda m=model: dualcore.certify(problem, m, X, y, w), limit)
        _claim_certificate(answers, what, said, model, seconds)
    if asks["coreset"] and case.X.shape[0] > size:
        fit, seconds = answers.call(
            "fit_coreset", lambda: dualcore.fit_coreset(problem, X, y, size, w, random_state=0), limit
        )
        if fit is not None:
            _claim_certificate(answers, "fit_coreset", fit.certificate, fit.solution, seconds)
    return answers


ASKING: dict[str, Callable[[Case, float], Answers]] = {
    "plain": ask_linear,
    "box": ask_linear,
    "categories": ask_linear,
    "softmax": ask_softmax,
}


def _asking_rng(case: Case) -> np.random.Generator:
    return np.random.default_rng([case.seed, case.number, int(case.small), 1])


def _foreign(case: Case, rng: np.random.Generator) -> tuple[str, dict[str, float]]:
    """Return another loss for the same targets; of order 1 on a support."""
    names = [name for name in (MARGIN_LOSSES if case.is_classification else RESIDUAL_LOSSES) if name != "power"]
    if case.moves_rows:
        names = [name for name in names if name in ORDER_ONE]
    name = str(rng.choice(names))
    parameters = {"huber": {"delta": 10.0 ** rng.uniform(-2, 3)}, "pinball": {"quantile": rng.uniform(0.05, 0.95)}}
    return name, parameters.get(name, {})


def _perturbed(case: Case, solution: Any, noise: Any) -> SimpleNamespace:
    """Return the model with coefficients changed by a hundredth of their size, the same at the mean row."""
    before = np.asarray(solution.coef)
    coef = before * (1.0 + 0.01 * noise[..., :-1])
    intercept = np.asarray(solution.intercept)
    if case.fit_intercept:
        intercept = intercept + (before - coef) @ case.dense.mean(axis=0)
    return SimpleNamespace(coef=coef, intercept=intercept if intercept.ndim else float(intercept))


def _certify(answers: Answers, what: str, problem: Any, model: Any, case: Case, limit: float) -> None:
    said, seconds = answers.call(what, lambda: dualcore.certify(problem, model, case.X, case.y, case.weights), limit)
    _claim_certificate(answers, what, said, model, seconds)


def _claim_certificate(
    answers: Answers, what: str, said: Any, model: Any, seconds: float, radius: float | None = None
) -> None:
    if said is not None:
        lower, upper = float(said.lower), float(said.upper)
        rounding = rounding_of(said)
        answers.claims.append(Claim(what, lower, upper, rounding, model.coef, model.intercept, seconds, radius))


def _claim_solution(answers: Answers, what: str, solution: Any, seconds: float) -> None:
    answers.claims.append(
        Claim(
            what,
            float(solution.lower_bound),
            float(solution.value),
            rounding_of(solution),
            solution.coef,
            solution.intercept,
            seconds,
            status=solution.status.name,
            gap=float(solution.gap),
        )
    )
