"""A cluster of processes: the same coreset on any number of workers, with one of them killed, and an honest end.

The workers are processes of this machine; they are killed by their process ids and by nothing wider.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dualcore import Coreset, DualCoreset, Problem
from dualcore.data.sources import DaskSource, Source, SourceError
from source_kinds import Table, from_array, make_table, write_parquet

pytestmark = [
    pytest.mark.slow,
    pytest.mark.needs("distributed", "pyarrow", "pandas"),
    # A worker that is killed leaves sockets and tasks that its own library does not close.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
PROBLEM = Problem("logistic", radius=0.1)
N, M, PARTITION = 60_000, 20, 4_999
TABLE = make_table(N, M)


@pytest.fixture(scope="module")
def expected() -> Coreset:
    return build(from_array(TABLE, Path()))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster:
        yield cluster


@pytest.fixture
def client(cluster) -> Iterator[Any]:
    from distributed import Client

    with Client(cluster) as client:
        yield client


def build(source: Source) -> Coreset:
    return DualCoreset(size=300, rounds=2, random_state=5).build(PROBLEM, source)


def slowly(block: Any) -> Any:
    time.sleep(0.05)
    return block


def dask_source(table: Table = TABLE, *, slow: bool = False) -> DaskSource:
    import dask.array as da

    X = da.from_array(table.X, chunks=(PARTITION, M))
    return DaskSource(X.map_blocks(slowly, dtype=X.dtype) if slow else X, da.from_array(table.y, chunks=PARTITION))


def assert_same(found: Coreset, expected: Coreset) -> None:
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.weights, expected.weights)


def in_the_middle(source: DaskSource, act: Any) -> list[int]:
    """Call ``act`` once, while the second read is under way."""
    done: list[int] = []
    run = source._results

    def watched(tasks: list[Any]) -> Iterator[Any]:
        if source.n_reads == 2 and not done:
            done.append(len(tasks))
            threading.Timer(0.3, act).start()  # a read takes longer: thirteen partitions of 0.05 seconds on two workers
        yield from run(tasks)

    source._results = watched
    return done


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_the_number_of_workers_does_not_show(workers, cluster, client, expected):
    cluster.scale(workers)
    client.wait_for_workers(workers, timeout=60)
    assert_same(build(dask_source()), expected)


def test_a_dataframe_on_workers(client, expected, tmp_path):
    import dask.dataframe as dd

    write_parquet(TABLE, tmp_path / "rows.parquet", 7000)
    frame = dd.read_parquet(tmp_path / "rows.parquet", split_row_groups=True)
    assert_same(build(DaskSource(frame, "y")), expected)


def test_nothing_but_summaries_crosses_the_network(client):
    source = dask_source()
    source.survey()
    list(source.map(lambda chunk: chunk.y.size))
    assert source.bytes_moved < 40_000  # tasks of a few kilobytes, numbers back
    before = source.bytes_moved
    build(source)
    moved, n_reads = source.bytes_moved - before, source.n_reads - 1
    # Per read: the rows kept for the draw (1.5 times over), two ends of a leaf for each partition, sums.
    rows = 3 * 300 + 32 * 48 + 13 * (2 * 128 + 48)
    assert moved < n_reads * (rows * (M + 9) * 8 + 13 * 10_000)
    assert moved < 0.6 * n_reads * TABLE.X.astype(float).nbytes


def test_a_read_brings_one_summary_home_whatever_the_partitions(client):
    """Summaries are merged on the workers; the client sees one, and tasks are small beside the work they share."""
    import dask.array as da
    from distributed.protocol import pickle as wire

    table, ballast = make_table(3000, 3), np.ones(40_000)

    def count(chunk: Any) -> np.ndarray:
        return ballast[:5000] * chunk.y.size

    def moved(partition: int) -> tuple[int, float]:
        X, y = da.from_array(table.X, chunks=(partition, 3)), da.from_array(table.y, chunks=partition)
        source = DaskSource(X, y)
        total = source.fold(count, lambda parts: np.sum(parts, axis=0))
        return source.bytes_moved, float(total[0])

    (few, rows), (many, same) = moved(1500), moved(50)
    assert rows == same == 3000.0
    workers = len(client.scheduler_info()["workers"])
    assert many < 1.2 * few < 1.2 * (workers * (len(wire.dumps(ballast)) + 20_000) + 60_000)


def test_a_worker_that_is_killed_in_the_middle_of_a_read_changes_nothing(cluster, client, expected):
    cluster.scale(2)
    client.wait_for_workers(2, timeout=60)
    source = dask_source(slow=True)
    [victim, *_] = client.run(os.getpid).values()
    done = in_the_middle(source, lambda: os.kill(victim, signal.SIGKILL))
    found = build(source)
    assert done == [1]  # the root of a tree
    assert_same(found, expected)


def test_a_fault_on_a_worker_names_its_partition(client):
    X = TABLE.X.copy()
    X[23_456, 1] = np.inf
    with pytest.raises(SourceError, match=r"NaN or infinite value.*partition 4, row 3460"):
        build(dask_source(TABLE._replace(X=X)))


def test_a_scheduler_that_goes_away_is_one_clear_error():
    from distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0")
    client = Client(cluster)
    try:
        source = dask_source(slow=True)
        done = in_the_middle(source, lambda: cluster.close(timeout=10))
        with pytest.raises(ConnectionError, match=r"scheduler at tcp.* went away during a read") as caught:
            build(source)
        assert done
        assert "\n" not in str(caught.value)
    finally:
        client.close(timeout=2)
        cluster.close(timeout=10)
