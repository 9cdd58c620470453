"""Hostile problems, judged by a referee that shares no code with the package: a hundred here, two thousand as slow.

A failure names the command that runs the problem again with all its numbers.
"""

import pytest
from torture_parts.report import counts, failures
from torture_parts.trial import QUICK, Limits, run_trial

SEED = 13
THOROUGH = Limits(call=60.0, descent=1.0)
CHUNK = 5
SLOW_CHUNK, FULL_CHUNK = 900, 100  # a share of 98 % needs many problems to be a statement


def judge(numbers: range, small: bool, limits: Limits) -> list[dict]:
    """Run these problems and fail with every forbidden verdict among them."""
    records = [run_trial(SEED, number, small=small, limits=limits) for number in numbers]
    bad = [
        f"{record['command']}\n    {name}: {text}"
        for record in records
        for name, texts in failures(record).items()
        for text in texts[:1]
    ]
    if bad:
        pytest.fail("\n".join([f"{len(bad)} verdicts that must not be:", *bad]), pytrace=False)
    return records


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("first", range(0, 100, CHUNK))
def test_a_hundred_small_problems(first: int) -> None:
    judge(range(first, first + CHUNK), True, QUICK)


def assert_converged(records: list[dict]) -> None:
    """98 of 100 that have a minimiser and an answer reach their tolerance."""
    total = counts(records)
    decided = total["converged"] + total["not_converged"]
    left = [record["command"] for record in records if "not_converged" in record["verdicts"]]
    assert total["converged"] >= 0.98 * decided, "\n".join(["not converged:", *left])


@pytest.mark.slow
@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("first", range(100, 1900, SLOW_CHUNK))
def test_many_small_problems(first: int) -> None:
    assert_converged(judge(range(first, first + SLOW_CHUNK), True, QUICK))


@pytest.mark.slow
@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("first", range(0, 200, FULL_CHUNK))
def test_problems_of_full_size(first: int) -> None:
    assert_converged(judge(range(first, first + FULL_CHUNK), False, THOROUGH))
