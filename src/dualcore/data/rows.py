"""Row access: products with X for every container we accept, a block at a time.

Dense arrays of either order, memory maps and CSR/CSC matrices all have the same few products (`Rows.dot`,
`Rows.transpose_dot`, `Rows.gram`, `Rows.take`) without being copied or densified as a whole. float32 data are widened
block by block, so every sum is a float64 sum.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import cached_property, reduce
from operator import iadd
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import LARGEST, FloatArray, plain_array
from dualcore.data.threads import one_blas_thread

# Of a block of rows and as many entries of a vector.
Product = Callable[[Any, FloatArray], FloatArray]

# A block of this many numbers (512 KiB of float64) stays in the second-level cache between its two products.
_BLOCK_NUMBERS = 65536
# Between these a sum of weights, and one divided by it, are ordinary numbers.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-250, 1e250


def entries(block: Any) -> npt.NDArray[Any]:
    """Return the numbers of a block, of a sparse one those that are stored."""
    return np.asarray(block.data if sp.issparse(block) else block)


def may_be_bad(block: Any) -> bool:
    """Whether a block may hold NaN, infinity or a number beyond `LARGEST`: one fast sum that any of these would spoil.

    Examples
    --------
    >>> may_be_bad(np.ones(3)), may_be_bad(np.array([1.0, -1e70])), may_be_bad(np.array([1.0, np.nan]))
    (False, True, True)
    """
    flat = entries(block).reshape(-1, order="A")  # a view of arrays of either order
    if flat.dtype.kind != "f":
        return False
    with np.errstate(invalid="ignore", over="ignore"):
        return not float(flat @ flat) <= LARGEST * LARGEST


def bad_row(block: Any) -> tuple[int, str] | None:
    """Return the first row of a block with a NaN, infinite or too large number, and its description; or None."""
    if not may_be_bad(block):
        return None
    numbers = entries(block)
    for marked, fault in (
        (~np.isfinite(numbers), "a NaN or infinite value"),
        (np.abs(numbers) > LARGEST, f"a value beyond {LARGEST:g}"),
    ):
        if marked.any() and sp.issparse(block):
            return int(np.searchsorted(block.indptr, np.argmax(marked), side="right")) - 1, fault
        if marked.any():
            return int(np.argmax(marked.any(axis=1))), fault
    return None


def _refuse_bad(name: str, block: Any, first: int) -> None:
    """Raise ValueError for the first row that cannot be computed with; ``first`` is the number of the block's first."""
    if (found := bad_row(block)) is not None:
        too_large = "Products of such numbers overflow: use other units, or scale the data first."
        advice = "Drop or impute such rows first." if "NaN" in found[1] else too_large
        raise ValueError(f"{name} has {found[1]} in row {first + found[0]}. {advice}")


def _moment(block: Any, vector: FloatArray) -> FloatArray:
    return np.asarray(block.T @ vector)


def _gram(block: Any, weights: FloatArray) -> FloatArray:
    product = block.T @ (block.multiply(weights[:, None]).tocsr() if sp.issparse(block) else block * weights[:, None])
    return np.asarray(product.toarray() if sp.issparse(product) else product)


def weighted_squares(block: Any, weights: FloatArray) -> FloatArray:
    """Return ``sum_i weights_i x_ij^2`` over the rows of a block, shape (m,)."""
    square = block.multiply(block) if sp.issparse(block) else block * block
    return np.asarray(square.T @ weights, dtype=np.float64).ravel()


class Rows(ABC):
    """The n x m data matrix, seen only through products and row look-ups."""

    n: int
    m: int
    #: whether blocks are in memory; if not, iterating over them is a read
    in_memory: bool = True
    _sizes: tuple[FloatArray | None, FloatArray] | None = None

    @abstractmethod
    def block(self, part: slice) -> Any:
        """Return consecutive rows as a float64 array or a CSR matrix, without a copy where possible."""

    def blocks(self) -> Iterator[tuple[slice, Any]]:
        """Yield ``(rows, block)`` in order, in cache-sized blocks."""
        for start in range(0, self.n, self.block_rows):
            part = slice(start, min(start + self.block_rows, self.n))
            yield part, self.block(part)

    def dense_blocks(self) -> Iterator[tuple[slice, FloatArray]]:
        """Yield ``(rows, block)`` in order, every block an array."""
        for part, block in self.blocks():
            yield part, np.asarray(block.toarray() if sp.issparse(block) else block)

    @abstractmethod
    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        """Return the chosen rows as a float64 array or a CSR matrix."""

    @property
    def block_rows(self) -> int:
        """How many rows make a cache-sized block."""
        return max(256, _BLOCK_NUMBERS // max(self.m, 1))

    def dot(self, coef: FloatArray) -> FloatArray:
        """Return ``X @ coef``, shape (n,) or (n, k)."""
        out = np.empty((self.n, *coef.shape[1:]))
        for rows, block in self.blocks():
            out[rows] = block @ coef
        return out

    def products(self, product: Product, vector: FloatArray) -> Iterator[FloatArray]:
        """Yield a product of every block with its rows' entries of ``vector``."""
        return (product(block, vector[rows]) for rows, block in self.blocks())

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        """Return ``X.T @ vector``, shape (m,) or (m, k)."""
        return reduce(iadd, self.products(_moment, vector), np.zeros((self.m, *vector.shape[1:])))

    def gram(self, weights: FloatArray) -> FloatArray:
        """Return ``X.T @ diag(weights) @ X``, shape (m, m)."""
        with one_blas_thread() if self.m <= 256 else nullcontext():  # small blocks are not worth sharing
            return reduce(iadd, self.products(_gram, weights), np.zeros((self.m, self.m)))

    def column_squares(self, weights: FloatArray) -> FloatArray:
        """Return ``sum_i weights_i x_ij^2``, shape (m,)."""
        return reduce(iadd, self.products(weighted_squares, weights), np.zeros(self.m))

    def column_sizes(self, weights: FloatArray | None) -> FloatArray:
        """Return the root mean square of every column, equal masses for None; the last result is remembered."""
        if self._sizes is None or self._sizes[0] is not weights:
            masses = np.full(self.n, 1.0 / self.n) if weights is None else weights
            self._sizes = (weights, np.sqrt(self.column_squares(masses)))
        return self._sizes[1]

    def keep_sizes(self, weights: FloatArray | None, sizes: FloatArray) -> None:
        """Remember what `column_sizes` would return, where an earlier pass over the rows has summed it."""
        self._sizes = (weights, sizes)

    def row_norms(self, norm: str = "l2", weights: FloatArray | None = None) -> FloatArray:
        """Return the norm of each row, shape (n,)."""
        from scipy.sparse.linalg import norm as sparse_norm  # costs time to import, and few need it

        out, order = np.empty(self.n), {"l1": 1, "l2": 2, "linf": np.inf}[norm]
        for rows, block in self.blocks():
            if weights is not None and sp.issparse(block):
                block = block.multiply(weights[None, :]).tocsr()
            elif weights is not None:  # an infinite price of nothing is nothing
                block = np.where(block != 0.0, block, 0.0) * np.where(block != 0.0, weights, 0.0)
            length = sparse_norm if sp.issparse(block) else np.linalg.norm
            out[rows] = length(block, ord=order, axis=1)
        return out

    def check_finite(self) -> None:
        """Raise ValueError if any entry is NaN, infinite, or so large that arithmetic with it overflows."""
        for rows, block in self.blocks():
            _refuse_bad("X", block, rows.start)


class DenseRows(Rows):
    """A numpy array, C or Fortran order, any real dtype, memory-mapped or not."""

    def __init__(self, X: npt.NDArray[Any]) -> None:
        self.X = X
        self.n, self.m = X.shape

    def block(self, part: slice) -> FloatArray:
        return np.asarray(self.X[part], dtype=np.float64)

    def take(self, indices: npt.NDArray[np.int64]) -> FloatArray:
        return np.asarray(self.X[indices], dtype=np.float64)

    def dot(self, coef: FloatArray) -> FloatArray:
        if self.X.dtype == np.float64 and type(self.X) is np.ndarray:
            return np.asarray(self.X @ coef)
        return super().dot(coef)

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        if self.X.dtype == np.float64 and type(self.X) is np.ndarray:
            return np.asarray(self.X.T @ vector)
        return super().transpose_dot(vector)


class SparseRows(Rows):
    """A scipy sparse matrix; CSR is used as it is, CSC by its own products."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.n, self.m = X.shape

    @cached_property
    def by_row(self) -> Any:
        """The matrix in CSR form, made once where rows are needed (blocks, look-ups)."""
        return self.X.tocsr()

    @property
    def block_rows(self) -> int:
        """Number of rows for which slicing a sparse matrix is worth its overhead."""
        return max(super().block_rows, 8192)

    def block(self, part: slice) -> Any:
        # Whole numbers are widened too: a product of theirs would wrap around.
        return self.by_row[part].astype(np.float64, copy=False)

    def take(self, indices: npt.NDArray[np.int64]) -> Any:
        # Of a CSC matrix without its CSR form, which is a copy of all rows.
        return vars(self).get("by_row", self.X)[indices].tocsr().astype(np.float64)

    def dot(self, coef: FloatArray) -> FloatArray:
        return np.asarray(self.X @ coef, dtype=np.float64)

    def transpose_dot(self, vector: FloatArray) -> FloatArray:
        return np.asarray(self.X.T @ vector, dtype=np.float64)

    def check_finite(self) -> None:
        if may_be_bad(self.X.data):  # else there is no need of rows, which cost a CSC matrix a conversion
            super().check_finite()


def refuse_lazy(data: Any) -> None:
    """Raise TypeError for lazy frames and iterators, which have no rows in memory; the message names the call to use.

    Examples
    --------
    >>> refuse_lazy(np.eye(2))
    """
    kind = type(data)
    name = f"{kind.__module__.split('.')[0]} {kind.__name__}"
    if kind.__name__ in ("LazyFrame", "LazyGroupBy"):
        raise TypeError(f"A {name} holds no rows yet: pass frame.collect(), or the path that frame.sink_parquet wrote.")
    if kind.__name__ in ("RecordBatchReader", "Scanner") and name.startswith("pyarrow"):
        table = "read_all" if "Reader" in name else "to_table"
        raise TypeError(f"A {name} can be read once only: pass its table ({table}()), a dataset, or a path.")
    if hasattr(data, "__next__"):
        once = f"A {kind.__name__} can be read once only: pass a path, or a function that returns a new one"
        raise TypeError(f"{once}, or feed its parts to partial_fit or CoresetStream.")


def as_rows(X: Any) -> Rows:
    """Wrap ``X`` without copying it; a frame whose columns have different types is converted as a whole.

    Parameters
    ----------
    X : array, memory map, scipy sparse matrix, pandas or polars DataFrame, of shape (n_samples, n_features)

    Examples
    --------
    >>> rows = as_rows(np.eye(3, dtype=np.float32))
    >>> rows.dot(np.array([1.0, 2.0, 3.0]))
    array([1., 2., 3.])
    """
    if isinstance(X, Rows):
        return X
    if type(X) in (np.ndarray, np.memmap) and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        return DenseRows(X)
    refuse_lazy(X)
    if isinstance(X, (str, PathLike)) or hasattr(X, "n_reads"):
        found = "a path" if isinstance(X, (str, PathLike)) else f"a source ({type(X).__name__})"
        advice = "assess or certify give the risk of a model on any source; solve and the estimators train on one"
        raise TypeError(f"This needs rows in memory, got {found}: {advice}.")
    if isinstance(X, np.ma.MaskedArray):  # scikit-learn would use what is under the mask
        X = plain_array("X", X)
    from sklearn.utils.validation import check_array  # costs time to import, and most rows need no check

    try:
        checked = check_array(X, accept_sparse=("csr", "csc"), ensure_all_finite=False, input_name="X")
        if checked.dtype.kind not in "fiub":
            raise ValueError(f"found dtype {checked.dtype}.")
    except ValueError as error:
        raise ValueError(f"X must be a matrix of numbers (encode text first): {error}") from None
    return SparseRows(checked) if sp.issparse(checked) else DenseRows(checked)


def as_target(y: Any, n: int, name: str = "target") -> FloatArray:
    """Return ``y`` as a finite float64 vector of length ``n``; ``name`` is used in error messages."""
    array = plain_array("y", y)
    if array.ndim != 1:
        raise ValueError(f"y must be one-dimensional, got shape {array.shape}. Use y.ravel().")
    if array.shape[0] != n:
        raise ValueError(f"X has {n} rows but y has {array.shape[0]}: give one {name} per row.")
    try:
        target = np.asarray(array, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"y must be numeric here; found dtype {array.dtype}.") from None
    _refuse_bad("y", target[:, None], 0)
    return target


def as_row_weights(sample_weight: Any, n: int) -> FloatArray:
    """Return weights as one number per row; a memory map is not read."""
    given = plain_array("sample_weight", sample_weight)
    try:
        weights = np.asanyarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError("sample_weight must be numeric: one non-negative number per row.") from None
    weights = np.full(n, float(weights)) if weights.ndim == 0 else weights
    if weights.shape != (n,):
        raise ValueError(f"sample_weight must hold one number per row ({n}), got shape {weights.shape}.")
    return weights


def in_range(weights: FloatArray) -> FloatArray:
    """Return weights whose sums are finite: divided by the largest if that is extreme, else unchanged."""
    largest = 0.0 if isinstance(weights, np.memmap) else float(weights.max(initial=0.0))
    extreme = np.isfinite(largest) and largest > 0.0 and not SMALLEST_WEIGHT <= largest <= LARGEST_WEIGHT
    return weights / largest if extreme else weights


def as_weights(sample_weight: Any, n: int) -> FloatArray | None:
    """Return masses that sum to one, or None for equal masses."""
    if sample_weight is None:
        return None
    weights = in_range(as_row_weights(sample_weight, n))
    if not np.isfinite(weights).all():
        raise ValueError("sample_weight has a NaN or infinite value.")
    if (weights < 0.0).any():
        raise ValueError("sample_weight has negative values; weights are masses and must be non-negative.")
    if not weights.any():
        raise ValueError("sample_weight sums to zero: give at least one row a positive weight.")
    return np.asarray(weights / weights.sum())


def check_weight_range(name: str, weights: FloatArray) -> None:
    """Raise ValueError where a weight is none, or too small or too large to be summed with others as they come."""
    bad = ~((weights == 0.0) | ((weights >= SMALLEST_WEIGHT) & (weights <= LARGEST_WEIGHT)))
    if bad.any():
        row = int(np.argmax(bad))
        allowed = f"a weight is 0 or between {SMALLEST_WEIGHT:g} and {LARGEST_WEIGHT:g}"
        raise ValueError(f"{name} holds {weights[row]:g} in row {row}: {allowed}. Multiply all weights by one number.")
