"""Coresets, streams and models from files that were changed: one clear error, whatever was changed."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pytest

from dualcore import Coreset, CoresetStream, DualCoreset, Problem, load

PROBLEM = Problem("logistic", radius=0.1, label_cost=1.0)
READ = {
    "coreset": (Coreset.load, r" is not a coreset file written by Coreset\.save: .*\.$"),
    "stream": (lambda path: CoresetStream.load(path, PROBLEM), r" is not a file written by CoresetStream\.save: .*\.$"),
    "model": (load, "is not a model file"),
}


def sample(n: int = 900) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.where(2.0 * X[:, 0] + rng.normal(size=n) > 0.0, 1.0, -1.0)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a coreset, a stream, what is neither, and an archive that would inflate."""
    folder = tmp_path_factory.mktemp("saved")
    DualCoreset(size=40, random_state=1).build(PROBLEM, *sample()).save(folder / "coreset.npz")
    stream = CoresetStream(PROBLEM, size=200, random_state=0)
    stream.update(*sample(9000), np.linspace(0.5, 1.5, 9000))
    stream.save(folder / "stream.npz")
    np.save(folder / "array.npy", np.ones(3))
    (folder / "folder").mkdir()
    with (
        zipfile.ZipFile(folder / "bomb.npz", "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("X.npy", "w") as member,
    ):
        np.lib.format.write_array_header_1_0(member, {"descr": "<f8", "fortran_order": False, "shape": (1 << 23,)})
        for _ in range(64):
            member.write(bytes(1 << 20))
    return folder


CHANGES = {
    "a number of an array": lambda header, arrays: arrays.update(array0=arrays["array0"] * 7 + 1),
    "an array is missing": lambda header, arrays: arrays.pop("array0"),
    "an array too many": lambda header, arrays: arrays.update(array999=np.ones(3)),
    "an entry of the header": lambda header, arrays: header.update(format=header["format"] + 1),
    "an entry too many": lambda header, arrays: header.update(multiplier=-1.0),
    "no digest": lambda header, arrays: arrays.pop("digest"),
}


@pytest.mark.parametrize("kind", ["coreset", "stream"])
def test_a_file_that_was_changed_is_refused(tmp_path, saved, kind):
    path, (read, message) = tmp_path / "saved.npz", READ[kind]
    for change in (lambda header, arrays: None, *CHANGES.values()):
        with np.load(saved / f"{kind}.npz") as file:
            arrays = dict(file)
        header = json.loads(arrays.pop("header").tobytes())
        change(header, arrays)
        np.savez(path, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **arrays)
        if change not in CHANGES.values():
            read(path)  # written back as it was it is fine
            continue
        with pytest.raises(ValueError, match=rf"^saved\.npz{message}"):
            read(path)


@pytest.mark.parametrize("kind", READ)
def test_files_of_another_kind_are_refused(saved, kind):
    read, message = READ[kind]
    for name in ("coreset.npz", "stream.npz", "array.npy", "folder"):
        if not name.startswith(kind):
            with pytest.raises(ValueError, match=message):
                read(saved / name)
    with pytest.raises(ValueError, match=r"bomb\.npz is not a .*(inflate|decode)"):
        read(saved / "bomb.npz")


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
    loaded = Coreset.load(tmp_path / "c.npz")
    assert loaded.anchor.multiplier == coreset.anchor.multiplier
    assert (loaded != coreset, loaded.anchor != coreset.anchor) == (True, True)  # equal is the same object


@pytest.mark.parametrize(
    "change", [{"feature_weights": [1.0, 2.0, 4.0]}, {"label_cost": 2.0}, {"fit_intercept": False}], ids=str
)
def test_a_stream_is_neither_merged_nor_loaded_with_another_problem(tmp_path, change):
    other = PROBLEM.replace(**change)
    one, two = CoresetStream(PROBLEM, size=100), CoresetStream(other, size=100, first_row=10**6)
    for stream in (one, two):
        stream.update(*sample())
    with pytest.raises(ValueError, match="different problems or sizes cannot be merged"):
        one.merge(two)
    for stream, problem, wrong in ((one, PROBLEM, other), (two, other, PROBLEM)):
        stream.save(tmp_path / "s.npz")
        CoresetStream.load(tmp_path / "s.npz", problem)
        with pytest.raises(ValueError, match=r"s\.npz is about Problem\(.*, not about Problem\("):
            CoresetStream.load(tmp_path / "s.npz", wrong)
