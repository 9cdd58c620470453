"""That no lower bound of a problem with categories is above the optimum.

    python benchmarks/check_categories.py                   # 2,000 bounds, about five minutes
    python benchmarks/check_categories.py --problems 10
    python benchmarks/check_categories.py --problems 40 --out bounds.jsonl     # in pieces: 40 more each time

Every problem has up to three groups of categories, up to two numbers (with and without walls) and 8 to 60 rows; losses
take turns. It is trained to 1e-8, which gives a value that no lower bound may exceed. Ten bounds are then asked for:
four of models far off (`certify`), three of training that stops early, three of coresets. Where the converged value is
looser than 1e-6 the problem is not counted and another takes its place.

A line of ``--out`` is one problem; a run that is started again goes on behind the last. The numbers of all problems are
stored in results/categories_bounds.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from bench_letter_tables import store

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from dualcore import Solution, certify, fit_coreset, solve
from reference.category_cases import Case, draw_case, draw_rows

LOSSES = ("hinge", "logistic", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")
PROBLEMS = 200
EXACT = 1e-6


def draw(seed: int) -> tuple[Case, Any, Any]:
    """Return a random problem and its rows."""
    rng = np.random.default_rng([17, seed])
    ridge = float(rng.choice([0.0, 0.0, 0.02]))
    case = draw_case(rng, LOSSES[seed % len(LOSSES)], immovable=0.15 if ridge else 0.0, ridge=ridge)
    return case, *draw_rows(rng, case, int(rng.integers(8, 61)))


def bounds(case: Case, X: Any, y: Any, best: Solution, rng: np.random.Generator) -> Iterator[tuple[str, float, float]]:
    """Yield where a lower bound comes from, the bound, and the rounding it allows for."""
    for _ in range(4):
        far = best.coef + rng.normal(size=best.coef.size) * 10.0 ** rng.uniform(-3.0, 1.0)
        known = certify(case.problem, dataclasses.replace(best, coef=far), X, y)
        yield "a model far off", known.lower, known.rounding
    for _ in range(3):
        tol, most = float(10.0 ** rng.uniform(-4.0, -0.5)), int(rng.integers(1, 8))
        rough = solve(case.problem, X, y, tol=tol, max_iter=most)
        yield "training that stops early", rough.lower_bound, rough.rounding
    for _ in range(3):
        size = int(rng.integers(4, len(y)))
        known = fit_coreset(case.problem, X, y, coreset=size, random_state=int(rng.integers(1000))).certificate
        yield "a coreset", known.lower, known.rounding


def judge(seed: int) -> dict[str, Any]:
    """Return how far below the optimum each bound of a problem is, relatively; those above it are faults."""
    case, X, y = draw(seed)
    best = solve(case.problem, X, y, tol=1e-8)
    found: dict[str, Any] = {"seed": seed, "counts": bool(best.relative_gap <= EXACT), "below": {}, "faults": []}
    if found["counts"]:
        for source, lower, rounding in bounds(case, X, y, best, np.random.default_rng([18, seed])):
            found["below"].setdefault(source, []).append((best.value - lower) / max(best.value, 1e-300))
            if lower > best.value + rounding + best.rounding:
                found["faults"].append(source)
                print(f"seed {seed}, {source}: {lower!r} is above {best.value!r}: {case.problem}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=PROBLEMS)
    parser.add_argument("--out", type=Path, default=None, help="JSON lines; appended to")
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # of training that stops early
    known = [] if options.out is None or not options.out.exists() else options.out.read_text().splitlines()
    judged = [json.loads(line) for line in known]
    done = 0
    while done < options.problems:
        judged.append(judge(len(judged)))
        done += judged[-1]["counts"]
        if options.out is not None:
            with options.out.open("a") as file:
                file.write(json.dumps(judged[-1]) + "\n")
    counted = [each for each in judged if each["counts"]]
    count, above = {}, {}
    for source in counted[0]["below"]:
        distances = [value for each in counted for value in each["below"][source]]
        count[source], above[source] = len(distances), sum(each["faults"].count(source) for each in counted)
        near = np.median(distances)
        print(f"{source}: {above[source]} of {count[source]} above the optimum; median distance {near:.1e} of it")
    violated, loose = sum(above.values()), len(judged) - len(counted)
    print(f"bounds above the optimum: {violated} of {sum(count.values()):,}; {loose} problems left out")
    content = {"problems": len(counted), "left_out": loose, "bounds": count, "violated": above}
    store("categories_bounds", content, full=len(counted) >= PROBLEMS)
    sys.exit(1 if violated else 0)


if __name__ == "__main__":
    main()
