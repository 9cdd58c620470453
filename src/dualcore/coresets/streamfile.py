"""The state of a `CoresetStream` in one file: plain arrays in an ``.npz`` archive, and a JSON header. No pickle."""

from __future__ import annotations

import io
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.coresets.recombine import Basis, Pool
from dualcore.coresets.streamgroup import Group, Kept, sums_at
from dualcore.data.sources import Chunk
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.storage import ArchiveError, Arrays, Record, check_number, check_whole, write_atomically
from dualcore.data.sums import TreeSum
from dualcore.problem import Anchor, Problem
from dualcore.problem.fliptail import FlipTail
from dualcore.reading.summary import Extent, Summary

_FORMAT = 5


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
        "group": None if stream.group is None else _put_group(arrays, stream.group),
        "reduced_rows": stream.reduced_rows,
        "anchor": None,
    }
    if stream.reduced is not None:
        _put_kept(arrays, "reduced", stream.reduced)
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


def read_stream(stream: Any, path: Path, problem: Problem) -> None:
    """Fill an empty stream with the state in a file, after checking every part of it."""
    try:
        record = Record.of_archive(path)
        form, about = record.value("format"), record.value("problem") if "problem" in record.values else None
        if form != _FORMAT:
            raise ArchiveError(f"it has format {form!r} of another edition, and this one reads {_FORMAT}: begin again")
        if about == repr(problem):
            _fill(stream, record, problem)
            return
        if not isinstance(about, str):
            raise ArchiveError("'problem' is missing")
    except ArchiveError as error:
        raise _not_a_stream(path, error) from None
    raise ValueError(f"{path.name} is about {about}, not about {problem!r}.")


def _not_a_stream(path: Path, error: ArchiveError) -> ValueError:
    return ValueError(f"{path.name} is not a file written by CoresetStream.save: {error}.")


def _fill(stream: Any, record: Record, problem: Problem) -> None:
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
    entry = record.value("group")
    stream.group = None if entry is None else _get_group(record.within(entry, "group."), rows, stream.size)
    stream.reduced, stream.reduced_rows = None, record.whole("reduced_rows")
    if record.has("reduced.rows"):
        stream.reduced = rows.kept(record.within(record.values, "reduced."))
    stream.notes = record.mapping("notes", optional=True)
    anchor = record.value("anchor")
    stream.anchor = None if anchor is None else _get_anchor(record, "anchor", rows)
    seen = sum(chunk.y.size for chunk in stream.waiting) + stream.reduced_rows
    seen += 0 if stream.group is None else stream.group.n_rows
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
        is_weighted = self.shape is not None and self.shape[2]
        if record.has("weights") and not is_weighted:
            raise ArchiveError(f"'{record.prefix}weights' does not fit 'shape', which says {self.shape}")
        weights = record.vector("weights", n, least=0.0) if is_weighted else None
        whole = Chunk(0, self.features(record, n), self.targets(record, n), weights)
        ends = np.cumsum([0, *(size for _, size in places)]).tolist()
        return [
            whole.part(first, last)._replace(start=start)
            for (start, _), (first, last) in zip(places, pairwise(ends), strict=True)
        ]

    def kept(self, record: Record) -> Kept:
        """Return rows with masses."""
        numbers = record.vector("rows", None, "i", least=0)
        n = numbers.size
        return Kept(numbers, self.features(record, n), self.targets(record, n), record.vector("masses", n, least=0.0))


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


def _put_kept(arrays: Arrays, name: str, rows: Kept) -> None:
    _put_rows(arrays, f"{name}.X", rows.X)
    arrays |= {f"{name}.rows": rows.rows, f"{name}.y": rows.y, f"{name}.masses": rows.masses}


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


def _put_group(arrays: Arrays, group: Group) -> dict[str, Any]:
    task, summary = group.task, group.summary
    arrays |= {"group.coef": task.anchor.coef, "group.centre": group.centre}
    if group.basis is not None:
        arrays |= {"group.base": group.basis.centre, "group.transform": group.basis.transform}
    entry = {
        "anchor": [_plain(task.anchor.intercept), task.anchor.multiplier],
        "seed": task.seed,
        "width": task.width,
        "total_weight": group.extent.total_weight,
        "n_rows": group.n_rows,
    }
    if summary is None or group.sample is None:
        return entry
    _put_tree(arrays, "group.sums", summary.sums)
    _put_tree(arrays, "group.classes", group.masses)
    tail = summary.tail
    parts = {"delta": tail.delta, "mass": tail.mass, "bins": tail.bins, "counts": tail.counts}
    arrays.update({f"group.{part}": array for part, array in parts.items()})
    _put_kept(arrays, "group.sample", group.sample)
    pools: Any = group.pools.nodes
    if pools:
        places, pool = sorted(pools), Pool.join([pools[place] for place in sorted(pools)])
        arrays |= {"group.pools.at": np.array([[*place, len(pools[place])] for place in places])}
        arrays |= {"group.pools.values": pool.values}
        _put_kept(arrays, "group.pools", Kept(pool.rows, pool.X, pool.y, pool.weights))
    return entry


def _put_tree(arrays: Arrays, name: str, tree: TreeSum) -> None:
    places = sorted(tree.nodes)
    arrays |= {name: np.stack([tree.nodes[place] for place in places]), f"{name}.at": np.array(places)}


def _get_tree(record: Record, name: str, width: int) -> TreeSum:
    places = record.array(f"{name}.at", "i", (None, 2), least=0)
    sums = record.array(name, "f", (len(places), width), may_be_inf=True)
    totals = sums[:, :3]  # mass, loss and h, or classes: others may be infinite where nothing is known
    if not np.isfinite(totals).all() or (totals[:, 0] < 0.0).any():
        raise ArchiveError(f"{name!r} holds a mass that is negative or not finite")
    nodes = {(int(level), int(number)): vector for (level, number), vector in zip(places, sums, strict=True)}
    if len(nodes) < len(places):
        raise ArchiveError(f"'{name}.at' holds the same rows twice")
    return TreeSum(nodes)


def _get_group(record: Record, rows: _Rows, size: int) -> Group:
    if rows.shape is None:
        raise ArchiveError("'shape' is missing")
    m, weight, anchor = rows.shape[0], record.number("total_weight", 0.0), _get_anchor(record, "coef", rows)
    if weight == 0.0:
        raise ArchiveError("'total_weight' must be positive")
    task = sums_at(rows.problem, anchor, record.whole("seed"), record.number("width", 0.0))
    group = Group(task, Extent(None, weight), size, record.vector("centre", m), None)
    d, n_rows = group.matched.n_columns, record.whole("n_rows")
    if record.has("base"):
        group.basis = Basis(record.vector("base", d), record.array("transform", "f", (d, None)))
    if n_rows == 0:
        return group
    delta, bins = record.vector("delta", None, least=0.0), record.vector("bins", None, "i")
    counts = record.array("counts", "i", (3, bins.size), least=0)
    tail = FlipTail(delta, record.vector("mass", delta.size, least=0.0), bins, counts)
    sums = _get_tree(record, "sums", task.kernel.width(task, m))
    group.summary = Summary(n_rows, sums, tail, [], rows.shape[2])
    group.masses = _get_tree(record, "classes", max(len(rows.problem.family.strata), 1))
    group.sample = rows.kept(record.within(record.values, f"{record.prefix}sample."))
    if group.basis is not None and record.has("pools.at"):
        inner = record.within(record.values, f"{record.prefix}pools.")
        kept, places = rows.kept(inner), inner.array("at", "i", (None, 3), least=0)
        values = inner.array("values", "f", (kept.rows.size, d))
        ends = np.cumsum(places[:, 2])
        if ends[-1] != kept.rows.size:
            raise ArchiveError(f"'{inner.prefix}at' says that there are {ends[-1]} rows, found {kept.rows.size}")
        whole = Pool(group.basis, kept.rows, kept.masses, values, kept.X, kept.y)
        nodes = {
            (int(level), int(number)): whole.pick(np.arange(end - count, end))
            for (level, number, count), end in zip(places, ends, strict=True)
        }
        group.pools = TreeSum(nodes)  # type: ignore[arg-type]
    return group
