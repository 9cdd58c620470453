"""`dualcore stream`: take the rows of a file into a stream that goes on from call to call, and draw its coreset."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from dualcore import CoresetStream, Problem
from dualcore.cli.coding import check_coding, coded_groups
from dualcore.cli.commands.outcome import Exit, OptionError, Output, check_output, writing
from dualcore.cli.commands.progress import watching
from dualcore.cli.commands.streams import Stream, open_stream, refuse_many_classes
from dualcore.cli.groups import DataOptions, ProblemOptions
from dualcore.cli.tables import TableError
from dualcore.coresets.drift import DriftWarning
from dualcore.coresets.streamfile import read_notes
from dualcore.data.sources.products import whole_chunk
from dualcore.data.storage import ArchiveError


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
    problem.settings()  # what is wrong with options is said before a file is opened
    if size < 2 or seed < 0:
        raise OptionError(f"--size must be at least 2, and --seed must not be negative; got {size} and {seed}.")
    if state is None and out is None:
        raise OptionError("Nothing would be kept: give --state, where the stream goes on, or --out for its coreset.")
    for path in (state, out):
        if path is not None:
            check_output(path, ".npz")
    known = None if state is None or not state.exists() else _read_notes(state)
    # The first file says which texts are categories: the rows are gone when a later one brings others.
    rows = open_stream(data, problem.is_classification, None if known is None else known["coding"])
    refuse_many_classes(rows)
    notes = _match(known or {}, rows, data.path)
    stream = _open_state(Problem(**problem.settings(rows.coding, rows.names)), size, seed, state)
    stream.notes |= notes
    unseen = dict.fromkeys(rows.coding, 0)
    with watching(output, "reading the rows") as watch:
        for chunk in rows.source.map(whole_chunk):
            stream.update(chunk.X, chunk.y, chunk.weights)
            watch.rows(chunk.y.size)
            for name, group in zip(rows.coding, coded_groups(rows.names, rows.coding), strict=True):
                unseen[name] += int(np.sum(chunk.X[:, group[1:]].sum(axis=1) == 0.0))
    values: dict[str, Any] = {"command": "stream", "rows": stream.n_rows, "kept": stream.state_rows}
    values |= {"coded": {name: len(texts) for name, texts in rows.coding.items()}, "unseen": unseen, "warnings": []}
    values["warnings"] += [_unseen(name, count) for name, count in unseen.items() if count]
    if state is not None:
        with writing(state):
            stream.save(state)
        values["state"] = str(state)
    if out is not None:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", DriftWarning)
            coreset = stream.coreset()
        coreset = replace(coreset, details=coreset.details | {"feature_names": list(rows.features)})
        with writing(out):
            coreset.save(out)
        values |= {"out": str(out), "coreset_rows": len(coreset), "details": coreset.details}
        values["warnings"] += [str(one.message) for one in caught]

    def show(console: Console) -> None:
        console.print(f"{stream.n_rows:,} rows seen, {stream.state_rows:,} kept.", markup=False)
        if state is not None:
            console.print(f"The stream was written to {state}; call again with its next rows.", markup=False)
        if out is not None:
            console.print(f"{values['coreset_rows']:,} rows written to {out}.", markup=False)
        for text in values["warnings"]:
            console.print(f"warning: {text}", markup=False)

    output.result(values, show)
    return Exit.OK


def _unseen(name: str, count: int) -> str:
    return (
        f"{count:,} rows hold a text in column {name!r} that the first file of the stream did not; all such texts are "
        "one category, without a feature of its own."
    )


def _read_notes(state: Path) -> dict[str, Any]:
    """Return what a stream says of its rows; its coding is empty where columns of text were refused."""
    try:
        notes = read_notes(state)
        return notes | {"coding": check_coding(notes.get("coding", {}))}
    except ArchiveError as error:
        raise TableError(f"{state.name} is a damaged stream: {error}.") from None


def _open_state(problem: Problem, size: int, seed: int, state: Path | None) -> CoresetStream:
    """Return the stream that goes on, or a new one."""
    if state is None or not state.exists():
        return CoresetStream(problem, size, random_state=seed)
    stream = CoresetStream.load(state, problem)
    if stream.size != size:
        raise OptionError(f"{state} is a stream of --size {stream.size}, got {size}.")
    return stream


def _match(known: dict[str, Any], rows: Stream, path: Path) -> dict[str, Any]:
    """Return what to remember of the rows, after seeing that features and labels are those of the rows before."""
    found = {
        "features": list(rows.names),
        "target": rows.target,
        "classes": None if rows.classes is None else list(rows.classes),
    }
    for name, value in found.items():
        before = known.get(name, value)
        if before != value:
            raise TableError(f"{path.name} has the {name} {value!r:.200}, the rows before it {before!r:.200}.")
    return found | {"coding": {name: list(texts) for name, texts in rows.coding.items()}}
