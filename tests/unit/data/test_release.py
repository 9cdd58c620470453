"""Mapped files: pages that were read are given back, and nothing else is touched."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from dualcore import open_source
from dualcore.data.sources.memory import release_pages


@pytest.fixture
def mapped(tmp_path: Path) -> Path:
    np.save(tmp_path / "X.npy", np.arange(40_000 * 64, dtype=np.float32).reshape(-1, 64))
    return tmp_path / "X.npy"


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


on_linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")


@on_linux
def test_pages_are_given_back_and_read_again(mapped):
    X = np.load(mapped, mmap_mode="r")
    before = resident()
    total = float(np.asarray(X).sum(dtype=np.float64))
    assert resident() - before > 0.8 * X.nbytes
    release_pages(X[10:])
    assert resident() - before < 0.2 * X.nbytes
    assert float(np.asarray(X).sum(dtype=np.float64)) == total


@on_linux
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_read_of_a_map_leaves_no_pages_behind(tmp_path, dtype):
    np.save(tmp_path / "X.npy", np.ones((40_000, 64), dtype=dtype))
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    source = open_source(X, np.ones(len(X)))
    list(source.map(lambda chunk: 0.0))
    before = resident()
    assert sum(source.map(lambda chunk: float(chunk.X.sum()))) == X.size
    assert resident() - before < 0.5 * X.nbytes
    taken = source.take(np.arange(0, len(X), 3))[0]
    np.testing.assert_array_equal(taken, np.ones_like(taken))


def test_only_maps_for_reading_are_released(mapped):
    given = np.load(mapped, mmap_mode="c")
    given[0, 0] = -5.0
    release_pages(given)  # the change is in no file: giving the page back would lose it
    assert given[0, 0] == -5.0
    release_pages(np.ones(3))


def test_rows_of_a_map_are_looked_up_in_any_order(mapped):
    X = np.load(mapped, mmap_mode="r")
    rows = np.random.default_rng(0).permutation(len(X))[:1500]
    np.testing.assert_array_equal(open_source(X, np.ones(len(X))).take(rows)[0], np.asarray(X)[rows])
