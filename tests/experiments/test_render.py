"""Tables and the page say what the records say."""

import re
from dataclasses import replace

import pytest

from experiments import STUDIES, TABLES, write_document
from experiments.document import beaten_sentence, spread_sentence, time_sentence, within_sentence
from experiments.figures import FIGURES, draw, figure_files
from experiments.records import Record, Store
from experiments.render import (
    beaten_rows,
    compare,
    lay_out,
    printed_figures,
    relative_gaps,
    summarise,
)


def records_of(study, *, shift=0.0, ours=0.0, trials=3):
    """Records that are the printed figures of the study's first printed table, moved by ``shift``; Ours by ``ours``."""
    table = next(t for t in TABLES.values() if t.study == study and t.value != "seconds")
    figures = printed_figures(table.name)
    found = []
    for row, case in STUDIES[study].cases.items():
        for trial in range(trials):
            for method in STUDIES[study].methods:
                name = "DualCore" if method in ("Ours", "LayerSamp") else method
                value = figures[row, name].mean if (row, name) in figures else 50.0
                value += (ours if method == "Ours" else shift) + 1e-4 * (trial - 1)
                lower = 0.9 * value if method == "Ours" else None
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


def test_the_printed_figures_agree_with_themselves():
    table, records = TABLES["table1"], records_of("letter-minmax-logistic")
    found = compare(table, records)
    assert len(found) == 20
    assert all(c.within for c in found)
    assert not any(beaten_rows(table, records).values())


def test_what_is_further_than_two_standard_deviations_is_marked_and_listed():
    table, records = TABLES["table1"], records_of("letter-minmax-logistic", shift=0.03)
    outside = {(c.row, c.method) for c in compare(table, records) if not c.within}
    deviations = {
        key: found.std for key, found in printed_figures("table1").items() if key[1] in ("UniSamp", "DualCore")
    }
    assert outside == {key for key, std in deviations.items() if 2 * std < 0.03}
    assert lay_out(table, records).markdown().count("†") == len(outside) + 1
    sentence = within_sentence("table1", records)
    assert sentence.startswith(f"{20 - len(outside)} of 20 cells")
    assert "DualCore at 9% (0.63056, printed 0.60056 ± 0.0046)" in sentence


def test_rows_that_are_beaten_are_bold():
    table, records = TABLES["table1"], records_of("letter-minmax-logistic", ours=-0.001)
    text = lay_out(table, records).markdown()
    assert text.count("**0.") == 10
    assert "**0.68833 ± 0.00010**" in text
    assert "Whole: 0.59267, printed 0.59267" in text
    assert "3 trials a row" in text
    assert beaten_sentence("table1", records) == "Ours is better than the printed DualCore in 10 of 10 rows."
    assert "not at 1%, 2%" in beaten_sentence("table1", records_of("letter-minmax-logistic", ours=0.01))


def test_higher_is_better_for_accuracy():
    table = TABLES["mnist-accuracy"]
    assert all(beaten_rows(table, records_of("mnist", ours=0.1)).values())
    assert not any(beaten_rows(table, records_of("mnist", ours=-0.1)).values())


def test_table_3_is_shown_over_its_penalty_and_beaten_over_its_own_whole():
    table = TABLES["table3"]
    records = [
        replace(r, risk=r.risk - 5e-4) for r in records_of("energy", ours=-1e-5)
    ]  # another split: all risks are lower
    text = lay_out(table, records).markdown()
    assert "| 1% | 0.00512 ± 0.0005 | 0.00462" in text
    assert "Whole: 0.00385, printed 0.00435" in text
    assert all(beaten_rows(table, records).values())
    assert not any(
        beaten_rows(table, [replace(r, risk=r.risk - 5e-4) for r in records_of("energy", ours=1e-5)]).values()
    )


def test_means_on_another_split_are_not_compared():
    records = records_of("energy-small-delta", shift=9.0, ours=-9.0)
    text = lay_out(TABLES["energy-loss"], records).markdown()
    assert "†" not in text
    assert text.count("**") == 2  # the title
    assert beaten_rows(TABLES["energy-loss"], records) == {}


def test_times_are_over_whole_by_either_solver():
    table, records = TABLES["letter-minmax-logistic-time"], records_of("letter-minmax-logistic")
    layout = lay_out(table, records)
    assert layout.header == [
        "c",
        "UniSamp (paper)",
        "DualCore (paper)",
        *(f"{method} / {solver}" for solver in ("fast", "conic") for method in ("UniSamp", "DualCore", "Ours")),
    ]
    assert layout.lines[0] == ["1%", "0.04", "0.103", "0.500", "0.500", "0.500", "0.100", "0.100", "0.100"]
    assert "0.4 s with the fast solver and 2 s with the conic solver" in layout.note
    assert "Ours 0.2 s, 0.5 of Whole (fast), 0.1 of Whole (conic)" in time_sentence(records)


def test_the_excess_is_over_the_whole_of_the_same_trial():
    study = "scale"
    row, case = next(iter(STUDIES[study].cases.items()))
    records = [
        Record(study, place, method, trial, 1, 10, risk, 0.0, None if method == "UniSamp" else 0.9 * risk, 1.0, "e")
        for trial, best in enumerate((1.0, 2.0))
        for place, method, risk in (
            (case.whole, "Whole", best),
            (row, "UniSamp", 1.5 * best),
            (row, "Ours", (1.1 + 0.2 * trial) * best),
        )
    ]
    cells = summarise(TABLES["scale"], records)
    assert cells[row, "UniSamp"].mean == pytest.approx(0.5)
    assert cells[row, "Ours"].mean == pytest.approx(0.2)
    assert relative_gaps(records)[row, "Ours"].mean == pytest.approx(0.1)
    first = lay_out(TABLES["scale"], records).lines[0]
    assert first == [row, "10", "5.0e-01", "", "2.0e-01", "1.0e-01", "1.00"]


def test_an_empty_study_makes_an_empty_table():
    for table in TABLES.values():
        assert lay_out(table, []).markdown()


def test_the_page_has_every_table_and_figure(stored, tmp_path):
    page = write_document(stored, tmp_path / "page" / "experiments.md", figures=False).read_text(encoding="utf-8")
    assert "{{" not in page
    for table in TABLES.values():
        assert f"**{table.title}**" in page
    for name in FIGURES:
        for file in figure_files(name):
            assert f"](../{file})" in page
    assert "LETTER tables of the appendix. Panel 4 of 4.](../letter-accuracy-4.svg)" in page


@pytest.mark.needs("matplotlib")
def test_no_panel_is_wider_than_a_phone(stored, tmp_path):
    """At 400 pixels a page has some 360: letters of 7 points then keep their size."""
    for path in draw(lambda study: Store(stored, study).read(), tmp_path):
        width = float(re.search(r'width="([0-9.]+)pt"', path.read_text(encoding="utf-8"))[1])
        assert width * 4.0 / 3.0 <= 360.0


def test_sentences_about_nothing():
    assert spread_sentence("mnist-accuracy", []) == "Nothing is stored yet."
    assert "not timed" in time_sentence([])


def test_the_spread_is_averaged_over_rows():
    text = spread_sentence("table1", records_of("letter-minmax-logistic"))
    assert "of ours is 0.00010" in text
    assert "as printed 0.01659" in text


@pytest.mark.needs("matplotlib")
def test_figures_are_drawn_from_records_and_repeat_to_the_byte(stored, tmp_path):
    def records(study):
        return Store(stored, study).read()

    names = list(FIGURES)
    first, again = draw(records, tmp_path / "a", names), draw(records, tmp_path / "b", names[:1])
    assert [path.name for path in first] == [file for name in names for file in figure_files(name)]
    assert all(path.stat().st_size > 5000 for path in first)
    assert first[0].read_bytes() == again[0].read_bytes()
