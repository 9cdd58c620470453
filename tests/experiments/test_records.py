"""Records survive: nothing written is lost, nothing half-written is read."""

from dataclasses import replace

import pytest

from experiments.records import Record, Store, environment

RECORD = Record("demo", "1%", "Fit", 0, 7, 12, 0.123456789012, 90.0, None, 0.5, "abc")


def test_what_was_written_is_read_and_a_trial_that_was_run_twice_counts_once(tmp_path):
    records = [replace(RECORD, trial=trial, lower=0.1) for trial in range(3)]
    store = Store(tmp_path / "new", "demo")
    assert store.read() == []
    store.append(records[:2])
    store.append([*records[2:], replace(records[0], risk=9.0)])
    found = Store(tmp_path / "new", "demo").read()
    assert [record.trial for record in found] == [0, 1, 2]
    assert found[0] == replace(records[0], risk=0.123456789)


@pytest.mark.parametrize("cut", [1, 30])
def test_a_line_that_was_cut_short_is_dropped_and_the_next_one_starts_clean(tmp_path, cut):
    store = Store(tmp_path, "demo")
    store.append([RECORD, replace(RECORD, trial=1)])
    content = store.path.read_bytes()
    store.path.write_bytes(content[:-cut])
    again = Store(tmp_path, "demo")
    assert [record.trial for record in again.read()] == [0]
    again.append([replace(RECORD, trial=1)])
    assert store.path.read_bytes() == content
    store.path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match=r"demo\.csv has the columns \['a', 'b'\]"):
        store.read()


def test_the_environment_is_noted_once(tmp_path):
    store, found = Store(tmp_path, "demo"), environment()
    assert store.note(found) == store.note(found) == found["environment"]
    store.note(found | {"environment": "other", "numpy": "0"})
    assert len((tmp_path / "environments.csv").read_text().splitlines()) == 3
