"""`dualcore stream`: take the rows of a file into a stream that goes on from call to call, and draw its coreset."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from rich.console import Console

from dualcore import CoresetStream, Problem
from dualcore.cli.commands.outcome import Exit, OptionError, Output, check_output, writing
from dualcore.cli.commands.progress import watching
from dualcore.cli.commands.streams import Stream, open_stream, refuse_many_classes
from dualcore.cli.groups import DataOptions, ProblemOptions
from dualcore.cli.tables import TableError
from dualcore.coresets.drift import DriftWarning
from dualcore.data.sources import Chunk

__all__ = ["stream_rows"]


def stream_rows(
    problem: ProblemOptions,
    data: DataOptions,
    size: int,
    seed: int,
    state: Path | None,
    out: Path | None,
    output: Output,
) -> Exit:
    """Take in the rows of a file; write the state, the coreset, or both."""
    settings = problem.settings({})  # texts are not coded: which there are is not known before the last row came
    if size < 2 or seed < 0:
        raise OptionError(f"--size must be at least 2, and --seed must not be negative; got {size} and {seed}.")
    if state is None and out is None:
        raise OptionError("Nothing would be kept: give --state, where the stream goes on, or --out for its coreset.")
    for path in (state, out):
        if path is not None:
            check_output(path, ".npz")
    rows = open_stream(data, problem.is_classification, code=False)
    refuse_many_classes(rows)
    stream = _open_state(Problem(**settings), size, seed, state)
    _match(stream, rows, data.path)
    with watching(output, "reading the rows") as watch:
        for chunk in rows.source.map(_same):
            stream.update(chunk.X, chunk.y, chunk.weights)
            watch.rows(chunk.y.size)
    values: dict[str, Any] = {"command": "stream", "rows": stream.n_rows, "kept": stream.state_rows}
    if state is not None:
        with writing(state):
            stream.save(state)
        values["state"] = str(state)
    if out is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DriftWarning)
            coreset = stream.coreset()
        with writing(out):
            coreset.save(out)
        values |= {"out": str(out), "coreset_rows": len(coreset), "details": coreset.details}
        values["warnings"] = [str(one.message) for one in caught]

    def show(console: Console) -> None:
        console.print(f"{stream.n_rows:,} rows seen, {stream.state_rows:,} kept.", markup=False)
        if state is not None:
            console.print(f"The stream was written to {state}; call again with its next rows.", markup=False)
        if out is not None:
            console.print(f"{values['coreset_rows']:,} rows written to {out}.", markup=False)
        for text in values.get("warnings", ()):
            console.print(f"warning: {text}", markup=False)

    output.result(values, show)
    return Exit.OK


def _open_state(problem: Problem, size: int, seed: int, state: Path | None) -> CoresetStream:
    """Return the stream that goes on, or a new one."""
    if state is None or not state.exists():
        return CoresetStream(problem, size, random_state=seed)
    try:
        stream = CoresetStream.load(state, problem)
    except ValueError as error:
        raise TableError(str(error)) from None
    if stream.size != size:
        raise OptionError(f"{state} is a stream of --size {stream.size}, got {size}.")
    return stream


def _match(stream: CoresetStream, rows: Stream, path: Path) -> None:
    """See that features and labels are those of the rows before."""
    found = {
        "features": list(rows.names),
        "target": rows.target,
        "classes": None if rows.classes is None else list(rows.classes),
    }
    for name, value in found.items():
        known = stream.notes.get(name, value)
        if known != value:
            raise TableError(f"{path.name} has the {name} {value!r:.200}, the rows before it {known!r:.200}.")
    stream.notes |= found


def _same(chunk: Chunk) -> Chunk:
    return chunk
