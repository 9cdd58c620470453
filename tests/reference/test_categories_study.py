"""The table of the study on categories says what is stored."""

import json
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STORED = json.loads((REPOSITORY / "benchmarks" / "results" / "categories_study.json").read_text())
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
