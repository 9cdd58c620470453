"""Tables 1 and 2 of the paper: the worst-case risk of models trained on 1..10 % of the poisoned LETTER file.

    python benchmarks/bench_letter_tables.py                     # 50 trials, as in the paper; minutes
    python benchmarks/bench_letter_tables.py --trials 5 --percent 5 10
    python benchmarks/bench_letter_tables.py --jobs 2            # trials in two processes

Every method gets the same rows a solve, and in every trial the same seed, so the same pilot anchor. Each model is
scored on all 1260 rows. "DualCore" is Algorithm 1 as written; "ours" the same class with its defaults and four
rounds. The paper's figures are those printed in Tables 1 and 2 of Huang, Huang, Liu and Ding, "Coresets for Wasserstein
Distributionally Robust Optimization Problems", NeurIPS 2022: mean and standard deviation of the risk over 50 trials.

The data are not part of this repository: name their folder with --data or DUALCORE_DATA.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import warnings
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from dualcore import DualCoreset, GridCoreset, ImportanceCoreset, LayeredCoreset, Problem, UniformCoreset, solve
from dualcore.coresets.samplers import Sampler

HERE = Path(__file__).resolve().parent
TRIALS, PERCENT = 50, tuple(range(1, 11))


class Setting(NamedTuple):
    """A table: its problem, the printed risk of the model of all rows, the bars on our excess, the printed risks."""

    title: str
    problem: Problem
    whole: float
    # Percent of rows: largest allowed share of the paper's DualCore excess.
    bars: dict[int, float]
    # Method: means and standard deviations at 1..10 %.
    printed: dict[str, tuple[tuple[float, ...], tuple[float, ...]]]


# fmt: off
SETTINGS = {
    "table1": Setting(
        "Table 1: logistic regression, l1 features, radius 0.3, label cost 7",
        Problem("logistic", radius=0.3, norm="l1", label_cost=7.0),
        0.59267,
        {5: 1.0 / 8.0, 10: 1.0 / 30.0},
        {
            "UniSamp": (
                (0.72518, 0.64630, 0.62709, 0.62047, 0.61338, 0.60823, 0.60716, 0.60640, 0.60395, 0.60220),
                (0.1268, 0.0344, 0.0216, 0.0176, 0.0164, 0.0084, 0.0082, 0.0070, 0.0066, 0.0069),
            ),
            "ImpSamp": (
                (0.70484, 0.65798, 0.63015, 0.62350, 0.61524, 0.61284, 0.61198, 0.60936, 0.60677, 0.60574),
                (0.0915, 0.0447, 0.0333, 0.0183, 0.0137, 0.0131, 0.0113, 0.0108, 0.0086, 0.0090),
            ),
            "LayerSamp": (
                (0.70988, 0.63911, 0.62381, 0.61616, 0.61013, 0.60749, 0.60590, 0.60376, 0.60235, 0.60007),
                (0.0840, 0.0305, 0.0199, 0.0143, 0.0096, 0.0119, 0.0083, 0.0078, 0.0070, 0.0041),
            ),
            "DualCore": (
                (0.68933, 0.63708, 0.62546, 0.61292, 0.60986, 0.60556, 0.60381, 0.60238, 0.60056, 0.60113),
                (0.0587, 0.0257, 0.0225, 0.0149, 0.0097, 0.0092, 0.0073, 0.0062, 0.0046, 0.0071),
            ),
        },
    ),
    "table2": Setting(
        "Table 2: SVM, l2 features, radius 0.1, label cost 7, and the ridge of the authors' code",
        Problem("hinge", radius=0.1, norm="l2", label_cost=7.0, ridge=1.0 / 200.0),
        0.49734,
        {5: 1.0 / 3.0, 10: 1.0 / 5.0},
        {
            "UniSamp": (
                (0.68707, 0.59376, 0.56860, 0.54429, 0.53218, 0.53460, 0.52784, 0.52246, 0.52025, 0.51458),
                (0.1094, 0.0565, 0.0360, 0.0308, 0.0234, 0.0248, 0.0225, 0.0190, 0.0153, 0.0083),
            ),
            "ImpSamp": (
                (0.66576, 0.60895, 0.57346, 0.55050, 0.54212, 0.53835, 0.53388, 0.51993, 0.52402, 0.51768),
                (0.1030, 0.0683, 0.0453, 0.0409, 0.0295, 0.0288, 0.0275, 0.0119, 0.0206, 0.0166),
            ),
            "LayerSamp": (
                (0.70577, 0.58967, 0.56705, 0.54366, 0.52981, 0.52496, 0.52039, 0.51918, 0.51289, 0.51578),
                (0.1278, 0.0529, 0.0377, 0.0336, 0.0182, 0.0177, 0.0150, 0.0126, 0.0094, 0.0130),
            ),
            "DualCore": (
                (0.67866, 0.59850, 0.56689, 0.53634, 0.53217, 0.52835, 0.52025, 0.51845, 0.51196, 0.51066),
                (0.1173, 0.0548, 0.0347, 0.0207, 0.0190, 0.0184, 0.0147, 0.0116, 0.0054, 0.0065),
            ),
        },
    ),
}
# fmt: on

METHODS: dict[str, Callable[[int, int], Sampler]] = {
    "UniSamp": lambda size, seed: UniformCoreset(size, random_state=seed),
    "ImpSamp": lambda size, seed: ImportanceCoreset(size, random_state=seed),
    "LayerSamp": lambda size, seed: LayeredCoreset(size, random_state=seed),
    "DualCore": lambda size, seed: GridCoreset(size, random_state=seed),
    "ours": lambda size, seed: DualCoreset(size, random_state=seed),
}


class Trial(NamedTuple):
    risk: float
    gap: float
    reads: int
    rows: int


class Row(NamedTuple):
    """Fifty trials in a line; risks are means, with their standard deviation over the trials."""

    method: str
    percent: int
    rows: int
    risk: float
    std: float
    excess: float
    gap: float
    reads: float
    paper: float | None
    paper_std: float | None


def load_letter(folder: Path) -> tuple[np.ndarray, np.ndarray]:
    path = folder / "letter_authors.npz"
    if not path.is_file():
        sys.exit(f"There is no {path.name} in the data folder: name the folder with --data or DUALCORE_DATA.")
    with np.load(path, allow_pickle=False) as file:
        return file["X_mm"], file["y_mm"]


def run_trial(table: str, method: str, size: int, seed: int, X: np.ndarray, y: np.ndarray) -> Trial:
    problem = SETTINGS[table].problem
    with warnings.catch_warnings(), threadpool_limits(1):
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.simplefilter("ignore", UserWarning)  # UniformCoreset says when a draw missed a class
        fit = METHODS[method](size, seed).fit(problem, X, y)
    certificate = fit.certificate
    # The neutral referee: the same function scores every method.
    risk = problem.risk(fit.solution.coef, fit.solution.intercept, X, y)
    return Trial(risk, certificate.gap, certificate.n_reads, len(fit.coreset))


def run_table(
    table: str, X: np.ndarray, y: np.ndarray, *, percent: Sequence[int], trials: int, jobs: int = 1
) -> tuple[float, list[Row]]:
    """Return the risk of the model of all rows, and a row for every method and size."""
    setting = SETTINGS[table]
    whole = solve(setting.problem, X, y, tol=1e-9).value
    rows = []
    with Parallel(n_jobs=jobs) as pool:
        for c in percent:
            size = round(0.01 * c * len(y))
            for method in METHODS:
                done = pool(delayed(run_trial)(table, method, size, seed, X, y) for seed in range(trials))
                risks = [trial.risk for trial in done]
                printed = setting.printed.get(method)
                rows.append(
                    Row(
                        method,
                        c,
                        size,
                        statistics.fmean(risks),
                        statistics.stdev(risks) if trials > 1 else 0.0,
                        statistics.fmean(risks) - whole,
                        statistics.fmean(trial.gap for trial in done),
                        statistics.fmean(trial.reads for trial in done),
                        printed[0][c - 1] if printed else None,
                        printed[1][c - 1] if printed else None,
                    )
                )
    return whole, rows


def judge(table: str, rows: Sequence[Row]) -> list[tuple[bool, str]]:
    """Return every bar as (passed, sentence)."""
    setting = SETTINGS[table]
    bars = []
    for row in rows:
        paper = setting.printed["DualCore"][0][row.percent - 1] - setting.whole
        if row.method == "ours":
            share = setting.bars.get(row.percent, 1.0)
            bars.append(
                (
                    row.excess <= share * paper,
                    f"{row.percent:2d} %: ours {row.excess:.2e} <= {share:.3g} x {paper:.4f} (paper's DualCore excess)",
                )
            )
        elif row.method == "DualCore" and row.paper is not None and row.paper_std is not None:
            bars.append(
                (
                    abs(row.risk - row.paper) <= row.paper_std,
                    f"{row.percent:2d} %: DualCore {row.risk:.5f} within {row.paper_std:.4f} of {row.paper:.5f}",
                )
            )
    return sorted(bars, key=lambda bar: "DualCore" in bar[1].split(":")[1].split()[0])


def show(table: str, whole: float, rows: Sequence[Row]) -> None:
    print(f"\n{SETTINGS[table].title}\nWhole {whole:.5f} (paper {SETTINGS[table].whole:.5f})\n")
    print(
        f"{'c':>4} {'rows':>5} {'method':<10} {'excess over Whole':>20} {'risk':>9} {'cert. gap':>10} {'reads':>6}"
        f" {'paper':>18}"
    )
    for row in rows:
        paper = "" if row.paper is None else f"{row.paper:.5f} ± {row.paper_std:.4f}"
        print(
            f"{row.percent:>3}% {row.rows:>5} {row.method:<10} {row.excess:>11.2e} ± {row.std:.1e} {row.risk:>9.5f}"
            f" {row.gap:>10.2e} {row.reads:>6.1f} {paper:>18}"
        )


def environment() -> dict[str, Any]:
    """What a figure depends on, and nothing that names the machine."""
    model = platform.processor()
    try:
        listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
        model = next(line.split(":", 1)[1].strip() for line in listing.splitlines() if line.startswith("Model name"))
    except (OSError, subprocess.CalledProcessError, StopIteration):
        pass
    names = ("dualcore", "numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl")
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # a checkout that is not installed
            versions[name] = "not installed"
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": model,
        "cores": os.cpu_count(),
        "versions": versions,
    }


def store(name: str, content: dict[str, Any], *, full: bool) -> None:
    """Write results; those of a shortened run go to a folder that is not kept."""
    folder = HERE / "results" if full else HERE / "results" / "local"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps({"environment": environment()} | content, indent=1) + "\n", encoding="utf-8")
    print(f"\nstored in {path.relative_to(HERE.parent).as_posix()}")


def report(bars: Sequence[tuple[bool, str]]) -> bool:
    print()
    for passed, sentence in bars:
        print(f"{'pass' if passed else 'FAIL'}  {sentence}")
    return all(passed for passed, _ in bars)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    beside = HERE.parent.parent / "shared" / "data"
    parser.add_argument("--data", type=Path, default=os.environ.get("DUALCORE_DATA", beside))
    parser.add_argument("--tables", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--percent", nargs="+", type=int, choices=PERCENT, default=list(PERCENT))
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--jobs", type=int, default=1, help="processes; -1 for as many as there are cores")
    options = parser.parse_args()
    X, y = load_letter(Path(options.data))
    passed, results = True, {}
    for table in options.tables:
        whole, rows = run_table(table, X, y, percent=options.percent, trials=options.trials, jobs=options.jobs)
        show(table, whole, rows)
        bars = judge(table, rows)
        passed &= report(bars)
        results[table] = {
            "whole": whole,
            "rows": [row._asdict() for row in rows],
            "bars": [{"passed": ok, "bar": sentence} for ok, sentence in bars],
        }
    full = options.trials >= TRIALS and set(options.percent) == set(PERCENT) and set(options.tables) == set(SETTINGS)
    store("letter_tables", {"trials": options.trials, "tables": results}, full=full)
    sys.exit(0 if passed else "a bar was missed")


if __name__ == "__main__":
    main()
