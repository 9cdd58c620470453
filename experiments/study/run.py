"""Run the study cell by cell: one split of one table, stored before the next begins."""

from __future__ import annotations

import json
import os
import time
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from experiments.data import Split
from experiments.records import environment
from experiments.study.models import METHODS, LinearModel, train, train_by_belief
from experiments.study.scores import Score, score
from experiments.study.tables import TABLES, Pair, StudyTable
from experiments.study.troubles import TROUBLES, Training, draw

DEFAULT_FILE = "docs/data/study.json"

# Scores by trouble and method, in the order of `METHODS`.
Cell = dict[str, list[list[float]]]


def run_comparison(
    path: str | os.PathLike[str] = DEFAULT_FILE,
    splits: int = 20,
    home: str | None = None,
    tables: dict[str, StudyTable] = TABLES,
    echo: Callable[[str], Any] = print,
    stale: bool = False,
) -> dict[str, Cell]:
    """Run the cells that the file does not hold yet, all tables of a split before the next, and return all of them.

    The JSON file is written after every cell, all or nothing; ``home`` is the folder of the data sets, see
    `experiments.datasets`; ``echo`` takes a line about every cell. Cells are named ``"table/split"``. With ``stale``
    the cells of other code are run again.
    """
    about, cells, codes = environment("study"), load_cells(path), load_codes(path)
    rows: dict[str, Pair] = {}
    for split in range(splits):
        for name, table in tables.items():
            key = f"{name}/{split}"
            if key not in cells or (stale and codes.get(key) != about["code"]):
                began = time.process_time()
                if name not in rows:
                    rows[name] = table.rows(home)
                cells[key] = run_cell(name, table, rows[name], split)
                codes[key] = about["code"]
                _store(Path(path), cells, codes, about)
                echo(f"{key}: {time.process_time() - began:.1f} s")
    return cells


def run_cell(name: str, table: StudyTable, rows: Pair, split: int) -> Cell:
    """Train and score every method under every trouble; troubles with the same training rows share their models."""
    trained: dict[Training, tuple[Split, dict[str, LinearModel]]] = {}
    cell: Cell = {}
    with threadpool_limits(limits=1), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # separable classes, radii at which nothing is learned: the scores tell
        for trouble_name, trouble in TROUBLES.items():
            kind = trouble.training
            if kind not in trained:
                sample = draw(rows, table.n_train, kind, table.classes is not None, _rng(name, kind, split))
                trained[kind] = sample, train(table.loss, sample)
            sample, models = trained[kind]
            own = models | {"ours, belief": train_by_belief(table.loss, sample, trouble.belief)}
            X = sample.X_test
            if trouble.change is not None:
                X = trouble.change(X, _rng(name, trouble_name, split))
            scores = [score(table.loss, own[method], X, sample.y_test, trouble.attack) for method in METHODS]
            cell[trouble_name] = [[float(f"{value:.5g}") for value in found] for found in scores]
    return cell


def _rng(table: str, what: str, split: int) -> np.random.Generator:
    return np.random.default_rng([zlib.crc32(f"{table}/{what}".encode()), split])


def load_cells(path: str | os.PathLike[str]) -> dict[str, Cell]:
    """Return the stored cells; of a file of other methods, scores or troubles an error."""
    if not Path(path).exists():
        return {}
    stored = json.loads(Path(path).read_text(encoding="utf-8"))
    if stored["columns"] != _columns():
        raise ValueError(f"{path} holds another study: {stored['columns']}. Move it away, or name another file.")
    cells: dict[str, Cell] = stored["cells"]
    return cells


def load_codes(path: str | os.PathLike[str]) -> dict[str, str]:
    """Return the fingerprints of the code that the stored cells were measured on, of those that have one."""
    stored = json.loads(Path(path).read_text(encoding="utf-8")) if Path(path).exists() else {}
    codes: dict[str, str] = stored.get("codes", {})
    return codes


def _columns() -> dict[str, list[str]]:
    return {"methods": list(METHODS), "scores": list(Score._fields), "troubles": list(TROUBLES)}


def _store(path: Path, cells: dict[str, Cell], codes: dict[str, str], about: dict[str, str]) -> None:
    lines = (f"{json.dumps(key)}: {json.dumps(cell, separators=(',', ':'))}" for key, cell in cells.items())
    head = f'{{"environment": {json.dumps(about)},\n"codes": {json.dumps(codes)},\n'
    head += f'"columns": {json.dumps(_columns())},\n"cells": {{\n'
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(head + ",\n".join(lines) + "\n}}\n", encoding="utf-8")
    os.replace(part, path)
