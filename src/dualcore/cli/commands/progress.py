"""Progress on long work: rounds, reads, and the certified gap as it falls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dualcore.cli.commands.outcome import Output
from dualcore.coresets.coreset import Coreset
from dualcore.coresets.path import PathStep
from dualcore.coresets.samplers import CoresetFit, Round, Sampler
from dualcore.data.sources import Chunk, Source, TransformedSource
from dualcore.problem import Problem


@dataclass
class Observed(Sampler):
    """A sampler that tells a callback about every read."""

    inner: Sampler
    callback: Callable[[Round], None]

    def __post_init__(self) -> None:
        self.size, self.random_state = self.inner.size, self.inner.random_state

    def draw(self, problem: Problem, source: Source, size: int, seed: int) -> Coreset:
        """Return a coreset of the inner sampler."""
        return self.inner.draw(problem, source, size, seed)

    def fit(self, problem: Problem, X: Any, y: Any = None, sample_weight: Any = None, **settings: Any) -> CoresetFit:
        """Train with the inner sampler, its reads observed."""
        return self.inner.fit(problem, X, y, sample_weight, **(settings | {"callback": self.callback}))


class WatchedSource(TransformedSource):
    """Rows that are counted as they are read, so that a long read is seen to move."""

    def __init__(self, inner: Source, seen: Callable[[int], None]) -> None:
        super().__init__(inner)
        self.seen = seen

    def _run(
        self, function: Callable[[Chunk], Any], merge: Any = None, *, features: bool = True, **settings: Any
    ) -> Iterator[Any]:
        def counted(chunk: Chunk) -> Any:
            result = function(chunk)
            self.seen(len(chunk.y))
            return result

        return self.inner._run(counted if features else function, merge, features=features, **settings)


class Watch:
    """A line of progress that callbacks keep up to date; nothing is shown where the output is no terminal."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)
        self._text, self._rows = "", 0

    def say(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and how much is done."""
        if self._progress is not None and self._task is not None:
            self._text = text
            self._progress.update(self._task, description=text, completed=done, total=total)

    def rows(self, count: int) -> None:
        """Show that so many more rows were read."""
        self._rows += count
        if self._progress is not None and self._task is not None:
            text = f"{self._text}; {self._rows:,} rows read in all" if self._text else f"{self._rows:,} rows read"
            self._progress.update(self._task, description=text)

    def round(self, done: Round) -> None:
        """Show a read of the data."""
        gap = f"certified gap {done.relative_gap:.1e}"
        self.say(f"read {done.read}: {done.rows:,} rows, worst-case risk {done.upper:.6g}, {gap}", done.read)

    def step(self, step: PathStep) -> None:
        """Show a step of a radius path."""
        gap = "" if step.worst_gap is None else f", largest certified gap {step.worst_gap:.1e}"
        counts = f"coresets: {step.n_builds}, reads: {step.n_reads}"
        done = step.done if step.stage == "solve" else None
        self.say(f"{step.stage} {step.done} of {step.total}: {counts}{gap}", done, step.total)


@contextlib.contextmanager
def watching(output: Output, text: str, total: int | None = None) -> Iterator[Watch]:
    """Show progress on standard error while the block runs, where that is a terminal."""
    if not output.shows_progress:
        yield Watch(None, total)
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=output.errors, transient=True) as progress:
        watch = Watch(progress, total)
        watch.say(text)
        yield watch
