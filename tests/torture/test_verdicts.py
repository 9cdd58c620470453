"""Every verdict can be reached, and none is reached by a right answer: the judge is broken on purpose."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from torture.parts.ask import TOLERANCE, Answers, Claim, Trouble, rounding_of
from torture.parts.cases import Case, draw_case
from torture.parts.exact import Long
from torture.parts.families import PARTIES
from torture.parts.report import failures
from torture.parts.store import append, stored
from torture.parts.trial import Limits, record, refereed
from torture.parts.verdicts import FORBIDDEN, Judged, is_documented, lower_excess, upper_excess

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "torture.py"
LIMITS = Limits(descent=0.2, cone_share=0.0)


def simple(radius: float = 0.5, label_cost: float = np.inf, loss: str = "hinge") -> Case:
    """Two rows at +1 and -1: the best hinge model is coef 1, risk 0.5."""
    case = draw_case(0, 0, small=True, family="plain", paired=False)
    return replace(
        case,
        loss=loss,
        parameters={},
        radius=radius,
        ridge=0.0,
        norm="l2",
        label_cost=label_cost,
        prices=None,
        support=None,
        fit_intercept=True,
        X=np.array([[1.0], [-1.0]]),
        y=np.array([1.0, -1.0]),
        weights=None,
    )


def claim(**changes: object) -> Claim:
    """The right answer to `simple`, changed."""
    right = Claim("solve", 0.5, 0.5, 0.0, np.array([1.0]), 0.0, 0.1, status="OPTIMAL", gap=0.0)
    return replace(right, **changes)


def verdicts(answers: Answers, case: Case | None = None) -> dict[str, list[str]]:
    return refereed(case or simple(), answers, LIMITS)[2]["verdicts"]


def test_a_right_answer_passes() -> None:
    found = verdicts(Answers([claim()]))
    assert set(found) == {"converged", "near_best"}


def test_a_lower_bound_above_the_best_model_is_false() -> None:
    assert "false_lower" in verdicts(Answers([claim(lower=0.5001, upper=0.5001)]))


def test_a_false_lower_bound_is_found_without_the_help_of_the_package() -> None:
    bad = claim(coef=np.array([0.0]), lower=1.0, upper=1.0)
    found = verdicts(Answers([bad]))
    assert "false_lower" in found
    assert "false_upper" not in found
    assert "optimal_not_near" in found


def test_a_risk_that_is_not_the_models_is_false_in_either_direction() -> None:
    assert "false_upper" in verdicts(Answers([claim(upper=0.5 + 1e-8, status=None)]))
    assert "false_upper" in verdicts(Answers([claim(upper=0.5 - 1e-8, lower=0.4, status=None)]))
    assert "false_upper" in verdicts(Answers([claim(upper=np.inf, lower=0.4, status=None)]))


def test_bounds_that_are_not_numbers_are_false() -> None:
    found = verdicts(Answers([claim(lower=np.nan, upper=np.nan)]))
    assert {"false_lower", "false_upper", "false_optimal"} <= set(found)


def test_a_stated_allowance_counts() -> None:
    assert "false_lower" not in verdicts(Answers([claim(lower=0.5001, upper=0.5001, rounding=2e-4)]))
    assert "false_upper" not in verdicts(Answers([claim(lower=0.5001, upper=0.5001, rounding=2e-4)]))
    assert rounding_of(SimpleNamespace(rounding=0.25)) == 0.25
    assert rounding_of(SimpleNamespace()) == 0.0


def test_optimal_with_a_gap_above_the_tolerance_is_false() -> None:
    assert "false_optimal" in verdicts(Answers([claim(lower=0.5 * (1.0 - 2.0 * TOLERANCE))]))
    assert "false_optimal" not in verdicts(Answers([claim(lower=0.5 * (1.0 - 0.5 * TOLERANCE))]))


def test_unbounded_is_its_own_outcome_and_may_be_false() -> None:
    run_away = claim(upper=float(np.log1p(np.exp(-1.0))), lower=0.0, status="UNBOUNDED")
    found = verdicts(Answers([run_away]), simple(radius=0.0, loss="logistic"))
    assert "unbounded" in found
    assert not {"false_unbounded", "converged", "not_converged"} & set(found)
    held = replace(run_away, upper=run_away.upper + 5.0, coef=np.array([1.0]))
    assert "false_unbounded" in verdicts(Answers([held]), simple(radius=5.0, loss="logistic"))
    assert "false_unbounded" in verdicts(Answers([claim(upper=0.0, lower=0.0, status="UNBOUNDED")]), simple(radius=0.0))


def test_not_converged_near_the_best_is_a_loose_bound() -> None:
    found = verdicts(Answers([claim(lower=0.1, status="INACCURATE")]))
    assert {"not_converged", "near_best", "loose_bound"} <= set(found)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("IndexError", "index 3 is out of bounds"),
        ("ValueError", "Optimization bounds must be finite scalars"),
        ("ValueError", "Nothing bounds the coefficient of feature 3: ... need ridge > 0."),  # there is no support
    ],
)
def test_an_exception_is_no_refusal(kind: str, text: str) -> None:
    answers = Answers([], [Trouble("solve", kind, text, 0.1)])
    assert "exception" in verdicts(answers)


def test_a_documented_refusal_holds_for_its_cases_only() -> None:
    text = "Nothing bounds the coefficient of feature 0: on a support, features ... need ridge > 0."
    boxed = replace(
        simple(), family="box", support=(np.array([-2.0]), np.array([2.0])), prices=np.array([np.inf]), radius=0.1
    )
    assert is_documented(boxed, "IncompatibleError", text)
    assert not is_documented(boxed, "RuntimeError", text)
    assert not is_documented(replace(boxed, ridge=1.0), "IncompatibleError", text)


def test_time_limits() -> None:
    answers = Answers([claim()], [Trouble("certify", "timeout", "still running after 60 s", 60.0)])
    answers.slowest = 60.0
    assert {"timeout", "slow"} <= set(verdicts(answers))


def test_a_call_that_takes_too_long_is_cut_off() -> None:
    def endless() -> None:
        while True:
            pass

    answers = Answers()
    assert answers.call("solve", endless, 0.2)[0] is None
    assert [trouble.kind for trouble in answers.troubles] == ["timeout"]


def test_warnings_and_exceptions_of_a_call_are_recorded() -> None:
    answers = Answers()
    assert answers.call("solve", lambda: np.log(np.zeros(1)), 5.0)[0] is not None
    assert "divide by zero" in answers.warnings[0]
    assert answers.call("solve", lambda: [][1], 5.0)[0] is None
    assert answers.troubles[0].kind == "IndexError"


def test_allowances_are_relative_to_the_best_and_to_the_risk() -> None:
    at = Judged(claim(lower=1.0 + 5e-10, upper=1.0 + 5e-10), Long(1.0), Long(1.0))
    assert lower_excess(at) <= 0.0
    assert upper_excess(at) <= 0.0
    beyond = Judged(claim(lower=1.0 + 2e-9, upper=1.0 + 2e-9), Long(1.0), Long(1.0))
    assert lower_excess(beyond) > 0.0
    assert upper_excess(beyond) > 0.0
    assert upper_excess(beyond._replace(spread=1e-8)) <= 0.0


def test_every_family_has_a_referee_that_knows_its_zero() -> None:
    for family, party in PARTIES.items():
        referee = party.referee(draw_case(0, 1, small=True, family=family))
        assert np.isfinite(referee.risk(referee.zero()))


def test_a_file_cut_short_is_read_and_continued(tmp_path, capsys) -> None:
    path = tmp_path / "deeper" / "torture.jsonl"
    append(path, {"number": 1})
    with path.open("a") as handle:
        handle.write('{"number": 2, "cl')
    append(path, {"number": 3})
    assert [record["number"] for record in stored(path)] == [1, 3]
    assert "no JSON" in capsys.readouterr().err
    assert stored(None) == []


def test_a_fault_of_the_referee_is_none_of_the_package(monkeypatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("in the referee")

    monkeypatch.setattr("torture.parts.trial.refereed", broken)
    found = record(simple(), LIMITS)
    assert "in the referee" in found["verdicts"]["unjudged"][0]
    assert failures(found)


@pytest.mark.slow
def test_a_run_continues_where_it_stopped(tmp_path) -> None:
    def run(*options: str) -> str:
        command = [sys.executable, str(SCRIPT), "--small", "--out", str(out), *options]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    out = tmp_path / "torture.jsonl"
    assert "2 of 2 problems" in run("--problems", "2")
    printed = run("--problems", "3", "--jobs", "2")
    assert "1 of 1 problems" in printed
    assert "3 problems" in printed
    assert sorted(each["number"] for each in stored(out)) == [0, 1, 2]
    assert "3 problems" in run("--summary")
    assert "draw_case(0, 1, small=True)" in run("--only", "1")


def test_only_forbidden_verdicts_fail() -> None:
    record = {"verdicts": {"not_converged": ["MAX_ITER"], "false_lower": ["x"]}}
    assert failures(record) == {"false_lower": ["x"]}
    assert "not_converged" not in FORBIDDEN
