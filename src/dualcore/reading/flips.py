"""Label flips of order 2 on the full data: what sums alone cannot tell.

Of order 1 the few rows that gain by a flip can be carried along; of order 2 every flipped row enters the minimum over
the multiplier with its own curve. One number a row (its margin) settles it, with the features read where they are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from dualcore.certificates import Certificate, certify
from dualcore.data.arrays import FloatArray
from dualcore.data.rows import Rows
from dualcore.data.sources import Source
from dualcore.problem import Data, Problem

__all__ = ["SourceRows", "flips_of_order_two", "settle_flips"]


class SourceRows(Rows):
    """The rows of a source, seen through products; every product is a read."""

    in_memory = False

    def __init__(self, source: Source) -> None:
        self.source, self.n, self.m = source, source.n_rows, source.n_features

    def dot(self, coef: FloatArray) -> FloatArray:
        return np.concatenate(list(self.source.map(lambda chunk: np.asarray(chunk.X @ coef, dtype=np.float64))))

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        return np.asarray(
            sum(self.source.map(lambda chunk: chunk.X.T @ vector[chunk.start : chunk.start + chunk.y.size])),
            dtype=np.float64,
        )

    def gram(self, weights: FloatArray) -> FloatArray:
        def part(chunk: Any) -> FloatArray:
            w = weights[chunk.start : chunk.start + chunk.y.size, None]
            square = chunk.X.T @ (chunk.X.multiply(w) if hasattr(chunk.X, "multiply") else chunk.X * w)
            return np.asarray(square.toarray() if hasattr(square, "toarray") else square, dtype=np.float64)

        return np.asarray(sum(self.source.map(part)), dtype=np.float64)

    def column_squares(self, weights: FloatArray) -> FloatArray:
        def part(chunk: Any) -> FloatArray:
            square = chunk.X.multiply(chunk.X) if hasattr(chunk.X, "multiply") else chunk.X * chunk.X
            return np.asarray(square.T @ weights[chunk.start : chunk.start + chunk.y.size], dtype=np.float64).ravel()

        return np.asarray(sum(self.source.map(part)), dtype=np.float64)

    def block(self, part: slice) -> Any:
        return self.take(np.arange(part.start, part.stop))

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        return self.source.take(indices)[0]


def flips_of_order_two(problem: Problem) -> bool:
    """Whether the risk of a model on the full data needs every margin at once."""
    flips = problem.is_classification and bool(np.isfinite(problem.geometry.label_cost))
    return flips and problem.geometry.order == 2 and problem.radius > 0.0


def settle_flips(problem: Problem, source: Source, model: Any) -> tuple[Certificate, float]:
    """Return what is known about a model on the full data, and the multiplier of its exact risk."""
    before = source.n_reads
    y = np.concatenate(list(source.map(lambda chunk: np.asarray(chunk.y, dtype=np.float64))))
    weights = source.row_masses() if source.is_weighted else None
    rows = SourceRows(source)
    known = certify(problem, model, rows, y, weights)
    multiplier = problem.evaluate(model.coef, model.intercept, Data(rows, y, weights)).multiplier
    return Certificate(known.upper, known.lower, source.n_reads - before), multiplier
