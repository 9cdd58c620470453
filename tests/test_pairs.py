"""Every pair of values, or every value, runs by default, and the whole product is there."""

from itertools import combinations, product

import pytest

from pairs import every_pair, every_value


def test_every_pair_is_covered_by_few_combinations_and_the_product_is_whole():
    axes = {"loss": ["a", "b", "c"], "norm": {"x": 1, "y": 2, "z": 3}, "cost": [0.5, 2.0, 7.0]}
    rows = every_pair(**axes).args[1]
    assert {row.values for row in rows} == set(product("abc", (1, 2, 3), (0.5, 2.0, 7.0)))
    assert rows[0].id == "a-x-0.5"
    quick = [row.values for row in rows if not row.marks]
    assert len(quick) <= 11
    for one, other in combinations(range(3), 2):
        assert len({(values[one], values[other]) for values in quick}) == 9


def test_every_value_is_there_once_and_slow_ones_do_not_stand_for_others():
    costs = pytest.mark.parametrize(("cost", "ridge"), [(1.0, 0.0), pytest.param(2.0, 0.1, marks=pytest.mark.slow)])
    names, rows = every_value(costs, loss=["a", "b", "c"], norm={"x": 1, "y": 2}).args
    assert names == ["cost", "ridge", "loss", "norm"]
    assert len(rows) == 12
    assert [row.id for row in rows if not row.marks] == ["1.0-0.0-a-x", "1.0-0.0-b-y", "1.0-0.0-c-x"]
