"""Rows in files of the SVMlight and LIBSVM format: one row a line, ``target index:value index:value ...``."""

from __future__ import annotations

import bisect
import bz2
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.sources.arrays import as_row_weights
from dualcore.data.sources.base import touched
from dualcore.data.sources.chunk import Chunk, SourceError, as_signs
from dualcore.data.sources.local import LocalSource, Pieces
from dualcore.data.sources.paths import SVMLIGHT, Paths, compression_of, list_files
from dualcore.data.sources.survey import Survey, SurveyTask
from dualcore.data.storage import FileState
from dualcore.data.sums import leaf_rows

# Bytes of text parsed at a time.
_TEXT_BLOCK = 1 << 22
# Numbers of a chunk: about as many bytes as a dense chunk has.
_CHUNK_NUMBERS = 1 << 19
# Longer than any row: what inflates to more without a line break is no text.
_LONGEST_LINE = 1 << 28
# Scikit-learn's parser and most of scipy count columns in 32 bits.
_MOST_FEATURES = 2**31 - 1
_ADVICE = "A line reads 'target index:value index:value ...', with ascending indices"


class _Block(NamedTuple):
    """Consecutive lines: file, place and size in its (inflated) bytes, number of the first line, rows."""

    file: int
    offset: int
    size: int
    line: int
    start: int
    n_rows: int


class _Scan(NamedTuple):
    """What the first read finds out."""

    survey: Survey
    smallest: int
    largest: int
    n_entries: int


class SvmlightSource(LocalSource):
    r"""Files of SVMlight or LIBSVM text, plain, gzip or bz2: sparse rows, never all in memory.

    The source reads its files once when it is opened. This read counts rows, features and labels; no other read is
    needed for them. Comments (``# ...``) and query numbers (``qid:3``) are left out.

    Parameters
    ----------
    path : str, Path or sequence of them
        A file, a folder of files that end in ``.svm``, ``.libsvm`` or ``.svmlight`` (with ``.gz`` or ``.bz2`` after
        it, or not), or a list.
    sample_weight : ndarray of shape (n_rows,), optional
        The format itself has no weights.
    n_features : int, optional
        As large as the largest index by default. Give it where a file may lack the last features, a test set for
        example.
    zero_based : bool or "auto", default="auto"
        Whether the first feature has the index 0. "auto" says so if the index 0 is in one of the files, as
        scikit-learn does.
    labels : (negative, positive) or "find", optional
        The two numbers of a classifier's target; they become -1 and +1. "find" leaves numbers as they are.
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
        labels: tuple[Any, Any] | str | None = None,
        chunk_rows: int | None = None,
    ) -> None:
        super().__init__()
        if n_features is not None and not 1 <= n_features <= _MOST_FEATURES:
            raise ValueError(f"n_features must be a number from 1 to {_MOST_FEATURES}, got {n_features!r}.")
        if zero_based not in (True, False, "auto"):
            raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
        self.files = [FileState.of(file) for file in list_files(path, SVMLIGHT)]
        self.labels = _two_numbers(labels, self.files[0].path)
        found = self._scan()
        self.zero_based = found.smallest == 0 if zero_based == "auto" else bool(zero_based)
        if not self.zero_based and found.smallest == 0:
            raise SourceError(
                f"{self._place_of(0)} has the index 0, but indices begin with 1 (zero_based=False): give "
                "zero_based=True."
            )
        needed = max(found.largest + (1 if self.zero_based else 0), 0)
        if n_features is not None and needed > n_features:
            raise SourceError(
                f"{self._place_of(found.largest)} has the index {found.largest}: that is {needed} features, more than "
                f"n_features={n_features}."
            )
        if not needed and n_features is None:
            raise SourceError(f"{self.files[0].path} holds no features: every value is zero. Give n_features.")
        self.n_features = n_features or needed
        self._survey, self._n_rows = found.survey, found.survey.n_rows
        self.is_weighted = sample_weight is not None
        self.weights = None if sample_weight is None else as_row_weights(sample_weight, self._n_rows)
        if self.is_weighted or self.labels is not None:
            self._survey = None  # of other targets, and without weights
        self.chunk_rows = chunk_rows or _chunk_rows(found.n_entries / self._n_rows)
        self._n_pieces = len(self._blocks)

    def __repr__(self) -> str:
        return f"<SvmlightSource of {self.n_rows} rows, {self.n_features} features>"

    labels_alone = False

    def describe(self, row: int) -> str:
        block = self._blocks[bisect.bisect_right(self._starts, row) - 1]
        path = self.files[block.file].path
        for line, text in _lines(self._bytes(block), block.line):
            if _is_row(text):
                if row == block.start:
                    return f"{path}, line {line}"
                row -= 1
        return str(path)

    # The first read

    def _scan(self) -> _Scan:
        """Cut the files into blocks of whole lines, and count rows, features and labels."""
        self.n_reads += 1
        self._blocks, self._starts = blocks, starts = list[_Block](), list[int]()
        surveys: list[Survey] = []
        smallest, largest, n_entries, start = _MOST_FEATURES, -1, 0, 0
        for number, file in enumerate(self.files):
            self.bytes_read += file.size
            line = 1
            for offset, text in _text_blocks(file.path):
                X, y = self._parse(text, file.path, line)
                if y.size:
                    blocks.append(_Block(number, offset, len(text), line, start, y.size))
                    starts.append(start)
                    with self.naming_rows():
                        surveys.append(SurveyTask()(Chunk(start, None, y, None)))
                if X.nnz:
                    smallest, largest = min(smallest, int(X.indices.min())), max(largest, int(X.indices.max()))
                n_entries += X.nnz
                start += y.size
                line += text.count(b"\n")
        if not blocks:
            raise SourceError(
                f"{self.files[0].path} holds no rows." if len(self.files) == 1 else "The files hold no rows."
            )
        return _Scan(Survey.join(surveys), smallest, largest, n_entries)

    def _place_of(self, index: int) -> str:
        """Say where an index is first used; for messages, so it may take a while."""
        mark = f"{index}:".encode()
        for file in self.files:
            line = 1
            for _, text in _text_blocks(file.path):
                for number, found in _lines(text, line):
                    if any(part.startswith(mark) for part in found.split(b"#")[0].split()[1:]):
                        return f"{file.path}, line {number}"
                line += text.count(b"\n")
        return str(self.files[0].path)

    def _parse(self, text: bytes, path: Path, line: int) -> tuple[Any, FloatArray]:
        """Return the rows of some lines, with the indices as they are, and their targets."""
        try:
            return _load(text)
        except (ValueError, OverflowError) as error:
            for number, one in _lines(text, line):  # the parser does not say where
                try:
                    _load(one)
                except (ValueError, OverflowError) as found:
                    raise SourceError(f"{path}, line {number} is no row: {_said(found)}. {_ADVICE}.") from None
            raise SourceError(f"{path}, line {line} and after: {_said(error)}. {_ADVICE}.") from None

    # Reads

    def _bytes(self, block: _Block) -> bytes:
        with _open(self.files[block.file].path) as stream:
            stream.seek(block.offset)
            return _whole(stream, block.size, self.files[block.file].path)

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        places = range(len(self._blocks)) if wanted is None else touched(self._starts, wanted)
        stream: Any = None
        at, opened = 0, -1
        try:
            for place in places:
                block = self._blocks[place]
                path = self.files[block.file].path
                self.bytes_read += block.size
                if compression_of(path) is None:  # threads read plain text side by side
                    yield lambda block=block: self._chunks(block, self._bytes(block), features)  # type: ignore[misc]
                    continue
                if opened != block.file or stream is None:
                    if stream is not None:
                        stream.close()
                    stream, at, opened = _open(path), 0, block.file
                while at < block.offset:
                    at += len(_whole(stream, min(block.offset - at, _TEXT_BLOCK), path))
                text = _whole(stream, block.size, path)
                at += block.size
                yield lambda block=block, text=text: self._chunks(block, text, features)  # type: ignore[misc]
        finally:
            if stream is not None:
                stream.close()

    def _chunks(self, block: _Block, text: bytes, features: bool) -> Iterator[Chunk]:
        X, y = self._parse(text, self.files[block.file].path, block.line)
        if y.size != block.n_rows or X.shape[1] > self.n_features + (not self.zero_based):
            raise SourceError(f"{self.files[block.file].path} has changed since it was opened: open it again.")
        if features:
            indices = X.indices if self.zero_based else X.indices - 1
            X = sp.csr_matrix((X.data, indices.astype(np.int32), X.indptr), shape=(y.size, self.n_features))
        if self.labels is not None:
            y = as_signs(y, self.labels, block.start)
        weights = None if self.weights is None else self.weights[block.start : block.start + block.n_rows]
        yield from Chunk(block.start, X if features else None, y, weights).cut(self.chunk_rows)

    def _label_share(self) -> float:
        return 1.0  # a line has to be read to its end, wherever its target stands

    def _take_share(self, rows: npt.NDArray[np.int64]) -> float:
        return len(touched(self._starts, rows)) / len(self._blocks)


def _two_numbers(labels: tuple[Any, Any] | str | None, path: Path) -> tuple[float, float] | None:
    if labels is None or labels == "find":  # numbers are what they are
        return None
    try:
        return float(labels[0]), float(labels[1])
    except ValueError:
        raise SourceError(f"{path} has numbers as targets, not the labels {tuple(labels)!r}.") from None


def _chunk_rows(row_entries: float) -> int:
    """Return the rows of a chunk, whole leaves of them."""
    wanted = int(_CHUNK_NUMBERS / max(row_entries, 1.0))
    return max(1 << max(wanted, 1).bit_length() - 1, leaf_rows(1, sparse=True))


def _load(text: bytes) -> tuple[Any, FloatArray]:
    from sklearn.datasets import load_svmlight_file  # costs time to import, and few need it

    X, y = load_svmlight_file(io.BytesIO(text), zero_based=True)
    return X, np.asarray(y, dtype=np.float64)


def _said(error: BaseException) -> str:
    if isinstance(error, OverflowError):
        return f"an index is larger than {_MOST_FEATURES}"
    return (str(error) or type(error).__name__).rstrip(".")


def _open(path: Path) -> Any:
    openers: dict[str | None, Callable[..., Any]] = {"gzip": gzip.open, "bz2": bz2.open, None: open}
    return openers[compression_of(path)](path, "rb")


def _whole(stream: Any, size: int, path: Path) -> bytes:
    """Return the next ``size`` bytes."""
    text = b""
    with _naming(path):
        while len(text) < size:
            more = stream.read(size - len(text))
            if not more:
                raise SourceError(f"{path} has changed since it was opened: open it again.")
            text += more
    return text


def _text_blocks(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines, some megabytes at a time, with the place of their first byte."""
    offset, rest = 0, b""
    with _naming(path), _open(path) as stream:
        while more := stream.read(_TEXT_BLOCK):
            text = rest + more
            cut = text.rfind(b"\n") + 1
            rest = text[cut:]
            if len(rest) > _LONGEST_LINE:
                raise SourceError(f"{path} has a line of more than {_LONGEST_LINE >> 20} MiB: that is no row.")
            if cut:
                yield offset, text[:cut]
                offset += cut
        if rest:
            yield offset, rest


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the file that cannot be inflated or read."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it breaks off"
        raise SourceError(f"{path} cannot be read: {reason.rstrip('.')}.") from None


def _lines(text: bytes, first: int) -> Iterator[tuple[int, bytes]]:
    yield from enumerate(text.split(b"\n"), first)


def _is_row(line: bytes) -> bool:
    return bool(line.split(b"#")[0].strip())
