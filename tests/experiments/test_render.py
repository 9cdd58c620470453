"""Tables and the page say what the records say."""

import re
from dataclasses import replace

import pytest

from experiments import STUDIES, TABLES, write_document
from experiments.document import beaten_sentence, spread_sentence, time_sentence, within_sentence
from experiments.figures import FIGURES, draw, figure_files
from experiments.records import Record, Store
from experiments.render import beaten_rows, compare, lay_out, printed_figures, relative_gaps, summarise


def records_of(study, *, shift=0.0, ours=0.0, trials=3):
    """Records that are the figures of the study's first printed table, moved by ``shift``; our methods by ``ours``."""
    table = next(t for t in TABLES.values() if t.study == study and t.value != "seconds")
    figures = printed_figures(table.name)
    found = []
    for row, case in STUDIES[study].cases.items():
        for trial in range(trials):
            for method in STUDIES[study].methods:
                name = "DualCore" if method in ("Coreset alone", "Fit", "LayerSamp") else method
                value = figures[row, name].mean if (row, name) in figures else 50.0
                value += (ours if method in ("Coreset alone", "Fit") else shift) + 1e-4 * (trial - 1)
                lower = 0.9 * value if method == "Fit" else None
                found.append(Record(study, row, method, trial, 1, 12, value, value, lower, 0.2, "e"))
        for method, seconds in (("Whole", 0.4), ("Whole (conic)", 2.0)):
            value = figures.get(("all", "Whole"), (0.5,))[0]
            record = Record(study, case.whole, method, 0, 1, 100, value, value, value, seconds, "e")
            if record not in found:
                found.append(record)
    return found


@pytest.fixture
def stored(tmp_path):
    """A folder with records of every study."""
    for study in STUDIES:
        Store(tmp_path, study).append(records_of(study, ours=0.5 if study == "mnist" else -1e-3))
    return tmp_path


def test_what_is_further_than_two_standard_deviations_is_marked_and_listed():
    table, same = TABLES["table1"], records_of("letter-minmax-logistic")
    assert [c.within for c in compare(table, same)] == [True] * 20
    assert not any(beaten_rows(table, same).values())
    records = records_of("letter-minmax-logistic", shift=0.03)
    outside = {(c.row, c.method) for c in compare(table, records) if not c.within}
    compared = {key: found.std for key, found in printed_figures("table1").items() if key[1] in ("UniSamp", "DualCore")}
    assert outside == {key for key, std in compared.items() if 2 * std < 0.03}
    assert lay_out(table, records).markdown().count("†") == len(outside) + 1
    sentence = within_sentence("table1", records)
    assert sentence.startswith(f"{20 - len(outside)} of 20 cells")
    assert "DualCore at 9% (0.63056, printed 0.60056 ± 0.0046)" in sentence


def test_rows_that_are_beaten_are_bold():
    table, records = TABLES["table1"], records_of("letter-minmax-logistic", ours=-0.001)
    text = lay_out(table, records).markdown()
    assert text.count("**0.") == 10
    assert "**0.68833 ± 0.00010**" in text
    assert "3 trials a row; Whole: 0.59267, printed 0.59267" in text
    assert beaten_sentence("table1", records).endswith("is better than the printed DualCore in 10 of 10 rows.")
    assert "of the coreset alone is 0.00010" in spread_sentence("table1", records)
    assert all(beaten_rows(TABLES["mnist-accuracy"], records_of("mnist", ours=0.1)).values())  # higher is better


def test_rows_of_another_split_are_compared_over_their_own_whole_only():
    table = TABLES["table3"]
    # On another split all risks are lower.
    better, worse = (
        [replace(r, risk=r.risk - 5e-4) for r in records_of("energy", ours=ours)] for ours in (-1e-5, 1e-5)
    )
    text = lay_out(table, better).markdown()
    assert "| 1% | 0.00512 ± 0.0005 | 0.00462" in text
    assert "Whole: 0.00385, printed 0.00435" in text
    assert all(beaten_rows(table, better).values())
    assert not any(beaten_rows(table, worse).values())
    moved = records_of("energy-small-delta", shift=9.0, ours=-9.0)
    assert "†" not in lay_out(TABLES["energy-loss"], moved).markdown()
    assert beaten_rows(TABLES["energy-loss"], moved) == {}


def test_times_are_over_whole_by_either_solver():
    table, records = TABLES["letter-minmax-logistic-time"], records_of("letter-minmax-logistic")
    layout = lay_out(table, records)
    assert layout.header[-3:] == ["UniSamp / conic", "DualCore / conic", "Fit / conic"]
    assert layout.lines[0] == ["1%", "0.04", "0.103", "0.500", "0.500", "0.500", "0.100", "0.100", "0.100"]
    assert "0.4 s with the fast solver and 2 s with the conic solver" in layout.note
    assert "Fit 0.2 s, 0.5 of Whole (fast), 0.1 of Whole (conic)" in time_sentence(records)


def test_the_excess_is_over_the_whole_of_the_same_trial():
    row, case = next(iter(STUDIES["scale"].cases.items()))

    def record(row, method, trial, risk):
        return Record("scale", row, method, trial, 1, 10, risk, 0.0, 0.9 * risk, 1.0, "e")

    records = []
    for trial, best in enumerate((1.0, 2.0)):
        records += [record(case.whole, "Whole", trial, best), record(row, "UniSamp", trial, 1.5 * best)]
        records += [record(row, "Fit", trial, (1.1 + 0.2 * trial) * best)]
    cells = summarise(TABLES["scale"], records)
    assert cells[row, "UniSamp"].mean == pytest.approx(0.5)
    assert cells[row, "Fit"].mean == pytest.approx(0.2)
    assert relative_gaps(records)[row, "Fit"].mean == pytest.approx(0.1)
    assert lay_out(TABLES["scale"], records).lines[0] == [row, "", "5.0e-01", "", "", "2.0e-01", "1.0e-01", "1.00"]


def test_the_page_has_every_table_and_figure(stored, tmp_path):
    page = write_document(stored, tmp_path / "page" / "experiments.md", figures=False).read_text(encoding="utf-8")
    assert "{{" not in page
    for table in TABLES.values():
        assert f"**{table.title}**" in page
    for name in FIGURES:
        for file in figure_files(name):
            assert f"](../{file})" in page
    empty = write_document(tmp_path / "empty", tmp_path / "empty.md", figures=False).read_text(encoding="utf-8")
    assert "Nothing is stored yet." in empty
    assert "LETTER tables of the appendix. Panel 4 of 4.](../letter-accuracy-4.svg)" in page


@pytest.mark.needs("matplotlib")
def test_figures_repeat_to_the_byte_and_no_panel_is_wider_than_a_phone(stored, tmp_path):
    """At 400 pixels a page has some 360: letters of 7 points then keep their size."""

    def records(study):
        return Store(stored, study).read()

    first, again = draw(records, tmp_path / "a"), draw(records, tmp_path / "b", list(FIGURES)[:1])
    assert [path.name for path in first] == [file for name in FIGURES for file in figure_files(name)]
    assert first[0].read_bytes() == again[0].read_bytes()
    for path in first:
        width = float(re.search(r'width="([0-9.]+)pt"', path.read_text(encoding="utf-8"))[1])
        assert width * 4.0 / 3.0 <= 360.0
