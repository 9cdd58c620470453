"""Studies run, stop, go on, and give the same numbers however many processes run them."""

from dataclasses import replace

import pytest

from dualcore import Problem
from experiments import runner
from experiments.runner import run_study, seed_of
from experiments.settings import Case, Study

LOGISTIC = Problem("logistic", radius=0.1, norm="l1", label_cost=7.0)
STUDY = Study(
    "demo",
    "generated rows",
    {f"{k}%": Case(("standin", "letter", 200), LOGISTIC, k / 100) for k in (10, 20)},
    repeats=2,
)


def run(folder, trials=2, study=STUDY, **options):
    return run_study(study, trials, folder=folder, progress=False, **({"n_jobs": 1} | options))


def numbers(records):
    return {(r.row, r.method, r.trial): (r.seed, r.size, r.risk, r.score, r.lower) for r in records}


def test_every_row_method_and_trial_is_there_once_and_none_beats_whole(tmp_path):
    records = run(tmp_path)
    expected = {(row, m, t) for row in STUDY.cases for m in STUDY.methods for t in range(2)}
    expected |= {("all", m, t) for m in ("Whole", "Whole (conic)") for t in range(2)}
    assert len(records) == len(expected)
    assert set(numbers(records)) == expected
    whole = next(r for r in records if r.method == "Whole")
    for record in records:
        assert record.risk >= whole.lower * (1.0 - 1e-9)
        if record.row != "all":
            assert record.seed == seed_of("demo", record.row, record.trial)
            assert record.method == "Fit" or record.size <= {"10%": 20, "20%": 40}[record.row]
    assert {r.method for r in records if r.lower is not None} == {"Whole", "Whole (conic)", "Fit"}


def test_an_interrupted_run_goes_on_where_it_stopped_and_more_trials_only_add(tmp_path, monkeypatch):
    complete = numbers(run(tmp_path / "complete"))
    original, left = runner.run_batch, [None] * 4

    def counted(*arguments):
        left.pop()  # an interrupt where none is left
        return original(*arguments)

    monkeypatch.setattr(runner, "run_batch", counted)
    with pytest.raises(IndexError):
        run(tmp_path / "cut")
    stored = (tmp_path / "cut" / "demo.csv").read_text()
    left[:] = [None] * 100
    assert numbers(run(tmp_path / "cut")) == complete
    assert (tmp_path / "cut" / "demo.csv").read_text().startswith(stored)
    left[:] = [None] * len(STUDY.cases)
    more = numbers(run(tmp_path / "cut", trials=3))
    assert left == []
    assert more.items() >= complete.items()
    assert numbers(run(tmp_path / "cut")) == complete


def test_processes_do_not_change_the_numbers(tmp_path):
    study = replace(STUDY, methods=("UniSamp", "Fit"), conic=())
    assert numbers(run(tmp_path / "one", study=study)) == numbers(run(tmp_path / "two", study=study, n_jobs=2))


def test_what_makes_no_sense_is_refused(tmp_path):
    with pytest.raises(ValueError, match="trials must be at least 1, got 0"):
        run(tmp_path, trials=0)
    with pytest.raises(ValueError, match="demo has no method 'Oracle'"):
        run(tmp_path, methods=["Oracle"])
    with pytest.raises(ValueError, match="no table 'tables'"):
        runner.reproduce("tables")
