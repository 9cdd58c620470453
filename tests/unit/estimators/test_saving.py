"""The model file: everything that predicts or explains comes back, and a damaged file is refused."""

from __future__ import annotations

import copy
import json
import math

import numpy as np
import pytest
import scipy.sparse as sp

import dualcore
from dualcore import DualCoreset, WassersteinHuberRegressor, WassersteinLinearSVC, WassersteinLogisticRegression, load
from dualcore.estimators.saving import ModelFileError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(120, 3)) * [1.0, 10.0, 0.1]
SIGNAL = X @ [1.0, 0.1, 3.0] + 0.3 * RNG.normal(size=120)
BINARY, THREE = np.where(SIGNAL > 0.0, "yes", "no"), np.digitize(SIGNAL, [-0.5, 0.5])
MODELS = {
    "logistic": (WassersteinLogisticRegression(label_cost=2.0, class_weight={"yes": 2.0, "no": 1.0}), BINARY),
    "softmax": (WassersteinLogisticRegression(ridge=0.1, feature_weights="std"), THREE),
    "against the rest": (WassersteinLinearSVC(norm="linf", feature_weights=[1.0, 0.1, np.inf], ridge=0.1), THREE),
    "truth": (WassersteinLinearSVC(loss="squared_hinge"), SIGNAL > 0.0),
    "huber": (WassersteinHuberRegressor(delta=0.7, feature_weights="std", ridge=0.2), SIGNAL),
    "box": (dualcore.WassersteinQuantileRegressor(quantile=0.8, support=(-50.0, [50.0, 80.0, 9.0]), norm="l1"), SIGNAL),
    "power": (dualcore.WassersteinLinearRegression(power=1.5), SIGNAL),
    "coreset": (dualcore.WassersteinLinearSVR(coreset=DualCoreset(size=60, rounds=2), random_state=3), SIGNAL),
    "chosen": (dualcore.WassersteinHuberRegressorCV(radii=[0.01, 0.1], cv=2), SIGNAL),
}


def same(first, second):
    """Whether two values are the same to the last bit."""
    if isinstance(first, np.ndarray) or sp.issparse(first):
        return np.array_equal(np.asarray(first), np.asarray(second))
    if isinstance(first, list):
        return len(first) == len(second) and all(same(one, other) for one, other in zip(first, second, strict=True))
    if hasattr(first, "__dataclass_fields__"):
        names = [name for name in first.__dataclass_fields__ if name not in ("problem", "dual")]
        return all(same(getattr(first, name), getattr(second, name)) for name in names)
    return first == second


@pytest.mark.parametrize("name", list(MODELS))
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_everything_that_predicts_or_explains_comes_back(tmp_path, name):
    estimator, y = MODELS[name]
    model = copy.deepcopy(estimator).fit(X, y)
    model.save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert type(again) is type(model)
    learned = [attribute for attribute in vars(model) if attribute.endswith("_")]
    assert [attribute for attribute in learned if not same(getattr(model, attribute), getattr(again, attribute))] == []
    assert type(again.intercept_) is type(model.intercept_)
    assert again.problem_ == model.problem_
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.worst_case_risk(X, y) == model.worst_case_risk(X, y)
    assert again.certify(X, y) == model.certify(X, y)
    assert str(again.get_params()["norm"]) == str(model.get_params()["norm"])
    again.fit(X, y)
    np.testing.assert_allclose(again.coef_, model.coef_, rtol=1e-6)


def test_parameters_that_cannot_be_written_take_their_defaults(tmp_path):
    model = WassersteinHuberRegressor(callback=print, random_state=np.random.RandomState(0), radius=0.3)
    with pytest.raises(ModelFileError, match="fit it first"):
        model.save(tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()
    model.fit(X, SIGNAL).save(tmp_path / "model.json")
    again = load(tmp_path / "model.json")
    assert (again.callback, again.random_state, again.radius) == (None, None, 0.3)


def _set(*keys, value):
    def damage(content):
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return damage


DAMAGES = {
    "other kind": (_set("kind", value="something"), "not a model file"),
    "other format": (_set("format", value=99), "format 99"),
    "unknown estimator": (_set("estimator", value="os.system"), "damaged"),
    "coef NaN": (_set("learned", "coef_", "array", 0, 1, value={"float": "nan"}), "damaged"),
    "no digest": (lambda content: content.pop("digest"), "damaged"),
    "empty": (lambda content: content.clear(), "not a model file"),
}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.json"
    WassersteinLogisticRegression(feature_weights="std").fit(X, BINARY).save(path)
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_a_damaged_file_is_refused(tmp_path, written, damage):
    change, text = DAMAGES[damage]
    content = copy.deepcopy(written)
    change(content)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(ModelFileError, match=rf"model\.json.*{text}"):
        load(path)


def test_what_is_no_json_is_refused(tmp_path):
    path = tmp_path / "model.json"
    with pytest.raises(ModelFileError, match="There is no file"):
        load(path)
    for text in ("", "{", "[]", "null", '{"kind": NaN}', "\x00\xff"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ModelFileError, match=r"model\.json"):
            load(path)


def test_infinite_numbers_are_written_as_text(tmp_path):
    model = WassersteinLinearSVC(label_cost=math.inf, support=(-math.inf, 90.0), norm="l1").fit(X, BINARY)
    model.save(tmp_path / "model.json")
    assert "Infinity" not in (tmp_path / "model.json").read_text(encoding="utf-8")
    assert load(tmp_path / "model.json").support == (-math.inf, 90.0)
