"""Every kind of input gives the same numbers in every method: fit, predict, score, risk, certificate, save and load."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse as sp

import dualcore
from dualcore import WassersteinHuberRegressor, WassersteinLinearSVC, WassersteinLogisticRegression, open_source
from expected import warns_of_radius
from pairs import every_value

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
pl = pytest.importorskip("polars")

N = 240
RNG = np.random.default_rng(0)
NUMBERS = pd.DataFrame({"age": RNG.normal(40.0, 10.0, N), "size": RNG.normal(size=N), "debt": RNG.exponential(3.0, N)})
TABLE = pd.DataFrame(
    {
        "city": RNG.choice(["Oslo", "Lima", "Ærø"], N),
        "age": NUMBERS["age"].where(RNG.random(N) > 0.1),
        "car": pd.Categorical(RNG.choice(["p", "q"], N)),
        "size": NUMBERS["size"],
    }
)
TABLE.loc[::23, "city"] = None
SIGNAL = (NUMBERS["age"] - 40.0) / 10.0 + (TABLE["city"] == "Oslo") + 0.4 * RNG.normal(size=N)
TARGETS = {
    "numbers": SIGNAL.to_numpy(),
    "texts": np.where(SIGNAL > 0.3, "yes", "no"),
    "classes": np.array(["low", "mid", "top"])[np.digitize(SIGNAL, [-0.4, 0.8])],
}


def _folder(frame, path):
    path.mkdir()
    for number, part in enumerate(np.array_split(np.arange(len(frame)), 3)):
        frame.iloc[part].to_parquet(path / f"part-{number}.parquet", row_group_size=50)
    return path


def _file(frame, path, **options):
    """Write a frame in the format that the suffix names."""
    kind = path.name.split(".")[1]
    getattr(frame, f"to_{kind}")(path, **options)
    return path


NAMED = {
    "pandas": lambda frame, path: frame,
    "polars": lambda frame, path: pl.from_pandas(frame),
    "arrow": lambda frame, path: pa.Table.from_pandas(frame, preserve_index=False),
    "parquet": lambda frame, path: _file(frame, path / "t.parquet", row_group_size=70),
    "folder": lambda frame, path: _folder(frame, path / "folder"),
    "glob": lambda frame, path: str(_folder(frame, path / "many") / "*.parquet"),
    "list": lambda frame, path: sorted(_folder(frame, path / "listed").iterdir()),
    "dataset": lambda frame, path: pytest.importorskip("pyarrow.dataset").dataset(_folder(frame, path / "set")),
    "csv": lambda frame, path: _file(frame, path / "t.csv", index=False),
    "csv.gz": lambda frame, path: _file(frame, path / "t.csv.gz", index=False),
    "feather": lambda frame, path: _file(frame, path / "t.feather"),
}
REFERENCE: dict[str, object] = {}


def model(kind: str):
    settings = {"radius": 0.02, "ridge": 0.01, "tol": 1e-8, "feature_weights": "std", "norm": "l1"}
    settings |= {"categories": "from_dtype", "fill": "mean", "category_cost": {"city": 2.0}}
    if kind == "numbers":
        return WassersteinHuberRegressor(**settings)
    return (WassersteinLogisticRegression if kind == "texts" else WassersteinLinearSVC)(**settings)


def reference(kind: str):
    if kind not in REFERENCE:
        frame = TABLE.assign(goal=TARGETS[kind])
        REFERENCE[kind] = model(kind).fit(frame, "goal")
    return REFERENCE[kind]


@warns_of_radius  # no score tells the middle one of three classes in a line from the rest
@every_value(name=list(NAMED), kind=list(TARGETS))
def test_named_columns_with_text_and_gaps(tmp_path, name, kind):
    """A model of each kind of input is the reference, and every method of either takes every kind."""
    known, frame = reference(kind), TABLE.assign(goal=TARGETS[kind])
    data = NAMED[name](frame, tmp_path)
    found = model(kind).fit(data, "goal")
    assert list(found.feature_names_in_) == list(known.feature_names_in_) == ["city", "age", "car", "size"]
    assert found.coef_names_ == ("city=Lima", "city=Oslo", "city=Ærø", "age", "car=p", "car=q", "size")
    assert found.categories_ == known.categories_
    assert found.fill_ == pytest.approx(known.fill_, rel=1e-14)
    np.testing.assert_allclose(found.feature_weights_, known.feature_weights_, rtol=1e-12)
    assert found.worst_case_risk_ == pytest.approx(known.worst_case_risk_, rel=1e-7)
    path = tmp_path / "model.json"
    known.save(path)
    for one in (known, dualcore.load(path), pickle.loads(pickle.dumps(known))):
        np.testing.assert_array_equal(one.predict(data), known.predict(frame))
        assert one.score(data) == one.score(data, "goal") == known.score(frame.drop(columns="goal"), frame["goal"])
        assert one.worst_case_risk(data) == pytest.approx(known.worst_case_risk_, rel=1e-10)
        if kind != "classes":  # where each class has an adversary of its own
            found, worst = one.worst_case_distribution(data), known.worst_case_distribution(frame)
            assert found.expected_loss == pytest.approx(worst.expected_loss, rel=1e-12)
            np.testing.assert_allclose(found.X, worst.X, rtol=1e-9, atol=1e-9)
        bound = one.certify(data)
        assert bound.upper == pytest.approx(known.worst_case_risk_, rel=1e-10)
        assert bound.lower <= known.certificate_.upper
    # Columns are found by name.
    (tmp_path / "mixed").mkdir()
    mixed = NAMED[name](frame[["goal", "size", "car", "age", "city"]].assign(other=1.0), tmp_path / "mixed")
    np.testing.assert_array_equal(known.predict(mixed), known.predict(frame))
    assert known.worst_case_risk(mixed) == pytest.approx(known.worst_case_risk_, rel=1e-10)


@warns_of_radius
@pytest.mark.parametrize("kind", list(TARGETS))
def test_arrays_of_objects_are_coded_too(kind):
    known = reference(kind)
    array = TABLE.astype(object).where(TABLE.notna(), None).to_numpy()
    found = model(kind).set_params(category_cost=[2.0, 1.0]).fit(array, TARGETS[kind])
    np.testing.assert_allclose(found.coef_, known.coef_, rtol=1e-9)
    np.testing.assert_array_equal(found.predict(array), known.predict(TABLE))
    assert found.worst_case_risk(array, TARGETS[kind]) == pytest.approx(known.worst_case_risk_, rel=1e-12)
    assert not hasattr(found, "feature_names_in_")


def _numeric(path):
    X, y = NUMBERS.to_numpy(), TARGETS["numbers"]
    np.save(path / "X.npy", X)
    np.save(path / "y.npy", y)
    np.savez(path / "rows.npz", X=X, goal=y)
    frame = NUMBERS.assign(goal=y)
    parts = [(X[k : k + 50], y[k : k + 50]) for k in range(0, N, 50)]
    yield "array", (X, y), (X,)
    yield "float32", (X.astype(np.float32), y), (X.astype(np.float32),)
    yield "list", (X.tolist(), y.tolist()), (X.tolist(),)
    yield "sparse", (sp.csr_matrix(X), y), (sp.csc_array(X),)
    yield "map", (np.load(path / "X.npy", mmap_mode="r"), y), (X,)
    yield "npy", (path / "X.npy", path / "y.npy"), (path / "X.npy",)
    yield "npz", (path / "rows.npz", "goal"), (X,)
    yield "parts", (lambda: iter(parts),), (lambda: iter(parts),)
    yield "source", (open_source(X, y, chunk_rows=64),), (open_source(X, y),)
    for name, make in NAMED.items():
        (path / f"at-{name}").mkdir()
        data = make(frame, path / f"at-{name}")
        yield name, (data, "goal"), (data,)


def test_numbers_of_every_kind(tmp_path):
    X, y = NUMBERS.to_numpy(), TARGETS["numbers"]
    settings = {"radius": 0.05, "tol": 1e-9, "feature_weights": "std", "ridge": 0.1}
    known = WassersteinHuberRegressor(**settings).fit(X, y)
    for name, data, features in _numeric(tmp_path):
        rtol = 1e-5 if name == "float32" else 1e-9
        found = WassersteinHuberRegressor(**settings).fit(*data)
        assert found.worst_case_risk_ == pytest.approx(known.worst_case_risk_, rel=max(1e-8, rtol)), name
        np.testing.assert_allclose(found.predict(*features), known.predict(X), rtol=1e-3, atol=1e-4, err_msg=name)
        found.save(tmp_path / "model.json")
        again = dualcore.load(tmp_path / "model.json")
        np.testing.assert_array_equal(again.predict(*features), found.predict(*features), err_msg=name)
        whole = (NUMBERS.assign(goal=y),) if hasattr(found, "target_") else (X, y)
        assert again.score(*data) == pytest.approx(found.score(*whole), rel=rtol), name
        assert again.worst_case_risk(*data) == pytest.approx(found.worst_case_risk_, rel=rtol), name
        assert again.certify(*data).upper == pytest.approx(found.worst_case_risk_, rel=rtol), name


def test_a_value_that_training_has_not_seen_is_no_category():
    known = reference("numbers")
    new, alike = (TABLE.iloc[:3].assign(city=cities) for cities in (["Rome", "Oslo", "Lima"], [None, None, "Lima"]))
    oslo = known.coef_[known.coef_names_.index("city=Oslo")]
    np.testing.assert_allclose(known.predict(new) - known.predict(alike), [0.0, oslo, 0.0], atol=1e-12)


def test_missing_values_are_refused_by_name():
    gap = np.where(np.isin(np.arange(N), (7, 9)), np.nan, TARGETS["numbers"])
    for rows, y, fill, message in (
        (TABLE, TARGETS["numbers"], None, "Column 'city' has a null"),
        (TABLE.drop(columns="city"), TARGETS["numbers"], None, "Column 'age' has a null"),
        (TABLE, gap, 0.0, "The target is missing in row 7 and 1 others"),
    ):
        with pytest.raises(ValueError, match=message):
            WassersteinHuberRegressor(categories="from_dtype", fill=fill).fit(rows, y)


@warns_of_radius
@pytest.mark.parametrize("kind", list(TARGETS))
def test_a_coreset_gives_raw_rows_back(kind):
    frame = TABLE.assign(goal=TARGETS[kind])
    found = model(kind).set_params(coreset=60, random_state=0, tol=1e-6)
    with np.errstate(all="ignore"):
        coreset = found.fit(frame, "goal").coreset_
    rows, raw = coreset.to_frame(), TABLE.iloc[coreset.indices].reset_index(drop=True)
    assert list(rows.columns) == ["row", "weight", "y", "city", "age", "car", "size"]
    assert rows["city"].where(rows["city"].notna(), "none").tolist() == raw["city"].fillna("none").tolist()
    assert rows["car"].tolist() == raw["car"].tolist()
    there = raw["age"].notna()
    np.testing.assert_allclose(rows["age"][there], raw["age"][there], rtol=1e-12)
    np.testing.assert_allclose(rows["age"][~there], found.fill_["age"], rtol=1e-12)
    if kind != "numbers":
        assert rows["y"].tolist() == frame["goal"].iloc[coreset.indices].tolist()


def test_a_source_that_codes_and_fills_is_not_forgotten(tmp_path):
    frame = TABLE.assign(goal=TARGETS["numbers"])
    frame.to_parquet(tmp_path / "t.parquet")
    options = {"features": ["age", "car"], "categories": {"car": ["p", "q"]}, "fill": "median"}
    source = open_source(tmp_path / "t.parquet", "goal", **options)
    model = WassersteinHuberRegressor(radius=0.02, feature_weights="std").fit(source)
    assert list(model.feature_names_in_) == ["age", "car"]
    assert model.fill_ == {"age": pytest.approx(np.nanmedian(TABLE["age"]))}
    for data in (tmp_path / "t.parquet", frame, source):
        assert model.score(data) == pytest.approx(model.score(source), rel=1e-12)
        np.testing.assert_allclose(model.predict(data), model.predict(source), rtol=1e-12)
        assert model.worst_case_risk(data) == pytest.approx(model.worst_case_risk_, rel=1e-9)


@pytest.mark.parametrize("name", ["pandas", "polars", "arrow", "parquet", "folder", "dataset", "csv"])
def test_some_columns_and_rows_without_gaps_of_every_kind(tmp_path, name):
    frame = TABLE.assign(goal=TARGETS["texts"], w=1.0 + np.arange(N) % 3)
    frame.loc[[5, 50], "goal"] = None
    whole = frame.dropna(subset=["city", "age", "goal"])
    options = {"features": ["age", "city"], "drop_missing": True}
    settings = {"categories": "from_dtype", "feature_weights": "std", "norm": "l1", "tol": 1e-8}
    known = WassersteinLogisticRegression(**settings).fit(whole[["age", "city"]], whole["goal"], whole["w"])
    data = NAMED[name](frame, tmp_path)
    found = WassersteinLogisticRegression(source_options=options, **settings).fit(data, "goal", "w")
    assert (found.n_rows_, found.n_dropped_) == (len(whole), N - len(whole))
    assert list(found.feature_names_in_) == ["age", "city"]
    np.testing.assert_allclose(found.coef_, known.coef_, rtol=1e-6)
    found.save(tmp_path / "model.json")
    again = dualcore.load(tmp_path / "model.json")
    assert again.source_options == options
    expected = known.score(whole[["age", "city"]], whole["goal"], whole["w"])
    assert again.score(data, "goal", "w") == pytest.approx(expected)
    (tmp_path / "whole").mkdir()
    there = NAMED[name](whole, tmp_path / "whole")
    np.testing.assert_array_equal(again.predict(there), known.predict(whole[["age", "city"]]))


@pytest.mark.parametrize("kind", ["numbers", "texts"])
def test_prepared_rows_train_the_same_model(tmp_path, kind):
    frame = TABLE.assign(goal=TARGETS[kind])
    for data in (frame, NAMED["parquet"](frame, tmp_path)):
        fresh, fitted = model(kind), model(kind).fit(data, "goal")
        for one in (fresh.prepare(data, "goal"), fitted.prepare(data), fitted.prepare(data).in_memory()):
            solution = one.raw(dualcore.solve(one.problem, one.X, one.y, one.weights, tol=1e-8))
            np.testing.assert_allclose(solution.coef, np.ravel(fitted.coef_), rtol=1e-5, atol=1e-7)
            inside = one.inside(solution.coef, solution.intercept)
            assert one.problem.radius == 0.02
            assert inside[0].shape == (len(fitted.coef_names_),)
        assert fresh.coef_names_ == fitted.coef_names_
        assert not hasattr(fresh, "coef_")
    with pytest.raises(ValueError, match="a problem for each of the 3 classes"):
        model("classes").prepare(TABLE.assign(goal=TARGETS["classes"]), "goal")
