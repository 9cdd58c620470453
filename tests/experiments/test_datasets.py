"""Loaders: the right rows, from a folder or from OpenML, and plain words when there are none."""

import gzip
import zipfile
from collections import Counter
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import (
    ENVIRONMENT_VARIABLE,
    Dataset,
    DatasetNotFoundError,
    load_adult,
    load_appliances_energy,
    load_letter,
    load_letter_authors,
    load_letter_pair,
    load_mnist,
    make_appliances_standin,
    make_letter_standin,
)
from pairs import every_value

FETCHED = {
    "letter": (load_letter, "letter_full.npz"),
    "mnist_784": (load_mnist, "mnist_idx"),
    "appliances_energy_prediction": (load_appliances_energy, "appliances_energy.npz"),
    "a9a": (load_adult, "a9a.npz"),
}


class FakeOpenML:
    """Stands in for scikit-learn's client: remembers the request, answers with a given bunch or error."""

    def __init__(self, answer):
        self.answer = answer
        self.requests = []

    def __call__(self, **request):
        self.requests.append(request)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture(autouse=True)
def no_data_folder(monkeypatch):
    """No test depends on the folder of whoever runs it, and none reaches the network."""
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(datasets, "fetch_openml", FakeOpenML(URLError("no network in tests")))


@pytest.fixture
def openml(monkeypatch):
    def answer_with(answer):
        client = FakeOpenML(answer)
        monkeypatch.setattr(datasets, "fetch_openml", client)
        return client

    return answer_with


def sorted_rows(X, y):
    return sorted(map(tuple, np.column_stack([np.round(X, 5), y]).tolist()))


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_letters(folder, n=60, seed=0):
    rng = np.random.default_rng(seed)
    X, y = rng.integers(0, 16, (n, 16), dtype=np.uint8), np.tile(np.array([24, 25, 0], np.uint8), n // 3)
    np.savez(folder / "letter_full.npz", X=X, y=y)
    return X, y


# The real files


def test_letter_has_all_rows_and_classes(shared_data):
    data = load_letter(shared_data)
    assert (data.X_train.shape, data.X_test.shape, data.source) == ((15000, 16), (5000, 16), "local")
    assert (data.X_train.min(), data.X_train.max()) == (0.0, 15.0)
    np.testing.assert_array_equal(np.unique(data.y_train), np.arange(26))
    np.testing.assert_array_equal(load_letter(shared_data, scaled=True).X_test, -1.0 + 2.0 * data.X_test / 15.0)


def test_letter_keeps_the_split_of_libsvm(shared_data):
    data = load_letter(shared_data)
    with np.load(shared_data / "letter_full.npz", allow_pickle=False) as stored:
        X, y, n_train = stored["X_libsvm_order"], stored["y_libsvm_order"], int(stored["n_libsvm_train"])
    assert sorted_rows(data.X_train, data.y_train) == sorted_rows(X[:n_train], y[:n_train])
    assert sorted_rows(data.X_test, data.y_test) == sorted_rows(X[n_train:], y[n_train:])


def test_letter_pair_is_the_clean_set_of_the_authors(shared_data):
    pair, authors = load_letter_pair(data_home=shared_data), load_letter_authors("clean", shared_data)
    assert (pair.X_train.shape, pair.X_test.shape) == ((1145, 16), (375, 16))
    assert sorted_rows(pair.X_train, pair.y_train) == sorted_rows(authors.X_train, authors.y_train)
    assert sorted_rows(pair.X_test, pair.y_test) == sorted_rows(authors.X_test, authors.y_test)
    assert not authors.contaminated.any()


def test_authors_alfa_changes_labels_only(shared_data):
    clean, alfa = load_letter_authors("clean", shared_data), load_letter_authors("alfa", shared_data)
    np.testing.assert_array_equal(clean.X_train, alfa.X_train)
    np.testing.assert_array_equal(clean.y_train != alfa.y_train, alfa.contaminated)
    assert alfa.contaminated.sum() == 114


def test_authors_minmax_adds_rows_before_the_clean_ones(shared_data):
    clean, minmax = load_letter_authors("clean", shared_data), load_letter_authors("minmax", shared_data)
    assert minmax.X_train.shape == (1260, 16)
    assert minmax.contaminated[:115].all()
    np.testing.assert_array_equal(minmax.X_train[~minmax.contaminated], clean.X_train)
    np.testing.assert_array_equal(minmax.y_train[~minmax.contaminated], clean.y_train)


def test_mnist_has_its_digits(shared_data):
    data = load_mnist(shared_data)
    assert (data.X_train.shape, data.X_test.shape, data.X_train.dtype) == ((60000, 784), (10000, 784), np.uint8)
    assert data.y_train[:5].tolist() == [5, 0, 4, 1, 9]
    assert (Counter(data.y_train.tolist())[3], Counter(data.y_test.tolist())[5]) == (6131, 892)


def test_appliances_energy_in_units_and_scaled(shared_data):
    raw = load_appliances_energy(shared_data, scaled=False, test_size=0.25, random_state=3)
    assert (raw.X_train.shape, raw.X_test.shape) == ((14801, 27), (4934, 27))
    y = np.concatenate([raw.y_train, raw.y_test])
    assert (y.min(), y.max()) == (10.0, 1080.0)
    columns = dict(zip(raw.feature_names, raw.X_train.T, strict=True))
    np.testing.assert_array_equal(columns["rv1"], columns["rv2"])
    scaled = load_appliances_energy(shared_data)
    assert (scaled.X_train.shape, scaled.X_test.shape) == ((9867, 27), (9868, 27))
    X = np.concatenate([scaled.X_train, scaled.X_test])
    np.testing.assert_array_equal((X.min(axis=0), X.max(axis=0)), (np.zeros(27), np.ones(27)))


def test_appliances_energy_reads_the_archive_of_uci_as_well(shared_data, tmp_path):
    (tmp_path / "energydata_complete.zip").write_bytes((shared_data / "energydata_complete.zip").read_bytes())
    archive, table = load_appliances_energy(tmp_path), load_appliances_energy(shared_data)
    np.testing.assert_array_equal(archive.X_train, table.X_train)
    np.testing.assert_array_equal(archive.y_test, table.y_test)


def test_adult_is_a9a(shared_data):
    data = load_adult(shared_data)
    assert (data.X_train.shape, data.X_test.shape) == ((32561, 123), (16281, 123))
    assert set(np.unique(data.X_train)) == {0.0, 1.0}
    assert (data.y_train == 1).mean() == pytest.approx(0.2408, abs=1e-4)


# Where the files are looked for


def test_idx_files_are_parsed_in_memory(tmp_path):
    folder = tmp_path / "mnist_idx"
    folder.mkdir()
    images = np.arange(3 * 784, dtype=np.uint64).astype(np.uint8).reshape(3, 28, 28)
    for part, rows in (("train", slice(0, 2)), ("t10k", slice(2, 3))):
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images[rows])
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", np.array([7, 1, 2], np.uint8)[rows])
    data = load_mnist(tmp_path, verify=False)
    np.testing.assert_array_equal(data.X_train, images.reshape(3, 784))
    np.testing.assert_array_equal(data.y_train, [7, 1, 2])
    write_idx(folder / "train-labels-idx1-ubyte.gz", np.zeros(2, np.uint8))
    content = gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes())
    for damaged in (content[:-1], b"\0\0\x0d\1" + content[4:]):
        (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(damaged))
        with pytest.raises(ValueError, match="not a whole IDX file"):
            load_mnist(tmp_path, verify=False)


# OpenML


@pytest.mark.parametrize("name", FETCHED)
def test_openml_is_asked_by_name_with_the_folder_as_cache(name, tmp_path, openml):
    load, _ = FETCHED[name]
    client = openml(URLError("unreachable"))
    with pytest.raises(DatasetNotFoundError):
        load(tmp_path)
    with pytest.raises(DatasetNotFoundError):
        load()
    assert [request["name"] for request in client.requests] == [name, name]
    assert [request["version"] for request in client.requests] == [1, 1]
    assert [request["data_home"] for request in client.requests] == [str(tmp_path), None]


@every_value(name=list(FETCHED), reason=[URLError("unreachable"), ValueError("no such data set")])
def test_the_error_says_how_to_get_the_data(name, reason, tmp_path, openml):
    load, file = FETCHED[name]
    openml(reason)
    with pytest.raises(FileNotFoundError) as caught:
        load(tmp_path)
    for word in (file, str(tmp_path), "data_home", ENVIRONMENT_VARIABLE, "OpenML", repr(name)):
        assert word in str(caught.value)
    assert caught.value.__cause__ is reason


def test_the_authors_files_are_nowhere_else(tmp_path, openml):
    client = openml(None)
    with pytest.raises(DatasetNotFoundError, match=r"no letter_authors\.npz in .*OpenML has no copy"):
        load_letter_authors(data_home=tmp_path)
    with pytest.raises(DatasetNotFoundError, match=f"no folder was named.*{ENVIRONMENT_VARIABLE}"):
        load_letter_authors()
    assert client.requests == []


def test_letter_from_openml_equals_the_local_copy(shared_data, openml):
    with np.load(shared_data / "letter_full.npz", allow_pickle=False) as stored:
        X, letters = stored["X"].astype(np.float64), np.array([chr(ord("A") + c) for c in stored["y"]], dtype=object)
    openml(SimpleNamespace(data=X, target=letters))
    fetched, local = load_letter_pair(), load_letter_pair(data_home=shared_data)
    assert (fetched.source, local.source) == ("openml", "local")
    np.testing.assert_array_equal(fetched.X_train, local.X_train)
    np.testing.assert_array_equal(fetched.y_test, local.y_test)


@pytest.mark.needs("pandas")
def test_appliances_energy_from_openml_takes_columns_by_name_and_forgives_rounding(shared_data, openml):
    import pandas

    with np.load(shared_data / "appliances_energy.npz", allow_pickle=False) as stored:
        frame = pandas.DataFrame(stored["X"].round(8), columns=stored["feature_names"])
        frame["Appliances"], frame["date"] = stored["y"], stored["date"]
    openml(SimpleNamespace(frame=frame[frame.columns[::-1]]))
    fetched, local = load_appliances_energy(), load_appliances_energy(shared_data)
    np.testing.assert_allclose(fetched.X_train, local.X_train, atol=1e-8)
    np.testing.assert_array_equal(fetched.y_train, local.y_train)
    openml(SimpleNamespace(frame=frame.drop(columns="T_out")))
    with pytest.raises(DatasetNotFoundError, match="T_out"):
        load_appliances_energy()


# Damaged copies


def test_a_changed_copy_is_refused(tmp_path):
    write_letters(tmp_path)
    with pytest.raises(ValueError, match=r"local copy.*SHA-256.*replace it"):
        load_letter(tmp_path)


def test_one_changed_number_is_noticed(shared_data, tmp_path):
    with np.load(shared_data / "letter_authors.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    np.savez(tmp_path / "letter_authors.npz", **arrays)
    assert load_letter_authors("alfa", tmp_path).contaminated.sum() == 114
    arrays["X_mm"][7, 3] = np.nextafter(arrays["X_mm"][7, 3], 2.0)
    np.savez(tmp_path / "letter_authors.npz", **arrays)
    with pytest.raises(ValueError, match="SHA-256"):
        load_letter_authors("alfa", tmp_path)


@pytest.mark.parametrize("damage", ["cut short", "array missing", "objects inside", "not an archive"])
def test_an_unreadable_copy_is_named(damage, tmp_path):
    path = tmp_path / "letter_full.npz"
    write_letters(tmp_path)
    if damage == "cut short":
        path.write_bytes(path.read_bytes()[:200])
    elif damage == "array missing":
        np.savez(path, X=np.zeros((2, 16)))
    elif damage == "objects inside":
        np.savez(path, X=np.array([{}], dtype=object), y=np.zeros(1))
    else:
        path.write_text("not an archive")
    with pytest.raises(ValueError, match=r"letter_full\.npz cannot be read"):
        load_letter(tmp_path, verify=False)


def test_an_archive_without_the_table_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "energydata_complete.zip", "w") as archive:
        archive.writestr("another.csv", "a,b\n")
    with pytest.raises(ValueError, match=r"energydata_complete\.zip cannot be read"):
        load_appliances_energy(tmp_path)


# Arguments and stand-ins


def test_wrong_arguments_are_explained():
    for call, words in [
        (lambda: load_letter_pair("y", "Z"), "'A' to 'Z', got 'y'"),
        (lambda: load_letter_pair("Y", 25), "'A' to 'Z', got 25"),
        (lambda: load_letter_authors("minimax"), "one of .*'minmax'.*got 'minimax'"),
        (lambda: load_appliances_energy(test_size=1.0), "strictly between 0 and 1, got 1.0"),
    ]:
        with pytest.raises(ValueError, match=words):
            call()


def test_a_pair_needs_two_classes(tmp_path):
    write_letters(tmp_path)
    with pytest.raises(ValueError, match="two different classes, got YY"):
        load_letter_pair("Y", "Y", tmp_path, verify=False)


@pytest.mark.parametrize("make", [make_letter_standin, make_appliances_standin])
def test_standins_are_small_repeatable_and_named_so(make):
    data, again, other = make(50, 20), make(50, 20), make(50, 20, seed=1)
    assert isinstance(data, Dataset)
    assert (len(data.X_train), len(data.y_train), len(data.X_test), len(data.y_test)) == (50, 50, 20, 20)
    assert data.source == "generated"
    assert "stand-in" in data.name
    assert np.abs(data.X_train).max() <= 1.0
    np.testing.assert_array_equal(data.X_train, again.X_train)
    np.testing.assert_array_equal(data.y_test, again.y_test)
    assert not np.array_equal(data.X_train, other.X_train)
