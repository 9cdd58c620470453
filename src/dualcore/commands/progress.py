"""Progress on long work: rounds, reads, and the certified gap as it falls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dualcore.commands.outcome import Output
from dualcore.coreset import Coreset
from dualcore.path import PathStep
from dualcore.problem import Problem
from dualcore.samplers import CoresetFit, Round, Sampler
from dualcore.sources import Source

__all__ = ["Observed", "Watch", "watching"]


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

    def build(self, problem: Problem, X: Any, y: Any = None, sample_weight: Any = None) -> Coreset:
        """Return a coreset of the inner sampler."""
        return self.inner.build(problem, X, y, sample_weight)

    def fit(self, problem: Problem, X: Any, y: Any = None, sample_weight: Any = None, **settings: Any) -> CoresetFit:
        """Train with the inner sampler, its reads observed."""
        return self.inner.fit(problem, X, y, sample_weight, **(settings | {"callback": self.callback}))


class Watch:
    """A line of progress that callbacks keep up to date; silent where nobody looks."""

    def __init__(self, progress: Progress | None, total: int | None) -> None:
        self._progress = progress
        self._task = None if progress is None else progress.add_task("", total=total)

    def say(self, text: str, done: int | None = None, total: int | None = None) -> None:
        """Show a text, and how much is done."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=text, completed=done, total=total)

    def round(self, done: Round) -> None:
        """Show a read of the data."""
        gap = f"certified gap {done.relative_gap:.1e}"
        self.say(f"read {done.read}: {done.rows:,} rows, worst-case risk {done.upper:.6g}, {gap}", done.read)

    def step(self, step: PathStep) -> None:
        """Show a step of a radius path."""
        gap = "" if step.worst_gap is None else f", largest certified gap {step.worst_gap:.1e}"
        counts = f"{step.n_builds} coresets, {step.n_reads} reads"
        done = step.done if step.stage == "solve" else None
        self.say(f"{step.stage} {step.done} of {step.total}: {counts}{gap}", done, step.total)


@contextlib.contextmanager
def watching(output: Output, text: str, total: int | None = None) -> Iterator[Watch]:
    """Show progress on standard error while the block runs, where that is a terminal."""
    if not output.shows_progress:
        yield Watch(None, total)
        return
    with _progress(output.errors) as progress:
        watch = Watch(progress, total)
        watch.say(text)
        yield watch


def _progress(console: Console) -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True)
