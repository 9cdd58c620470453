"""Commands on rows that are streamed from Parquet: the same files come out as from rows in memory."""

import json

import numpy as np
import pytest

import dualcore
from command_line import call
from dualcore import Coreset, DualCoreset, WassersteinLogisticRegression
from pairs import every_value

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """A folder of three Parquet files, one file of the same rows, and the arrays."""
    folder = tmp_path_factory.mktemp("stream")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(3000, 3)) * [1.0, 20.0, 0.1] + [50.0, 0.0, 1.0]
    score = (X - [50.0, 0.0, 1.0]) @ [1.0, -0.1, 5.0]
    labels = np.where(score + rng.logistic(size=3000) > 0, "sick", "well")
    columns = {f"x{j}": X[:, j] for j in range(3)} | {"target": score + rng.normal(size=3000)}
    columns |= {"label": labels, "digit": (labels == "well").astype(np.int64), "w": 1.0 + np.arange(3000) % 3}
    table = pa.table(columns)
    pq.write_table(table, folder / "rows.parquet", row_group_size=400)
    (folder / "rows").mkdir()
    for number in range(3):
        pq.write_table(table.slice(1000 * number, 1000), folder / "rows" / f"{number}.parquet")
    return folder, X, labels


def drop(*kept):
    names = [name for name in ("label", "digit", "target", "w") if name not in kept]
    return [option for name in names for option in ("--drop", name)]


@every_value(name=["rows", "rows/*.parquet"], target=["label", "digit"], scaled=[False, True])
def test_a_model_is_fitted_and_certified_from_a_stream(rows, tmp_path, name, target, scaled, monkeypatch):
    folder, X, labels = rows
    options = ("--radius", 0.05, "--coreset", 0.1, "--seed", 3, *drop(target), *(["--standardize"] if scaled else []))
    code, out, errors = call("fit", folder / name, "-t", target, *options, "--out", tmp_path / "m.json", "--json")
    assert (code, errors) == (0, "")
    told = json.loads(out)
    assert (told["rows"], told["coreset_rows"]) == (3000, 300)
    assert told["classes"] == (["sick", "well"] if target == "label" else [0, 1])
    sampler = DualCoreset(size=0.1, rounds=4, target_gap=1e-3, random_state=3)
    prices = {"feature_weights": "std" if scaled else None}
    estimator = WassersteinLogisticRegression(radius=0.05, coreset=sampler, random_state=3, **prices).fit(X, labels)
    model = dualcore.load(tmp_path / "m.json")
    np.testing.assert_allclose(model.coef_, estimator.coef_, rtol=1e-9)
    assert list(model.feature_names_in_) == ["x0", "x1", "x2"]
    assert len(model.notes_["sha256"]) == 64
    # Certified by reading, as by loading.
    known = json.loads(call("certify", tmp_path / "m.json", folder / "rows.parquet", "--json")[1])
    monkeypatch.setattr("dualcore.estimators.reader.is_small", lambda source: False)
    code, out, errors = call("certify", tmp_path / "m.json", folder / name, "--json")
    assert (code, errors) == (0, "")
    read = json.loads(out)
    assert read["accuracy"] == known["accuracy"]
    one, other = read["certificates"][0], known["certificates"][0]
    assert one["worst_case_risk"] == pytest.approx(other["worst_case_risk"], rel=1e-12)
    assert one["lower_bound"] <= one["worst_case_risk"]
    assert one["relative_gap"] < 1e-3


def test_weights_regression_coresets_and_paths_are_streamed(rows, tmp_path):
    folder, _, _ = rows
    options = ("--loss", "huber", "--coreset", 0.2, *drop("target", "w"), "--weight", "w")
    assert call("fit", folder / "rows", "-t", "target", *options, "--out", tmp_path / "m.json", "--quiet")[0] == 0
    options = ("--size", 200, *drop("label"))
    assert call("coreset", folder / "rows", "-t", "label", *options, "--out", tmp_path / "c.npz")[0] == 0
    assert call("coreset", folder / "rows.parquet", "-t", "label", *options, "--out", tmp_path / "d.npz")[0] == 0
    one, other = Coreset.load(tmp_path / "c.npz"), Coreset.load(tmp_path / "d.npz")
    np.testing.assert_array_equal(one.indices, other.indices)
    np.testing.assert_allclose(one.weights, other.weights, rtol=1e-12)
    options = ("--coreset", 0.2, "--radii", "0.01:0.1:3", "--suggest", *drop("label"), "--json", "--quiet")
    code, out, _ = call("path", folder / "rows", "-t", "label", *options)
    assert code == 0
    assert json.loads(out)["classes"] == ["sick", "well"]
    assert max(point["relative_gap"] for point in json.loads(out)["points"]) < 1e-2


def test_a_stream_refuses_other_rows(rows, tmp_path):
    state, file = tmp_path / "state.npz", rows[0] / "rows.parquet"
    assert call("stream", file, "-t", "label", *drop("label"), "--state", state)[0] == 0
    for target, options, expected, message in (
        ("digit", ("--state", state), 3, "The target is 'digit', that of the rows before was 'label'"),
        ("label", ("--state", state, "--radius", 0.5), 3, "is about Problem"),
        ("label", (), 2, "--state"),
        ("label", ("--state", state, "--size", 7), 2, "--size 5000"),
        ("label", ("--state", state, "--drop", "x1"), 2, "the columns x0, x2; the rows before had x0, x1, x2"),
    ):
        code, _, errors = call("stream", file, "-t", target, *drop(target), *options)
        assert code == expected
        assert message in " ".join(errors.split())
