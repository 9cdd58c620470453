"""The state of a `CoresetStream` in one file: plain arrays in an ``.npz`` archive, and a JSON header. No pickle."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.coreset import Coreset, check_weights
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.storage import ArchiveError, Arrays, Record, check_number, check_whole, write_atomically
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.cells import CellRule
from dualcore.reading.summary import Extent, Pass, Sample, Summary

_FORMAT = 4
# Files of format 3 have no reserve of uniform rows; they go on without one.
_READABLE = (3, _FORMAT)


def write_stream(stream: Any, path: Path) -> None:
    """Write a stream's state."""
    arrays: Arrays = {}
    header: dict[str, Any] = {
        "format": _FORMAT,
        "problem": repr(stream.problem),
        "size": stream.size,
        "seed": stream.seed,
        "next_row": stream.next_row,
        "spans": stream.spans,
        "shape": stream.shape,
        "notes": stream.notes,
        "waiting": _put_chunks(arrays, "waiting", stream.waiting),
        "groups": [_put_group(arrays, f"group{k}", group) for k, group in enumerate(stream.groups)],
        "reduced": [_put_coreset(arrays, f"reduced{k}", *pair) for k, pair in enumerate(stream.reduced)],
        "anchor": None,
    }
    if stream.anchor is not None:
        arrays["anchor"] = np.asarray(stream.anchor.coef)
        multiplier = getattr(stream.anchor, "multiplier", getattr(stream.anchor, "dual_variable", None))
        header["anchor"] = [_plain(stream.anchor.intercept), multiplier]
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def read_notes(path: Path) -> dict[str, Any]:
    """Return the notes of a stream alone: they may say of which problem it is, which `read_stream` has to be told."""
    try:
        return Record.of_archive(path).mapping("notes", optional=True)
    except ArchiveError as error:
        raise _not_a_stream(path, error) from None


def read_stream(stream: Any, path: Path, problem: Problem, group_class: Any) -> None:
    """Fill an empty stream with the state in a file, after checking every part of it."""
    try:
        record = Record.of_archive(path)
        form, about = record.value("format"), record.value("problem") if "problem" in record.values else None
        if form not in _READABLE:
            raise ArchiveError(f"it has format {form!r}; this version reads {' and '.join(map(str, _READABLE))}")
        if about == repr(problem):
            _fill(stream, record, problem, group_class)
            return
        if not isinstance(about, str):
            raise ArchiveError("'problem' is missing")
    except ArchiveError as error:
        raise _not_a_stream(path, error) from None
    raise ValueError(f"{path.name} is about {about}, not about {problem!r}.")


def _not_a_stream(path: Path, error: ArchiveError) -> ValueError:
    return ValueError(f"{path.name} is not a file written by CoresetStream.save: {error}.")


def _fill(stream: Any, record: Record, problem: Problem, group_class: Any) -> None:
    stream.problem, stream.size, stream.seed = problem, record.whole("size", 2), record.whole("seed")
    stream._next = record.whole("next_row")
    stream.spans = [_pair(found, "spans") for found in record.items("spans")]
    ends = [end for span in stream.spans for end in span]
    if ends != sorted(ends):
        raise ArchiveError("'spans' must ascend, and no row may be in two of them")
    shape, rows = record.value("shape"), _Rows(problem, None)
    if shape is not None:
        if not (isinstance(shape, list) and [type(part) for part in shape] == [int, bool, bool] and shape[0] > 0):
            raise ArchiveError(f"'shape' must be (features, sparse, weighted), found {shape!r}")
        rows = _Rows(problem, (shape[0], shape[1], shape[2]))
    stream.shape = rows.shape
    stream.waiting = rows.chunks(record.within(record.values, "waiting."), "waiting")
    stream.groups = [
        _get_group(record.within(entry, f"group{k}."), rows, group_class)
        for k, entry in enumerate(record.items("groups"))
    ]
    stream.reduced = [
        _get_coreset(record.within(entry, f"reduced{k}."), rows) for k, entry in enumerate(record.items("reduced"))
    ]
    stream.notes = record.mapping("notes", optional=True)
    anchor = record.value("anchor")
    stream.anchor = None if anchor is None else _get_anchor(record, "anchor", rows)
    seen = sum(chunk.y.size for chunk in stream.waiting) + sum(group.n_rows for group in stream.groups)
    seen += sum(coreset.n_rows for coreset, _ in stream.reduced)
    if seen != sum(stop - start for start, stop in stream.spans):
        raise ArchiveError(f"it says that {seen} rows were seen, but its spans hold another number")


def _pair(found: Any, name: str) -> tuple[int, int]:
    if not isinstance(found, list) or len(found) != 2:
        raise ArchiveError(f"{name!r} must hold pairs of whole numbers, found {found!r}")
    return check_whole(name, found[0]), check_whole(name, found[1])


class _Rows:
    """What all rows of a stream have in common, to check those in a file against it."""

    def __init__(self, problem: Problem, shape: tuple[int, bool, bool] | None) -> None:
        self.problem, self.shape = problem, shape

    @property
    def n_features(self) -> int | None:
        """How many features there are; None before the first row."""
        return None if self.shape is None else self.shape[0]

    def features(self, record: Record, size: int) -> Any:
        """Return features, of the number and the kind of all others."""
        X = record.rows("X", size)
        if self.shape is None or (X.shape[1], sp.issparse(X)) != self.shape[:2]:
            raise ArchiveError(f"'{record.prefix}X' does not fit 'shape', which says {self.shape}")
        return X

    def targets(self, record: Record, size: int | None) -> Any:
        """Return targets; labels where the problem is a classification."""
        y = record.vector("y", size)
        wrong = self.problem.family.first_wrong_label(y)
        if wrong is not None:
            raise ArchiveError(f"'{record.prefix}y': {self.problem.family.label_fault(float(y[wrong]))}")
        return y

    def chunks(self, record: Record, name: str) -> list[Chunk]:
        """Return consecutive rows that were stored stacked."""
        places = [_pair(found, name) for found in record.items(name)]
        if any(size < 1 for _, size in places):
            raise ArchiveError(f"{name!r} holds a chunk of no rows")
        if not places:
            return []
        n = sum(size for _, size in places)
        weights = record.vector("weights", n, least=0.0) if self.shape is not None and self.shape[2] else None
        whole = Chunk(0, self.features(record, n), self.targets(record, n), weights)
        ends = np.cumsum([0, *(size for _, size in places)]).tolist()
        return [
            whole.part(first, last)._replace(start=start)
            for (start, _), (first, last) in zip(places, pairwise(ends), strict=True)
        ]


def _put_rows(arrays: Arrays, name: str, X: Any) -> None:
    if sp.issparse(X):
        X = X.tocsr()
        parts = {"data": X.data, "columns": X.indices, "starts": X.indptr, "shape": np.array(X.shape)}
        arrays.update({f"{name}.{part}": array for part, array in parts.items()})
    else:
        arrays[name] = X


def _put_chunks(arrays: Arrays, name: str, chunks: list[Chunk]) -> list[list[int]]:
    """Store chunks stacked, and return where each begins and how long it is."""
    if chunks:
        whole = stack_chunks(chunks)
        _put_rows(arrays, f"{name}.X", whole.X)
        arrays[f"{name}.y"] = whole.y
        if whole.weights is not None:
            arrays[f"{name}.weights"] = whole.weights
    return [[chunk.start, int(chunk.y.size)] for chunk in chunks]


def _put_group(arrays: Arrays, name: str, group: Any) -> dict[str, Any]:
    task, summary = group.task, group.summary
    arrays[f"{name}.coef"], arrays[f"{name}.keep"] = task.anchor.coef, task.keep
    arrays[f"{name}.capacity"] = group.capacity
    return {
        "anchor": [_plain(task.anchor.intercept), task.anchor.multiplier],
        "cells": list(task.cells),
        "seed": task.seed,
        "width": task.width,
        "total_weight": group.extent.total_weight,
        "reserve": group.reserve,
        "summary": None if summary is None else _put_summary(arrays, name, summary),
    }


def _plain(intercept: Any) -> Any:
    """Return an intercept as JSON has it: a number, or a list of them where there are many classes."""
    return np.asarray(intercept, dtype=np.float64).tolist()


def _get_anchor(record: Record, coef: str, rows: _Rows) -> Anchor:
    """Return an anchor: its coefficients are the array ``coef``, the rest is the entry "anchor"."""
    pair = record.items("anchor")
    if len(pair) != 2:
        raise ArchiveError(f"'anchor' must hold an intercept and a multiplier, found {pair!r}")
    multiplier = check_number("multiplier", pair[1], 0.0, may_be_inf=True)  # inf where the radius is 0
    shape = (*rows.problem.family.model_shape(0)[:-1], rows.n_features)
    if len(shape) == 1:
        return Anchor(record.array(coef, "f", shape), check_number("intercept", pair[0]), multiplier)
    if not isinstance(pair[0], list) or len(pair[0]) != shape[0]:
        raise ArchiveError(f"'anchor' must hold {shape[0]} intercepts, found {pair[0]!r}")
    intercept = np.array([check_number("intercept", number) for number in pair[0]])
    return Anchor(record.array(coef, "f", shape), intercept, multiplier)


def _get_group(record: Record, rows: _Rows, group_class: Any) -> Any:
    cells = record.items("cells")
    if len(cells) != 5:
        raise ArchiveError(f"'cells' must hold five entries, found {cells!r}")
    rule = CellRule(
        check_number("scale", cells[0], 0.0),
        check_number("width", cells[1], 0.0),
        check_whole("n_curvatures", cells[2], 1),
        check_whole("n_layers", cells[3], 1),
        check_whole("n_strata", cells[4], 1),
    )
    capacity = record.vector("capacity", rule.n_cells, "i", least=1)
    keep = record.vector("keep", rule.n_cells, least=0.0)
    anchor, width = _get_anchor(record, "coef", rows), record.number("width", 0.0)
    task = Pass(rows.problem, anchor, rule, record.whole("seed"), keep, width, sized=True)
    weight = record.number("total_weight", 0.0)
    if weight == 0.0:
        raise ArchiveError("'total_weight' must be positive")
    entry = record.value("summary")
    summary = None if entry is None else _get_summary(record.within(entry, record.prefix), rows, task)
    reserve = record.whole("reserve") if "reserve" in record.values else 0
    return group_class(task, capacity, Extent(None, weight), reserve, summary)


def _put_summary(arrays: Arrays, name: str, summary: Summary) -> dict[str, Any]:
    places = sorted(summary.sums.nodes)
    if places:
        arrays[f"{name}.places"] = np.array(places)
        arrays[f"{name}.sums"] = np.stack([summary.sums.nodes[place] for place in places])
    arrays[f"{name}.count"] = summary.cell_count
    [tail] = summary.tails
    arrays[f"{name}.delta"], arrays[f"{name}.mass"] = tail.delta, tail.mass
    arrays[f"{name}.bins"], arrays[f"{name}.counts"] = tail.bins, tail.counts
    if summary.sample is not None:
        for field, array in summary.sample._asdict().items():
            if array is None:
                continue
            if field == "X":
                _put_rows(arrays, f"{name}.sample.X", array)
            else:
                arrays[f"{name}.sample.{field}"] = array
    edges = _put_chunks(arrays, f"{name}.edges", summary.edges)
    return {"n_rows": summary.n_rows, "weighted": summary.weighted, "edges": edges}


def _get_summary(record: Record, rows: _Rows, task: Pass) -> Summary:
    if rows.shape is None or record.truth("weighted") != rows.shape[2]:
        raise ArchiveError(f"'weighted' does not fit 'shape', which says {rows.shape}")
    nodes = {}
    if record.has("places"):
        places = record.array("places", "i", (None, 2), least=0)
        width = task.kernel.width(task, rows.shape[0]) + (task.cells.n_cells if rows.shape[2] else 0)
        sums = record.array("sums", "f", (len(places), width), may_be_inf=True)
        totals = sums[:, :3]  # mass, loss and h: the others may be infinite where nothing is known
        if not np.isfinite(totals).all() or (totals[:, 0] < 0.0).any():
            raise ArchiveError("'sums' holds a mass that is negative or not finite")
        nodes = {(int(level), int(number)): vector for (level, number), vector in zip(places, sums, strict=True)}
        if len(nodes) < len(places):
            raise ArchiveError("'places' holds the same rows twice")
    n_rows, count = record.whole("n_rows"), record.vector("count", task.cells.n_cells, "i", least=0)
    if count.sum() > n_rows:
        raise ArchiveError(f"'count' adds up to {count.sum()} rows, more than the {n_rows} there are")
    delta = record.vector("delta", None, least=0.0)
    bins = record.vector("bins", None, "i")
    counts = record.array("counts", "i", (3, bins.size), least=0)
    tail = FlipTail(delta, record.vector("mass", delta.size, least=0.0), bins, counts)
    sample = None
    if record.has("sample.rows"):
        sample = _get_sample(record.within(record.values, f"{record.prefix}sample."), rows, task)
    edges = rows.chunks(record.within(record.values, f"{record.prefix}edges."), "edges")
    return Summary(n_rows, TreeSum(nodes), count, [tail], sample, edges, rows.shape[2])


def _get_sample(record: Record, rows: _Rows, task: Pass) -> Sample:
    numbers = record.vector("rows", None, "i", least=0)
    n = numbers.size
    cells = record.vector("cells", n, "i", least=0)
    if n and cells.max() >= task.cells.n_cells:
        raise ArchiveError(f"'cells' names cell {cells.max()} of {task.cells.n_cells}")
    return Sample(
        rows=numbers,
        keys=record.vector("keys", n, least=0.0),
        cells=cells,
        X=rows.features(record, n),
        y=rows.targets(record, n),
        masses=record.vector("masses", n, least=0.0),
        h=record.vector("h", n),
        slope=record.array("slope", "f", (n, *rows.problem.family.model_shape(0)[:-1])),
        spent=record.vector("spent", n, least=0.0),
        moved=record.array("moved", "f", (n, rows.n_features)) if record.has("moved") else None,
    )


def _put_coreset(arrays: Arrays, name: str, coreset: Coreset, weight: float) -> dict[str, Any]:
    _put_rows(arrays, f"{name}.X", coreset.X)
    arrays |= {f"{name}.indices": coreset.indices, f"{name}.y": coreset.y, f"{name}.weights": coreset.weights}
    anchor = None
    if coreset.anchor is not None:
        arrays[f"{name}.coef"] = coreset.anchor.coef
        anchor = [_plain(coreset.anchor.intercept), coreset.anchor.multiplier]
    return {
        "n_rows": coreset.n_rows,
        "method": coreset.method,
        "details": coreset.details,
        "weight": weight,
        "anchor": anchor,
    }


def _get_coreset(record: Record, rows: _Rows) -> tuple[Coreset, float]:
    indices = record.vector("indices", None, "i", least=0)
    n = indices.size
    coreset = Coreset(
        indices,
        rows.features(record, n),
        rows.targets(record, n),
        check_weights(record, n),
        record.whole("n_rows", n),
        None if record.value("anchor") is None else _get_anchor(record, "coef", rows),
        record.text("method"),
        record.mapping("details"),
    )
    return coreset, record.number("weight", 0.0)
