"""Thin coresets of losses with kinks: the loop as it is beside one that trains on every coreset, on generated tables.

    python benchmarks/check_thin_kinks.py                  # about four minutes on one core
    python benchmarks/check_thin_kinks.py --trials 2

Tables of 4,000 rows, every other one with correlated columns, radius 0.1 or 0.02, l2. "rows" are those of the coreset
for each parameter. "excess" is the worst-case risk on all rows over the optimum's lower bound, less one; "gap" is the
certified relative gap. Medians over the trials, and the largest excess.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np

from dualcore import Problem, solve
from dualcore.coresets.refine import fit_coreset
from dualcore.coresets.samplers import refinement

ROWS = 4000


def draw(loss: str, m: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return features and targets of a table."""
    rng = np.random.default_rng([m, seed])
    X = rng.standard_normal((ROWS, m))
    if seed % 2:
        X = X @ (np.eye(m) + 0.5 * rng.standard_normal((m, m)))
        X /= X.std(axis=0)
    scores = X @ rng.standard_normal(m) / np.sqrt(m)
    if loss == "hinge":
        return X, np.where(scores + 0.7 * rng.logistic(size=ROWS) > 0.0, 1.0, -1.0)
    return X, scores + 0.5 * rng.standard_t(3, size=ROWS)


def compare(loss: str, m: int, per: float, trials: int) -> str:
    """Return a line: medians for the loop that trains on every coreset, then for the loop as it is."""
    # Rows a parameter below which steps follow the gradients of all rows, whatever the kinks; and where there are some.
    limits = (refinement._TILTED, refinement._TILTED_KINKS)
    found: dict[float, list[tuple[float, float]]] = {limit: [] for limit in limits}
    for seed in range(trials):
        X, y = draw(loss, m, seed)
        problem = Problem(loss, radius=0.1 if seed % 3 else 0.02, norm="l2")
        optimum = solve(problem, X, y).lower_bound
        for limit in limits:
            refinement._TILTED_KINKS = limit
            fit = fit_coreset(problem, X, y, int(per * (m + 1)), random_state=seed)
            found[limit].append((fit.certificate.upper / optimum - 1.0, fit.certificate.relative_gap))
        refinement._TILTED_KINKS = limits[1]
    shown = []
    for limit, name in zip(limits, ("trained", "steps"), strict=True):
        excess, gap = np.array(found[limit]).T
        shown.append(f"{name}: excess {np.median(excess):.1e} (most {excess.max():.1e}) gap {np.median(gap):.1e}")
    return f"{loss:<9} {m:>3} features, {per:>4g} rows  {'   '.join(shown)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=6)
    asked = parser.parse_args()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a thin coreset misses its target gap is what is measured
        for loss in ("hinge", "absolute"):
            for m in (4, 8, 16, 30):
                for per in (3.2, 6.0, 12.0, 18.0):
                    print(compare(loss, m, per, asked.trials), flush=True)


if __name__ == "__main__":
    main()
