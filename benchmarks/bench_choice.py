"""Where the interior point hands over to descent: both solvers on a grid, and what ``solver="auto"`` takes.

    python benchmarks/bench_choice.py --seconds 240      # measures so long; the next call goes on where it stopped
    python benchmarks/bench_choice.py --show             # prints the stored grid and how far "auto" is from the better

Every cell is a problem: logistic, hinge, and logistic with label flips; norms l1, l2, linf; a certified gap of 1e-4
and 1e-6; float64 rows with independent and with correlated columns. Both solvers run once in the same process, on one
thread, and their CPU seconds are kept. A solver that needs far more than the other is cut off. "loss" is the time of
what "auto" takes over that of the better solver; a solver that misses the gap where the other reaches it is not the
better.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits
from wide_parts.generated import make_rows, make_target

from dualcore import Problem, solve
from dualcore.data.rows import as_rows
from dualcore.problem import Data
from dualcore.solvers.choose import choose_solver

RESULTS = Path(__file__).resolve().parent / "results" / "choice.json"
ROWS = (2_000, 20_000, 100_000)
FEATURES = (20, 50, 100, 200, 400, 800)
KINDS = ("independent", "correlated")
LOSSES: dict[str, dict[str, Any]] = {
    "logistic": {"loss": "logistic"},
    "hinge": {"loss": "hinge"},
    "flips": {"loss": "logistic", "label_cost": 2.0},
}
# By the dual norm a radius means very different things; these leave models of about the same size.
RADII = {"l1": 0.02, "l2": 0.05, "linf": 0.005}
TOLS = (1e-4, 1e-6)
SOLVERS = ("structured", "descent")
# Work of a Newton matrix beyond which a cell is left out: the interior point would take minutes.
MOST_WORK = 2e10
# Descent is cut off where it takes so many times as long as the interior point, both after this many seconds.
TIMES, LIMIT = 8.0, 20.0
# Cells in which the better solver takes less than this are not worth a choice.
SHORT = 0.05


class CutError(Exception):
    """The time of a solver is over."""


def _cut(*_: Any) -> None:
    raise CutError


def problem_of(loss: str, norm: str) -> Problem:
    """Return the problem of a cell."""
    return Problem(**LOSSES[loss], norm=norm, radius=RADII[norm])


def cells() -> list[tuple[int, int, str, str, str, float]]:
    """Return the cells of the grid, those with the least work first."""
    every = itertools.product(ROWS, FEATURES, KINDS, LOSSES, RADII, TOLS)
    kept = [cell for cell in every if float(cell[0]) * cell[1] ** 2 <= MOST_WORK]
    return sorted(kept, key=lambda cell: float(cell[0]) * cell[1] ** 2)


def measure(n: int, m: int, kind: str, loss: str, norm: str, tol: float) -> dict[str, Any]:
    """Time both solvers on one cell."""
    X = make_rows(kind, n, m).astype(np.float64)
    y, problem = make_target(X, True), problem_of(loss, norm)
    line: dict[str, Any] = {"rows": n, "features": m, "kind": kind, "loss": loss, "norm": norm, "tol": tol}
    for solver in SOLVERS:
        first = line.get(SOLVERS[0], {"seconds": LIMIT})["seconds"]
        signal.setitimer(signal.ITIMER_VIRTUAL, min(LIMIT, 0.5 + TIMES * first))
        began, gap = time.process_time(), None
        try:
            gap = float(f"{solve(problem, X, y, solver=solver, tol=tol).relative_gap:.3g}")
        except CutError:
            pass
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
        line[solver] = {"seconds": round(max(time.process_time() - began, 1e-3), 4), "gap": gap}
    return line


def loss_of(line: dict[str, Any], taken: str) -> float:
    """Return the time of the solver taken over that of the better one; infinite where it alone misses the gap."""
    reached = {name: line[name]["gap"] is not None and line[name]["gap"] <= line["tol"] for name in SOLVERS}
    able = [name for name in SOLVERS if reached[name]]
    if not able:
        return 1.0
    best = min(line[name]["seconds"] for name in able)
    return float("inf") if not reached[taken] else line[taken]["seconds"] / best


def taken_by_auto(line: dict[str, Any]) -> str:
    """Return what ``solver="auto"`` takes on a cell; the choice asks for the shape of the data only."""
    X = np.broadcast_to(np.float64(1.0), (line["rows"], line["features"]))
    data = Data(as_rows(X), np.resize([-1.0, 1.0], line["rows"]), None)
    return choose_solver(problem_of(line["loss"], line["norm"]), data, "auto").name


def show(lines: list[dict[str, Any]]) -> None:
    """Print the grid and its worst cells."""
    losses = []
    for line in lines:
        taken = taken_by_auto(line)
        lost = loss_of(line, taken)
        least = min(line[name]["seconds"] for name in SOLVERS)
        losses.append((lost, least, taken, line))
        setting = f"{line['rows']:>7,} x {line['features']:<4} {line['kind']:<12}{line['loss']:<9}{line['norm']:<5}"
        times = "  ".join(f"{name} {line[name]['seconds']:7.3f} s {line[name]['gap'] or 9:.0e}" for name in SOLVERS)
        print(f"{setting} {line['tol']:.0e}  {times}  auto {taken:<10} loss {lost:.2f}")
    worth = [lost for lost, least, *_ in losses if least >= SHORT]
    print(f"{len(lines)} cells, {len(worth)} of them with at least {SHORT} s for the better solver")
    if worth:
        for name in ("auto", *SOLVERS):
            own = [lost if name == "auto" else loss_of(line, name) for lost, least, _, line in losses if least >= SHORT]
            over = sum(each > 1.3 for each in own)
            spent = sum(line[taken if name == "auto" else name]["seconds"] for _, _, taken, line in losses)
            quantiles = np.quantile(own, [0.5, 0.9, 0.95], method="lower")
            print(
                f"  {name:<10} loss: median {quantiles[0]:.2f}, 90 % {quantiles[1]:.2f}, 95 % {quantiles[2]:.2f}, most "
                f"{max(own):.3g}, above 1.3 in {over}; {spent:.0f} s for all cells"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=240.0)
    parser.add_argument("--show", action="store_true", help="measure nothing")
    options = parser.parse_args()
    lines = json.loads(RESULTS.read_text(encoding="utf-8"))["lines"] if RESULTS.exists() else []
    if not options.show:
        signal.signal(signal.SIGVTALRM, _cut)
        known = {tuple(line[name] for name in ("rows", "features", "kind", "loss", "norm", "tol")) for line in lines}
        ends = time.perf_counter() + options.seconds
        with threadpool_limits(1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for cell in cells():
                if cell in known:
                    continue
                if time.perf_counter() > ends:
                    break
                lines.append(measure(*cell))
        written = ",\n".join(json.dumps(line) for line in lines)
        RESULTS.write_text(f'{{"lines": [\n{written}\n]}}\n', encoding="utf-8")
    show(lines)


if __name__ == "__main__":
    main()
