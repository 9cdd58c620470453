"""`dualcore stream`: take the rows of a file into a stream that goes on from call to call, and draw its coreset."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

from dualcore import CoresetStream, open_source
from dualcore.cli.options import DataOptions
from dualcore.cli.outcome import Exit, FileError, OptionError, Output, check_output, writing
from dualcore.cli.progress import watching
from dualcore.cli.rows import Given
from dualcore.coresets.stream import read_notes
from dualcore.data.sources.products import whole_chunk
from dualcore.estimators.saving import as_json, encode_plain, from_json


def stream_rows(
    model: Any, data: DataOptions, size: int, seed: int, state: Path | None, out: Path | None, output: Output
) -> Exit:
    """Take in the rows of a file; write the state, the coreset, or both. ``model`` has learned nothing yet."""
    if state is None and out is None:
        raise OptionError("Nothing would be kept: give --state, where the stream goes on, or --out for its coreset.")
    for path in (state, out):
        check_output(path, ".npz")
    rows, known = data.rows(), state if state is not None and state.exists() else None
    model.set_params(source_options=rows.options)
    if known is not None:
        model = _learned(model, known, rows)
    prepared = model.prepare(*rows[:3])
    stream = CoresetStream(prepared.problem, size, random_state=seed)
    stream = stream if known is None else CoresetStream.load(known, prepared.problem)
    if stream.size != size:
        raise OptionError(f"{state} is a stream of --size {stream.size}, got {size}.")
    stream.notes["model"] = as_json(model)
    coding = getattr(model, "categories_", {})
    groups = model.problem_.geometry.categories.groups if coding else ()
    unseen = dict.fromkeys(coding, 0)
    with watching(output, "reading the rows") as tell:
        for chunk in open_source(*prepared[1:4]).map(whole_chunk):
            stream.update(chunk.X, chunk.y, chunk.weights)
            tell(f"{stream.n_rows:,} rows seen")
            for name, group in zip(coding, groups, strict=True):
                unseen[name] += int((chunk.X[:, list(group[1:])].sum(axis=1) == 0.0).sum())
    for name, count in ((name, count) for name, count in unseen.items() if count):
        text = "that the first file of the stream did not, or none; all such texts are one category, without a feature"
        warnings.warn(f"{count:,} rows hold a text in column {name!r} {text} of its own.", stacklevel=1)
    values: dict[str, Any] = {"command": "stream", "rows": stream.n_rows, "kept": stream.state_rows}
    values |= {"coded": {name: len(texts) for name, texts in coding.items()}, "unseen": unseen}
    shown = [f"{stream.n_rows:,} rows seen, {stream.state_rows:,} kept."]
    if state is not None:
        with writing(state):
            stream.save(state)
        values["state"] = str(state)
        shown.append(f"The stream was written to {state}; call again with its next rows.")
    if out is not None:
        coreset = stream.coreset()
        coreset = replace(coreset, details=coreset.details | {"feature_names": list(model.coef_names_)})
        with writing(out):
            coreset.save(out)
        values |= {"out": str(out), "coreset_rows": len(coreset), "details": coreset.details}
        shown.append(f"{len(coreset):,} rows written to {out}.")
    output.result(values, *shown)
    return Exit.OK


def _learned(model: Any, state: Path, rows: Given) -> Any:
    """Return an estimator with what it learned about the columns from the first rows of a stream."""
    known = read_notes(state).get("model")
    if not isinstance(known, dict):
        raise FileError(f"{state.name} is a stream that was not written by dualcore stream.")
    parameters = encode_plain(model.get_params(deep=False))
    found = from_json(known | {"estimator": type(model).__name__, "parameters": parameters})
    target = rows.y if isinstance(rows.y, str) else None
    if getattr(found, "target_", None) != target:
        raise FileError(f"The target is {target!r}, that of the rows before was {found.target_!r}.")
    chosen, before = (rows.options or {}).get("features"), list(getattr(found, "feature_names_in_", ()))
    if chosen is not None and set(chosen) != set(before):
        raise OptionError(f"--drop leaves the columns {', '.join(chosen)}; the rows before had {', '.join(before)}.")
    return found
