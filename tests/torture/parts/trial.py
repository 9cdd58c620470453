"""One trial: draw a case, ask the package, ask the referee, judge."""

from __future__ import annotations

import time
import traceback
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from .ask import Answers, ask
from .cases import Case, draw_case
from .families import PARTIES
from .search import Known, best_known
from .verdicts import Judged, judge


@dataclass(frozen=True)
class Limits:
    """How long a call may take, how long descent may search, and up to which ``n m`` CVXPY is asked, how often."""

    call: float = 60.0
    descent: float = 2.0
    cones: int = 3000
    cone_share: float = 1.0


# A shorter search for better models than the package's, for many small problems.
QUICK = Limits(call=30.0, descent=0.25, cones=400, cone_share=0.25)


def run_trial(seed: int, number: int, *, limits: Limits | None = None, **kind: Any) -> dict[str, Any]:
    """Return the record of one problem, drawn as `draw_case` does: what was said, what was found, the verdicts."""
    return record(draw_case(seed, number, **kind), limits or Limits())


def blank(case: Case) -> dict[str, Any]:
    """Return the record of a case about which nothing is known yet."""
    named = {name: getattr(case, name) for name in ("seed", "number", "small", "family", "command")}
    return named | {"case": case.describe(), "claims": [], "verdicts": {}}


def record(case: Case, limits: Limits) -> dict[str, Any]:
    began = time.process_time()
    answers = ask(case, limits.call)
    asked = time.process_time()
    found = blank(case) | {
        "quick": limits == QUICK,
        "troubles": [vars(trouble) for trouble in answers.troubles],
        "warnings": answers.warnings[:5],
        "slowest": answers.slowest,
        "package_seconds": asked - began,
    }
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the referee's tools; what the package says is recorded
        try:
            best, judged, verdicts = refereed(case, answers, limits)
        except Exception:  # a fault of the referee's own must not pass for one of the package, nor stop a run
            return found | {"verdicts": {"unjudged": [traceback.format_exc()]}}
    return found | {
        "best": float(best.risk),
        "best_from": best.source,
        "claims": [_claim(each) for each in judged],
        "referee_seconds": time.process_time() - asked,
        "verdicts": verdicts,
    }


def refereed(case: Case, answers: Answers, limits: Limits) -> tuple[Known, list[Judged], dict[str, list[str]]]:
    """Return the best model known, every claim with its exact risk, and the verdicts."""
    party = PARTIES[case.family]
    referee = party.referee(case)
    points = [referee.point(claim.coef, claim.intercept) for claim in answers.claims]
    found = [(claim.what, point) for claim, point in zip(answers.claims, points, strict=True)]
    rng = np.random.default_rng([case.seed, case.number, 2])
    if rng.random() < limits.cone_share:
        found += list(party.cones(referee, limits.cones))
    starts = [referee.zero()]
    if found:
        starts.append(best_known(referee, found, seconds=0.0)[0].point)
    found += list(party.descend(referee, starts, limits.descent))
    found.append(("zero", referee.zero()))
    best, risks = best_known(referee, found, seconds=limits.descent)
    judged = []
    for claim, point, risk in zip(answers.claims, points, risks, strict=False):
        known = best.risk
        if claim.radius is not None:  # another radius is another problem: the models found serve it as well
            there, _ = best_known(referee, [*found, (best.source, best.point)], seconds=0.0, radius=claim.radius)
            known, risk = there.risk, referee.risk(point, claim.radius)
        judged.append(Judged(claim, risk, min(known, risk), party.spread(case)))
    return best, judged, judge(case, answers, judged, referee)


def _claim(judged: Judged) -> dict[str, Any]:
    names = ("what", "lower", "upper", "rounding", "seconds", "status", "radius")
    said = {name: getattr(judged.claim, name) for name in names}
    return said | {"exact": float(judged.risk), "best": float(judged.best)}
