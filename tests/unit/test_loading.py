"""Coresets, streams and models from files that somebody changed: one clear error, whatever was changed."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from dualcore import Coreset, CoresetStream, DualCoreset, Problem, load

PROBLEM = Problem("logistic", radius=0.1, label_cost=1.0)


def sample(n: int = 900, m: int = 3, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m))
    return X, np.where(2.0 * X[:, 0] + rng.normal(size=n) > 0.0, 1.0, -1.0)


class Archive:
    """The arrays and the header of a saved file, to be changed and written back."""

    def __init__(self, path):
        self.path = path
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.header = json.loads(self.arrays.pop("header").tobytes())

    def write(self):
        header = np.frombuffer(json.dumps(self.header).encode(), dtype=np.uint8)
        np.savez(self.path, header=header, **self.arrays)


def broken(array, value, at=0):
    array = array.copy()
    array.reshape(-1)[at] = value
    return array


CHANGES = {
    "a number of an array": lambda a: a.arrays.update(array0=broken(a.arrays["array0"], 7)),
    "an array is missing": lambda a: a.arrays.pop("array0"),
    "an array too many": lambda a: a.arrays.update(array999=np.ones(3)),
    "an entry of the header": lambda a: a.header.update(format=a.header["format"] + 1),
    "an entry too many": lambda a: a.header.update(multiplier=-1.0),
    "no digest": lambda a: a.arrays.pop("digest"),
}
KINDS = {
    "coreset": (Coreset.load, r"^saved\.npz is not a coreset file written by Coreset\.save: .*\.$"),
    "stream": (
        lambda path: CoresetStream.load(path, PROBLEM),
        r"^saved\.npz is not a file written by CoresetStream\.save: .*\.$",
    ),
}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    DualCoreset(size=40, random_state=1).build(PROBLEM, *sample()).save(folder / "coreset.npz")
    feed(13_000, weighted=True).save(folder / "stream.npz")
    return folder


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_was_changed_is_refused(tmp_path, saved, kind, change):
    path, (read, message) = tmp_path / "saved.npz", KINDS[kind]
    path.write_bytes((saved / f"{kind}.npz").read_bytes())
    archive = Archive(path)
    archive.write()
    read(path)  # written back as it was it is fine
    change(archive)
    archive.write()
    with pytest.raises(ValueError, match=message):
        read(path)


@pytest.mark.parametrize("kind", ["coreset", "stream", "model"])
def test_an_archive_that_would_inflate_is_refused_at_once(tmp_path, kind):
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("X.npy", "w") as member:
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (1 << 23,)})
        for _ in range(64):
            member.write(bytes(1 << 20))
    read = {
        "coreset": lambda: Coreset.load(path),
        "stream": lambda: CoresetStream.load(path, PROBLEM),
        "model": lambda: load(path),
    }[kind]
    with pytest.raises(ValueError, match=r"bomb\.npz is not a .*(inflate|decode)"):
        read()


def test_a_coreset_that_could_not_be_loaded_is_not_saved(tmp_path):
    coreset = Coreset(np.array([0, 1]), np.ones((2, 1)), np.ones(2), np.ones(2), n_rows=2)
    with pytest.raises(ValueError, match="This coreset cannot be saved: 'weights' must sum to one, their sum is 2"):
        coreset.save(tmp_path / "c.npz")
    assert list(tmp_path.iterdir()) == []
    whole = Coreset(np.array([0, 3]), np.array([[1, 2], [3, 4]]), np.array([1, -1]), np.full(2, 0.5), n_rows=9)
    whole.save(tmp_path / "c.npz")
    np.testing.assert_array_equal(Coreset.load(tmp_path / "c.npz").X, whole.X)


def test_an_anchor_without_a_finite_multiplier_comes_back(tmp_path):
    """At radius 0 a squared loss has its multiplier at infinity."""
    X, y = sample()
    coreset = DualCoreset(size=30, random_state=0).build(Problem("squared"), X, X[:, 0] + 0.1 * y)
    coreset.save(tmp_path / "c.npz")
    assert Coreset.load(tmp_path / "c.npz").anchor.multiplier == coreset.anchor.multiplier


# Streams


def feed(n: int = 9000, size: int = 200, weighted: bool = False, **options) -> CoresetStream:
    stream = CoresetStream(PROBLEM, size=size, random_state=0, **options)
    X, y = sample(n)
    for start in range(0, n, 1000):
        part = slice(start, start + 1000)
        weights = np.linspace(0.5, 1.5, X[part].shape[0]) if weighted else None
        stream.update(X[part], y[part], weights)
    return stream


def test_files_of_the_other_kind_are_refused(tmp_path):
    DualCoreset(size=40, random_state=1).build(PROBLEM, *sample()).save(tmp_path / "c.npz")
    feed().save(tmp_path / "s.npz")
    np.save(tmp_path / "x.npy", np.ones(3))
    (tmp_path / "folder").mkdir()
    for name in ("s.npz", "x.npy", "folder"):
        with pytest.raises(ValueError, match="is not a coreset file"):
            Coreset.load(tmp_path / name)
    for name in ("c.npz", "x.npy", "folder"):
        with pytest.raises(ValueError, match=r"is not a file written by CoresetStream\.save"):
            CoresetStream.load(tmp_path / name, PROBLEM)
    for name in ("c.npz", "s.npz", "x.npy", "folder"):
        with pytest.raises(ValueError, match="is not a model file"):
            load(tmp_path / name)


# Streams of problems that differ


@pytest.mark.parametrize(
    "other",
    [
        PROBLEM.replace(feature_weights=[1.0, 2.0, 4.0]),
        PROBLEM.replace(label_cost=2.0),
        PROBLEM.replace(fit_intercept=False),
    ],
    ids=["prices", "label cost", "intercept"],
)
def test_a_stream_is_neither_merged_nor_loaded_with_another_problem(tmp_path, other):
    X, y = sample()
    one, two = CoresetStream(PROBLEM, size=100), CoresetStream(other, size=100, first_row=10**6)
    one.update(X, y)
    two.update(X, y)
    with pytest.raises(ValueError, match="different problems or sizes cannot be merged"):
        one.merge(two)
    for stream, problem, wrong in ((one, PROBLEM, other), (two, other, PROBLEM)):
        stream.save(tmp_path / "s.npz")
        CoresetStream.load(tmp_path / "s.npz", problem)
        with pytest.raises(ValueError, match=r"s\.npz is about Problem\(.*, not about Problem\("):
            CoresetStream.load(tmp_path / "s.npz", wrong)
