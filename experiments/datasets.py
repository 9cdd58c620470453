"""Data sets of the experiments by name, local or fetched, and small stand-ins for tests.

A loader looks for its file in the folder ``data_home``, else in the folder that the environment variable
``DUALCORE_DATA`` names; if the file is not there it asks OpenML by name through scikit-learn, which keeps a copy for
the next time. Either way the arrays must have a known SHA-256 sum, so both give the same numbers in the same
order. No data set ships with the package.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import io
import math
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.datasets import fetch_openml

Array = npt.NDArray[Any]
Folder = str | os.PathLike[str] | None
Source = Literal["local", "openml", "generated"]

ENVIRONMENT_VARIABLE = "DUALCORE_DATA"
_ROOMS = [name for room in range(1, 10) for name in (f"T{room}", f"RH_{room}")]
_WEATHER = ["T_out", "Press_mm_hg", "RH_out", "Windspeed", "Visibility", "Tdewpoint"]
_ENERGY_COLUMNS = ["lights", *_ROOMS, *_WEATHER, "rv1", "rv2", "Appliances"]
_AUTHORS_PARTS = [f"{kind}_{part}" for part in ("train", "alfa", "mm", "test") for kind in ("X", "y")]
_AUTHORS_ARRAYS = [*_AUTHORS_PARTS, "alfa_flipped", "mm_poison"]


class DatasetNotFoundError(FileNotFoundError):
    """A data set is neither on disk nor fetched; the message says how to get it."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows ``(X_train, y_train)`` to learn from and ``(X_test, y_test)`` to judge by.

    Targets are labels -1 and +1, class numbers, or those of a regression.

    Examples
    --------
    >>> data = make_letter_standin(n_train=30, n_test=10)
    >>> data.X_train.shape, data.X_test.shape, data.source
    ((30, 16), (10, 16), 'generated')
    """

    name: str
    X_train: Array
    y_train: Array
    X_test: Array
    y_test: Array
    source: Source
    feature_names: tuple[str, ...] = ()  # empty where the columns have no names
    contaminated: npt.NDArray[np.bool_] | None = None  # training rows that an attack changed or added, where known


@dataclass(frozen=True)
class _Origin:
    """Where a data set comes from."""

    title: str
    digest: str  # SHA-256 of the arrays
    files: tuple[str, ...]  # alternatives below data_home; the first one there is read
    read: Callable[[Path], tuple[Array, ...]]
    openml: str | None = None
    convert: Callable[[Any], tuple[Array, ...]] | None = None
    decimal: bool = False  # a table of decimals: columns by name; hundredths compared, as copies may be rounded

    def obtain(self, data_home: Folder, verify: bool) -> tuple[tuple[Array, ...], Source]:
        home = data_home or os.environ.get(ENVIRONMENT_VARIABLE)
        folder = Path(home).expanduser() if home else None
        local = [folder / file for file in self.files if (folder / file).exists()] if folder else []
        source: Source = "local" if local else "openml"
        arrays = self._read_local(local[0]) if local else self._fetch(folder)
        found = _digest(arrays, self.decimal) if verify else self.digest
        if found != self.digest:
            raise ValueError(
                f"{self.title}: the {source} copy, of shapes {[a.shape for a in arrays]}, has the SHA-256 sum {found}, "
                f"not {self.digest}. It is damaged or another version: replace it, or pass verify=False to use it "
                "anyway."
            )
        return arrays, source

    def _read_local(self, path: Path) -> tuple[Array, ...]:
        try:
            return self.read(path)
        except (KeyError, ValueError, EOFError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{self.title}: {path} cannot be read ({error}). Replace it by a whole copy.") from error

    def _fetch(self, folder: Path | None) -> tuple[Array, ...]:
        files = " or ".join(self.files)
        where = f"{self.title}: " + (f"no {files} in {folder}" if folder else "no folder was named")
        how = (
            f"put {files} into a folder and pass data_home=... (on the command line: --data FOLDER), or set "
            f"{ENVIRONMENT_VARIABLE}."
        )
        if self.openml is None or self.convert is None:
            raise DatasetNotFoundError(
                f"{where}, and OpenML has no copy: it is made from the files released with the paper, of the arrays "
                f"that `load_letter_authors` names. To use it, {how}"
            )
        try:
            bunch = fetch_openml(
                name=self.openml,
                version=1,
                data_home=None if folder is None else str(folder),
                as_frame=self.decimal,
                parser="auto" if find_spec("pandas") else "liac-arff",
            )
            return self.convert(bunch)
        except (OSError, ValueError, KeyError, ImportError) as error:
            raise DatasetNotFoundError(
                f"{where}, and {self.openml!r} (version 1) could not be fetched from OpenML "
                f"({error}). Try again with a network connection, or {how}"
            ) from error


def _digest(arrays: tuple[Array, ...], decimal: bool) -> str:
    total = hashlib.sha256()
    for array in arrays:
        if decimal:
            # With 0.29 every value of the data is more than 1e-7 away from a rounding edge.
            array = np.floor(array * 100.0 + 0.29).astype(np.int64)
        array = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
        total.update(f"{array.dtype.kind}{array.dtype.itemsize}{array.shape}".encode())
        total.update(array.tobytes())
    return total.hexdigest()


def _read_npz(path: Path, *names: str) -> tuple[Array, ...]:
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        return tuple(stored[name] for name in names)


def _read_idx(path: Path) -> npt.NDArray[np.uint8]:
    content = gzip.decompress(path.read_bytes())
    n_dims = content[3] if content[:3] == b"\0\0\x08" else 0  # 0x08: unsigned bytes
    start = 4 + 4 * n_dims
    shape = [int.from_bytes(content[i : i + 4], "big") for i in range(4, start, 4)]
    if n_dims == 0 or len(content) != start + math.prod(shape):
        raise ValueError(f"{path.name} is not a whole IDX file of unsigned bytes")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape)


def _read_mnist(folder: Path) -> tuple[Array, ...]:
    images = [_read_idx(folder / f"{part}-images-idx3-ubyte.gz") for part in ("train", "t10k")]
    labels = [_read_idx(folder / f"{part}-labels-idx1-ubyte.gz") for part in ("train", "t10k")]
    return np.concatenate(images).reshape(-1, 784), np.concatenate(labels)


def _read_energy(path: Path) -> tuple[Array, ...]:
    if path.suffix == ".npz":
        return _read_npz(path, "X", "y")
    with zipfile.ZipFile(path) as archive, archive.open("energydata_complete.csv") as stream:
        table = csv.DictReader(io.TextIOWrapper(stream, "utf-8", newline=""))
        rows = np.array([[float(row[name]) for name in _ENERGY_COLUMNS] for row in table])
    return rows[:, :-1], rows[:, -1]


def _read_adult(path: Path) -> tuple[Array, ...]:
    X_train, X_test, y_train, y_test = _read_npz(path, "X_train", "X_test", "y_train", "y_test")
    return np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])


def _convert_characters(bunch: Any) -> tuple[Array, ...]:
    classes = [ord(c) - ord("A" if c.isalpha() else "0") for c in map(str, bunch.target)]
    return np.asarray(bunch.data).astype(np.uint8), np.array(classes, dtype=np.uint8)


def _convert_energy(bunch: Any) -> tuple[Array, ...]:
    rows = bunch.frame[_ENERGY_COLUMNS].to_numpy(dtype=np.float64)
    return rows[:, :-1], rows[:, -1]


def _convert_adult(bunch: Any) -> tuple[Array, ...]:
    positive = np.asarray(bunch.target).astype(np.float64) > 0.0
    return bunch.data.toarray().astype(np.uint8), np.where(positive, 1, -1).astype(np.int8)


_LETTER = _Origin(
    "Letter Recognition",
    "14088025bc2b111526ac89b1a0ab398b3315ba579ce180057b55301b7e4dd596",
    ("letter_full.npz",),
    lambda path: _read_npz(path, "X", "y"),
    "letter",
    _convert_characters,
)
_AUTHORS = _Origin(
    "LETTER by the paper's authors",
    "99b5ab8aa04007e7fff475f5828fab30b1e41c00faea63174cb6da359c0735da",
    ("letter_authors.npz",),
    lambda path: _read_npz(path, *_AUTHORS_ARRAYS),
)
_MNIST = _Origin(
    "MNIST",
    "14496c267285682a914dff1e35d1758a71f1c8d10bdc17d6b9ce111f32f9365e",
    ("mnist_idx",),
    _read_mnist,
    "mnist_784",
    _convert_characters,
)
_ENERGY = _Origin(
    "Appliances Energy",
    "31a37ed86071f6053b0fe0a792a2684659f687156090c636bc70f9e3c54f73fa",
    ("appliances_energy.npz", "energydata_complete.zip"),
    _read_energy,
    "appliances_energy_prediction",
    _convert_energy,
    decimal=True,
)
_ADULT = _Origin(
    "Adult (a9a)",
    "02aa244deb1100b70de64bd1f19c191c01bd36e7c73aecd6f0e09af5bbc23ee7",
    ("a9a.npz",),
    _read_adult,
    "a9a",
    _convert_adult,
)


def load_letter(data_home: Folder = None, *, scaled: bool = False, verify: bool = True) -> Dataset:
    """UCI Letter Recognition: 15,000 + 5,000 rows, 16 features, classes 0 (A) to 25 (Z).

    LIBSVM's ``letter.scale.t`` is held out; inside each part rows keep the order of UCI's file. Every loader raises
    `DatasetNotFoundError` if there is no local copy and no answer from OpenML, ValueError if the copy is a wrong one.

    Parameters
    ----------
    data_home : path, optional
        Folder of local copies and of fetched ones; by default ``DUALCORE_DATA``, else scikit-learn's own cache.
    scaled : bool
        Whether to map the features 0..15 to [-1, 1] as LIBSVM does: ``-1 + 2 X / 15``.
    verify : bool
        Whether the arrays must have the known SHA-256 sum.
    """
    (X, y), source = _LETTER.obtain(data_home, verify)
    # Which rows of UCI's file LIBSVM holds out as letter.scale.t: 20,000 bits, deflated, base 85.
    stored = Path(__file__).with_name("letter_test_rows.b85").read_text(encoding="ascii")
    bits = np.frombuffer(zlib.decompress(base64.b85decode("".join(stored.split()))), np.uint8)
    test = np.unpackbits(bits, count=len(y)).astype(bool)
    X = -1.0 + 2.0 * X / 15.0 if scaled else X.astype(np.float64)
    y = y.astype(np.int64)
    return Dataset("letter", X[~test], y[~test], X[test], y[test], source)


def load_letter_pair(
    negative: str = "Y", positive: str = "Z", data_home: Folder = None, *, verify: bool = True
) -> Dataset:
    """Two letters, labels -1 and +1, in LIBSVM's scaling ``-1 + 2 X / 15`` and LIBSVM's split.

    Parameters
    ----------
    negative, positive : str
        The letters labelled -1 and +1, each one of A..Z. Other options as in `load_letter`.
    """
    for letter in (negative, positive):
        if letter not in list(ascii_uppercase):
            raise ValueError(f"A letter is one of 'A' to 'Z', got {letter!r}.")
    if negative == positive:
        raise ValueError(f"A pair needs two different classes, got {negative}{positive}. Change one of them.")
    data, (low, high) = (
        load_letter(data_home, scaled=True, verify=verify),
        map(ascii_uppercase.index, (negative, positive)),
    )
    train, test = (np.isin(y, (low, high)) for y in (data.y_train, data.y_test))
    y_train, y_test = (np.where(y == high, 1, -1) for y in (data.y_train[train], data.y_test[test]))
    name = f"{data.name} {negative}{positive}"
    return Dataset(name, data.X_train[train], y_train, data.X_test[test], y_test, data.source)


def load_letter_authors(
    attack: Literal["clean", "alfa", "minmax"] = "clean", data_home: Folder = None, *, verify: bool = True
) -> Dataset:
    """LETTER Y (-1) against Z (+1) as the paper's authors left it: 1,145 or 1,260 + 375 rows.

    OpenML has no copy: the file is made from those released with the paper. It is an ``.npz`` archive of ``X_train``,
    ``y_train``, ``X_test``, ``y_test`` (the rows of Y and Z of LIBSVM's letter.scale and letter.scale.t, in order, with
    labels -1 and +1), ``X_alfa``, ``y_alfa``, ``X_mm``, ``y_mm`` (their poisoned training rows), and the masks
    ``alfa_flipped`` and ``mm_poison``. Options as in `load_letter`.

    Parameters
    ----------
    attack : {"clean", "alfa", "minmax"}
        ``"alfa"``: 114 labels are flipped; ``"minmax"`` (the paper's Tables 1 and 2): 115 poison rows precede the
        clean ones. `Dataset.contaminated` marks them; the test rows are clean.

    Examples
    --------
    >>> load_letter_authors(data_home="no-such-folder")
    Traceback (most recent call last):
    experiments.datasets.DatasetNotFoundError: LETTER by the paper's authors: no letter_authors.npz ...
    """
    names = {"clean": "train", "alfa": "alfa", "minmax": "mm"}
    if attack not in names:
        raise ValueError(f"attack must be one of {sorted(names)}, got {attack!r}.")
    arrays, source = _AUTHORS.obtain(data_home, verify)
    stored = dict(zip(_AUTHORS_ARRAYS, arrays, strict=True))
    X, y = stored[f"X_{names[attack]}"], stored[f"y_{names[attack]}"].astype(np.int64)
    masks = {"alfa": stored["alfa_flipped"], "minmax": stored["mm_poison"]}
    mask = masks.get(attack, np.zeros(len(y), dtype=bool))
    X_test, y_test = stored["X_test"], stored["y_test"].astype(np.int64)
    return Dataset(f"letter YZ {attack}", X, y, X_test, y_test, source, contaminated=mask)


def load_mnist(data_home: Folder = None, *, verify: bool = True) -> Dataset:
    """MNIST: 60,000 + 10,000 images as rows of 784 bytes 0..255 (uint8), classes 0 to 9.

    Locally the four official IDX files are read from the folder ``mnist_idx``. Options as in `load_letter`.
    """
    (X, y), source = _MNIST.obtain(data_home, verify)
    y = y.astype(np.int64)
    return Dataset("mnist", X[:60_000], y[:60_000], X[60_000:], y[60_000:], source)


def load_appliances_energy(
    data_home: Folder = None,
    *,
    scaled: bool = True,
    test_size: float = 0.5,
    random_state: int | np.random.Generator | None = 0,
    verify: bool = True,
) -> Dataset:
    """UCI Appliances Energy: 19,735 readings, 27 features (``rv1`` equals ``rv2``), target in Wh.

    Parameters
    ----------
    data_home, verify
        As in `load_letter`; UCI's own ``energydata_complete.zip`` is read as well.
    scaled : bool
        Whether features and target are mapped to [0, 1] by their range over all rows.
    test_size : float
        Share of the rows, drawn at random, that is held out; strictly between 0 and 1.
    random_state : int, Generator or None
        Seed of that draw.
    """
    if not 0.0 < test_size < 1.0:
        raise ValueError(f"test_size must lie strictly between 0 and 1, got {test_size}.")
    (X, y), source = _ENERGY.obtain(data_home, verify)
    if scaled:
        X, y = ((a - a.min(axis=0)) / np.ptp(a, axis=0) for a in (X, y))
    order = np.random.default_rng(random_state).permutation(len(y))
    train, test = np.split(order, [len(y) - math.ceil(len(y) * test_size)])
    return Dataset("energy", X[train], y[train], X[test], y[test], source, tuple(_ENERGY_COLUMNS[:-1]))


def load_adult(data_home: Folder = None, *, verify: bool = True) -> Dataset:
    """UCI Adult as LIBSVM's a9a: 32,561 + 16,281 rows, 123 features 0/1, labels -1/+1 (24 % +1).

    Options as in `load_letter`.
    """
    (X, y), source = _ADULT.obtain(data_home, verify)
    X, y = X.astype(np.float64), y.astype(np.int64)
    return Dataset("adult a9a", X[:32_561], y[:32_561], X[32_561:], y[32_561:], source)


def make_letter_standin(n_train: int = 300, n_test: int = 200, seed: int = 0) -> Dataset:
    """Two overlapping Gaussian classes in the cube [-1, 1], 16 features; for tests only.

    Examples
    --------
    >>> make_letter_standin().X_train.shape
    (300, 16)
    """
    rng = np.random.default_rng(seed)
    y = rng.choice([-1, 1], size=n_train + n_test)
    centre = rng.uniform(-0.35, 0.35, size=16)
    X = np.clip(y[:, None] * centre + rng.normal(0.0, 0.35, (len(y), 16)), -1.0, 1.0)
    return _standin("letter stand-in", X, y, n_train)


def make_appliances_standin(n_train: int = 300, n_test: int = 300, seed: int = 0) -> Dataset:
    """A linear target with rare large peaks, 27 features, all in [0, 1]; for tests only.

    Examples
    --------
    >>> make_appliances_standin().X_train.shape
    (300, 27)
    """
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n_train + n_test, 27))
    y = X @ rng.normal(0.0, 0.1, size=27) + rng.exponential(0.3, size=len(X)) ** 2
    return _standin("energy stand-in", X, (y - y.min()) / np.ptp(y), n_train)


def _standin(name: str, X: Array, y: Array, n_train: int) -> Dataset:
    return Dataset(name, X[:n_train], y[:n_train], X[n_train:], y[n_train:], "generated")
