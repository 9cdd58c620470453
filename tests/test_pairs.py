"""Every pair of values runs by default, and the whole product is there."""

from itertools import combinations, product

from pairs import covering, every_pair


def test_every_pair_is_covered_by_few_combinations():
    lengths = [4, 3, 3, 2]
    chosen = covering(lengths)
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
