"""Every verdict can be reached, and none is reached by a right answer: the judge is broken on purpose."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from torture.parts.ask import TOLERANCE, Answers, Claim, Trouble
from torture.parts.cases import Case
from torture.parts.exact import Long
from torture.parts.report import append, failures, stored
from torture.parts.trial import Limits, record, refereed
from torture.parts.verdicts import FORBIDDEN, Judged, is_documented, lower_excess, upper_excess

LIMITS = Limits(descent=0.2, cone_share=0.0)
SAFE = Claim("solve", 0.5, 0.5, 0.0, np.array([1.0]), 0.0, 0.1, status="OPTIMAL")


def simple(radius: float = 0.5, loss: str = "hinge") -> Case:
    """Two rows at +1 and -1: the best hinge model is coef 1, risk 0.5."""
    settings = {"ridge": 0.0, "norm": "l2", "label_cost": np.inf, "prices": None, "fit_intercept": True}
    rows = np.array([[1.0], [-1.0]])
    return Case("plain", loss, {}, rows, radius=radius, y=np.array([1.0, -1.0]), **settings)


def verdicts(answers: Answers, case: Case | None = None) -> set[str]:
    return set(refereed(case or simple(), answers, LIMITS)[2])


def of_claim(case: Case | None = None, **changes: object) -> set[str]:
    """The verdicts about the right answer to `simple`, changed."""
    return verdicts(Answers([replace(SAFE, **changes)]), case)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"lower": 0.5001, "upper": 0.5001}, {"false_lower", "false_upper"}),
        ({"upper": 0.5 + 1e-8, "status": None}, {"false_upper"}),
        ({"upper": 0.5 - 1e-8, "lower": 0.4, "status": None}, {"false_upper"}),
        ({"upper": np.inf, "lower": 0.4, "status": None}, {"false_upper"}),
        ({"lower": np.nan, "upper": np.nan}, {"false_lower", "false_upper", "false_optimal"}),
        ({"lower": 0.5 * (1.0 - 2.0 * TOLERANCE)}, {"false_optimal"}),
        ({"lower": 0.5 * (1.0 - 0.5 * TOLERANCE)}, set()),
        # An allowance that is stated counts.
        ({"lower": 0.5001, "upper": 0.5001, "rounding": 2e-4}, set()),
        # The package's model is no help: its risk is what it says.
        ({"coef": np.array([0.0]), "lower": 1.0, "upper": 1.0}, {"false_lower"}),
        ({"lower": 0.1, "status": "INACCURATE"}, set()),
        ({"upper": 0.0, "lower": 0.0, "status": "UNBOUNDED"}, {"false_upper", "false_unbounded"}),
    ],
)
def test_what_is_false(changes, found) -> None:
    assert of_claim(**changes) & set(FORBIDDEN) == found


def test_outcomes() -> None:
    assert of_claim() == {"converged", "near_best"}
    assert "optimal_not_near" in of_claim(coef=np.array([0.0]), lower=1.0, upper=1.0)
    assert {"not_converged", "near_best", "loose_bound"} <= of_claim(lower=0.1, status="INACCURATE")
    away = {"upper": float(np.log1p(np.exp(-1.0))), "lower": 0.0, "status": "UNBOUNDED"}
    found = of_claim(simple(0.0, "logistic"), **away)
    assert "unbounded" in found
    assert not {"false_unbounded", "converged", "not_converged"} & found
    away["upper"] += 5.0
    assert "false_unbounded" in of_claim(simple(5.0, "logistic"), **away)


def test_a_documented_refusal_holds_for_its_cases_only() -> None:
    text = "Nothing bounds the coefficient of feature 0: on a support, features ... need ridge > 0."
    for kind, said in (("IndexError", "index 3 is out of bounds"), ("ValueError", text)):  # there is no support
        assert "exception" in verdicts(Answers([], [Trouble("solve", kind, said, 0.1)]))
    boxed = replace(simple(0.1), family="box", support=(np.array([-2.0]), np.array([2.0])), prices=np.array([np.inf]))
    assert is_documented(boxed, "IncompatibleError", text)
    assert not is_documented(boxed, "RuntimeError", text)
    assert not is_documented(replace(boxed, ridge=1.0), "IncompatibleError", text)


def test_time_limits_warnings_and_exceptions_of_a_call_are_recorded() -> None:
    def endless() -> None:
        while True:
            pass

    answers = Answers([SAFE])
    assert answers.call("solve", endless, 0.2)[0] is None
    answers.slowest = 60.0
    assert {"timeout", "slow"} <= verdicts(answers)
    answers = Answers()
    assert answers.call("solve", lambda: np.log(np.zeros(1)), 5.0)[0] is not None
    assert "divide by zero" in answers.warnings[0]
    assert answers.call("solve", lambda: [][1], 5.0)[0] is None
    assert answers.troubles[0].kind == "IndexError"


@pytest.mark.parametrize(("excess", "spread", "holds"), [(5e-10, 0.0, True), (2e-9, 0.0, False), (2e-9, 1e-8, True)])
def test_allowances_are_relative_to_the_best_and_to_the_risk(excess, spread, holds) -> None:
    judged = Judged(replace(SAFE, lower=1.0 + excess, upper=1.0 + excess), Long(1.0), Long(1.0), spread)
    assert (upper_excess(judged) <= 0.0) == holds
    assert (lower_excess(judged) <= 0.0) == (excess < 1e-9)


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
    assert set(failures(found)) == {"unjudged"}


@pytest.mark.slow
def test_a_run_continues_where_it_stopped(tmp_path) -> None:
    out = tmp_path / "torture.jsonl"

    def run(*options: str) -> str:
        command = [sys.executable, "-m", "tests.torture", "--small", "--quick", "--out", str(out), *options]
        root = Path(__file__).resolve().parents[2]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=root).stdout

    assert "2 of 2 problems" in run("--problems", "2")
    printed = run("--problems", "3", "--jobs", "2")
    assert "1 of 1 problems" in printed
    assert "3 problems" in printed
    assert sorted(each["number"] for each in stored(out)) == [0, 1, 2]
    assert "3 problems" in run("--summary")
    assert "draw_case(**{'seed': 0, 'small': True" in run("--only", "1")
