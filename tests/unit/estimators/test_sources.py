"""Estimators trained from sources: the model of the array, whatever holds the rows."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file

from dualcore import (
    Problem,
    SourceError,
    UniformCoreset,
    WassersteinHuberRegressor,
    WassersteinHuberRegressorCV,
    WassersteinLinearRegressionCV,
    WassersteinLinearSVC,
    WassersteinLogisticRegression,
    WassersteinLogisticRegressionCV,
    open_source,
    select_radius,
    solve,
    suggest_radius,
)
from dualcore.coresets.radii import radius_grid
from dualcore.data.keys import seed_from
from dualcore.data.sources import ArraySource, PartsSource, TransformedSource
from dualcore.data.sources.transform import Folds
from estimator_cases import CHOOSERS, is_classifier
from expected import warns_of_radius
from pairs import every_value
from source_kinds import KINDS, every_kind, make_table, spans, write_parquet

N, M = 3000, 4


def classifier(**settings):
    return WassersteinLogisticRegression(radius=0.05, coreset=0.1, random_state=0, **settings)


@pytest.fixture(scope="module")
def tables():
    return {
        (weighted, labels): make_table(N, M, weighted=weighted, classification=labels)
        for weighted in (False, True)
        for labels in (False, True)
    }


@every_value(every_kind, weighted=[False, True])
def test_a_classifier_is_the_same_from_every_source(kind, weighted, tables, tmp_path):
    table = tables[weighted, True]
    whole = classifier().fit(table.X, table.y, sample_weight=table.weights)
    source = KINDS[kind](table, tmp_path)
    model = classifier().fit(source)
    np.testing.assert_array_equal(model.coreset_.indices, whole.coreset_.indices)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(model.intercept_, whole.intercept_, rtol=1e-12, atol=1e-14)
    assert model.certificate_.upper == pytest.approx(whole.certificate_.upper, rel=1e-12)
    assert model.n_features_in_ == M
    np.testing.assert_array_equal(model.classes_, [-1, 1])
    assert model.worst_case_risk(source) == pytest.approx(model.worst_case_risk_, rel=1e-12)


def test_predictions_are_made_from_sources_parts_numpy_and_svmlight_files(tables, tmp_path):
    X, y = tables[False, True].X.astype(np.float64), tables[False, True].y
    model = WassersteinLogisticRegression(radius=0.01).fit(X, y)
    np.save(tmp_path / "X.npy", X)
    dump_svmlight_file(X, y, str(tmp_path / "rows.svm"))
    parts = [(X[:400], np.zeros(400)), (X[400:], np.zeros(N - 400))]
    for data in (ArraySource(X, y), tmp_path / "X.npy", tmp_path / "rows.svm", lambda: iter(parts)):
        np.testing.assert_allclose(model.decision_function(data), model.decision_function(X), rtol=1e-9, atol=1e-9)
    assert model.score(tmp_path / "rows.svm") == model.score(X, y)
    (tmp_path / "rows.csv").write_text("a,b,c,d\n1,2,3,4\n")
    with pytest.raises(TypeError, match=r"trained on rows without names.*open_source\(path, target\)"):
        model.predict(tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="was trained on 4"):
        model.predict(open_source(np.ones((4, 2)), np.ones(4)))


@every_value(labels=[(0, 1), (3, 7)], weighted=[False, True])
def test_any_two_numbers_are_labels(labels, weighted, tables):
    table, calls = tables[weighted, True], []
    y = np.where(table.y > 0, labels[1], labels[0])

    def parts():
        calls.append(1)
        for start, stop in spans(N, 700):
            weights = () if table.weights is None else (table.weights[start:stop],)
            yield table.X[start:stop], y[start:stop], *weights

    whole = classifier().fit(table.X, y, sample_weight=table.weights)
    model = classifier().fit(parts)
    # Every read counts, that which finds rows and classes too; opening looks at the first part only.
    assert model.certificate_.n_reads == len(calls) - 1
    np.testing.assert_array_equal(model.classes_, labels)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(table.X[:50]), whole.predict(table.X[:50]))
    assert model.worst_case_risk(parts) == pytest.approx(whole.worst_case_risk(table.X, y, table.weights), rel=1e-12)


@every_value(class_weight=["balanced", {-1: 3.0}], weighted=[False, True])
def test_class_weights_reach_the_rows_of_a_source(class_weight, weighted, tables, tmp_path):
    table = tables[weighted, True]
    settings = {"radius": 0.05, "coreset": UniformCoreset(size=0.2), "random_state": 0, "class_weight": class_weight}
    whole = WassersteinLinearSVC(**settings).fit(table.X, table.y, sample_weight=table.weights)
    source = KINDS["parts"](table, tmp_path)
    model = WassersteinLinearSVC(**settings).fit(source)
    np.testing.assert_allclose(model.class_weight_, whole.class_weight_, rtol=1e-12)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-6, atol=1e-8)
    assert model.worst_case_risk(source) == pytest.approx(model.worst_case_risk_, rel=1e-12)


@every_value(
    pytest.mark.parametrize(
        "problem", [Problem("logistic"), Problem("hinge", norm="l1", support=(-9.0, 9.0))], ids=["closed", "box"]
    ),
    weighted=[False, True],
    coreset=[None, 60],
)
def test_every_source_gives_the_same_folds_and_scores(problem, coreset, weighted, tables, tmp_path):
    table = tables[weighted, True]
    radii = [0.01, 0.1]
    here = ArraySource(table.X, table.y, table.weights)
    expected = select_radius(problem, here, None, radii, 3, coreset, random_state=0)
    assert expected.scores.shape == (2, 3)
    for kind in ("parts", "parquet"):
        found = select_radius(problem, KINDS[kind](table, tmp_path), None, radii, 3, coreset, random_state=0)
        np.testing.assert_array_equal(found.scores, expected.scores)


def test_scores_of_a_fold_are_those_of_its_rows(tables):
    table = tables[True, True]
    source, problem, folds = ArraySource(table.X, table.y, table.weights), Problem("logistic"), 4
    found = select_radius(problem, source, None, [0.05], folds, scoring="error", random_state=3)
    of = Folds(folds, seed_from(3, 3)).of(0, len(table.y))
    for fold in range(folds):
        kept = of != fold
        model = solve(problem.replace(radius=0.05), table.X[kept], table.y[kept], table.weights[kept])
        wrong = np.sign(table.X[~kept] @ model.coef + model.intercept) != table.y[~kept]
        assert found.scores[0, fold] == pytest.approx(np.average(wrong, weights=table.weights[~kept]), rel=1e-9)


def test_a_source_suggests_the_radius_of_its_rows(tables, tmp_path):
    table = tables[False, True]
    known = suggest_radius(Problem("logistic"), table.X, table.y, random_state=0)
    for coreset in (None, 100):
        source = KINDS["parts"](table, tmp_path)
        found = suggest_radius(Problem("logistic"), source, None, coreset=coreset, random_state=0)
        assert found == pytest.approx(known, rel=1e-12 if coreset is None else 0.05)


@pytest.mark.parametrize("multi_class", ["ovr", "multinomial"])
def test_a_radius_is_chosen_from_a_source_of_many_classes(multi_class, tables):
    X = tables[False, True].X
    y = np.array([2.0, 5.0, 9.0])[np.argmax(X[:, :3], axis=1)]
    source = PartsSource(lambda: [(X[:50], y[:50]), (X[50:], y[50:])])
    model = WassersteinLogisticRegressionCV(radii=3, cv=3, multi_class=multi_class, random_state=0).fit(source)
    assert model.scores_.shape == (3, 3)
    assert model.radius_ < model.radii_[-1]
    np.testing.assert_array_equal(model.classes_, [2, 5, 9])
    plain = WassersteinLogisticRegression(radius=model.radius_, multi_class=multi_class).fit(X, y)
    np.testing.assert_allclose(model.coef_, plain.coef_, rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(model.worst_case_risk(source), model.worst_case_risk(X, y), rtol=1e-9)


@warns_of_radius
@pytest.mark.parametrize(("cls", "few"), [*((cls, True) for cls in CHOOSERS), (WassersteinLinearRegressionCV, False)])
def test_the_same_rows_give_the_same_radius_wherever_they_are(cls, few, tmp_path, monkeypatch):
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(5)
    frame = pd.DataFrame(rng.normal(size=(240, 3)), columns=["a", "b", "c"])
    score = frame.a - frame.b + rng.normal(size=240)
    classes = np.array(["low", "middle", "high"])[np.digitize(score, [-1.0, 1.0])]
    frame["y"] = classes if is_classifier(cls) else score
    frame = frame.iloc[np.argsort(score)]  # folds of rows in order would each hold one end
    frame.to_csv(tmp_path / "rows.csv", index=False)
    if not few:
        monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", 0)
    model = cls(radii=[0.003, 0.03, 0.3], cv=3, refit=False, tol=1e-6 if few else 1e-4)
    here, there = clone(model).fit(frame, "y"), clone(model).fit(tmp_path / "rows.csv", "y")
    np.testing.assert_allclose(there.scores_, here.scores_, rtol=1e-9 if few else 0.01)
    assert there.radius_ == here.radius_


@pytest.mark.needs("pyarrow")
def test_a_grid_of_radii_is_read_off_files(tables, tmp_path):
    """The default, ``radii=10``, needs the largest useful radius: that of the files is that of the rows."""
    table = tables[False, False]
    source = KINDS["parquet"](table, tmp_path)
    known = WassersteinHuberRegressorCV(radii=2, cv=2, coreset=100, refit=False, random_state=0)
    found = clone(known).fit(source)
    np.testing.assert_allclose(found.radii_, known.fit(table.X, table.y).radii_, rtol=1e-9)
    problem = Problem("huber", support=(-9.0, 9.0))
    within = radius_grid(problem, source, None, 2)
    np.testing.assert_allclose(within, radius_grid(problem, table.X, table.y, 2), rtol=1e-9)


def test_other_folds_and_scores_need_rows_in_memory(tables, monkeypatch):
    X, y, _ = tables[False, True]
    source, problem, radii = ArraySource(X, y), Problem("logistic"), [0.1, 0.2]
    split = [(np.arange(10), np.arange(10, 20)), (np.arange(10, 20), np.arange(10))]
    for given in ({"cv": split}, {"scoring": lambda *_: 0.0}):
        with pytest.raises(TypeError, match="number of folds and scoring 'loss' or 'error'"):
            select_radius(problem, source, None, radii, **given)
    with pytest.raises(ValueError, match="at least 2 folds"):
        select_radius(problem, source, None, radii, cv=1)
    models = [
        WassersteinLogisticRegressionCV(radii=radii, **given) for given in ({"cv": split}, {"scoring": "accuracy"})
    ]
    for model in models:
        np.testing.assert_array_equal(clone(model).fit(source).scores_, model.fit(X, y).scores_)  # few are loaded
    monkeypatch.setattr("dualcore.solvers.overreads._FEW_NUMBERS", 0)
    for model in models:
        with pytest.raises(TypeError, match="cv is a number of folds, scoring is None"):
            model.fit(source)


@pytest.mark.parametrize("kind", ["csv", "parquet", "feather"])
def test_truth_values_are_the_same_classes_from_every_format(tables, tmp_path, kind):
    pd, X = pytest.importorskip("pandas"), tables[False, True].X.astype(np.float64)
    frame = pd.DataFrame(X).add_prefix("x").assign(label=X[:, 0] > 0.0)
    getattr(frame, f"to_{kind}")(tmp_path / f"rows.{kind}", **({} if kind == "feather" else {"index": False}))
    model = classifier().fit(tmp_path / f"rows.{kind}", "label")
    assert model.classes_.dtype == classifier().fit(X, X[:, 0] > 0.0).classes_.dtype == bool
    assert model.predict(frame.drop(columns="label")).dtype == bool
    assert model.score(tmp_path / f"rows.{kind}", "label") > 0.9


def test_options_without_an_effect_and_targets_among_the_features_are_refused(tables, tmp_path):
    pd, X = pytest.importorskip("pandas"), tables[False, True].X.astype(np.float64)
    y, path = X[:, 0] > 0.0, tmp_path / "rows.csv"
    frame = pd.DataFrame(X).add_prefix("x").assign(label=y)
    frame.to_csv(path, index=False)
    learned, strange = {"features": ["x0", "label"]}, {"feature": ["x0"]}
    for data, options, error, message in (
        ((frame, "label"), learned, ValueError, "'label' is the target and cannot be a feature"),
        ((path, "label"), learned, ValueError, "'label' is the target and cannot be a feature"),
        ((frame, "label"), strange, TypeError, "'feature' is no option of tables. Options are features, "),
        ((frame[["x0"]], y), {"drop_missing": True}, TypeError, "source_options is for fit"),
        ((ArraySource(X, y),), {"drop_missing": True}, TypeError, "source_options is for fit"),
        (((part for part in ()),), None, TypeError, "A generator can be read once only: pass a path, or a function"),
    ):
        with pytest.raises(error, match=message):
            classifier().set_params(source_options=options).fit(*data)


def test_more_classes_and_fewer_are_refused_by_name(tables, tmp_path):
    X = tables[False, True].X
    np.save(tmp_path / "X.npy", X)
    for data, message in (
        ((ArraySource(X, np.arange(N) % 3 + 0.5),), "more than two that are not whole numbers"),
        ((ArraySource(X, np.arange(float(N))),), "more than 1000 different values"),
        ((tmp_path / "X.npy", np.arange(N).astype(str)), "more than 1000 different values"),
        ((ArraySource(X, np.ones(N)),), r"one class only \(1.0\)"),
    ):
        with pytest.raises(SourceError, match=message):
            classifier().fit(*data)
    with pytest.raises(SourceError, match="The targets are not numbers; labels="):
        WassersteinHuberRegressor().fit(open_source(X, np.array(["a", "b"] * (N // 2))))
    model = classifier().fit(lambda: iter([(X, np.where(X[:, 0] > 0.0, "a", "b"))]))
    assert model.classes_.tolist() == ["a", "b"]


def test_a_model_refuses_other_features_and_labels(tables):
    table = tables[False, True]
    model = classifier().fit(ArraySource(table.X, table.y))
    with pytest.raises(ValueError, match="The source has 3 features, WassersteinLogisticRegression was trained on 4"):
        model.worst_case_risk(ArraySource(table.X[:, :3], table.y))
    prepared = TransformedSource(ArraySource(table.X, np.arange(N) % 3), classes=(0.0, 1.0))
    for row, call in ((2, prepared.survey), (5, lambda: prepared.take(np.array([0, 5])))):
        with pytest.raises(SourceError, match=rf"The target is 2, but the classes are 0 and 1 \(row {row}\)"):
            call()


@warns_of_radius
@pytest.mark.needs("dask")
def test_dask_collections_need_no_source(tables):
    import dask.array as da

    table = tables[False, True]
    X, labels = da.from_array(table.X, chunks=(700, M)), (table.y > 0).astype(np.int64)
    grades = (table.X[:, :2] @ np.array([[1.0, -0.5, -0.5], [0.0, 0.9, -0.9]])).argmax(axis=1)
    for codes, names in ((labels, ["a", "b"]), (grades, ["a", "b", "c"])):
        model = classifier().fit(X, da.from_array(codes, chunks=700))
        np.testing.assert_array_equal(model.classes_, np.unique(codes))
        named = classifier().fit(X, da.from_array(np.array(names)[codes], chunks=700))
        assert named.classes_.tolist() == names
        np.testing.assert_array_equal(named.coef_, model.coef_)
        np.testing.assert_allclose(model.coef_, classifier().fit(table.X, codes).coef_, rtol=1e-12)


@pytest.mark.needs("dask", "pandas")
@pytest.mark.parametrize("named", [True, False])
def test_rows_of_a_dask_frame_are_predicted_by_all_their_columns(tables, named):
    import dask.dataframe as dd
    import pandas as pd

    table = tables[False, True]
    frame = pd.DataFrame(table.X, columns=[f"x{j}" for j in range(M)])
    model = classifier().fit(frame if named else table.X, table.y)
    expected = model.predict(frame if named else table.X)
    np.testing.assert_array_equal(model.predict(dd.from_pandas(frame, npartitions=3)), expected)


@pytest.mark.needs("pyarrow")
def test_a_file_is_not_opened_before_the_parameters_are_right(tmp_path):
    path = tmp_path / "missing.parquet"
    with pytest.raises(ValueError, match="tol must be positive"):
        WassersteinLogisticRegression(tol=0.0).fit(path, "y")
    for model in (WassersteinLogisticRegression(), classifier()):
        with pytest.raises(FileNotFoundError):
            model.fit(path, "y")


@pytest.mark.needs("pyarrow")
def test_a_parquet_source_with_labels_gives_them_to_the_classifier(tables, tmp_path):
    table = tables[False, True]
    write_parquet(table._replace(y=np.where(table.y > 0, "b", "a")), tmp_path / "rows.parquet", 700)
    model = classifier().fit(open_source(tmp_path / "rows.parquet", "y", labels=("b", "a")))
    np.testing.assert_array_equal(model.classes_, ["b", "a"])
    whole = classifier().fit(table.X, -table.y)
    np.testing.assert_allclose(model.coef_, whole.coef_, rtol=1e-12)
