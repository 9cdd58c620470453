"""Tables 1 to 3 of the paper with five trials: its Whole, its DualCore and UniSamp, and what beats them.

A mean of five trials lies within two of the paper's standard deviations unless it is off by more than four of its own,
if our spread is the paper's; the seeds are fixed.
"""

import pytest

from experiments import TABLES, reproduce
from experiments.render import beaten_rows, compare, printed_figures, summarise, whole_risk


def test_one_trial_of_table_1(shared_data, tmp_path):
    made = reproduce("table1", trials=1, data_home=shared_data, folder=tmp_path, n_jobs=1, progress=False)
    assert f"{whole_risk(made.records):.5f}" == "0.59267"
    assert all(beaten_rows(TABLES["table1"], made.records).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "whole"),
    [
        ("table1", "0.59267"),
        ("table2", "0.49734"),
        # The paper's 0.00435 is another random half of the data; over eight halves it is 0.0040 with deviation 0.0001.
        ("table3", "0.00407"),
    ],
)
def test_five_trials(name, whole, shared_data, tmp_path):
    table = TABLES[name]
    made = reproduce(name, trials=5, data_home=shared_data, folder=tmp_path, n_jobs=1, progress=False)
    assert f"{whole_risk(made.records) - table.offset:.5f}" == whole

    if not table.own_split:
        cells = compare(table, made.records)
        assert len(cells) == 20
        assert sum(cell.within for cell in cells) >= 18

    beaten = beaten_rows(table, made.records)
    assert len(beaten) == 10
    assert [row for row, better in beaten.items() if not better and row != "1%"] == []

    cells = summarise(table, made.records)
    printed = printed_figures(name)
    ours = sum(cells[row, "Ours"].std for row in beaten)
    assert ours < sum(cells[row, "DualCore"].std for row in beaten)
    assert ours < sum(printed[row, "DualCore"].std for row in beaten)
    assert made.markdown().count("\n| ") == 11
