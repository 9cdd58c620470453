"""The state of a `CoresetStream` in one file: plain arrays in an ``.npz`` archive, and a JSON header. No pickle.

A digest of everything tells a file that was damaged or changed from one that `write_stream` wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dualcore.coresets.packing import pack, unpack
from dualcore.coresets.streamgroup import Kept, Seen, StreamPlan
from dualcore.data.sources import Chunk
from dualcore.data.storage import ArchiveError, Arrays, read_signed, write_signed
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.summary import Pass, Summary

_FORMAT = 8
_STATE = "size", "seed", "_next", "spans", "waiting", "plan", "seen", "reduced", "shape", "notes", "anchor"
_CLASSES = Anchor, Chunk, FlipTail, Kept, Pass, Seen, StreamPlan, Summary, TreeSum


def write_stream(stream: Any, path: Path) -> None:
    """Write a stream's state."""
    arrays: Arrays = {}
    state = {name: pack(getattr(stream, name), arrays) for name in _STATE}
    write_signed(path, {"format": _FORMAT, "problem": repr(stream.problem), "state": state}, arrays)


def read_stream(stream: Any, path: Path, problem: Problem) -> None:
    """Fill an empty stream with the state in a file."""
    header, arrays = _open(path)
    if header["problem"] != repr(problem):
        raise ValueError(f"{path.name} is about {header['problem']}, not about {problem!r}.")
    for name in _STATE:
        setattr(stream, name, unpack(header["state"][name], arrays, _CLASSES, problem))
    stream.problem = problem


def read_notes(path: Path) -> dict[str, Any]:
    """Return the notes of a stream alone: they may say of which problem it is, which `read_stream` has to be told."""
    header, arrays = _open(path)
    notes: dict[str, Any] = unpack(header["state"]["notes"], arrays)
    return notes


def _open(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Return the header and the arrays of a file, once it is known to be what was written."""
    try:
        return read_signed(path, _FORMAT)
    except ArchiveError as error:
        raise ValueError(f"{path.name} is not a file written by CoresetStream.save: {error}.") from None
