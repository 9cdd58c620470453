"""Rows in files of the SVMlight and LIBSVM format: one row a line, ``target index:value index:value ...``."""

from __future__ import annotations

import bisect
import io
import tempfile
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.data.arrays import FloatArray
from dualcore.data.rows import SparseRows, as_row_weights
from dualcore.data.sources.base import LocalSource, Pieces, touched
from dualcore.data.sources.chunk import Chunk, SourceError, chunk_spans
from dualcore.data.sources.paths import Paths, is_compressed, list_tables, open_text
from dualcore.data.sources.survey import Survey, survey_chunk
from dualcore.data.storage import FileState
from dualcore.data.sums import leaf_rows

# Bytes of text parsed at a time.
_TEXT_BLOCK = 1 << 22
# Bytes of rows that are kept in memory.
_MOST_KEPT = 1 << 30
# Numbers of a chunk: about as many bytes as a dense chunk has.
_CHUNK_NUMBERS = 1 << 19
# Longer than any row: what inflates to more without a line break is no text.
_LONGEST_LINE = 1 << 28
# Scikit-learn's parser and most of scipy count columns in 32 bits.
_MOST_FEATURES = 2**31 - 1
_ADVICE = "A line reads 'target index:value index:value ...', with ascending indices"


class _Block(NamedTuple):
    """Whole lines of a file: the place of their first byte, their length, and the global number of their first row."""

    file: int
    offset: int
    size: int
    start: int
    n_rows: int


class SvmlightSource(LocalSource):
    r"""Files of SVMlight or LIBSVM text, plain, gzip or bz2: sparse rows.

    The source parses its files once when it is opened, and counts rows, features and labels. Rows that take no more
    than a gigabyte are kept in memory, and the text is not parsed again. Of larger files every read parses the text,
    block by block; compressed ones are inflated into a temporary file first. Comments (``# ...``) and query numbers
    (``qid:3``) are left out.

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
        super().__init__()
        if n_features is not None and not 1 <= n_features <= _MOST_FEATURES:
            raise ValueError(f"n_features must be a number from 1 to {_MOST_FEATURES}, got {n_features!r}.")
        if zero_based not in (True, False, "auto"):
            raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}.")
        listings = list_tables(path, "SVMlight")
        if any(listing.filesystem is not None for listing in listings):
            raise SourceError(f"{path}: SVMlight files are read from the disk only. Copy them there first.")
        self.files = [FileState.of(file) for listing in listings for file in listing.files]
        self._plain = [_inflate(file.path) if is_compressed(file.path) else None for file in self.files]
        kept = self._scan()
        smallest, largest = self._indices
        self.zero_based = smallest == 0 if zero_based == "auto" else bool(zero_based)
        if not self.zero_based and smallest == 0:
            raise SourceError(
                f"{self._place_of(0)} has the index 0, but indices begin with 1 (zero_based=False): give "
                "zero_based=True."
            )
        needed = max(largest + (1 if self.zero_based else 0), 0)
        if n_features is not None and needed > n_features:
            raise SourceError(
                f"{self._place_of(largest)} has the index {largest}: that is {needed} features, more than "
                f"n_features={n_features}."
            )
        if not needed and n_features is None:
            raise SourceError(f"{self.files[0].path} holds no features: every value is zero. Give n_features.")
        self.n_features = n_features or needed
        self.rows, self._y = None, np.empty(0)
        if kept is not None:
            self.rows = SparseRows(sp.vstack([self._shaped(X) for X, _ in kept], format="csr"))
            self._y = np.concatenate([y for _, y in kept])
        self.random_access = self.labels_alone = kept is not None
        self.is_weighted = sample_weight is not None
        self.weights = None if sample_weight is None else as_row_weights(sample_weight, self.n_rows)
        self._survey = None if self.is_weighted else self._survey
        self.chunk_rows, self._n_pieces = chunk_rows or self._default_rows, len(self._blocks)

    def __repr__(self) -> str:
        return f"<SvmlightSource of {self.n_rows} rows, {self.n_features} features>"

    # The first read

    def _scan(self) -> list[tuple[Any, FloatArray]] | None:
        """Parse all files once: count rows, features and labels, and return the rows where they are few enough."""
        self.n_reads += 1
        self._blocks, self._starts = blocks, starts = list[_Block](), list[int]()
        surveys: list[Survey] = []
        kept: list[tuple[Any, FloatArray]] | None = []
        smallest, largest, n_entries, start = _MOST_FEATURES, -1, 0, 0
        for number, file in enumerate(self.files):
            self.bytes_read += file.size
            offset = 0
            while text := self._text(number, offset):
                X, y = self._parse(text, number, offset)
                offset += len(text)
                if not y.size:
                    continue
                blocks.append(_Block(number, offset - len(text), len(text), start, y.size))
                starts.append(start)
                with self.naming_rows():
                    surveys.append(survey_chunk(Chunk(start, None, y, None)))
                if X.nnz:
                    smallest, largest = min(smallest, int(X.indices.min())), max(largest, int(X.indices.max()))
                n_entries += X.nnz
                start += y.size
                if kept is not None:
                    kept = None if 12 * n_entries + 16 * start > _MOST_KEPT else [*kept, (X, y)]
        if not blocks:
            one = f"{self.files[0].path} holds no rows."
            raise SourceError(one if len(self.files) == 1 else "The files hold no rows.")
        wanted = int(_CHUNK_NUMBERS / max(n_entries / start, 1.0))
        self._default_rows = max(1 << max(wanted, 1).bit_length() - 1, leaf_rows(1, sparse=True))
        self._survey, self._n_rows, self._indices = Survey.join(surveys), start, (smallest, largest)
        if kept is not None:
            self._plain = []
        return kept

    def _text(self, file: int, offset: int, size: int | None = None) -> bytes:
        """Return whole lines from a place on: so many bytes, or a few megabytes and the rest of the last line."""
        path, inflated = self.files[file].path, self._plain[file]
        with open(path if inflated is None else inflated.name, "rb") as stream:
            stream.seek(offset)
            return stream.read(_TEXT_BLOCK) + stream.readline() if size is None else stream.read(size)

    def _parse(self, text: bytes, file: int, offset: int) -> tuple[Any, FloatArray]:
        """Return the rows of some lines, with the indices as they are, and their targets."""
        try:
            return _load(text)
        except (ValueError, OverflowError) as error:
            path, before = self.files[file].path, self._text(file, 0, offset).count(b"\n")
            for number, line in enumerate(text.split(b"\n"), before + 1):  # the parser does not say where
                try:
                    _load(line)
                except (ValueError, OverflowError) as found:
                    raise SourceError(f"{path}, line {number} is no row: {_said(found)}. {_ADVICE}.") from None
            raise SourceError(f"{path}, line {before + 1} and after: {_said(error)}. {_ADVICE}.") from None

    def _place_of(self, index: int) -> str:
        """Say where an index is first used; for messages, so it may take a while."""
        mark = f"{index}:".encode()
        for file in self.files:
            for number, line in _lines(file.path):
                if any(part.startswith(mark) for part in line.split(b"#")[0].split()[1:]):
                    return f"{file.path}, line {number}"
        return self.files[0].path

    def describe(self, row: int) -> str:
        block = self._blocks[bisect.bisect_right(self._starts, row) - 1]
        row -= next(other.start for other in self._blocks if other.file == block.file)
        path = self.files[block.file].path
        for number, line in _lines(path):
            if line.split(b"#")[0].strip():
                if not row:
                    return f"{path}, line {number}"
                row -= 1
        return path

    # Reads

    def _pieces(self, *, features: bool, wanted: npt.NDArray[np.int64] | None) -> Pieces:
        if self.rows is not None:
            for first, last in chunk_spans(0, self.n_rows, self.chunk_rows):
                yield lambda part=slice(first, last): self._cut(part, features)  # type: ignore[misc]
            return
        for place in range(len(self._blocks)) if wanted is None else touched(self._starts, wanted):
            self.bytes_read += self._blocks[place].size
            yield lambda block=self._blocks[place]: self._chunks(block, features)  # type: ignore[misc]

    def _cut(self, part: slice, features: bool) -> list[Chunk]:
        X = None if self.rows is None or not features else self.rows.block(part)
        return [Chunk(part.start, X, self._y[part], None if self.weights is None else self.weights[part])]

    def _chunks(self, block: _Block, features: bool) -> Iterator[Chunk]:
        X, y = self._parse(self._text(*block[:3]), block.file, block.offset)
        most = int(X.indices.max(initial=-1)) + (1 if self.zero_based else 0)
        if y.size != block.n_rows or most > self.n_features:
            raise SourceError(f"{self.files[block.file].path} has changed since it was opened: open it again.")
        weights = None if self.weights is None else self.weights[block.start : block.start + block.n_rows]
        yield from Chunk(block.start, self._shaped(X) if features else None, y, weights).cut(self.chunk_rows)

    def _shaped(self, X: Any) -> sp.csr_matrix:
        indices = (X.indices if self.zero_based else X.indices - 1).astype(np.int32, copy=False)
        return sp.csr_matrix((X.data, indices, X.indptr), shape=(X.shape[0], self.n_features))

    def take(self, rows: npt.NDArray[np.int64]) -> tuple[Any, FloatArray]:
        if self.rows is None:
            return super().take(rows)
        self.check_files()
        return self.rows.take(rows), self._y[rows]

    def _label_share(self) -> float:
        return 0.0  # of rows in memory; else a line has to be read to its end, wherever its target stands

    def _take_share(self, rows: npt.NDArray[np.int64]) -> float:
        return 0.0 if self.random_access else len(touched(self._starts, rows)) / len(self._blocks)


def _said(error: BaseException) -> str:
    if isinstance(error, OverflowError):
        return f"an index is larger than {_MOST_FEATURES}"
    return (str(error) or type(error).__name__).rstrip(".")


def _load(text: bytes) -> tuple[Any, FloatArray]:
    from sklearn.datasets import load_svmlight_file  # costs time to import, and few need it

    X, y = load_svmlight_file(io.BytesIO(text), zero_based=True)
    return X, np.asarray(y, dtype=np.float64)


def _lines(path: str) -> Iterator[tuple[int, bytes]]:
    with open_text(path) as stream:
        yield from enumerate(stream, 1)


def _inflate(path: str) -> Any:
    """Return a temporary file with the content of a compressed one; it goes with the source."""
    since_break, out = 0, tempfile.NamedTemporaryFile(prefix="dualcore-", suffix=".svm")  # noqa: SIM115  kept open
    try:
        with open_text(path) as stream:
            while part := stream.read(_TEXT_BLOCK):
                since_break = since_break + len(part) if b"\n" not in part else 0
                if since_break > _LONGEST_LINE:
                    raise SourceError(f"{path} has a line of more than {_LONGEST_LINE >> 20} MiB: that is no row.")
                out.write(part)
        out.flush()
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or str(error) or "it breaks off"
        raise SourceError(f"{path} cannot be read: {reason.rstrip('.')}.") from None
    return out
