"""`partial_fit`: a `CoresetStream` behind an estimator, and the model trained on what it keeps."""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dualcore.coresets.drift import DriftWarning
from dualcore.coresets.stream import CoresetStream
from dualcore.coresets.streamgroup import has_all_classes
from dualcore.data.arrays import FloatArray
from dualcore.estimators.base import Training
from dualcore.estimators.remarks import Fitted, remark_stream
from dualcore.problem import Problem
from dualcore.solvers import solve

# Rows of the coreset of a stream where the estimator names no number of rows.
_SIZE = 5000


def learns_in_parts(estimator: Any) -> bool:
    """Whether an estimator has `partial_fit`: not where a radius is chosen, for which all rows are needed at once."""
    return not hasattr(type(estimator), "plain_class")


def _stream_size(coreset: Any) -> int:
    """Return how many rows the coreset of a stream has, from the parameter ``coreset`` of an estimator."""
    if coreset is None:
        return _SIZE
    if isinstance(coreset, (int, np.integer)) and not isinstance(coreset, bool) and coreset >= 2:
        return int(coreset)
    raise ValueError(
        f"partial_fit keeps a number of rows that does not grow: coreset must be None ({_SIZE}) or a whole number of "
        f"at least 2, got {coreset!r}."
    )


def open_streams(estimator: Any, problem: Problem, count: int) -> list[CoresetStream]:
    """Return copies of the streams of an estimator, new ones unless the last call was one of `partial_fit`.

    Copies, so that a call that fails, in training too, takes in no rows: it can be repeated.
    """
    streams: list[CoresetStream] | None = getattr(estimator, "_streams", None)
    if streams is not None:
        if streams[0].problem != problem:
            raise ValueError(
                "The parameters changed since the first partial_fit, and a stream is about one problem. Call "
                "partial_fit on a clone of this estimator."
            )
        return deepcopy(streams)
    seed, size = estimator._seed(), _stream_size(estimator.coreset)
    return [CoresetStream(problem, size, random_state=seed) for _ in range(count)]


def keep_streams(estimator: Any, streams: list[CoresetStream]) -> None:
    """Keep the streams after a call that went well."""
    if not hasattr(estimator, "_streams"):
        estimator.__dict__.pop("coef_", None)  # the model of other rows
    estimator._streams = streams


def train_on_streams(
    estimator: Any, streams: list[CoresetStream], X: Any, targets: list[FloatArray], weights: Any, names: Any = ("",)
) -> list[Training | None]:
    """Take in rows, and return the models of all rows so far with their coresets; None while a class has no row.

    There is a stream, with its targets and its name, for each class against the rest, or one. A warning is given once
    and names the classes that it is about.
    """
    found: list[Training | None] = []
    fits: list[Fitted] = []
    last = getattr(estimator, "coreset_", None) if hasattr(estimator, "_streams") else None
    drifted = {n for n, c in zip(names, last if isinstance(last, list) else [last], strict=False) if _drifts(c)}
    settings = {"solver": estimator.solver, "tol": estimator.tol, "max_iter": estimator.max_iter}
    for stream, y, name in zip(streams, targets, names, strict=True):
        with warnings.catch_warnings():  # `remark_stream` says it, once for all classes
            warnings.simplefilter("ignore", DriftWarning)
            warnings.simplefilter("ignore", ConvergenceWarning)
            stream.update(X, y, weights)
            coreset = stream.coreset()
            if not has_all_classes(stream.problem, coreset.y):
                found.append(None)
                continue
            solution = solve(stream.problem, coreset.X, coreset.y, coreset.weights, **settings)
        found.append(Training(solution, None, coreset))
        fits.append(Fitted(name, stream.problem, solution, None, coreset, coreset.X, coreset.y, coreset.weights))
    remark_stream(type(estimator).__name__, fits, tol=estimator.tol, told=drifted)
    return found


def _drifts(coreset: Any) -> bool:
    return coreset is not None and "drift" in coreset.details
