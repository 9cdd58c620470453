"""`partial_fit`: a `CoresetStream` behind an estimator, and the model trained on what it keeps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.anchors import check_whole
from dualcore.coresets.stream import CoresetStream, DriftWarning
from dualcore.coresets.streamread import has_all_classes
from dualcore.data.sources import is_source_like
from dualcore.estimators.base import Training
from dualcore.estimators.reader import Task
from dualcore.estimators.remarks import Fitted, drifted_names, frames_within, remark
from dualcore.problem import Problem
from dualcore.solvers import solve


def learns_in_parts(estimator: Any) -> bool:
    """Whether an estimator has `partial_fit`: not where a radius is chosen, for which all rows are needed at once."""
    return not hasattr(type(estimator), "plain_class")


def open_streams(estimator: Any, problem: Problem, count: int) -> list[CoresetStream]:
    """Return copies of the streams of an estimator, new ones unless the last call was one of `partial_fit`.

    Copies, so that a call that fails, in training too, takes in no rows: it can be repeated.
    """
    streams: list[CoresetStream] | None = getattr(estimator, "_streams", None)
    if streams is not None:
        if streams[0].problem != problem:
            raise ValueError("The parameters changed since the first partial_fit: call it on a clone of the estimator.")
        return deepcopy(streams)
    size, seed = 5000 if estimator.coreset is None else estimator.coreset, estimator._seed()
    check_whole("partial_fit keeps a number of rows that does not grow: coreset", size, 2)
    return [CoresetStream(problem, size, random_state=seed) for _ in range(count)]


def add_part(estimator: Any, X: Any, y: Any, sample_weight: Any, classes: Any = None) -> None:
    """Take in a part of the rows, and train on what the streams keep of all parts.

    ``classes`` are those of a classifier's first part. Columns, coding and units are those of the first part.
    """
    if is_source_like(X):
        raise TypeError("partial_fit takes rows in memory, a part at a time: use fit for a file or a source.")
    first, problem = not hasattr(estimator, "_streams"), estimator.make_problem()
    if first and getattr(estimator, "certificate_", first) is None:  # rows came in parts, and a file has no stream
        text = "a model loaded from a file keeps no stream. partial_fit forgets earlier rows; pickle keeps them."
        warnings.warn(f"{type(estimator).__name__}: {text}", UserWarning, stacklevel=frames_within())
    data = estimator._open(X, y, sample_weight, learn=first)
    if classes is not None:
        estimator.classes_ = classes
    if is_classifier(estimator):
        estimator.class_weight_ = estimator._weigh_classes(estimator.classes_, np.arange(estimator.classes_.size), None)
    problem = estimator._joined(estimator._with_columns(problem))
    X = estimator._learn_units(problem, data.X, data.weights) if first else estimator._in_units(data.X)
    problem = estimator._state(problem)
    tasks = [
        task if task.weights is None else task._replace(weights=data.total * task.weights)
        for task in estimator._tasks(data._replace(X=X))
    ]
    streams = open_streams(estimator, problem, len(tasks))
    found = train_on_streams(estimator, streams, tasks)
    estimator._streams = streams
    if all(one is not None for one in found):
        estimator._store(found)


def train_on_streams(estimator: Any, streams: list[CoresetStream], tasks: Sequence[Task]) -> list[Training | None]:
    """Take in rows, and return the models of all rows so far with their coresets; None while a class has no row.

    There is a stream for each class against the rest, or one. A warning is given once and names the classes that it is
    about.
    """
    found: list[Training | None] = []
    fits: list[Fitted] = []
    last = getattr(estimator, "coreset_", None) if hasattr(estimator, "_streams") else None
    told = drifted_names([task.name for task in tasks], last)
    for stream, (X, y, weights, name) in zip(streams, tasks, strict=True):
        with warnings.catch_warnings():  # `remark` says it, once for all classes
            warnings.simplefilter("ignore", DriftWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            stream.update(X, y, weights)
            coreset = stream.coreset()
            if not has_all_classes(stream.problem, coreset.y):
                found.append(None)
                continue
            solution = solve(stream.problem, coreset.X, coreset.y, coreset.weights, **estimator._settings)
        found.append(Training(solution, None, coreset))
        fits.append(Fitted(name, stream.problem, solution, None, coreset, coreset.X, coreset.y, coreset.weights))
    remark(type(estimator).__name__, fits, tol=estimator.tol, told=told)
    return found
