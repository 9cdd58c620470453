"""Rows that the tests of the commands share."""

import numpy as np
import pytest

from command_line import DROP, NAMES, call
from dualcore.cli.outcome import as_csv


@pytest.fixture(autouse=True)
def _no_line_now_and_then(monkeypatch):
    """However long a command takes here, what it writes to standard error is not progress."""
    monkeypatch.setattr("dualcore.cli.progress._EVERY", np.inf)


@pytest.fixture(scope="module")
def many_rows(tmp_path_factory):
    """An npz file of more rows than a working sample has."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30_000, 3))
    path = tmp_path_factory.mktemp("many") / "rows.npz"
    np.savez(path, X=X, y=np.where(X[:, 0] + rng.logistic(size=30_000) > 0, 1.0, -1.0))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A CSV file with three features, labels, targets, weights and a column of words; and its arrays."""
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 3)) * [1.0, 20.0, 0.1] + [50.0, 0.0, 1.0]
    score = (X - [50.0, 0.0, 1.0]) @ [1.0, -0.1, 5.0]
    labels = np.where(score + rng.logistic(size=800) > 0, "sick", "well")
    target = score + rng.normal(size=800)
    grade = np.digitize(target, [-1.0, 1.0])
    columns = {name: X[:, j].tolist() for j, name in enumerate(NAMES)}
    columns |= {"label": labels.tolist(), "target": target.tolist(), "grade": grade.tolist()}
    columns |= {"word": ["a" if k % 2 else "b" for k in range(800)], "weight": (1.0 + np.arange(800) % 3).tolist()}
    (folder / "rows.csv").write_text(as_csv(columns))
    return folder / "rows.csv", X, labels, target, grade, np.array(columns["weight"])


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    """The file of a model of the labels."""
    out = tmp_path_factory.mktemp("model") / "model.json"
    assert call("fit", data[0], "--target", "label", *DROP, "--out", out)[0] == 0
    return out
