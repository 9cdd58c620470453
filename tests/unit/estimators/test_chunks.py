"""Predictions and scores of paths and sources, chunk by chunk, as of rows in memory."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from dualcore import (
    ArraySource,
    WassersteinLogisticRegression,
    open_source,
)

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(900, 3)), columns=["a", "b", "c"])
    score = frame.a - frame.b + rng.normal(size=900)
    frame["clicked"] = np.where(score > 0, "yes", "no")
    frame["grade"] = np.digitize(score, [-1.0, 1.0])
    frame["amount"] = score
    frame["w"] = 1.0 + np.arange(900) % 3
    return frame


@pytest.fixture(scope="module")
def home(frame, tmp_path_factory):
    folder = tmp_path_factory.mktemp("chunks")
    frame.to_parquet(folder / "rows.parquet")
    frame[["w", "c", "clicked", "b", "grade", "a", "amount"]].to_csv(folder / "rows.csv", index=False)
    return folder


def test_sources_parts_numpy_and_svmlight_files_are_taken(frame, tmp_path):
    X, y = frame[["a", "b", "c"]].to_numpy(), frame["grade"].to_numpy() > 1
    model = WassersteinLogisticRegression(radius=0.01).fit(X, y.astype(int))
    expected = model.decision_function(X)
    np.save(tmp_path / "X.npy", X)
    dump_svmlight_file(X, y.astype(int), str(tmp_path / "rows.svm"))
    parts = [(X[:400], np.zeros(400)), (X[400:], np.zeros(500))]
    for data in (ArraySource(X, y * 2.0 - 1.0), tmp_path / "X.npy", tmp_path / "rows.svm", lambda: iter(parts)):
        np.testing.assert_allclose(model.decision_function(data), expected, rtol=1e-9, atol=1e-9)
    assert model.score(tmp_path / "rows.svm") == model.score(X, y.astype(int))


def test_what_cannot_be_told_is_said(frame, home):
    model = WassersteinLogisticRegression(radius=0.01).fit(frame[["a", "b", "c"]].to_numpy(), frame["clicked"])
    with pytest.raises(TypeError, match=r"trained on rows without names.*open_source\(path, target\)"):
        model.predict(home / "rows.csv")
    with pytest.raises(ValueError, match="was trained on 3"):
        model.predict(open_source(np.ones((4, 2)), np.ones(4)))
