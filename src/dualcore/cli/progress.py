"""Progress on long work, as callbacks tell it: reads, iterations, radii, and the certified gap as it falls."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from dualcore.cli.outcome import Output

# Where standard error is no terminal, a line is written as often as this, in seconds.
_EVERY = 10.0


def _text(done: Any) -> str:
    if isinstance(done, str):
        return done
    if not hasattr(done, "stage"):  # a read or an iteration, not a step of a path
        from dualcore.estimators.logs import describe

        return describe(done, is_read=False)
    gap = "" if done.worst_gap is None else f", largest certified gap {done.worst_gap:.1e}"
    return f"{done.stage} {done.done} of {done.total}: coresets: {done.n_builds}, reads: {done.n_reads}{gap}"


@contextlib.contextmanager
def watching(output: Output, text: str) -> Iterator[Callable[[Any], None]]:
    """Show progress on standard error while the block runs; what it yields is a callback, which takes texts too."""
    if output.quiet or not output.errors.is_terminal:
        last = time.monotonic()

        def write(done: Any) -> None:
            nonlocal last
            if not output.quiet and time.monotonic() - last >= _EVERY:
                last = time.monotonic()
                output.errors.print(_text(done), markup=False, highlight=False)

        yield write
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=24), TimeElapsedColumn())
    with Progress(*columns, console=output.errors, transient=True) as progress:
        task = progress.add_task(text, total=None)
        yield lambda done: progress.update(task, description=_text(done))
