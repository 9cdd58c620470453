"""Write a Parquet file of n rows for the benchmarks: float32 features, labels -1 and +1 from a logistic model.

    python benchmarks/make_parquet.py rows.parquet --n 20000000

A block of rows depends on the seed and its number alone, so the first rows of a long file are those of a short one.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

BLOCK = 131072


def block(number: int, m: int, seed: int) -> pa.Table:
    rng = np.random.default_rng([seed, number])
    coef = np.random.default_rng(seed).normal(size=m) / np.sqrt(m)
    X = rng.standard_normal(size=(BLOCK, m), dtype=np.float32)
    X[:, : m // 2] += 0.5 * X[:, m - m // 2 :]  # neighbours are correlated, as in life
    noise = rng.logistic(size=BLOCK)
    y = np.where(2.0 * (X @ coef) + 0.3 + noise > 0.0, 1, -1).astype(np.int8)
    return pa.table({f"x{j}": np.ascontiguousarray(X[:, j]) for j in range(m)} | {"y": y})


def make_parquet(
    path: Path, n: int, m: int = 20, *, row_group: int = BLOCK, compression: str = "snappy", seed: int = 0
) -> None:
    """Write the file through a temporary one, so that an interrupted run leaves nothing behind that looks whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    schema = block(0, m, seed).schema
    # Random floats have no repeated values: a dictionary would only make the file longer.
    with pq.ParquetWriter(part, schema, compression=compression, use_dictionary=False) as writer:
        for number in range(-(-n // BLOCK)):
            rows = min(BLOCK, n - number * BLOCK)
            writer.write_table(block(number, m, seed).slice(0, rows), row_group_size=row_group)
    part.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--n", type=int, default=20_000_000)
    parser.add_argument("--m", type=int, default=20)
    parser.add_argument("--row-group", type=int, default=BLOCK)
    parser.add_argument("--compression", default="snappy")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    make_parquet(
        given.path, given.n, given.m, row_group=given.row_group, compression=given.compression, seed=given.seed
    )
    print(f"{given.path}: {given.n} rows, {given.path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
