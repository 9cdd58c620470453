"""Run a study: trials in parallel processes, a progress bar, and a file from which an interrupted run goes on."""

from __future__ import annotations

import os
import warnings
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.parallel import Parallel, delayed
from threadpoolctl import threadpool_limits

from experiments.data import Split, load_split
from experiments.methods import METHODS, WHOLE, WHOLE_CONIC, Job, Trained
from experiments.records import Record, Store, environment
from experiments.render import lay_out
from experiments.settings import STUDIES, Case, Study, Table, get_table

Folder = str | os.PathLike[str]
DEFAULT_FOLDER = "dualcore-results"


class Batch(NamedTuple):
    """What one process does in one go: some methods on one row of one trial."""

    row: str
    case: Case
    trial: int
    methods: tuple[str, ...]


@dataclass(frozen=True)
class Reproduction:
    """A table and the records that it is made of, those of the trials that were asked for."""

    table: Table
    records: list[Record]

    def markdown(self) -> str:
        """Return the table, the paper's figures beside ours."""
        return lay_out(self.table, self.records).markdown()


def reproduce(table: str, trials: int = 50, **options: Any) -> Reproduction:
    """Run what a table of the paper needs, and lay it out beside the printed one.

    ``table`` is a name of `experiments.TABLES`; ``options`` are those of `run_study`.
    """
    wanted = get_table(table)
    return Reproduction(wanted, run_study(STUDIES[wanted.study], trials, **options))


def run_study(
    study: Study,
    trials: int,
    *,
    data_home: Folder | None = None,
    folder: Folder = DEFAULT_FOLDER,
    n_jobs: int = -1,
    methods: Sequence[str] | None = None,
    progress: bool = True,
    stale: bool = False,
) -> list[Record]:
    """Run what is not stored yet, and return the records of the first ``trials`` trials.

    Records of earlier runs in ``folder`` are used again: an interrupted run goes on where it stopped, and tables
    that are views of one study share it.

    Parameters
    ----------
    study : Study
    trials : int
        Coresets a row and method.
    data_home : path, optional
        Folder of the data sets, see `experiments.datasets`.
    folder : path, default="dualcore-results"
        Where records are kept.
    n_jobs : int, default=-1
        Processes; -1 for all cores. Each uses one thread, so CPU times are comparable.
    methods : sequence of str, optional
        Some of the study's samplers; all by default.
    progress : bool, default=True
        Whether to show a bar.
    stale : bool, default=False
        Whether to remove the study's records of other code, and run them again.
    """
    if trials < 1:
        raise ValueError(f"trials must be at least 1, got {trials!r}.")
    unknown = sorted(set(methods or ()) - set(study.methods))
    if unknown:
        raise ValueError(f"{study.name} has no method {unknown[0]!r}. Use some of {', '.join(study.methods)}.")
    store, about = Store(folder, study.name), environment()
    if stale:
        store.discard_other_code(about["code"])
    chosen = study.methods if methods is None else tuple(name for name in study.methods if name in methods)
    done = {(record.row, record.method, record.trial) for record in store.read()}
    batches = list(plan(study, trials, chosen, done))
    if batches:
        key = store.note(about)
        home = None if data_home is None else os.fspath(data_home)
        work = Parallel(n_jobs=n_jobs, backend="loky", return_as="generator_unordered")
        columns = TextColumn(study.name), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
        with warnings.catch_warnings(), Progress(*columns, disable=not progress) as bar:
            # A process that holds a new data set looks like a leak and is replaced; its work is not lost.
            warnings.filterwarnings("ignore", message="A worker stopped while some jobs", category=UserWarning)
            task = bar.add_task(study.name, total=len(batches))
            for records in work(delayed(run_batch)(study, batch, home, key) for batch in batches):
                store.append(records)
                bar.advance(task)
    return [record for record in store.read() if record.trial < trials]


def plan(study: Study, trials: int, methods: tuple[str, ...], done: set[tuple[str, str, int]]) -> Iterator[Batch]:
    """Yield what is left to do, rows with the same data together."""
    started: set[str] = set()
    for row, case in study.cases.items():
        if case.whole not in started:
            started.add(case.whole)
            solvers = (WHOLE, WHOLE_CONIC) if case.whole in study.conic else (WHOLE,)
            repeats = case.trials(trials) if case.by_trial else min(study.repeats, trials)
            yield from _left(case.whole, case, repeats, solvers, done)
        yield from _left(row, case, case.trials(trials), methods, done)


def _left(
    row: str, case: Case, trials: int, methods: tuple[str, ...], done: set[tuple[str, str, int]]
) -> Iterator[Batch]:
    for trial in range(trials):
        missing = tuple(name for name in methods if (row, name, trial) not in done)
        if missing:
            yield Batch(row, case, trial, missing)


def run_batch(study: Study, batch: Batch, data_home: str | None, environment_key: str) -> list[Record]:
    """Train and score the methods of a batch, in this process and one thread."""
    case = batch.case
    data = load_split(case.key(batch.trial), data_home)
    # As the paper's size, c n rounded down; the addend is for 0.29 * 100 = 28.999...
    size = max(1, int(case.share * len(data.y) + 1e-9))
    seed = seed_of(study.name, batch.row, batch.trial)
    records, job = [], Job(case.problem, data.X, data.y, size, seed, study.tol)
    for method in batch.methods:
        with threadpool_limits(limits=1), warnings.catch_warnings():
            # A uniform draw of a dozen rows may miss a class, a solve may stop a digit early; neither ends a study.
            warnings.simplefilter("ignore", UserWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            trained = METHODS[method](job)
        records.append(
            Record(
                study=study.name,
                row=batch.row,
                method=method,
                trial=batch.trial,
                seed=seed,
                size=trained.size,
                risk=case.problem.risk(trained.coef, trained.intercept, data.X, data.y),
                score=_score(case, data, trained),
                lower=trained.lower,
                seconds=trained.seconds,
                environment=environment_key,
            )
        )
    return records


def seed_of(study: str, row: str, trial: int) -> int:
    """Return the seed of a trial: the same for all methods, different in every row.

    Examples
    --------
    >>> seed_of("energy", "1%", 0) == seed_of("energy", "1%", 0) != seed_of("energy", "2%", 0)
    True
    """
    words = [zlib.crc32(f"{study}/{row}".encode()), trial]
    return int(np.random.SeedSequence(words).generate_state(1)[0])


def _score(case: Case, data: Split, trained: Trained) -> float:
    """Return the test accuracy in percent, or the loss summed over the test rows."""
    prediction = data.X_test @ trained.coef + trained.intercept
    if case.problem.is_classification:
        return 100.0 * float(np.mean(np.where(prediction > 0.0, 1.0, -1.0) == data.y_test))
    return float(case.problem.loss.value(prediction - data.y_test).sum())
