"""How well the closed forms agree with brute force over perturbations and with CVXPY, in figures.

    python benchmarks/check_dual.py                 # 648 problems, a few minutes
    python benchmarks/check_dual.py --examples 20   # of every loss, norm and label cost

Hypothesis draws the problems, the same ones on every run. Errors are relative (to 1e-3, CVXPY's to 1e-2, where the
reference is smaller than that). "flips" is the share of problems in which the worst case flips a label.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from zlib import crc32

import numpy as np
from hypothesis import HealthCheck, Phase, given, seed, settings

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from dualcore import worst_case_distribution
from reference.brute_force import Adversary, feature_norm
from reference.cases import LABEL_COSTS, LOSS_NAMES, NORMS, Case, cases

AGREEMENT = 1e-6


@dataclass
class Tally:
    """Largest errors over the problems of one loss."""

    problems: int = 0
    flips: int = 0
    kappa: float = 0.0
    h: float = 0.0
    risk: float = 0.0
    cvxpy: float = 0.0
    outside: int = 0  # minimising multipliers outside the interval or above tau
    cost: float = -1.0  # transport cost of the worst case, relative to the radius, minus one
    loss: float = 0.0  # risk minus its expected loss

    def add(self, case: Case, referee: bool) -> None:
        problem, adversary, arguments = case.problem, Adversary(case), (*case.model, *case.data, case.weights)
        risk, brute, kappa = problem.risk(*arguments), adversary.worst_case(), problem.kappa(case.coef)
        self.problems += 1
        self.flips += brute.flipped > 1e-9
        self.kappa = max(self.kappa, abs(kappa - adversary.kappa()) / max(kappa, 1.0))
        h = problem.h(*case.model, kappa + 0.5, *case.data)
        self.h = max(self.h, difference(h, adversary.h(kappa + 0.5)))
        self.risk = max(self.risk, difference(risk, brute.value))
        if referee:
            from peers.cvxpy_referee import cvxpy_risk

            self.cvxpy = max(self.cvxpy, difference(risk, cvxpy_risk(problem, *arguments), 1e-2))
        low, high = problem.multiplier_interval(*case.model, *case.data)
        found, tau = problem.multiplier(*arguments), problem.multiplier_bound(*case.model, *case.data)
        self.outside += not low <= found <= min(high, tau)
        if case.order == 1:
            self.add_worst_case(case, risk)

    def add_worst_case(self, case: Case, risk: float) -> None:
        worst = worst_case_distribution(case.problem, *case.model, *case.data, case.weights)
        prices = feature_norm(case.norm, worst.X - case.X[worst.source])
        if np.isfinite(case.label_cost):
            prices = prices + 0.5 * case.label_cost * np.abs(worst.y - case.y[worst.source])
        if case.radius > 0.0:
            self.cost = max(self.cost, float(worst.weights @ prices) / case.radius - 1.0)
        self.loss = max(self.loss, abs(risk - worst.expected_loss) / max(1.0, risk))


def difference(value: np.ndarray | float, reference: np.ndarray | float, floor: float = 1e-3) -> float:
    return float(np.max(np.abs(np.subtract(value, reference)) / np.maximum(np.abs(reference), floor)))


def draw(loss: str, norm: str, cost: float, examples: int, use: Callable[[Case], None]) -> None:
    """Hand ``examples`` problems to ``use``."""

    @seed(crc32(f"{loss} {norm} {cost}".encode()))
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    @given(cases(loss, norm, cost))
    def run(case: Case) -> None:
        use(case)

    run()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=6, help="problems of each loss, norm and label cost")
    parser.add_argument("--losses", nargs="*", default=LOSS_NAMES, choices=LOSS_NAMES)
    options = parser.parse_args()
    referee = find_spec("cvxpy") is not None
    tallies: dict[str, Tally] = {}
    heads = ("problems", "flips", "kappa", "h", "risk", "CVXPY", "outside", "cost - 1", "risk - loss")
    print(f"{'loss':20}" + "".join(f"{head:>12}" for head in heads))
    for loss in options.losses:
        tally = tallies[loss] = Tally()
        for norm, cost in product(NORMS, LABEL_COSTS):
            draw(loss, norm, cost, options.examples, lambda case, tally=tally: tally.add(case, referee))
        print(f"{loss:20}" + "".join(f"{text:>12}" for text in columns(tally, referee)), flush=True)
    summarise(tallies, referee)


def columns(tally: Tally, referee: bool) -> list[str]:
    errors = [f"{error:.1e}" for error in (tally.kappa, tally.h, tally.risk)]
    flips = f"{tally.flips / tally.problems:.0%}" if tally.flips else "-"
    worst = [f"{tally.cost:.1e}", f"{tally.loss:.1e}"] if tally.cost > -1.0 else ["-", "-"]
    cvxpy = f"{tally.cvxpy:.1e}" if referee else "absent"
    return [str(tally.problems), flips, *errors, cvxpy, str(tally.outside), *worst]


def summarise(tallies: dict[str, Tally], referee: bool) -> None:
    every = list(tallies.values())
    flipping = [tally for tally in every if tally.flips]
    most = max(max(tally.kappa, tally.h, tally.risk, tally.cvxpy) for tally in every)
    print(
        f"\n{sum(tally.problems for tally in every)} problems, largest relative error {most:.1e} (bound {AGREEMENT:g})"
    )
    if flipping:
        share = sum(tally.flips for tally in flipping) / sum(tally.problems for tally in flipping)
        print(f"flips active in {share:.0%} of the classification problems (at least 33%)")
    print(f"multipliers outside their interval or above tau: {sum(tally.outside for tally in every)}")
    attained = [tally for tally in every if tally.cost > -1.0]
    if attained:
        print(
            f"worst cases: transport cost at most radius * (1 + {max(tally.cost for tally in attained):.0e}), "
            f"expected loss within {max(tally.loss for tally in attained):.0e} of the risk"
        )
    if not referee:
        print("CVXPY is not installed: the comparison with it was left out")
    if most > AGREEMENT:
        raise SystemExit("the closed forms and the references disagree")


if __name__ == "__main__":
    main()
