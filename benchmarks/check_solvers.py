"""How well both solvers agree with CVXPY (Clarabel, tight tolerances), in figures.

    python benchmarks/check_solvers.py                   # 324 problems, about a minute
    python benchmarks/check_solvers.py --problems 3000   # the same ones and more

The problems are those of ``tests/peers/test_solvers_referee.py``: every loss, norm and label cost, with and without
ridge, weights and intercept, on plain, badly scaled, duplicated, wide, separable, constant and two-row data.

All figures are the largest over the problems of a line, relative to the referee's optimum: "apart" how far value and
referee are from each other, "worse" how far the value is above the referee, "bound" how far the certified lower bound
is above it (it should not be), "gap" between value and lower bound. "short" counts problems whose optimum the referee
states too low (its own model has a larger risk), "long" those whose optimum it states more than 1e-6 too high (ours is
better), "undecided" those it gave up on; there the gap alone speaks.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from peers.cvxpy_referee import UndecidedError
from peers.test_solvers_referee import AGREEMENT, BOUND_SLACK, N_PROBLEMS, Comparison, Drawn, compare, draw, referee


@dataclass
class Tally:
    """The worst of one line of the table."""

    problems: int = 0
    apart: float = 0.0
    worse: float = -1.0
    bound: float = -1.0
    gap: float = 0.0
    short: int = 0
    long: int = 0
    faults: int = 0
    seconds: float = 0.0

    def add(self, found: Comparison) -> None:
        self.problems += 1
        self.apart = max(self.apart, abs(found.excess))
        self.worse = max(self.worse, found.excess)
        self.bound = max(self.bound, found.overshoot)
        self.gap = max(self.gap, found.gap)
        self.short += found.referee_is_short
        self.long += found.referee_is_long
        self.faults += bool(found.faults)
        self.seconds += found.seconds

    def line(self, name: str) -> str:
        return (
            f"{name:34s} {self.problems:6d} {self.apart:9.1e} {self.worse:9.1e} {self.bound:9.1e} {self.gap:9.1e} "
            f"{self.short:6d} {self.long:6d} {self.faults:6d} {self.seconds:8.2f}"
        )


HEADER = (
    f"{'':34s} {'solves':>6s} {'apart':>9s} {'worse':>9s} {'bound':>9s} {'gap':>9s} "
    f"{'short':>6s} {'long':>6s} {'faults':>6s} {'seconds':>8s}"
)
LINES: dict[str, Callable[[Drawn, str], str]] = {
    "loss, solver": lambda drawn, solver: f"{drawn.problem.loss.name}, {solver}",
    "norm": lambda drawn, _: drawn.problem.geometry.norm.name,
    "label cost": lambda drawn, _: f"{drawn.problem.geometry.label_cost:g}",
    "data": lambda drawn, _: drawn.trait,
    "weights": lambda drawn, _: drawn.weighting,
    "radius": lambda drawn, _: f"{drawn.problem.radius:g}",
    "ridge": lambda drawn, _: f"{drawn.problem.ridge:g}",
    "intercept": lambda drawn, _: str(drawn.problem.fit_intercept),
    "all": lambda *_: "all",
}


@dataclass
class Report:
    tallies: dict[str, dict[str, Tally]] = field(default_factory=lambda: {name: defaultdict(Tally) for name in LINES})
    blamed: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)

    def add(self, drawn: Drawn) -> None:
        try:
            referee(drawn.index)
        except UndecidedError:
            self.undecided.append(str(drawn))
            return
        for solver in drawn.solvers:
            found = compare(drawn, solver)
            for name, line in LINES.items():
                self.tallies[name][line(drawn, solver)].add(found)
            if found.faults:
                self.blamed.append(f"{solver} on {drawn}: {'; '.join(found.faults)}")

    def show(self) -> None:
        print(HEADER)
        for name, tallies in self.tallies.items():
            print(f"-- {name}")
            for key in tallies:
                print(tallies[key].line(key))
        for label, lines in (("faults", self.blamed), ("undecided by the referee", self.undecided)):
            print(f"-- {label}: {len(lines)}")
            for line in lines:
                print(line)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=N_PROBLEMS, help="how many problems to draw")
    parser.add_argument("--first", type=int, default=0, help="index of the first one")
    options = parser.parse_args()
    report, began = Report(), time.perf_counter()
    for index in range(options.first, options.first + options.problems):
        report.add(draw(index))
    report.show()
    print(f"{options.problems} problems, {time.perf_counter() - began:.0f} s.")
    print(f"Asked for: worse and gap <= {AGREEMENT:.0e}; bound <= {BOUND_SLACK:.0e} unless the referee is short.")
    return 1 if report.blamed else 0


if __name__ == "__main__":
    sys.exit(main())
