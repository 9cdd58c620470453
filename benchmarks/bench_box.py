"""Box supports: how fast they train, and what the grid of a != b is worth on LETTER.

    python benchmarks/bench_box.py                       # all parts; about half an hour
    python benchmarks/bench_box.py --parts speed --rows 5000
    python benchmarks/bench_box.py --parts letter --trials 5

``speed``: `solve` at 20,000 rows and 16 features to a certified relative gap of 1e-6, against the hypercube programme
as CVXPY and Clarabel solve it at the most rows that finish within a minute, scaled linearly (which flatters it).

``memory``: what numpy allocates at its peak beyond X, with 16 and with 64 features.

``letter``: the poisoned LETTER file of the paper's authors scaled to [0, 1], and the same with features clipped to
their quartiles, so that many rows stand at a wall. Every method draws at the same pilot anchor in a trial. "DualCore"
is Algorithm 1 with the paper's own bounds a and b; "ours" is calibrated at the anchor, once or three times, and goes
towards a coreset's model as far as the full data say. The excess is the worst-case risk on all rows over the least
possible one.

Bars: 20 times faster than the programme, for hinge and logistic loss (the hinge's programme stands for both: the
logistic loss takes a dozen of them); memory of O(n), at most 800 bytes a row however many features there are.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from stored import load_letter, report, store
from threadpoolctl import threadpool_limits

from dualcore import DualCoreset, LayeredCoreset, Problem, UniformCoreset, solve
from dualcore.coresets.samplers.grid import build_grid
from dualcore.problem.anchor import Anchor

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

TRIALS, ROWS, FEATURES, PERCENT = 50, 20_000, 16, (5, 10)
PATIENCE = 60.0
PARTS = ("speed", "memory", "letter")
FASTER, BYTES_A_ROW = 20.0, 800.0
LOSSES, NORMS = ("hinge", "logistic", "huber"), ("l1", "l2", "linf")


def make_data(n: int, m: int, classification: bool, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.random((n, m))
    score = (X - 0.5) @ rng.normal(size=m) * 3.0
    if classification:
        return X, np.where(score + 0.7 * rng.logistic(size=n) > 0.0, 1.0, -1.0)
    return X, score + 0.3 * rng.standard_t(3, size=n)


def box_problem(loss: str, norm: str) -> Problem:
    cost = np.inf if loss == "huber" else 1.0
    return Problem(loss, radius=0.05, norm=norm, label_cost=cost, support=(0.0, 1.0))


def programme_seconds(norm: str) -> tuple[int, float]:
    """Return the most rows of the hinge's programme that CVXPY finishes in time, and its processor seconds."""
    from reference.box_adversary import cvxpy_optimum

    rows, found = 125, (0, 0.0)
    while True:
        X, y = make_data(rows, FEATURES, True)
        began = time.process_time()
        try:
            cvxpy_optimum(box_problem("hinge", norm), X, y)
        except RuntimeError:
            return found
        taken = time.process_time() - began
        found = (rows, taken)
        print(f"programme, {norm}: {taken:.1f} s at {rows} rows", flush=True)
        if 2.5 * taken > PATIENCE:
            return found
        rows *= 2


def peak_bytes(rows: int, features: int) -> int:
    """Return what numpy holds at its peak during a short solve, X and y not counted."""
    X, y = make_data(rows, features, True)
    tracemalloc.start()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solve(box_problem("hinge", "l2"), X, y, tol=1e-2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def run_speed(rows: int) -> tuple[dict[str, Any], list[tuple[bool, str]]]:
    lines, bars = [], []
    programmes = {norm: programme_seconds(norm) for norm in NORMS}
    print(f"training at {rows:,} rows, {FEATURES} features; seconds of processor time")
    print(f"{'loss':10}{'norm':6}{'ours':>8}{'passes':>8}{'gap':>10}{'programme':>22}{'times faster':>14}")
    for loss in LOSSES:
        for norm in NORMS:
            problem = box_problem(loss, norm)
            X, y = make_data(rows, FEATURES, problem.is_classification)
            began = time.process_time()
            found = solve(problem, X, y)
            seconds = time.process_time() - began
            at, taken = programmes[norm]
            ratio = taken * rows / at / seconds
            text = f"{taken:.1f} s at {at} rows"
            ours = f"{seconds:>8.2f}{found.iterations:>8}{found.relative_gap:>10.1e}"
            print(f"{loss:10}{norm:6}{ours}{text:>22}{ratio:>14.0f}", flush=True)
            lines.append(
                {
                    "loss": loss,
                    "norm": norm,
                    "seconds": seconds,
                    "passes": found.iterations,
                    "relative_gap": found.relative_gap,
                    "programme_rows": at,
                    "programme_seconds": taken,
                    "times_faster": ratio,
                }
            )
            if loss != "huber":
                bars.append(
                    (ratio >= FASTER and found.relative_gap <= 1e-6, f"{loss} {norm}: {ratio:.0f} times faster")
                )
    return {"rows": rows, "features": FEATURES, "lines": lines}, bars


def run_memory(rows: int) -> tuple[dict[str, Any], list[tuple[bool, str]]]:
    lines, bars = [], []
    print(f"memory beyond X, most of it of the start without walls; {rows:,} and {2 * rows:,} rows")
    for features in (FEATURES, 4 * FEATURES):
        small, large = peak_bytes(rows, features), peak_bytes(2 * rows, features)
        slope = (large - small) / rows
        print(f"{features} features: {small / 1e6:.1f} and {large / 1e6:.1f} MB, {slope:.0f} bytes a row", flush=True)
        lines.append({"features": features, "peak_bytes": [small, large], "bytes_a_row": slope})
        bars.append((slope <= BYTES_A_ROW, f"{features} features: {slope:.0f} bytes a row"))
    return {"rows": rows, "lines": lines}, bars


def letter_settings(X: np.ndarray) -> dict[str, tuple[np.ndarray, Problem]]:
    unit = np.clip(0.5 * (X + 1.0), 0.0, 1.0)
    low, high = np.quantile(unit, [0.25, 0.75], axis=0)
    return {
        "LETTER in [0, 1], l1, radius 0.2, label cost 1": (
            unit,
            Problem("hinge", radius=0.2, norm="l1", label_cost=1.0, support=(0.0, 1.0)),
        ),
        "LETTER clipped to its quartiles, l2, radius 0.05, label cost 1": (
            np.clip(unit, low, high),
            Problem("hinge", radius=0.05, norm="l2", label_cost=1.0, support=(low, high)),
        ),
    }


def samplers(size: float, anchor: Anchor, seed: int) -> dict[str, Any]:
    plain = {"size": size, "anchor": anchor, "random_state": seed}
    written = {"calibrate": False, "focus": False}
    return {
        "UniSamp": UniformCoreset(size=size, random_state=seed),
        "LayerSamp": LayeredCoreset(**plain),
        "DualCore": DualCoreset(**plain, **written, bounds="paper"),
        "DualCore, exact h": DualCoreset(**plain, **written),
        "ours": DualCoreset(**plain),
        "ours, 3 rounds": DualCoreset(**plain, rounds=3),
    }


def coverage(problem: Problem, anchor: Anchor, X: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Return how the paper's bounds at an anchor spread the rows over the grid."""
    a, b = problem.bounds(anchor.coef, anchor.intercept, anchor.multiplier, X, y, rule="paper")
    h = problem.h(anchor.coef, anchor.intercept, anchor.multiplier, X, y)
    grid = build_grid(a, b)
    return {
        "cells": grid.n_cells,
        "off_diagonal": float(np.mean(grid.lower_layer != grid.upper_layer)),
        "a_below_h": float(np.mean(h > a + 1e-9)),
        "h_below_b": float(np.mean(b > h + 1e-9)),
        "a_below_b": float(np.mean(b > a + 1e-9)),
    }


def run_letter(title: str, X: np.ndarray, y: np.ndarray, problem: Problem, trials: int) -> dict[str, Any]:
    whole = solve(problem, X, y)
    print(f"\n{title}: least worst-case risk {whole.value:.5f}, certified to {whole.relative_gap:.0e}")
    result: dict[str, Any] = {"whole": whole.value, "relative_gap": whole.relative_gap, "percent": {}}
    for percent in PERCENT:
        excess: dict[str, list[float]] = {}
        grids, covered = [], []
        for trial in range(trials):
            pilot = UniformCoreset(size=percent / 100, random_state=1000 + trial).build(problem, X, y)
            found = solve(problem, pilot.X, pilot.y, pilot.weights, tol=1e-3)
            anchor = Anchor(found.coef, found.intercept, found.dual_variable)
            grids.append(coverage(problem, anchor, X, y))
            for name, sampler in samplers(percent / 100, anchor, trial).items():
                if name.startswith("ours"):  # the best model seen, by the full data
                    risk = sampler.fit(problem, X, y, tol=1e-4).solution.value
                else:
                    coreset = sampler.build(problem, X, y)
                    model = solve(problem, coreset.X, coreset.y, coreset.weights, tol=1e-4)
                    risk = problem.risk(model.coef, model.intercept, X, y)
                excess.setdefault(name, []).append(risk - whole.value)
                if name == "DualCore":
                    covered.append(not coreset.details["merged"])
        grid = {key: float(np.mean([each[key] for each in grids])) for key in grids[0]}
        print(
            f"  {percent} %: {grid['cells']:.1f} cells, {grid['off_diagonal']:.1%} of rows off the diagonal; "
            f"a < h for {grid['a_below_h']:.1%}, h < b for {grid['h_below_b']:.1%}; "
            f"every cell drawn from in {np.mean(covered):.0%} of trials"
        )
        for name, values in excess.items():
            print(f"    {name:18} excess {np.mean(values):.5f} +- {np.std(values):.5f}", flush=True)
        summary = {name: [float(np.mean(v)), float(np.std(v))] for name, v in excess.items()}
        result["percent"][percent] = {"grid": grid, "every_cell_drawn": float(np.mean(covered)), "excess": summary}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    parser.add_argument("--data", type=Path, default=os.environ.get("DUALCORE_DATA", beside))
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    passed = True
    with threadpool_limits(1):
        if "speed" in options.parts:
            content, bars = run_speed(options.rows)
            passed &= report(bars)
            content["bars"] = [{"passed": bool(ok), "bar": sentence} for ok, sentence in bars]
            store("box_speed", content, full=options.rows >= ROWS)
        if "memory" in options.parts:
            content, bars = run_memory(options.rows)
            passed &= report(bars)
            content["bars"] = [{"passed": bool(ok), "bar": sentence} for ok, sentence in bars]
            store("box_memory", content, full=options.rows >= ROWS)
        if "letter" in options.parts:
            X, y = load_letter(Path(options.data))
            tables = {
                title: run_letter(title, data, y, problem, options.trials)
                for title, (data, problem) in letter_settings(X).items()
            }
            store("box_letter", {"trials": options.trials, "settings": tables}, full=options.trials >= TRIALS)
    sys.exit(0 if passed else "a bar was missed")


if __name__ == "__main__":
    main()
