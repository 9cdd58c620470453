"""The study goes on where it stopped, scores all methods alike, and its page shows what is stored."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from dualcore import Problem
from experiments.study import run
from experiments.study.models import METHODS, LinearModel
from experiments.study.page import BLOCK, BLOCKS, PAGES, draw_picture, render
from experiments.study.run import DEFAULT_FILE, load_cells, run_cell, run_comparison
from experiments.study.scores import Score, score
from experiments.study.tables import TABLES
from experiments.study.troubles import ATTACK, FEW_ROWS, TROUBLES, draw

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def stored():
    return load_cells(REPOSITORY / DEFAULT_FILE)


def test_a_table_has_the_rows_that_the_page_states():
    for name in ("iris", "wine", "cancer", "digits", "digits-18", "diabetes"):
        X, y = TABLES[name].rows(None)
        assert X.shape == TABLES[name].shape, name
        assert TABLES[name].classes is None or set(y) == {-1.0, 1.0}, name


@pytest.mark.parametrize("training", sorted({trouble.training for trouble in TROUBLES.values()}))
@pytest.mark.parametrize("name", ["cancer", "diabetes"])
def test_training_and_test_rows_are_drawn_apart(name, training):
    table = TABLES[name]
    X, y = table.rows(None)
    sample = draw((X, y), table.n_train, training, table.classes is not None, np.random.default_rng(0))
    assert len(sample.X) == (FEW_ROWS if training == "few" else table.n_train)
    np.testing.assert_allclose(sample.X.mean(axis=0), 0.0, atol=1e-9)
    if table.classes is not None:
        shares = [np.mean(part == 1.0) for part in (y, sample.y)]
        assert shares[0] == pytest.approx(shares[1], abs=0.12)
    both = np.vstack([sample.X, sample.X_test])
    assert len(np.unique(both.round(9), axis=0)) == len(both)


def test_the_scores_are_those_of_scikit_learn_and_of_the_attack():
    X, y = TABLES["cancer"].rows(None)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    clf = LogisticRegression().fit(X, y)
    model = LinearModel(clf.coef_[0], float(clf.intercept_[0]))
    clean, attacked = (score("logistic", model, X, y, attack) for attack in (0.0, ATTACK))
    assert clean.error == pytest.approx(100.0 * (1.0 - clf.score(X, y)))
    moved = X - ATTACK * y[:, None] * model.coef / np.linalg.norm(model.coef)
    assert attacked.error == pytest.approx(100.0 * (1.0 - clf.score(moved, y)))
    assert attacked.loss == pytest.approx(Problem("logistic").risk(model.coef, model.intercept, moved, y))
    # No attack within the radius does more than the worst case says.
    assert clean.loss < attacked.loss <= clean.worst <= clean.flips
    assert score("logistic", LinearModel(np.zeros(30), 0.0), X, y).error == 50.0


def test_an_interrupted_study_goes_on_where_it_stopped(tmp_path, monkeypatch):
    cell = {name: [[1.0] * len(Score._fields)] * len(METHODS) for name in TROUBLES}
    path, two = tmp_path / "study.json", {name: TABLES[name] for name in ("iris", "wine")}
    left = [cell, cell, cell]
    monkeypatch.setattr(run, "run_cell", lambda *_: left.pop())
    with pytest.raises(IndexError):
        run_comparison(path, 2, None, two, str)
    assert list(load_cells(path)) == ["iris/0", "wine/0", "iris/1"]
    left = [cell]
    assert list(run_comparison(path, 2, None, two, str)) == ["iris/0", "wine/0", "iris/1", "wine/1"]
    path.write_text(path.read_text().replace('"plain"', '"ridge"'))
    with pytest.raises(ValueError, match="holds another study"):
        load_cells(path)


def test_a_cell_is_what_is_stored(stored):
    """Up to what solvers leave open."""
    cell = run_cell("iris", TABLES["iris"], TABLES["iris"].rows(None), 0)
    assert list(cell) == list(stored["iris/0"]) == list(TROUBLES)
    found, before = (np.array(list(each.values()))[:, :, 0] for each in (cell, stored["iris/0"]))
    assert np.mean(np.abs(found - before)) < 1.0


def test_the_pages_show_what_is_stored(stored):
    pages = [(REPOSITORY / page).read_text(encoding="utf-8") for page in PAGES]
    assert {found["name"] for page in pages for found in BLOCK.finditer(page)} == set(BLOCKS)
    assert [render(page, stored) for page in pages] == pages


@pytest.mark.needs("matplotlib")
def test_the_picture_repeats_to_the_byte(stored, tmp_path):
    pictures = []
    for _ in range(2):
        draw_picture(stored, tmp_path / "study.svg")
        pictures.append((tmp_path / "study.svg").read_bytes())
    assert pictures[0] == pictures[1]
