"""Rows that are streamed from files, not loaded: what the commands need to know about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dualcore import Source, open_source
from dualcore.cli.commands.options import DataOptions, text_target
from dualcore.cli.model import Model, Scaling
from dualcore.cli.tables import TableError, find_column
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, ClassError, PreparedSource, column_kinds, open_labelled

__all__ = ["Stream", "can_stream", "is_large", "measure_quality", "open_stream", "stream_for_model"]

# A Parquet file beyond this is streamed wherever it can be.
_LARGE = 1 << 28


@dataclass(frozen=True)
class Stream:
    """A source ready to train on: targets -1 and +1 in classification, features scaled."""

    source: Source
    names: tuple[str, ...]
    target: str
    classes: tuple[Any, Any] | None
    scaling: Scaling | None


def can_stream(path: Path) -> bool:
    """Whether rows can be read in chunks: Parquet, and folders."""
    return path.is_dir() or path.suffix.lower() in (".parquet", ".pq")


def is_large(path: Path) -> bool:
    """Whether rows had better be streamed even where loading them would give a little more."""
    return can_stream(path) and (path.is_dir() or path.stat().st_size > _LARGE)


def open_stream(options: DataOptions, classification: bool) -> Stream | None:
    """Open the rows that options name; None for a single file whose target has not two classes: load it."""
    kinds = column_kinds(options.path)
    columns, file = list(kinds), options.path.name
    target = find_column(file, columns, options.target)
    others = [*options.drop, *([options.weight] if options.weight else [])]
    aside = {find_column(file, columns, name) for name in others}
    names = tuple(name for name in kinds if name != target and name not in aside)
    _check_numbers(options.path, kinds, names)
    if not classification and kinds[target] != "number":
        raise text_target(options.path.name, target)
    source: Source
    classes: tuple[Any, Any] | None = None
    if classification:
        try:
            source, classes = open_labelled(options.path, target, options.weight, features=names)
        except ClassError:
            if options.path.is_dir():
                raise
            return None
    else:
        source = open_source(options.path, target, options.weight, features=names)
    scaling = None
    if options.standardize:
        scaling = measure_scaling(source)
        source = PreparedSource(source, centre=scaling.centre, scale=scaling.scale)
    return Stream(source, names, target, classes, scaling)


def stream_for_model(model: Model, path: Path, target: str | None, weight: str | None) -> Source:
    """Open the rows of a file as a model of two classes, or a regression, takes them."""
    kinds = column_kinds(path)
    name = find_column(path.name, list(kinds), target or model.target)
    names = [find_column(path.name, list(kinds), feature) for feature in model.feature_names]
    _check_numbers(path, kinds, names)
    source: Source
    if model.classes is not None:
        source, _ = open_labelled(path, name, weight, classes=model.classes, features=names)
    else:
        source = open_source(path, name, weight, features=names)
    if model.scaling is not None:
        source = PreparedSource(source, centre=model.scaling.centre, scale=model.scaling.scale)
    return source


def measure_scaling(source: Source) -> Scaling:
    """Return the scaling to mean 0 and standard deviation 1, in one read."""

    def moments(chunk: Chunk) -> tuple[int, FloatArray, FloatArray]:
        return len(chunk.y), chunk.X.mean(axis=0), ((chunk.X - chunk.X.mean(axis=0)) ** 2).sum(axis=0)

    def merge(parts: list[tuple[int, FloatArray, FloatArray]]) -> tuple[int, FloatArray, FloatArray]:
        n = sum(part[0] for part in parts)
        mean = sum(count * centre for count, centre, _ in parts) / n
        spread = sum(squares + count * (centre - mean) ** 2 for count, centre, squares in parts)
        return n, np.asarray(mean), np.asarray(spread)

    n, mean, spread = source.fold(moments, merge)
    scale = np.sqrt(spread / n)
    return Scaling(mean, np.where(scale > 0.0, scale, 1.0))


def measure_quality(model: Model, source: Source) -> dict[str, float]:
    """Return the accuracy, or the mean absolute error in regression, in one read."""

    def total(chunk: Chunk) -> float:
        score = chunk.X @ model.coef[0] + model.intercept[0]
        right = (score > 0.0) == (chunk.y > 0.0) if model.is_classifier else np.abs(score - chunk.y)
        return float(right.sum())

    mean = source.fold(total, lambda parts: float(sum(parts))) / source.n_rows
    return {"accuracy" if model.is_classifier else "mean_absolute_error": mean}


def _check_numbers(path: Path, kinds: dict[str, str], names: Sequence[str]) -> None:
    for name in names:
        if kinds[name] != "number":
            raise TableError(
                f"Column {name!r} of {path.name} is not numeric. Leave it out with --drop, or encode it as numbers "
                "first."
            )
    if not names:
        raise TableError(f"{path.name} has no feature columns left.")
