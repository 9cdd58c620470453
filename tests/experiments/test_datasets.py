"""Loaders: the right rows, from a folder or from OpenML, and plain words when there are none."""

import gzip
from types import SimpleNamespace
from urllib.error import URLError

import numpy as np
import pytest

from experiments import datasets
from experiments.datasets import ENVIRONMENT_VARIABLE, DatasetNotFoundError

FETCHED = {
    "letter": (datasets.load_letter, "letter_full.npz"),
    "mnist_784": (datasets.load_mnist, "mnist_idx"),
    "appliances_energy_prediction": (datasets.load_appliances_energy, "appliances_energy.npz"),
    "a9a": (datasets.load_adult, "a9a.npz"),
}


@pytest.fixture(autouse=True)
def openml(monkeypatch):
    """Stand in for scikit-learn's client, so that no test reaches the network: a given answer, requests remembered."""
    client = SimpleNamespace(answer=URLError("no network in tests"), requests=[])

    def fetch(**request):
        client.requests.append(request)
        if isinstance(client.answer, Exception):
            raise client.answer
        return client.answer

    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    monkeypatch.setattr(datasets, "fetch_openml", fetch)
    return client


def sorted_rows(X, y):
    return sorted(map(tuple, np.column_stack([np.round(X, 5), y]).tolist()))


def shapes(data):
    return data.X_train.shape, data.X_test.shape


def test_letter_is_whole_and_keeps_the_split_of_libsvm(shared_data):
    data = datasets.load_letter(shared_data)
    assert shapes(data) == ((15000, 16), (5000, 16))
    np.testing.assert_array_equal(
        datasets.load_letter(shared_data, scaled=True).X_test, -1.0 + 2.0 * data.X_test / 15.0
    )
    with np.load(shared_data / "letter_full.npz", allow_pickle=False) as stored:
        X, y, n_train = stored["X_libsvm_order"], stored["y_libsvm_order"], int(stored["n_libsvm_train"])
    assert sorted_rows(data.X_train, data.y_train) == sorted_rows(X[:n_train], y[:n_train])
    assert sorted_rows(data.X_test, data.y_test) == sorted_rows(X[n_train:], y[n_train:])


def test_the_authors_files_are_the_letter_pair_and_two_attacks_on_it(shared_data):
    pair = datasets.load_letter_pair(data_home=shared_data)
    clean, alfa, minmax = (datasets.load_letter_authors(name, shared_data) for name in ("clean", "alfa", "minmax"))
    assert shapes(pair) == ((1145, 16), (375, 16))
    assert sorted_rows(pair.X_train, pair.y_train) == sorted_rows(clean.X_train, clean.y_train)
    assert sorted_rows(pair.X_test, pair.y_test) == sorted_rows(clean.X_test, clean.y_test)
    np.testing.assert_array_equal(clean.X_train, alfa.X_train)
    np.testing.assert_array_equal(clean.y_train != alfa.y_train, alfa.contaminated)
    np.testing.assert_array_equal(minmax.X_train[~minmax.contaminated], clean.X_train)
    np.testing.assert_array_equal(minmax.y_train[~minmax.contaminated], clean.y_train)
    assert [data.contaminated.sum() for data in (clean, alfa, minmax)] == [0, 114, 115]


def test_mnist_and_adult_are_whole(shared_data):
    mnist, adult = datasets.load_mnist(shared_data), datasets.load_adult(shared_data)
    assert (*shapes(mnist), mnist.X_train.dtype) == ((60000, 784), (10000, 784), np.uint8)
    assert (mnist.y_train[:5].tolist(), (mnist.y_test == 5).sum()) == ([5, 0, 4, 1, 9], 892)
    assert (shapes(adult), (adult.y_train == 1).sum()) == (((32561, 123), (16281, 123)), 7841)


def test_appliances_energy_in_units_and_scaled_from_either_file(shared_data, tmp_path):
    raw = datasets.load_appliances_energy(shared_data, scaled=False, test_size=0.25, random_state=3)
    assert shapes(raw) == ((14801, 27), (4934, 27))
    assert (max(raw.y_train.max(), raw.y_test.max()), raw.feature_names[-1]) == (1080.0, "rv2")
    (tmp_path / "energydata_complete.zip").write_bytes((shared_data / "energydata_complete.zip").read_bytes())
    archive, scaled = datasets.load_appliances_energy(tmp_path), datasets.load_appliances_energy(shared_data)
    X = np.concatenate([scaled.X_train, scaled.X_test])
    np.testing.assert_array_equal((X.min(axis=0), X.max(axis=0)), (np.zeros(27), np.ones(27)))
    np.testing.assert_array_equal(archive.X_train, scaled.X_train)
    np.testing.assert_array_equal(archive.y_test, scaled.y_test)


def test_idx_files_are_parsed_and_damaged_ones_refused(tmp_path):
    def write(name, array, header=b"\0\0\x08", cut=None):
        sizes = bytes([array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
        (tmp_path / "mnist_idx" / name).write_bytes(gzip.compress((header + sizes + array.tobytes())[:cut]))

    (tmp_path / "mnist_idx").mkdir()
    images, labels = np.arange(2 * 784).astype(np.uint8).reshape(2, 28, 28), np.array([7, 1], np.uint8)
    for part in ("train", "t10k"):
        write(f"{part}-images-idx3-ubyte.gz", images)
        write(f"{part}-labels-idx1-ubyte.gz", labels)
    data = datasets.load_mnist(tmp_path, verify=False)
    np.testing.assert_array_equal(data.X_train[:2], images.reshape(2, 784))
    np.testing.assert_array_equal(data.y_train[:2], labels)
    for damage in ({"cut": -1}, {"header": b"\0\0\x0d"}):
        write("train-labels-idx1-ubyte.gz", labels, **damage)
        with pytest.raises(ValueError, match="not a whole IDX file"):
            datasets.load_mnist(tmp_path, verify=False)


@pytest.mark.parametrize("name", FETCHED)
def test_openml_is_asked_by_name_and_the_error_says_how_to_get_the_data(name, tmp_path, openml):
    load, file = FETCHED[name]
    with pytest.raises(DatasetNotFoundError) as caught:
        load(tmp_path)
    for word in (file, str(tmp_path), "data_home", ENVIRONMENT_VARIABLE, "OpenML", repr(name)):
        assert word in str(caught.value)
    assert caught.value.__cause__ is openml.answer
    openml.answer = ValueError("no such data set")
    with pytest.raises(DatasetNotFoundError, match=r"no folder was named.*no such data set"):
        load()
    asked = [(request["name"], request["version"], request["data_home"]) for request in openml.requests]
    assert asked == [(name, 1, str(tmp_path)), (name, 1, None)]


def test_one_changed_number_is_noticed(shared_data, tmp_path):
    with np.load(shared_data / "letter_authors.npz", allow_pickle=False) as stored:
        arrays = dict(stored)
    arrays["X_mm"][7, 3] = np.nextafter(arrays["X_mm"][7, 3], 2.0)
    np.savez(tmp_path / "letter_authors.npz", **arrays)
    with pytest.raises(ValueError, match=r"local copy.*SHA-256.*replace it"):
        datasets.load_letter_authors("alfa", tmp_path)


def test_an_unreadable_copy_and_wrong_arguments_are_named(tmp_path):
    path = tmp_path / "letter_full.npz"
    X = np.random.default_rng(0).integers(0, 16, (60, 16), dtype=np.uint8)
    np.savez(path, X=X, y=np.tile(np.array([24, 25, 0], np.uint8), 20))
    with pytest.raises(ValueError, match="two different classes, got YY"):
        datasets.load_letter_pair("Y", "Y", tmp_path, verify=False)
    with pytest.raises(ValueError, match=r"one of .*'minmax'.*got 'minimax'"):
        datasets.load_letter_authors("minimax")
    for damaged in (path.read_bytes()[:200], b"not an archive", {"X": np.zeros((2, 16))}, {"X": np.array([{}])}):
        if isinstance(damaged, bytes):
            path.write_bytes(damaged)
        else:
            np.savez(path, **damaged)
        with pytest.raises(ValueError, match=r"letter_full\.npz cannot be read"):
            datasets.load_letter(tmp_path, verify=False)
