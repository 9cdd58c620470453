"""The model file: exact round trips, decisions of the estimator, nothing run on loading."""

import json
import pickle

import numpy as np
import pytest

from dualcore import Problem, WassersteinHuberRegressor, WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.cli.model import Model, ModelError, Scaling
from pairs import every_value


def make_data(n=200, m=4, classes=2, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, m)) * np.array([1.0, 10.0, 0.1, 3.0])[:m] + 5.0
    score = (X - 5.0) @ np.array([1.0, -0.1, 4.0, 0.2])[:m] + rng.normal(size=n)
    return X, np.digitize(score, np.quantile(score, np.arange(1, classes) / classes)), score


def saved(tmp_path, estimator, settings, scaling=None, m=4, **changes):
    arguments = {"feature_names": tuple(f"f{j}" for j in range(m)), "target": "t", "scaling": scaling} | changes
    Model.from_estimator(estimator, settings=settings, **arguments).save(tmp_path / "model.json")
    return Model.load(tmp_path / "model.json")


@every_value(classes=[2, 3], labels=["numbers", "text"], scaled=[False, True])
def test_a_classifier_decides_as_its_estimator(tmp_path, classes, labels, scaled):
    X, code, _ = make_data(classes=classes)
    y = code if labels == "numbers" else np.array(["low", "middle", "high"])[code]
    scaling = Scaling.fit(X) if scaled else None
    seen = X if scaling is None else scaling.apply(X)
    estimator = WassersteinLogisticRegression(radius=0.01, multi_class="ovr").fit(seen, y)
    model = saved(tmp_path, estimator, {"loss": "logistic", "radius": 0.01}, scaling)
    np.testing.assert_array_equal(model.predict(X), estimator.predict(seen))
    scores = estimator.decision_function(seen)
    np.testing.assert_array_equal(model.scores(X), scores[:, None] if classes == 2 else scores)
    assert model.classes == tuple(estimator.classes_.tolist())
    assert len(model.certificates) == (1 if classes == 2 else classes)
    assert model.certificates[0].upper == estimator.certificates_[0].upper


def test_a_regression_predicts_as_its_estimator(tmp_path):
    X, _, y = make_data()
    estimator = WassersteinHuberRegressor(radius=0.01, delta=0.5).fit(X, y)
    model = saved(tmp_path, estimator, {"loss": "huber", "radius": 0.01, "delta": 0.5})
    np.testing.assert_array_equal(model.predict(X), estimator.predict(X))
    assert model.classes is None
    assert model.problem.loss.delta == 0.5
    np.testing.assert_array_equal(model.encode(y), y)


def test_every_part_survives(tmp_path):
    X, y, _ = make_data()
    settings = {
        "loss": "hinge",
        "radius": 0.1,
        "norm": "l1",
        "label_cost": np.inf,
        "ridge": 1e-3,
        "fit_intercept": True,
    }
    estimator = WassersteinLinearSVC(radius=0.1, norm="l1", ridge=1e-3).fit(X, y)
    provenance = {"seed": 3, "data": "a.csv", "drop": ["b"]}
    model = saved(tmp_path, estimator, settings, Scaling(np.zeros(4), np.ones(4)), provenance=provenance)
    assert model.settings == settings
    assert model.provenance == provenance
    assert model.feature_names == ("f0", "f1", "f2", "f3")
    assert repr(model.problem) == repr(Problem(**settings))
    assert "Infinity" not in (tmp_path / "model.json").read_text()
    json.loads((tmp_path / "model.json").read_text(), parse_constant=pytest.fail)  # standard JSON, no NaN
    assert [path.name for path in tmp_path.iterdir()] == ["model.json"]


def test_scaling_leaves_constant_features_alone():
    X = np.array([[1.0, 7.0], [3.0, 7.0]])
    np.testing.assert_array_equal(Scaling.fit(X).apply(X), [[-1.0, 0.0], [1.0, 0.0]])


def test_wrong_data_are_refused(tmp_path):
    X, y, _ = make_data()
    model = saved(tmp_path, WassersteinLinearSVC().fit(X, y), {"loss": "hinge"})
    with pytest.raises(ModelError, match="takes 4 features, the data have 3"):
        model.predict(X[:, :3])
    with pytest.raises(ModelError, match=r"does not know: \[7\]"):
        model.encode(np.array([0, 7]))


class Evil:
    """Runs code where it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a model file ran code",))


def test_loading_runs_nothing(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(ModelError, match=r"model\.json is not a model file"):
        Model.load(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "other"}, "is not a model file written by dualcore fit"),
        ({"format": 9}, "has format 9"),
        ({"coef": [[1.0]]}, "coef has shape"),
        ({"coef": [[1.0, 2.0, 3.0, None]]}, "damaged model file"),
        ({"coef": [[1.0, 2.0, 3.0, "x"]]}, "damaged model file"),
        ({"intercept": [1.0, 2.0]}, "intercept has shape"),
        ({"scaling": {"centre": [0.0]}}, "damaged model file"),
        ({"problem": {"loss": "luck"}}, "unknown loss 'luck'"),
        ({"problem": {"loss": "huber"}}, "loss and classes do not fit"),
        ({"problem": {"loss": "hinge", "radius": -1.0}}, "radius must be finite"),
        ({"classes": None}, "loss and classes do not fit"),
        ({"certificates": [{}]}, "damaged model file"),
    ],
)
def test_damaged_files_are_refused(tmp_path, change, message):
    X, y, _ = make_data()
    saved(tmp_path, WassersteinLinearSVC().fit(X, y), {"loss": "hinge"})
    path = tmp_path / "model.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        Model.load(path)


def test_files_that_are_no_models_are_refused(tmp_path):
    with pytest.raises(ModelError, match="There is no file"):
        Model.load(tmp_path / "absent.json")
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ModelError, match="is not a model file"):
        Model.load(tmp_path / "list.json")
    with pytest.raises(ModelError, match="is not a model file"):
        Model.load(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    X, y, _ = make_data()
    model = saved(tmp_path, WassersteinLinearSVC().fit(X, y), {"loss": "hinge"})
    before = (tmp_path / "model.json").read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        model.save(tmp_path / "model.json")
    assert (tmp_path / "model.json").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1
