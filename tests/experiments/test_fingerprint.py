"""A stored result says on which code it was measured, and results of other code are listed and measured again."""

import ast
import json

import check_age
import pytest
from fingerprint import MADE_BY, REPOSITORY, fingerprint, outline

from experiments.records import Record, Store, environment
from experiments.study import run
from experiments.study.models import METHODS
from experiments.study.scores import Score
from experiments.study.tables import TABLES
from experiments.study.troubles import TROUBLES

TEXT = '"""Doc."""\nclass A:\n    "Doc."\n    def f(self, x: int = 1):\n        """Doc."""\n        return x + 1.0\n'
RECORD = Record("demo", "1%", "Fit", 0, 7, 12, 0.5, 90.0, None, 0.5, "abc")

CHANGES = [
    ('        """Doc."""\n', "", True),
    ('"""Doc."""\nclass', "# Comment.\n\n\nclass", True),
    ("1.0", "1.", True),
]
CHANGES += [("1.0", "1", False), ("int = 1", "int = 2", False), ('"Doc."\n    def', 'doc = "Doc."\n    def', False)]


@pytest.mark.parametrize(("before", "after", "same"), CHANGES)
def test_only_code_changes_a_fingerprint(before, after, same):
    assert before in TEXT
    found = [outline(ast.parse(text)) for text in (TEXT, TEXT.replace(before, after, 1))]
    assert (found[0] == found[1]) == same


def test_a_fingerprint_is_of_the_package_without_its_command_line_and_of_its_scripts(tmp_path):
    found = []
    for number, (text, command) in enumerate((("1", "1"), ("1", "2"), ("2", "1"))):
        (tmp_path / f"{number}" / "cli").mkdir(parents=True)
        (tmp_path / f"{number}" / "problem.py").write_text(f"a = {text}\n")
        (tmp_path / f"{number}" / "cli" / "app.py").write_text(f"b = {command}\n")
        found.append(fingerprint("exact", tmp_path / f"{number}"))
    assert found[0] == found[1] != found[2]
    assert fingerprint("speed", tmp_path / "0") != found[0]
    assert all(list(REPOSITORY.glob(pattern)) for patterns in MADE_BY.values() for pattern in patterns)
    assert {name for _, name, _ in check_age.stored()} == set(MADE_BY)


def test_results_of_other_or_unknown_code_are_listed(tmp_path):
    now = {name: fingerprint(name) for name in MADE_BY}
    results, data = tmp_path / "results", tmp_path / "data"
    results.mkdir()
    lines = [{"code": now["exact"]}, {"code": now["exact"]}]
    files = {
        results / "exact.json": {"letter": {"lines": lines}, "path": {"lines": [*lines, {}]}},
        results / "speed.json": {"box": {"code": "old", "lines": [{}]}, "wide": {"code": now["speed"], "lines": []}},
        results / "multi_class.json": {"environment": {"code": now["multi_class"]}, "lines": []},
        results / "torture.json": {"runs": []},
        data / "study.json": {"cells": {"a": {}, "b": {}}, "codes": {"a": now["study"]}},
    }
    for name in ("new", "old"):
        store = Store(data / "experiments", name)
        key = store.note(environment() | ({} if name == "new" else {"environment": "before", "code": ""}))
        store.append([Record(**(vars(RECORD) | {"environment": key}))])
    for path, content in files.items():
        path.write_text(json.dumps(content))
    found = [sentence.split(", not on")[0] for sentence in check_age.differences(results, data)]
    unknown = ("exact.json, path", "torture.json", "study.json", "old.csv")
    listed = [f"{name}: measured on unknown code" for name in unknown]
    assert found == [listed[0], "speed.json, box: measured on old", *listed[1:]]


def test_records_of_other_code_are_removed_and_a_table_of_environments_without_code_is_kept(tmp_path):
    (tmp_path / "environments.csv").write_text("environment,numpy\nabc,2.0\n")
    store, about = Store(tmp_path, "demo"), environment()
    store.append([RECORD, Record(**(vars(RECORD) | {"trial": 1, "environment": store.note(about)}))])
    assert store.environments()["abc"]["numpy"] == "2.0"
    store.discard_other_code(about["code"])
    assert [record.trial for record in store.read()] == [1]


def test_cells_of_other_code_are_run_again_only_if_asked(tmp_path, monkeypatch):
    cell = {name: [[1.0] * len(Score._fields)] * len(METHODS) for name in TROUBLES}
    path, ran = tmp_path / "study.json", []
    monkeypatch.setattr(run, "run_cell", lambda name, *_: ran.append(name) or cell)
    tables = {name: TABLES[name] for name in ("iris", "wine")}
    run.run_comparison(path, 1, None, tables, str)
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"codes": stored["codes"] | {"wine/0": "old"}}))
    run.run_comparison(path, 1, None, tables, str)
    assert ran == ["iris", "wine"]
    run.run_comparison(path, 1, None, tables, str, stale=True)
    assert ran == ["iris", "wine", "wine"]
    assert set(json.loads(path.read_text())["codes"].values()) == {fingerprint("study")}
