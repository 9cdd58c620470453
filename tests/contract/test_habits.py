"""What users of scikit-learn do with any estimator, done with ours: one row of the table for each habit."""

from __future__ import annotations

import copy
import io

import joblib
import numpy as np
import pytest
from sklearn import config_context
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, TransformedTargetRegressor, make_column_selector
from sklearn.ensemble import BaggingClassifier, StackingClassifier, StackingRegressor, VotingClassifier
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_predict, cross_validate, learning_curve
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import dualcore
from dualcore import WassersteinHuberRegressor, WassersteinLinearSVC, WassersteinLogisticRegression, find_categories

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

N = 150
RNG = np.random.default_rng(0)
FRAME = pd.DataFrame({"age": RNG.normal(size=N), "size": RNG.normal(size=N), "city": RNG.choice(["Bern", "Oslo"], N)})
SIGNAL = (FRAME["age"] + 2.0 * (FRAME["city"] == "Oslo") + 0.3 * RNG.normal(size=N)).to_numpy()
X, Y = FRAME[["age", "size"]].to_numpy(), np.where(SIGNAL > 1.0, "yes", "no")
THREE = np.digitize(SIGNAL, [0.0, 1.5])
GROUPS = np.arange(N) % 6
CLASSIFIER, REGRESSOR = WassersteinLogisticRegression(radius=0.01), WassersteinHuberRegressor(radius=0.01)
BOTH = [("a", CLASSIFIER), ("b", LogisticRegression())]
GRID = {"radius": [0.01, 0.1], "norm": ["l2", "linf"], "feature_weights": [None, "std"]}
CODING = WassersteinLogisticRegression(categories="from_dtype")


def _encoded():
    return ColumnTransformer(
        [
            ("numbers", StandardScaler(), make_column_selector(dtype_include="number")),
            ("texts", OneHotEncoder(), make_column_selector(dtype_exclude="number")),
        ]
    )


def _groups_of_an_encoder():
    coded = _encoded().fit(FRAME)
    model = WassersteinLogisticRegression(categories=find_categories(coded)).fit(coded.transform(FRAME), Y)
    return model.score(coded.transform(FRAME), Y)


def _set_output():
    steps = make_pipeline(StandardScaler(), clone(CLASSIFIER)).set_output(transform="pandas")
    steps.fit(FRAME[["age", "size"]], Y)
    assert list(steps[-1].feature_names_in_) == ["age", "size"]
    return steps.score(FRAME[["age", "size"]], Y)


def _routing():
    with config_context(enable_metadata_routing=True):
        model = clone(CLASSIFIER).set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
        found = cross_validate(model, X, Y, params={"sample_weight": np.ones(N)}, cv=3)
    return found["test_score"].mean()


def _joblib():
    buffer = io.BytesIO()
    joblib.dump(clone(CLASSIFIER).fit(X, Y), buffer)
    buffer.seek(0)
    return joblib.load(buffer).score(X, Y)


def _clone():
    model = WassersteinLinearSVC(radius=0.2, feature_weights="std", categories="from_dtype", callback=print)
    assert clone(model).get_params() == model.get_params()
    fitted = clone(CLASSIFIER).fit(X, Y)
    assert not hasattr(clone(fitted), "coef_")
    return copy.deepcopy(fitted).score(X, Y)


HABITS = {
    "clone": _clone,
    "joblib": _joblib,
    "pipeline": lambda: make_pipeline(StandardScaler(), clone(CLASSIFIER)).fit(X, Y).score(X, Y),
    "column transformer": lambda: make_pipeline(_encoded(), clone(CLASSIFIER)).fit(FRAME, Y).score(FRAME, Y),
    "groups of an encoder": _groups_of_an_encoder,
    "text in a pipeline": lambda: make_pipeline(FunctionTransformer(), clone(CODING)).fit(FRAME, Y).score(FRAME, Y),
    "polars in": lambda: clone(CODING).fit(pl.from_pandas(FRAME), Y).score(FRAME, Y),
    "set_output": _set_output,
    "routing": _routing,
    "grid search": lambda: GridSearchCV(clone(CLASSIFIER), GRID, cv=3).fit(X, Y).best_score_,
    "cross_val_predict": lambda: np.mean(cross_val_predict(clone(CLASSIFIER), X, Y, cv=3) == Y),
    "learning curve": lambda: learning_curve(clone(CLASSIFIER), X, Y, cv=3, train_sizes=[0.5, 1.0])[2].mean(),
    "calibration": lambda: CalibratedClassifierCV(WassersteinLinearSVC(), cv=3).fit(X, Y).score(X, Y),
    "stacking": lambda: StackingClassifier(BOTH, cv=3).fit(X, Y).score(X, Y),
    "stacking of regressors": lambda: (
        StackingRegressor([("a", clone(REGRESSOR)), ("b", Ridge())], cv=3).fit(X, SIGNAL).score(X, SIGNAL)
    ),
    "voting": lambda: VotingClassifier(BOTH, voting="soft").fit(X, Y).score(X, Y),
    "bagging": lambda: BaggingClassifier(clone(CLASSIFIER), 3, random_state=0).fit(X, Y).score(X, Y),
    "one against one": lambda: OneVsOneClassifier(WassersteinLinearSVC()).fit(X, THREE).score(X, THREE),
    "one against the rest": lambda: OneVsRestClassifier(clone(CLASSIFIER)).fit(X, THREE).score(X, THREE),
    "several targets": lambda: (
        MultiOutputRegressor(clone(REGRESSOR)).fit(X, np.c_[SIGNAL, X[:, 0]]).score(X, np.c_[SIGNAL, X[:, 0]])
    ),
    "transformed target": lambda: (
        TransformedTargetRegressor(clone(REGRESSOR), transformer=StandardScaler()).fit(X, SIGNAL).score(X, SIGNAL)
    ),
    "selection from a model": lambda: (
        make_pipeline(SelectFromModel(clone(CLASSIFIER)), LogisticRegression()).fit(X, Y).score(X, Y)
    ),
    "elimination": lambda: RFE(clone(CLASSIFIER), n_features_to_select=1).fit(X, Y).score(X, Y),
    "permutation importance": lambda: permutation_importance(
        clone(CLASSIFIER).fit(X, Y), X, Y, n_repeats=2, random_state=0
    ).importances_mean[0],
    "html": lambda: "radius" in make_pipeline(StandardScaler(), clone(CLASSIFIER)).fit(X, Y)._repr_html_(),
}


@pytest.mark.parametrize("habit", list(HABITS))
def test_a_habit_works(habit):
    assert HABITS[habit]() > 0.1


@pytest.mark.parametrize("name", [name for name in dualcore.__all__ if name.endswith("CV")])
def test_every_estimator_chooses_its_radius_with_groups(name):
    kind = getattr(dualcore, name)
    y = Y if hasattr(kind, "decision_function") else SIGNAL
    model = kind(radii=[0.01, 0.1, 50.0], cv=GroupKFold(3)).fit(X, y, groups=GROUPS)
    assert model.radius_ in (0.01, 0.1)
    assert model.scores_.shape == (3, 3)
    assert model.score(X, y) > 0.0
