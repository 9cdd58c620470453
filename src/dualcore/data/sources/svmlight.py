"""Rows in files of the SVMlight and LIBSVM format: one row a line, ``target index:value index:value ...``."""

from __future__ import annotations

import io
import tempfile
import zlib
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.chunk import SourceError
from dualcore.data.sources.memory import ArraySource
from dualcore.data.sources.paths import Paths, list_tables, open_text

# Bytes of text parsed at a time.
_TEXT_BLOCK = 4_194_304
# Bytes of numbers that are kept in memory.
_MOST_KEPT = 1_000_000_000
# Longer than any row: what inflates to more without a line break is no text.
_LONGEST_LINE = 300_000_000
# Scikit-learn's parser and most of scipy count columns in 32 bits.
_MOST_FEATURES = int(np.iinfo(np.int32).max)


class SvmlightSource(ArraySource):
    r"""Files of SVMlight or LIBSVM text, plain, gzip or bz2: sparse rows.

    The source parses its files once, when it is opened, into a temporary file that goes with the source: 16 bytes a
    number that is not zero, in the folder that `tempfile.gettempdir` names. Rows of more than a gigabyte stay there,
    mapped into memory; fewer are loaded. Comments (``# ...``) and query numbers (``qid:3``) are left out.

    Parameters
    ----------
    path : str, Path or sequence of them
        A file of any name, a folder of files that end in ``.svm``, ``.libsvm`` or ``.svmlight`` (with ``.gz`` or
        ``.bz2`` after it, or not), a glob, or a list.
    sample_weight : ndarray of shape (n_rows,), optional
        The format itself has no weights.
    n_features : int, optional
        As large as the largest index by default. Give it where a file may lack the last features, a test set for
        example.
    zero_based : bool or "auto", default="auto"
        Whether the first feature has the index 0. "auto" says so if the index 0 is in one of the files, as
        scikit-learn does.
    chunk_rows : int, optional
        Rows computed with at a time.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = pathlib.Path(folder, "rows.svm").write_text("1 1:0.5 4:2\n-1 2:1.5  # a comment\n")
    ...     source = SvmlightSource(f"{folder}/rows.svm")
    ...     source, source.take(np.array([1]))[0].toarray()
    (<SvmlightSource of 2 rows, 4 features>, array([[0. , 1.5, 0. , 0. ]]))
    """

    def __init__(
        self,
        path: Paths,
        *,
        sample_weight: Any = None,
        n_features: int | None = None,
        zero_based: bool | str = "auto",
        chunk_rows: int | None = None,
    ) -> None:
        if n_features is not None and not 1 <= n_features <= _MOST_FEATURES:
            raise ValueError(f"n_features must be a number from 1 to {_MOST_FEATURES}, got {n_features!r}.")
        if zero_based not in (True, False, "auto"):
            raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
        self.files = files = list_tables(path, "SVMlight").files
        if any(file.filesystem is not None for file in files):
            raise SourceError(f"{path}: SVMlight files are read from the disk only. Copy them there first.")
        values, indices, lengths, y = self._parse()
        if not y.size:
            raise SourceError(f"{files[0].path if len(files) == 1 else 'The list of files'} holds no rows.")
        smallest, largest = (int(indices.min()), int(indices.max())) if indices.size else (_MOST_FEATURES, -1)
        self.zero_based = smallest == 0 if zero_based == "auto" else bool(zero_based)
        needed = largest + (1 if self.zero_based else 0)
        if not self.zero_based and smallest == 0:
            raise SourceError(f"{self._line_of(0)} has the index 0, but indices begin with 1: give zero_based=True.")
        if n_features is not None and needed > n_features:
            where = f"{self._line_of(largest)} has the index {largest}"
            raise SourceError(f"{where}: that is {needed} features, more than n_features={n_features}.")
        if needed < 1 and n_features is None:
            raise SourceError(f"{files[0].path} holds no features: every value is zero. Give n_features.")
        if not self.zero_based:
            indices -= 1
        X = sp.csr_matrix((y.size, n_features or needed))
        # Attributes are set directly: the constructor would convert index types and copy mapped arrays.
        X.data, X.indices, X.indptr = values, indices, np.cumsum(lengths, dtype=indices.dtype)
        super().__init__(X, y, sample_weight, chunk_rows=chunk_rows)
        self.n_reads, self.bytes_read = 1, sum(file.size for file in files)

    def _texts(self) -> Iterator[tuple[str, int, bytes]]:
        """Yield all lines, a few megabytes at a time: file, number of the first line, and text."""
        for file in self.files:
            line = 1
            try:
                with open_text(file.path) as stream:
                    while text := stream.read(_TEXT_BLOCK):
                        text += stream.readline(_LONGEST_LINE)
                        if len(text) > _LONGEST_LINE:
                            raise SourceError(f"{file.path} has a line of more than {_LONGEST_LINE:,} bytes: no row.")
                        yield file.path, line, text
                        line += text.count(b"\n")
            except (OSError, EOFError, zlib.error) as error:
                reason = getattr(error, "strerror", None) or str(error) or "it breaks off"
                raise SourceError(f"{file.path} cannot be read: {reason.rstrip('.')}.") from None

    def _parse(self) -> tuple[Any, ...]:
        """Return the values of all files, their indices as they are, 0 and the values of each row, and the targets."""
        targets, lengths = [np.empty(0)], [np.zeros(1, dtype=np.int64)]
        with tempfile.TemporaryFile() as of_values, tempfile.TemporaryFile() as of_indices:
            for text in self._texts():
                X, y = _parse(*text)
                X.data.tofile(of_values)
                X.indices.astype(np.int64).tofile(of_indices)
                targets.append(y)
                lengths.append(np.diff(X.indptr))
            if of_values.tell() > _MOST_KEPT:
                kept: Any = np.memmap(of_values, np.float64), np.memmap(of_indices, np.int64)
            else:
                of_values.seek(0)
                of_indices.seek(0)
                kept = np.fromfile(of_values), np.fromfile(of_indices, np.int64).astype(np.int32)
        return *kept, np.concatenate(lengths), np.concatenate(targets)

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        """Yield all rows of text, each with its file and line; for messages, so it may take a while."""
        for path, first, text in self._texts():
            for number, line in enumerate(text.splitlines(), first):
                row = line.split(b"#")[0].strip()
                if row:
                    yield f"{path}, line {number}", row

    def _line_of(self, index: int) -> str:
        """Return a description of where an index is first used."""
        mark = f" {index}:".encode()
        return next(where for where, line in self._lines() if mark in line)

    def describe(self, row: int) -> str:
        return next(islice((where for where, _ in self._lines()), row, None))


def _parse(path: str, line: int, text: bytes) -> tuple[Any, FloatArray]:
    """Return the rows of whole lines of a file, with the indices as they are, and their targets."""
    from sklearn.datasets import load_svmlight_file  # costs time to import, and few need it

    try:
        X, y = load_svmlight_file(io.BytesIO(text), zero_based=True)
        return X, np.asarray(y, dtype=np.float64)
    except (ValueError, OverflowError) as error:
        lines = text.split(b"\n")
        for number, each in enumerate(lines if len(lines) > 1 else (), line):  # the parser does not say where
            _parse(path, number, each)
        reason = str(error).rstrip(".") or type(error).__name__
        if isinstance(error, OverflowError):
            reason = f"an index is larger than {_MOST_FEATURES}"
        advice = "A line reads 'target index:value index:value ...', with ascending indices"
        raise SourceError(f"{path}, line {line} is no row: {reason}. {advice}.") from None
