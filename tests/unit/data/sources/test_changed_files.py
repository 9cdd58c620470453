"""Files that are rewritten while they are read: no read of two versions passes for one of the data."""

from __future__ import annotations

import os

import numpy as np
import pytest

from dualcore import Problem, SourceError, fit_coreset, open_source
from pairs import every_value
from source_kinds import refused

RNG = np.random.default_rng(0)
X = RNG.normal(size=(6000, 2))
Y = np.where(X[:, 0] + RNG.normal(size=6000) > 0.0, 1.0, -1.0)


def write(folder, kind, X, y=Y):
    if kind == "npy":
        np.save(folder / "X.npy", X)
        np.save(folder / "y.npy", y)
        return folder / "X.npy", folder / "y.npy"
    columns = {"a": X[:, 0], "b": X[:, 1], "y": y}
    if kind == "npz":
        np.savez(folder / "d.npz", X=X, y=y)
    elif kind == "columns":
        np.savez(folder / "d.npz", **columns)
    elif kind == "svm":
        lines = [f"{t:g} 1:{a!r} 2:{b!r}" for t, (a, b) in zip(y, X.tolist(), strict=True)]
        (folder / "d.svm").write_text("\n".join(lines))
        return folder / "d.svm", None
    elif kind == "csv":
        np.savetxt(folder / "d.csv", np.column_stack([X, y]), delimiter=",", header="a,b,y", comments="")
        return folder / "d.csv", "y"
    else:
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(pa.table(columns), folder / "d.parquet", row_group_size=1000)
        return folder / "d.parquet", "y"
    return folder / "d.npz", "y"


KINDS = ["npy", "npz", "columns", "csv", "parquet", "svm"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_rewritten_between_reads_is_noticed(tmp_path, kind):
    source = open_source(*write(tmp_path, kind, X))
    total = source.fold(lambda chunk: float(chunk.X.sum()), sum)
    assert total == pytest.approx(X.sum())
    path, _ = write(tmp_path, kind, X[::-1] + 1.0)
    with pytest.raises(SourceError, match=rf"{path.name} has changed since it was opened"):
        source.fold(lambda chunk: float(chunk.X.sum()), sum)
    refused(lambda: source.take(np.arange(5)), "has changed since it was opened")
    with pytest.raises(SourceError, match="has changed since it was opened"):
        fit_coreset(Problem("logistic", radius=0.1), source, coreset=200, random_state=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_rewritten_during_a_read_is_noticed_before_its_end(tmp_path, kind):
    """The last read is the one whose result is believed: nothing comes after it."""
    source = open_source(*write(tmp_path, kind, X), chunk_rows=1000)
    seen = []

    def look(chunk):
        if not seen:
            seen.append(chunk.start)
            path = next(iter(tmp_path.iterdir()))
            status = path.stat()
            os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns + 10**6))  # what any write does
        return float(chunk.X.sum())

    refused(lambda: source.fold(look, sum), "has changed since it was opened")


@every_value(name=["X.npy", "y.npy", "w.npy"], replaced=[True, False])
def test_targets_and_weights_are_watched_too(tmp_path, name, replaced):
    for file, array in (("X.npy", X), ("y.npy", Y), ("w.npy", np.ones(6000))):
        np.save(tmp_path / file, array)
    source = open_source(tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "w.npy")
    assert source.survey().n_rows == 6000
    array = np.load(tmp_path / name)
    if replaced:
        np.save(tmp_path / "new.npy", array[::-1])
        os.replace(tmp_path / "new.npy", tmp_path / name)
    else:
        mapped = np.load(tmp_path / name, mmap_mode="r+")
        mapped[0] = mapped[1] + 1.0
        mapped.flush()
    refused(lambda: source.fold(lambda chunk: float(chunk.X.sum()), sum), rf"{name} has changed")


def test_a_mapped_file_that_was_cut_short_is_an_error_and_not_the_end_of_the_process(tmp_path):
    source = open_source(*write(tmp_path, "npy", X))
    with open(tmp_path / "X.npy", "r+b") as file:
        file.truncate(200)
    refused(lambda: source.take(np.array([5999])), r"X\.npy has changed")
    (tmp_path / "X.npy").unlink()
    refused(lambda: source.fold(lambda chunk: float(chunk.X.sum()), sum), r"X\.npy has gone")


def test_an_array_file_whose_header_lies_is_refused(tmp_path):
    with open(tmp_path / "X.npy", "wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (10**12, 2)})
        file.write(bytes(160))
    refused(lambda: open_source(tmp_path / "X.npy", np.ones(10)), r"X\.npy is not a whole file")
