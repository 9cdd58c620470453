"""Commands on every format: sparse text, sparse archives, compressed and separated CSV, missing values."""

import bz2
import gzip
import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import dualcore
from command_line import call
from dualcore import WassersteinLogisticRegression
from pairs import every_value

RNG = np.random.default_rng(0)
N = 600
DENSE = np.where(RNG.random((N, 12)) < 0.3, RNG.normal(size=(N, 12)), 0.0)
LABEL = np.where(DENSE @ RNG.normal(size=12) + RNG.logistic(size=N) > 0.0, 1, 0)


@every_value(name=["rows.svm", "rows.libsvm.bz2"], extra=[(), ("--coreset", 300, "--standardize")])
def test_svmlight_text_is_fitted_certified_and_predicted(tmp_path, name, extra):
    plain = tmp_path / "plain.svm"
    dump_svmlight_file(DENSE, LABEL, str(plain), zero_based=False)
    path = tmp_path / name
    pack = {".gz": gzip.compress, ".bz2": bz2.compress}.get(path.suffix, bytes)
    path.write_bytes(pack(plain.read_bytes()))
    model = tmp_path / "m.json"
    code, out, errors = call("fit", path, "--radius", 0.01, *extra, "--out", model, "--json")
    assert (code, errors) == (0, "")
    told = json.loads(out)
    assert (told["rows"], told["features"], told["classes"]) == (N, 12, [0, 1])
    if not extra:
        X, _ = load_svmlight_file(str(plain))
        estimator = WassersteinLogisticRegression(radius=0.01, random_state=0).fit(X, LABEL)
        np.testing.assert_array_equal(dualcore.load(model).coef_, estimator.coef_)
    code, out, _ = call("certify", model, path, "--json")
    assert code == 0
    assert json.loads(out)["accuracy"] > 0.6
    # A file that lacks the last features, and has no first one, is read as the training file was.
    few = tmp_path / "few.svm"
    few.write_text("1 2:0.5\n0 3:1\n")
    code, out, errors = call("predict", model, few, "--scores")
    assert (code, errors) == (0, "")
    loaded = dualcore.load(model)
    rows = np.zeros((2, 12))
    rows[0, 1], rows[1, 2] = 0.5, 1.0
    scores = [float(line.split(",")[1]) for line in out.splitlines()[1:]]
    np.testing.assert_allclose(scores, loaded.decision_function(sp.csr_matrix(rows)), rtol=1e-12)


def test_archives_of_sparse_rows_and_of_vectors_beside_a_matrix_are_fitted(tmp_path):
    rows, model = tmp_path / "rows.npz", tmp_path / "m.json"
    sp.save_npz(tmp_path / "X.npz", sp.csr_matrix(DENSE))
    np.save(tmp_path / "y.npy", LABEL)
    assert call("fit", tmp_path / "X.npz", "-t", tmp_path / "y.npy", "--radius", 0.01, "--out", model)[::2] == (0, "")
    estimator = WassersteinLogisticRegression(radius=0.01, random_state=0).fit(sp.csr_matrix(DENSE), LABEL)
    np.testing.assert_array_equal(dualcore.load(model).coef_, estimator.coef_)
    np.savez(rows, X=DENSE, y=LABEL, w=np.ones(N))
    assert call("fit", rows, "-t", "y", "--weight", "w", "--out", model)[0] == 0
    assert json.loads(call("predict", model, rows, "--json")[1])["accuracy"] > 0.6
    assert call("certify", model, rows, "--weight", "w")[0] == 0
    assert call("certify", model, rows, "--weight", "")[0] == 0


@pytest.mark.parametrize(
    ("name", "options", "code", "message"),
    [
        ("rows.svm", (), 3, "rows.svm, line 2 is no row"),
        ("rows.svm", ("--drop-missing",), 2, "has its target on every line and no named columns"),
        ("rows.csv", (), 2, "--target is missing"),
        ("rows.csv", ("-t", "l", "--fill", "mode"), 3, "fill must be"),
        ("rows.csv", ("-t", "l", "--separator", "ab"), 3, "separator must be"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(tmp_path, name, options, code, message):
    (tmp_path / "rows.svm").write_text("1 1:2\n0 1:x\n")
    (tmp_path / "rows.csv").write_text("a,l\n1,x\n2,y\n")
    found, _, errors = call("fit", tmp_path / name, *options, "--out", tmp_path / "m.json")
    assert (found, errors.count("\n")) == (code, 1)
    assert message in errors


def holes(separator=","):
    lines = [separator.join(("a", "b", "c", "l"))]
    for k in range(N):
        values = [f"{value:.17g}" for value in DENSE[k, :3] + 1.0]
        if k % 7 == 0:
            values[k % 3] = "" if k % 2 else "NA"
        lines.append(separator.join([*values, "" if k % 50 == 3 else ("yes" if LABEL[k] else "no")]))
    return "\n".join(lines) + "\n"


def write_holes(folder, kind):
    if kind == "parquet":
        csv, pq = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.parquet")
        (folder / "made.csv").write_text(holes())
        table = csv.read_csv(folder / "made.csv", convert_options=csv.ConvertOptions(strings_can_be_null=True))
        (folder / "made.csv").unlink()
        pq.write_table(table, folder / "rows.parquet", row_group_size=100)
        return folder / "rows.parquet"
    content = holes(";" if kind == "txt" else ",").encode()
    pack = {"gz": gzip.compress, "bz2": bz2.compress}.get(kind.rpartition(".")[2], bytes)
    (folder / f"rows.{kind}").write_bytes(pack(content))
    return folder / f"rows.{kind}"


@pytest.mark.needs("pyarrow")
@every_value(kind=["parquet", "csv.gz", "csv.bz2", "txt"], extra=[(), ("--coreset", 200)])
def test_missing_values_are_filled_or_dropped(tmp_path, kind, extra):
    path, model = write_holes(tmp_path, kind), tmp_path / "m.json"
    options = ("-t", "l", "--radius", 0.01, "--out", model, *extra, *(("--separator", ";") if kind == "txt" else ()))
    code, _, errors = call("fit", path, *options)
    assert code == 3
    assert "--drop-missing" in errors
    code, out, errors = call("fit", path, *options, "--drop-missing", "--json")
    assert (code, errors) == (0, "")
    dropped = sum(k % 7 == 0 or k % 50 == 3 for k in range(N))
    assert (json.loads(out)["rows"], json.loads(out)["rows_dropped"]) == (N - dropped, dropped)
    assert json.loads(call("certify", model, path, "--json")[1])["rows_dropped"] == dropped
    assert getattr(dualcore.load(model), "fill_", {}) == {}

    code, out, errors = call("fit", path, *options, "--fill", "mean", "--drop-missing", "--json")
    assert (code, errors) == (0, "")
    assert json.loads(out)["rows"] == N - sum(k % 50 == 3 for k in range(N))
    found = dualcore.load(model)
    kept = np.array([k % 50 != 3 for k in range(N)])
    gone = np.array([[k % 7 == 0 and k % 3 == j for j in range(3)] for k in range(N)])
    means = np.nanmean(np.where(gone, np.nan, DENSE[:, :3] + 1.0)[kept], axis=0)
    np.testing.assert_allclose([found.fill_[name] for name in "abc"], means, rtol=1e-12)
    # What was filled in training is filled alike in prediction, whatever the new rows hold.
    (tmp_path / "new.csv").write_text(f"a,b,c\n,0.5,\n{means[0]:.17g},0.5,{means[2]:.17g}\n")
    code, out, errors = call("predict", model, tmp_path / "new.csv", "--scores", "--separator", ",")
    assert (code, errors) == (0, "")
    first, second = (float(line.split(",")[1]) for line in out.splitlines()[1:])
    assert first == pytest.approx(second, rel=1e-12)
    assert call("predict", model, path, "--out", tmp_path / "p.csv")[0] == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == N + 1
    code, out, _ = call("certify", model, path, "--json")
    assert code == 0
    known = found.certificate_.upper
    assert json.loads(out)["certificates"][0]["worst_case_risk"] == pytest.approx(known, rel=1e-10)


@pytest.mark.needs("pyarrow", "matplotlib")
def test_a_report_says_how_missing_values_were_treated(tmp_path, monkeypatch):
    path = write_holes(tmp_path, "txt")
    model, report = tmp_path / "m.json", tmp_path / "r.html"
    options = ("--separator", ";", "--fill", "median", "--drop-missing")
    assert call("fit", path, "-t", "l", "--radius", 0.01, *options, "--out", model)[0] == 0
    monkeypatch.setattr("dualcore.cli.report.explain_fit", lambda *_, **__: (dualcore.load(model).certificate_, ()))
    assert call("report", model, path, "--out", report)[0] == 0
    command = next(line for line in report.read_text().splitlines() if "dualcore fit" in line)
    assert "--separator &#x27;;&#x27; --fill median --drop-missing" in command
