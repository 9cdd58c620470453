"""Rows of files as the commands need them: opened as sources, and loaded only where all are needed at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore import Source
from dualcore.cli.coding import coded_groups, coded_names
from dualcore.cli.commands.layout import MOST_CLASSES, NO_TARGET, Chosen, Layout, Reading, open_layout
from dualcore.cli.commands.options import text_target
from dualcore.cli.commands.outcome import OptionError
from dualcore.cli.commands.progress import Watch, WatchedSource
from dualcore.cli.groups import DataOptions
from dualcore.cli.model import Model, Scaling
from dualcore.cli.tables import TableError, as_labels
from dualcore.data.arrays import FloatArray
from dualcore.data.sources import Chunk, ClassError, SvmlightSource, TransformedSource
from dualcore.data.sources.chunk import stack_chunks
from dualcore.data.sources.paths import format_of
from dualcore.data.sources.products import source_target, whole_chunk
from dualcore.estimators.units import Units

# A Parquet file beyond this is streamed wherever it can be.
_LARGE = 1 << 28


@dataclass(frozen=True)
class Stream:
    """A source ready to train on, its features scaled.

    Its targets are -1 and +1 for two classes. For more they are the places in ``classes``, and numbers in regression.
    """

    source: Source
    names: tuple[str, ...]  # of the columns that are features, one-hot coded or not
    target: str
    classes: tuple[Any, ...] | None
    scaling: Scaling | None
    fill: dict[str, float] = field(default_factory=dict)  # what is put for missing values
    n_dropped: int = 0  # rows left out because something is missing
    zero_based: bool | None = None  # whether the first feature of SVMlight text has the index 0
    coding: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # values of the columns that are one-hot coded

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the features, coded columns written out."""
        return coded_names(self.names, self.coding)


@dataclass(frozen=True)
class Rows:
    """Rows ready to train on: in memory, where ``y`` holds labels or numbers, or a source for ``X`` without ``y``."""

    X: Any
    y: npt.NDArray[Any] | None
    weights: FloatArray | None
    stream: Stream

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return self.stream.source.n_rows if self.y is None else int(self.y.size)

    def watched(self, watch: Watch) -> Any:
        """Return ``X``, a source so that progress shows."""
        return WatchedSource(self.X, watch.rows) if self.y is None else self.X

    def signs(self, command: str) -> tuple[npt.NDArray[Any] | None, tuple[Any, ...] | None]:
        """Return the labels of two classes as -1 and +1 where they are in memory, targets as they are; the classes."""
        if self.y is None or self.stream.classes is None:
            return self.y, self.stream.classes
        classes = np.unique(self.y)
        if classes.size != 2:
            raise TableError(f"{command} takes two classes, the target holds {classes.size}. Keep the rows of two.")
        return np.where(self.y == classes[1], 1.0, -1.0), tuple(classes.tolist())


def can_stream(path: Path) -> bool:
    """Whether commands read rows in chunks where they can: Parquet, SVMlight text, and folders."""
    return path.is_dir() or format_of(path) in ("Parquet", "SVMlight")


def is_large(path: Path) -> bool:
    """Whether rows had better be streamed even where loading them would give a little more."""
    return can_stream(path) and (path.is_dir() or (path.exists() and path.stat().st_size > _LARGE))


def open_stream(
    options: DataOptions, classification: bool, coding: Mapping[str, tuple[Any, ...]] | None = None
) -> Stream:
    """Open the rows that options name; columns of text are one-hot coded.

    A coding that is given is used as it is, and no other column may hold text; else one read finds the values.
    """
    layout = open_layout(options.path, replace(options.reading, coding=coding or {}))
    name = options.target or layout.own_target
    if name is None:
        raise OptionError("--target is missing: which column is to be learned, by name or position?")
    target = layout.find(name)
    weight = None if options.weight is None else layout.find(options.weight)
    aside = {layout.find(name) for name in options.drop or ()}
    names = layout.features([target, *aside, *([] if weight is None else [weight])])
    if not classification and layout.is_text(target):
        raise text_target(options.path.name, target)
    chosen, where = Chosen(names, target, weight), f"Column {target!r} of {layout.path.name}"
    try:
        if coding is None:
            layout.code_texts(chosen)
        layout.check_numbers([*names, *([] if weight is None else [weight])])
    except TableError:
        plain = tuple(name for name in names if not layout.is_text(name))
        if classification and 0 < len(plain) < len(names):  # a wrong target is the greater fault
            _check_classes(where, _with_classes(layout, Chosen(plain, target))[1])
        raise
    source: Source
    if not classification:
        source, classes = layout.open(chosen), None
    else:
        source, classes = _with_classes(layout, chosen)
        _check_classes(where, classes)
    inner, scaling = source, None
    if options.standardize:
        groups = coded_groups(names, layout.coding)
        keep = [column for group in groups for column in group if column is not None]
        scaling = Scaling.of(Units.of(source, None, keep))
        source = TransformedSource(source, centre=scaling.centre, scale=scaling.scale)
    rows = inner.inner if isinstance(inner, TransformedSource) else inner
    if options.drop_missing:
        _ = rows.n_rows  # a CSV file does not know before it was read
    return Stream(
        source,
        names,
        target,
        classes,
        scaling,
        dict(getattr(rows, "fill_values", {})),
        getattr(rows, "n_dropped", 0) if options.drop_missing else 0,
        rows.zero_based if isinstance(rows, SvmlightSource) else None,
        layout.coding,
    )


def _with_classes(layout: Layout, chosen: Chosen) -> tuple[Source, tuple[Any, ...]]:
    """Return the rows with coded labels, and the classes."""
    source, classes = layout.open_labelled(chosen)
    if not classes:  # the labels are numbers
        tallies = source.survey().tallies
        found = np.unique(source_target(source)) if tallies is None else np.array(list(tallies))
        classes = tuple(as_labels(found).tolist())
        if len(classes) == 2:
            source = TransformedSource(source, classes=classes)
    return source, classes


def _check_classes(where: str, classes: tuple[Any, ...]) -> None:
    if len(classes) < 2:
        raise TableError(f"{where} holds one class only; a classifier needs two.")
    if len(classes) > MOST_CLASSES:
        raise TableError(
            f"{where} holds {len(classes)} different labels. Is it the target of a regression? Then use --loss huber, "
            "pinball, epsilon_insensitive or squared."
        )


def load_rows(stream: Stream) -> Rows:
    """Read all rows into memory."""
    _, X, y, weights = stack_chunks(list(stream.source.map(whole_chunk)))
    if stream.classes is not None:
        labels = np.array(stream.classes)
        if len(stream.classes) == 2:
            y = labels[(y > 0.0).astype(np.int64)]
        elif labels.dtype.kind in "fiu":
            y = y.astype(labels.dtype)
        else:
            y = labels[y.astype(np.int64)]
    return Rows(X, y, weights, stream)


def refuse_many_classes(stream: Stream) -> None:
    """Raise ClassError for more than two classes, which are not streamed."""
    if stream.classes is not None and len(stream.classes) > 2:
        raise ClassError(
            f"Column {stream.target!r} holds more than two different values: a classifier is trained from a folder for "
            "two classes. Train without --coreset, or keep the rows in one file."
        )


def model_reading(model: Model, separator: str | None, *, drop: bool = True) -> Reading:
    """Return how rows are read for a model: as in its training."""
    made = model.provenance
    return Reading(
        fill=model.fill or None,
        drop_missing=drop and bool(made.get("drop_missing", False)),
        separator=separator or made.get("separator"),
        zero_based=made.get("zero_based"),
        n_features=len(model.feature_names) if made.get("zero_based") is not None else None,
        coding=model.coding,
    )


def stream_for_model(model: Model, path: Path, target: str | None, weight: str | None, reading: Reading) -> Source:
    """Open the rows of a file as a model of two classes, or a regression, takes them."""
    layout = open_layout(path, reading)
    name, names = layout.find(target or model.target), _model_features(layout, model)
    chosen = Chosen(names, name, None if weight is None else layout.find(weight))
    source: Source
    if model.classes is not None:
        source, labels = layout.open_labelled(chosen)
        if labels and tuple(labels) != tuple(model.classes):
            raise TableError(f"{path.name} has the labels {list(labels)[:5]}, the model {list(model.classes)[:5]}.")
        if not labels:
            source = TransformedSource(source, classes=tuple(map(float, model.classes)))
    else:
        source = layout.open(chosen)
    if model.scaling is None:
        return source
    return TransformedSource(source, centre=model.scaling.centre, scale=model.scaling.scale)


def load_for_model(
    model: Model, path: Path, target: str | None, weight: str | None, reading: Reading, *, optional_target: bool = False
) -> tuple[Any, npt.NDArray[Any] | None, FloatArray | None]:
    """Load the rows of a file for a model: features that are not scaled yet, labels or targets, weights.

    With ``optional_target`` there are no labels where the file has no such column; "" is none.
    """
    layout = open_layout(path, reading)
    wanted = model.target if target is None else target
    names = _model_features(layout, model)
    if optional_target and wanted not in (*layout.names, layout.own_target):
        found = load_rows(Stream(layout.open(Chosen(names, NO_TARGET)), names, wanted, None, None))
        return found.X, None, None
    name = layout.find(wanted)
    chosen = Chosen(names, name, None if weight is None else layout.find(weight))
    classes: tuple[Any, ...] | None = None
    if model.is_classifier:
        source, classes = _with_classes(layout, chosen)
    elif layout.is_text(name):
        raise text_target(path.name, name)
    else:
        source = layout.open(chosen)
    rows = load_rows(Stream(source, names, name, classes, None))
    return rows.X, rows.y, rows.weights


def _model_features(layout: Layout, model: Model) -> tuple[str, ...]:
    """Return the names of the model's features in a file; a matrix has none of its own."""
    own = layout.unnamed
    if own:
        if len(own) != model.coef.shape[1]:
            raise TableError(f"{layout.path.name} has {len(own)} features, the model takes {model.coef.shape[1]}.")
        return own
    names = tuple(layout.find(name) for name in model.feature_names)
    layout.check_numbers(names)
    return names


def measure_quality(model: Model, source: Source) -> dict[str, float]:
    """Return the accuracy, or the mean absolute error in regression, in one read."""

    def total(chunk: Chunk) -> float:
        score = chunk.X @ model.coef[0] + model.intercept[0]
        right = (score > 0.0) == (chunk.y > 0.0) if model.is_classifier else np.abs(score - chunk.y)
        return float(right.sum())

    mean = source.fold(total, lambda parts: float(sum(parts))) / source.n_rows
    return {"accuracy" if model.is_classifier else "mean_absolute_error": mean}
