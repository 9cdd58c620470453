"""The tables of the page on categories say what is stored."""

import json
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STORED, PROGRAMME = (
    json.loads((REPOSITORY / "benchmarks" / "results" / f"categories_{name}.json").read_text())
    for name in ("study", "programme")
)
PAGE = (REPOSITORY / "docs" / "categories.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("method", ["plain", "norm-regularised", "numeric-robust", "category-robust"])
def test_the_table_is_that_of_the_stored_accuracies(method):
    cells = [method]
    for data in ("census", "tumours"):
        own, robust = (np.array(STORED["accuracy"][data][name]) for name in (method, "category-robust"))
        assert own.size == STORED["splits"] == 50
        cells.append(f"{own.mean():.3f} ± {own.std() / own.size**0.5:.3f}")
        wins = f"{(robust > own).sum()} : {(robust < own).sum()}"
        cells.append("" if method == "category-robust" else wins)
    assert "| " + " | ".join(cells) + " |" in PAGE


def test_the_table_of_seconds_is_that_of_the_stored_runs():
    for line in PROGRAMME["lines"]:
        theirs = f"{line['programme']['seconds']:.0f} s" if line["programme"]["finished"] else "no answer"
        assert f"| {line['rows']:,} | {line['package']['seconds']:.1f} s | {theirs} |" in PAGE
