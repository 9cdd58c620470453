"""Every pair of values, or every value, runs by default, and the whole product is there."""

from itertools import combinations, product

import pytest

from pairs import every_pair, every_value, pairs_of


def test_every_pair_is_covered_by_few_combinations():
    lengths = [4, 3, 3, 2]
    chosen = pairs_of(lengths)
    assert len(chosen) <= 14
    for a, b in combinations(range(4), 2):
        found = {(one[a], one[b]) for one in chosen}
        assert found == set(product(range(lengths[a]), range(lengths[b])))


def test_the_product_is_whole_and_most_of_it_slow():
    rows = every_pair(loss=["a", "b", "c"], norm={"x": 1, "y": 2, "z": 3}, cost=[0.5, 2.0, 7.0]).args[1]
    assert len(rows) == 27
    assert {row.values for row in rows} == set(product("abc", (1, 2, 3), (0.5, 2.0, 7.0)))
    assert 9 <= sum(not row.marks for row in rows) <= 11
    assert rows[0].id == "a-x-0.5"


def test_every_value_is_there_once_and_slow_ones_do_not_stand_for_others():
    costs = pytest.mark.parametrize(("cost", "ridge"), [(1.0, 0.0), pytest.param(2.0, 0.1, marks=pytest.mark.slow)])
    made = every_value(costs, loss=["a", "b", "c"], norm={"x": 1, "y": 2})
    assert made.args[0] == ["cost", "ridge", "loss", "norm"]
    rows = made.args[1]
    assert len(rows) == 12
    assert [row.id for row in rows if not row.marks] == ["1.0-0.0-a-x", "1.0-0.0-b-y", "1.0-0.0-c-x"]
