"""One-hot coding of columns of text: values found in one read, the same from every format, and values not seen."""

import numpy as np
import pytest

from dualcore import ArraySource, CsvSource, ParquetSource
from dualcore.cli.coding import coded_groups, coded_names
from dualcore.data.sources import SourceError
from dualcore.data.sources.columns import Columns
from dualcore.estimators.units import Units

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

RNG = np.random.default_rng(0)
N = 3000
CITY = RNG.choice(["Oslo", "Århus", "Lima"], N)
MARK = RNG.choice(["yes", "no"], N)
AGE = RNG.normal(size=N)
Y = RNG.choice([-1.0, 1.0], N)


def open_rows(kind, folder, *, city=CITY, **options):
    """Write the rows in two files and open them."""
    files = []
    for number, part in enumerate((slice(0, 1100), slice(1100, N))):
        columns = {"city": city[part], "age": AGE[part], "mark": MARK[part], "y": Y[part]}
        files.append(folder / f"{number}.{kind}")
        if kind == "parquet":
            pq.write_table(pa.table({k: pa.array(v.tolist()) for k, v in columns.items()}), files[-1], 400)
        else:
            lines = [",".join(columns)]
            lines += [",".join("" if v is None else str(v) for v in row) for row in zip(*columns.values(), strict=True)]
            files[-1].write_text("\n".join(lines) + "\n", encoding="utf-8")
    return {"parquet": ParquetSource, "csv": CsvSource}[kind](files, "y", **options)


def features_of(source):
    return np.concatenate([chunk.X for chunk in source.map(lambda chunk: chunk)])


UNSEEN = {"city": ["Lima"], "mark": ["no", "yes"]}


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_values_are_found_in_one_read_in_their_order(tmp_path, kind):
    source = open_rows(kind, tmp_path, categories={"city": ["-"], "mark": ["-"]})
    before = source.n_reads
    assert source.category_values(200) == {"city": ["Lima", "Oslo", "Århus"], "mark": ["no", "yes"]}
    assert source.n_reads == before + 1
    assert len(source.category_values(1)["city"]) > 1  # more than asked for, so the caller can say so


@pytest.mark.parametrize("chunk_rows", [None, 64])
@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_values_that_are_not_listed_become_rows_of_zeros(tmp_path, kind, chunk_rows):
    source = open_rows(kind, tmp_path, categories=UNSEEN, unknown="zeros", chunk_rows=chunk_rows)
    expected = np.column_stack([CITY == "Lima", AGE, MARK == "no", MARK == "yes"]).astype(float)
    np.testing.assert_array_equal(features_of(source), expected)
    strict = open_rows(kind, tmp_path, categories=UNSEEN)
    with pytest.raises(SourceError, match=r"Column 'city' has the value .*, not among \['Lima'\]"):
        features_of(strict)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_null_is_not_a_value_that_was_not_seen(tmp_path, kind):
    holed = CITY.astype(object)
    holed[1500] = None
    source = open_rows(kind, tmp_path, city=holed, categories=UNSEEN, unknown="zeros")
    with pytest.raises(SourceError, match=r"Column 'city' has a null; drop_missing=True leaves such rows out \(.*1\."):
        features_of(source)
    left = open_rows(kind, tmp_path, city=holed, categories=UNSEEN, unknown="zeros", drop_missing=True)
    assert features_of(left).shape == (N - 1, 4)
    assert left.category_values(200)["city"] == ["Lima", "Oslo", "Århus"]


def test_names_and_groups_follow_the_columns():
    coding = {"mark": ["no", "yes"], "city": ["Lima"]}
    columns = ("city", "age", "mark")
    assert coded_names(columns, coding) == ("city=Lima", "age", "mark=no", "mark=yes")
    assert coded_groups(columns, coding) == [[None, 0], [None, 2, 3]]
    with pytest.raises(ValueError, match='unknown must be "error" or "zeros"'):
        Columns("y", unknown="skip")


def test_one_hot_features_are_not_scaled():
    X = np.column_stack([AGE * 3.0 + 1.0, CITY == "Lima"]).astype(float)
    source = ArraySource(X, Y)
    found = features_of(Units.of(source, None, keep=[1]).rows(source))
    np.testing.assert_array_equal(found[:, 1], X[:, 1])
    np.testing.assert_allclose(found[:, 0], (X[:, 0] - X[:, 0].mean()) / X[:, 0].std(), rtol=1e-9)
