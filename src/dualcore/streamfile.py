"""The state of a `CoresetStream` in one file: plain arrays in an ``.npz`` archive, and a JSON header. No pickle."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.coreset import Anchor, Coreset, write_atomically
from dualcore.problem import Problem
from dualcore.sources import Chunk
from dualcore.sources.pilot import stack_rows
from dualcore.summary import CellRule, Extent, Pass, Sample, Summary
from dualcore.sums import FlipTail, TreeSum

__all__ = ["read_stream", "write_stream"]

_FORMAT = 1
Arrays = dict[str, npt.NDArray[Any]]


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
        "waiting": _put_chunks(arrays, "waiting", stream.waiting),
        "groups": [_put_group(arrays, f"group{k}", group) for k, group in enumerate(stream.groups)],
        "reduced": [_put_coreset(arrays, f"reduced{k}", *pair) for k, pair in enumerate(stream.reduced)],
        "anchor": None,
    }
    if stream.anchor is not None:
        arrays["anchor"] = np.asarray(stream.anchor.coef)
        multiplier = getattr(stream.anchor, "multiplier", getattr(stream.anchor, "dual_variable", None))
        header["anchor"] = [float(stream.anchor.intercept), multiplier]
    arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def read_stream(stream: Any, path: Path, problem: Problem, group_class: Any) -> None:
    """Fill an empty stream with the state in a file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(arrays["header"].tobytes().decode())
    except FileNotFoundError:
        raise
    except (ValueError, KeyError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path.name} is not a file written by CoresetStream.save: {error}") from None
    if header.get("format") != _FORMAT:
        raise ValueError(f"{path.name} has format {header.get('format')!r}; this version reads {_FORMAT}.")
    if header["problem"] != repr(problem):
        raise ValueError(f"{path.name} is about {header['problem']}, not about {problem!r}.")
    stream.problem, stream.size, stream.seed = problem, header["size"], header["seed"]
    stream._next = header["next_row"]
    stream.spans = [(start, stop) for start, stop in header["spans"]]
    stream.shape = None if header["shape"] is None else tuple(header["shape"])
    stream.waiting = _get_chunks(arrays, "waiting", header["waiting"])
    stream.groups = [
        _get_group(arrays, f"group{k}", entry, problem, group_class) for k, entry in enumerate(header["groups"])
    ]
    stream.reduced = [_get_coreset(arrays, f"reduced{k}", entry) for k, entry in enumerate(header["reduced"])]
    anchor = header["anchor"]
    stream.anchor = None if anchor is None else Anchor(arrays["anchor"], anchor[0], anchor[1])


def _put_rows(arrays: Arrays, name: str, X: Any) -> None:
    if sp.issparse(X):
        X = X.tocsr()
        parts = {"data": X.data, "columns": X.indices, "starts": X.indptr, "shape": np.array(X.shape)}
        arrays.update({f"{name}.{part}": array for part, array in parts.items()})
    else:
        arrays[name] = X


def _get_rows(arrays: Arrays, name: str) -> Any:
    if name in arrays:
        return arrays[name]
    data, columns, starts, shape = (arrays[f"{name}.{part}"] for part in ("data", "columns", "starts", "shape"))
    return sp.csr_matrix((data, columns, starts), shape=tuple(int(n) for n in shape))


def _put_chunks(arrays: Arrays, name: str, chunks: list[Chunk]) -> list[list[int]]:
    """Store chunks stacked, and return where each begins and how long it is."""
    if chunks:
        _put_rows(arrays, f"{name}.X", stack_rows([chunk.X for chunk in chunks]))
        arrays[f"{name}.y"] = np.concatenate([chunk.y for chunk in chunks])
        weights = [chunk.weights for chunk in chunks if chunk.weights is not None]
        if weights:
            arrays[f"{name}.weights"] = np.concatenate(weights)
    return [[chunk.start, int(chunk.y.size)] for chunk in chunks]


def _get_chunks(arrays: Arrays, name: str, places: list[list[int]]) -> list[Chunk]:
    if not places:
        return []
    X, y, weights = _get_rows(arrays, f"{name}.X"), arrays[f"{name}.y"], arrays.get(f"{name}.weights")
    chunks, first = [], 0
    for start, size in places:
        part = slice(first, first + size)
        chunks.append(Chunk(start, X[part], y[part], None if weights is None else weights[part]))
        first += size
    return chunks


def _put_group(arrays: Arrays, name: str, group: Any) -> dict[str, Any]:
    task, summary = group.task, group.summary
    arrays[f"{name}.coef"], arrays[f"{name}.keep"] = task.anchor.coef, task.keep
    arrays[f"{name}.capacity"] = group.capacity
    header = {
        "anchor": [task.anchor.intercept, task.anchor.multiplier],
        "cells": list(task.cells),
        "seed": task.seed,
        "width": task.width,
        "total_weight": group.extent.total_weight,
        "summary": None if summary is None else _put_summary(arrays, name, summary),
    }
    return header


def _get_group(arrays: Arrays, name: str, header: dict[str, Any], problem: Problem, group_class: Any) -> Any:
    anchor = Anchor(arrays[f"{name}.coef"], *header["anchor"])
    rule = CellRule(*header["cells"])
    task = Pass(problem, anchor, rule, header["seed"], arrays[f"{name}.keep"], header["width"])
    summary = None if header["summary"] is None else _get_summary(arrays, name, header["summary"])
    return group_class(task, arrays[f"{name}.capacity"], Extent(None, header["total_weight"]), summary)


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
            if field == "X":
                _put_rows(arrays, f"{name}.sample.X", array)
            else:
                arrays[f"{name}.sample.{field}"] = array
    edges = _put_chunks(arrays, f"{name}.edges", summary.edges)
    return {"n_rows": summary.n_rows, "weighted": summary.weighted, "edges": edges}


def _get_summary(arrays: Arrays, name: str, header: dict[str, Any]) -> Summary:
    nodes = {}
    if f"{name}.places" in arrays:
        for (level, number), vector in zip(arrays[f"{name}.places"], arrays[f"{name}.sums"], strict=True):
            nodes[int(level), int(number)] = vector
    delta, mass, bins, counts = (arrays[f"{name}.{part}"] for part in ("delta", "mass", "bins", "counts"))
    tail = FlipTail(delta, mass, bins, counts)
    sample = None
    if f"{name}.sample.rows" in arrays:
        fields = [name_ for name_ in Sample._fields if name_ != "X"]
        values = {field: arrays[f"{name}.sample.{field}"] for field in fields}
        sample = Sample(X=_get_rows(arrays, f"{name}.sample.X"), **values)
    return Summary(
        header["n_rows"],
        TreeSum(nodes),
        arrays[f"{name}.count"],
        [tail],
        sample,
        _get_chunks(arrays, f"{name}.edges", header["edges"]),
        header["weighted"],
    )


def _put_coreset(arrays: Arrays, name: str, coreset: Coreset, weight: float) -> dict[str, Any]:
    _put_rows(arrays, f"{name}.X", coreset.X)
    arrays |= {f"{name}.indices": coreset.indices, f"{name}.y": coreset.y, f"{name}.weights": coreset.weights}
    anchor = None
    if coreset.anchor is not None:
        arrays[f"{name}.coef"] = coreset.anchor.coef
        anchor = [coreset.anchor.intercept, coreset.anchor.multiplier]
    return {
        "n_rows": coreset.n_rows,
        "method": coreset.method,
        "details": coreset.details,
        "weight": weight,
        "anchor": anchor,
    }


def _get_coreset(arrays: Arrays, name: str, header: dict[str, Any]) -> tuple[Coreset, float]:
    anchor = None if header["anchor"] is None else Anchor(arrays[f"{name}.coef"], *header["anchor"])
    coreset = Coreset(
        arrays[f"{name}.indices"],
        _get_rows(arrays, f"{name}.X"),
        arrays[f"{name}.y"],
        arrays[f"{name}.weights"],
        header["n_rows"],
        anchor,
        header["method"],
        header["details"],
    )
    return coreset, header["weight"]
