"""Hostile problems, judged by a referee that shares no code with the package: a hundred here, two thousand as slow.

A failure names the command that runs the problem again with all its numbers.
"""

import json
import os
from pathlib import Path

import pytest

from torture.parts.report import counts, failures
from torture.parts.trial import QUICK, Limits, run_trial

SEED = 13
THOROUGH = Limits(call=60.0, descent=1.0)
CHUNK = 5
# The first problem of every part of the slow tests; a part takes about a minute.
SLOW, FULL = range(100, 1900, 100), range(0, 200, 20)


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


@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize(("seed", "number"), [(4711, 2500), (90210, 885), (90210, 1337)])
def test_problems_that_once_failed(seed: int, number: int) -> None:
    """A risk of 2e-22 called unbounded; softmax models none of whose numbers is free."""
    assert not failures(run_trial(seed, number, small=True, limits=QUICK))


def assert_converged(total: dict[str, int]) -> None:
    """98 of 100 that have a minimiser and an answer reach their tolerance."""
    decided = total["converged"] + total["not_converged"]
    assert total["converged"] >= 0.98 * decided, f"{total['not_converged']} of {decided} problems did not converge"


def add_to_total(folder: Path, name: str, records: list[dict]) -> None:
    """Store the counts of a part; whoever brings the last part asks for the share that converged in all of them.

    A share of 98 % needs many problems to be a statement. The parts may run in different processes, in any order.
    """
    found = counts(records)
    part = folder / f"{name}.part"
    part.write_text(json.dumps({each: int(found[each]) for each in ("converged", "not_converged")}), encoding="utf-8")
    part.rename(folder / f"{name}.json")  # at once: nobody reads half a part
    stored = [json.loads(each.read_text(encoding="utf-8")) for each in sorted(folder.glob("*.json"))]
    if len(stored) == len(SLOW) + len(FULL):
        assert_converged({each: sum(one[each] for one in stored) for each in stored[0]})


@pytest.fixture
def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this run: workers of xdist have a temporary folder each, below one of the run."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "torture_counts"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.mark.slow
@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("first", SLOW)
def test_many_small_problems(first: int, shared_folder: Path) -> None:
    records = judge(range(first, first + SLOW.step), True, QUICK)
    add_to_total(shared_folder, f"small-{first}", records)


@pytest.mark.slow
@pytest.mark.needs("cvxpy")
@pytest.mark.parametrize("first", FULL)
def test_problems_of_full_size(first: int, shared_folder: Path) -> None:
    records = judge(range(first, first + FULL.step), False, THOROUGH)
    add_to_total(shared_folder, f"full-{first}", records)
