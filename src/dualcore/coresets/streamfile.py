"""The state of a `CoresetStream` in one file: plain arrays in an ``.npz`` archive, and a JSON header. No pickle.

The header has the shape of the state; an array stands in it as its number. Classes are those named here, and no others
are ever made. A digest of everything tells a file that was damaged or changed from one that `write_stream` wrote.
"""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.streamgroup import Kept, Seen, StreamPlan
from dualcore.data.sources import Chunk
from dualcore.data.storage import ArchiveError, Arrays, read_signed, write_signed
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.summary import Pass, Summary

_FORMAT = 8
_STATE = "size", "seed", "_next", "spans", "waiting", "plan", "seen", "reduced", "shape", "notes", "anchor"
_CLASSES: dict[str, Any] = {
    made.__name__: made
    for made in (Anchor, Chunk, FlipTail, Kept, Pass, Seen, StreamPlan, Summary, TreeSum, list, tuple)
}


def write_stream(stream: Any, path: Path) -> None:
    """Write a stream's state."""
    known: dict[int, tuple[int, Any]] = {}
    state = {name: _pack(getattr(stream, name), known) for name in _STATE}
    header = {"format": _FORMAT, "problem": repr(stream.problem), "state": state}
    arrays = {f"array{number}": array for number, array in known.values()}
    write_signed(path, header, arrays)


def read_stream(stream: Any, path: Path, problem: Problem) -> None:
    """Fill an empty stream with the state in a file."""
    header, arrays = _open(path)
    if header["problem"] != repr(problem):
        raise ValueError(f"{path.name} is about {header['problem']}, not about {problem!r}.")
    for name in _STATE:
        setattr(stream, name, _unpack(header["state"][name], arrays, problem))
    stream.problem = problem


def read_notes(path: Path) -> dict[str, Any]:
    """Return the notes of a stream alone: they may say of which problem it is, which `read_stream` has to be told."""
    header, arrays = _open(path)
    notes: dict[str, Any] = _unpack(header["state"]["notes"], arrays, None)
    return notes


def _open(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a file, once it is known to be what was written."""
    try:
        return read_signed(path, _FORMAT)
    except ArchiveError as error:
        raise ValueError(f"{path.name} is not a file written by CoresetStream.save: {error}.") from None


def _pack(value: Any, known: dict[int, tuple[int, Any]]) -> Any:
    """Return a value as JSON. An array is the number that it has in ``known``, where it is put."""
    if isinstance(value, np.ndarray):
        return {"array": known.setdefault(id(value), (len(known), value))[0]}
    if sp.issparse(value):
        return {"sparse": [_pack(part, known) for part in (value.data, value.indices, value.indptr, value.shape)]}
    if isinstance(value, Problem):
        return {"problem": None}
    if isinstance(value, dict):
        return {"dict": [[_pack(key, known), _pack(each, known)] for key, each in value.items()]}
    if is_dataclass(value):
        return {type(value).__name__: [_pack(getattr(value, each.name), known) for each in fields(value)]}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_pack(each, known) for each in value]}
    return value.item() if isinstance(value, np.generic) else value


def _unpack(packed: Any, arrays: Arrays, problem: Problem | None) -> Any:
    """Return what `_pack` made JSON of."""
    if not isinstance(packed, dict):
        return packed
    [(kind, content)] = packed.items()
    if kind == "array":
        return arrays[f"array{content}"]
    if kind == "problem":
        return problem
    if kind == "dict":
        return {_unpack(key, arrays, problem): _unpack(each, arrays, problem) for key, each in content}
    parts = [_unpack(each, arrays, problem) for each in content]
    if kind == "sparse":
        return sp.csr_matrix(tuple(parts[:3]), shape=parts[3])
    made = _CLASSES[kind]
    return made(parts) if made in (list, tuple) else made(*parts)
