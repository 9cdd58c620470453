"""Every table of the paper has its figures, its rows and its study."""

from experiments import STUDIES, TABLES
from experiments.data import LOADERS
from experiments.methods import METHODS
from experiments.render import printed_figures, printed_whole

PRINTED = [name for name, table in TABLES.items() if table.printed]


def test_every_printed_row_is_a_row_of_the_study():
    for name in PRINTED:
        figures, study = printed_figures(name), STUDIES[TABLES[name].study]
        assert {row for row, _ in figures if row != "all"} == set(study.cases), name
        assert {method for _, method in figures} <= {"Whole", *study.methods}, name


def test_figures_read_off_the_paper():
    # Three tables of ten rows with 4, 4 and 3 methods and a Whole; 45 pairs; five more pairs of 10 x 2.
    assert [len(printed_figures(name)) for name in PRINTED] == [41, 41, 31, 135, 90] + [20] * 10
    assert printed_figures("table2")["9%", "DualCore"] == (0.51196, 0.0054)
    assert printed_figures("mnist-accuracy")["3 vs 5", "DualCore"] == (66.12, 10.17)
    assert printed_figures("mnist-time")["0 vs 1", "UniSamp"] == (0.01, None)
    assert [printed_whole(name) for name in ("table1", "table3", "energy-loss")] == [0.59267, 28.57578, None]
    assert printed_figures("label-cost") == {}


def test_a_study_names_loaders_and_methods_that_exist_and_every_table_has_one():
    assert {table.study for table in TABLES.values()} == set(STUDIES)
    for study in STUDIES.values():
        assert set(study.methods) <= set(METHODS)
        assert set(study.conic) <= set(study.wholes())
        assert {case.data[0] for case in study.cases.values()} <= set(LOADERS)
