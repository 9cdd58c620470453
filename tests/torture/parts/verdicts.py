"""Verdicts: what of all that was said about a case does not hold, by numbers the package had no part in."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .ask import TOLERANCE, Answers, Claim
from .cases import Case
from .exact import Long
from .referees import Referee

RELATIVE = 1e-9
SLOW_SECONDS, SLOW_NUMBERS = 10.0, 100_000
NEAR = 1e-6
# A release has none of these.
FALSE = ("false_lower", "false_upper", "false_optimal", "false_unbounded")
FORBIDDEN = (*FALSE, "exception", "timeout", "slow", "unjudged")
_OUTCOMES = {"OPTIMAL": "converged", "UNBOUNDED": "unbounded", "UNCERTIFIED": "withheld"}


class Refusal(NamedTuple):
    """A documented refusal: what its text says, and for which cases it is right."""

    text: str
    holds: Callable[[Case], bool]


def _is_loose(case: Case) -> bool:
    """Whether some feature has a coefficient that neither adversary nor ridge bounds, on a support."""
    if not case.moves_rows or case.ridge > 0.0:
        return False
    fixed = np.zeros(case.X.shape[1], dtype=bool) if case.prices is None else np.isinf(case.prices)
    for group, cost in zip(case.categories or (), case.category_cost or (), strict=True):
        fixed[[column for column in group if column is not None]] = np.isinf(cost)
    if case.support is None:
        return bool(fixed.any())
    low, high = case.support
    return bool((fixed | (low == high)).any())


REFUSALS = (
    Refusal(r"This needs features without a support", lambda case: case.support is not None),
    Refusal(r"Nothing bounds the coefficient of feature \d+.*need ridge > 0", _is_loose),
    Refusal(
        r"too many for Newton's method beyond 2500",
        lambda case: case.family == "softmax" and case.n_classes * (case.X.shape[1] + 1) > 2500,
    ),
)


def is_documented(case: Case, kind: str, text: str) -> bool:
    """Return whether an exception is a refusal that the documentation announces for such a case."""
    if kind not in ("ValueError", "TypeError", "IncompatibleError"):
        return False
    return any(re.search(refusal.text, text) and refusal.holds(case) for refusal in REFUSALS)


class Judged(NamedTuple):
    """A claim with the exact risk of its model and the best risk known at its radius."""

    claim: Claim
    risk: Any
    best: Any
    spread: float = 0.0


def lower_excess(judged: Judged) -> float:
    """Return by how much a lower bound exceeds the best known risk and all allowances; not positive if it holds."""
    claim = judged.claim
    if np.isnan(claim.lower):
        return np.inf
    return float(Long(claim.lower) - judged.best * (1 + Long(RELATIVE)) - Long(claim.rounding))


def upper_excess(judged: Judged) -> float:
    """Return by how much a stated risk differs from the exact one beyond all allowances."""
    claim = judged.claim
    if not np.isfinite(claim.upper):
        return np.inf if np.isfinite(judged.risk) else 0.0
    allowed = abs(judged.risk) * Long(RELATIVE) + Long(claim.rounding) + Long(judged.spread)
    return float(abs(Long(claim.upper) - judged.risk) - allowed)


def is_false_optimal(claim: Claim) -> bool:
    """Return whether a solution says OPTIMAL although its own certified gap is above the tolerance."""
    if claim.status != "OPTIMAL":
        return False
    gap = claim.upper - claim.lower
    return not gap <= TOLERANCE * abs(claim.upper) * (1.0 + 1e-9) + claim.rounding


def is_false_unbounded(case: Case, claim: Claim, referee: Referee) -> bool:
    """Return whether a solution says that no minimiser exists although a larger multiple of it has no smaller risk."""
    if claim.status != "UNBOUNDED":
        return False
    if case.loss != "logistic":  # the other losses are zero from some margin on: a minimum is attained
        return True
    point = referee.point(claim.coef, claim.intercept)
    zero = referee.zero()
    risks = [referee.risk(referee.mix(zero, point, step)) for step in (1.0, 2.0, 4.0)]
    return not (risks[2] <= risks[1] <= risks[0])


def judge(case: Case, answers: Answers, judged: list[Judged], referee: Referee) -> dict[str, list[str]]:
    """Return the verdicts of a case, each with what gave rise to it."""
    verdicts: dict[str, list[str]] = {}

    def note(verdict: str, text: str) -> None:
        verdicts.setdefault(verdict, []).append(text)

    for each in judged:
        claim = each.claim
        if lower_excess(each) > 0.0:
            note("false_lower", f"{claim.what}: lower {claim.lower:.12g} > best {float(each.best):.12g}")
        if upper_excess(each) > 0.0:
            note("false_upper", f"{claim.what}: upper {claim.upper:.12g}, exact {float(each.risk):.12g}")
        if is_false_optimal(claim):
            note("false_optimal", f"{claim.what}: gap {claim.upper - claim.lower:.3g} of {claim.upper:.6g}")
        if is_false_unbounded(case, claim, referee):
            note("false_unbounded", f"{claim.what}: risk {claim.upper:.6g}")
        if claim.status is None:
            continue
        outcome = _OUTCOMES.get(claim.status, "not_converged")
        note(outcome, claim.status)
        near = float(each.risk - each.best) <= NEAR * abs(float(each.best)) + claim.rounding
        compared = f"{float(each.risk):.12g} against {float(each.best):.12g}"
        if near:
            note("near_best", compared)
        elif claim.status == "OPTIMAL":
            note("optimal_not_near", compared)
        if near and outcome == "not_converged":
            note("loose_bound", f"gap {claim.upper - claim.lower:.3g} of {claim.upper:.6g}")
    for trouble in answers.troubles:
        if trouble.kind == "timeout":
            note("timeout", f"{trouble.what}: {trouble.text}")
        elif is_documented(case, trouble.kind, trouble.text):
            note("refused", f"{trouble.what}: {trouble.text}")
        else:
            note("exception", f"{trouble.what}: {trouble.kind} at {trouble.place}: {trouble.text}")
    if answers.slowest > SLOW_SECONDS and case.numbers <= SLOW_NUMBERS:
        note("slow", f"{answers.slowest:.1f} s")
    if answers.warnings:
        note("warned", answers.warnings[0])
    return verdicts
