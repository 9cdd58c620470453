"""Pairs of options: what is dependent is so exactly, and all else of a seed stays what it was."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from torture.parts.cases import Case, draw_case
from torture.parts.pairs import DEPENDENT, OPTIONS, SHARE

FACTORS = {"equal": [1.0], "multiple": [-1.0, 2.0, -0.5, 16.0], "complement": [-1.0], "sum": [1.0, -1.0, 2.0]}
CASES = [draw_case(3, number, small=True) for number in range(600)]


def pair_of(case: Case) -> tuple[str, ...]:
    found = [trait.removeprefix("pair: ").split(" + ") for trait in case.traits if trait.startswith("pair: ")]
    return tuple(found[0]) if found else ()


def test_every_option_is_drawn_with_others():
    pairs = {pair_of(case) for case in CASES} - {()}
    assert {name for pair in pairs for name in pair} == {DEPENDENT, *OPTIONS}
    assert {second for first, second in pairs if first == DEPENDENT} == set(OPTIONS)
    share = np.mean([bool(pair_of(case)) for case in CASES])
    assert abs(share - SHARE) < 4.0 * np.sqrt(SHARE * (1.0 - SHARE) / len(CASES))


@pytest.mark.parametrize("kind", ["equal", "multiple", "sum", "complement", "indicators"])
def test_dependences_are_exact(kind):
    """The last column is a combination of others, and ones, without rounding, in the numbers that are handed out."""
    found = [case for case in CASES if f"dependent: {kind}" in case.traits and pair_of(case)[1] != "scale"]
    assert found
    for case in found:
        X, new = case.dense[:, :-1], case.dense[:, -1]
        assert case.prices is None or case.prices.size == X.shape[1] + 1
        if case.support is not None:
            assert (case.support[0] <= case.dense).all()
            assert (case.support[1] >= case.dense).all()
        if kind == "indicators":
            shown = X[:, np.isin(X, (0.0, 1.0)).all(axis=0)]
            assert np.allclose(shown @ np.linalg.lstsq(shown, new, rcond=None)[0], new, rtol=0.0, atol=1e-9)
        else:
            assert any(
                np.array_equal(new, X[:, columns] @ np.array(signs) + float(kind == "complement"))
                for count in range(1, min(X.shape[1], 3) + 1 if kind == "sum" else 2)
                for columns in itertools.combinations(range(X.shape[1]), count)
                for signs in itertools.product(FACTORS[kind], repeat=count)
            )
