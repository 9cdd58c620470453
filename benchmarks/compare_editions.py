"""Is anything slower than it was? The same benchmarks of two revisions, in turns, each in a checkout of its own.

    python benchmarks/compare_editions.py 357ac58             # that revision beside the last commit
    python benchmarks/compare_editions.py 357ac58 --turns 3 --benchmarks construction solvers
    python benchmarks/compare_editions.py 357ac58 --store     # kept in results/editions.json

Each revision is checked out into a temporary folder, so that what it stores touches nothing here; its own package and
its own benchmark scripts run there with this interpreter. "ratio" is the seconds of the newer over those of the older,
medians over the turns; lines of peers (a product with X, scikit-learn, pyarrow) say how much the machine itself
wavered between the two.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results" / "editions.json"
# What tells one line of a benchmark's list from another.
NAMES = ("task", "method", "n", "m")
MOST = 1.1


class Benchmark(NamedTuple):
    """Options that make a benchmark last a minute or two, and where it then leaves its results."""

    options: tuple[str, ...]
    results: str


BENCHMARKS = {
    "coreset_large": Benchmark(
        ("--threads", "1", "--repeats", "5", "--svc-iterations", "1"), "results/coreset_large.json"
    ),
    "sources": Benchmark(("--n", "1000000"), "results/sources.json"),
    "solvers": Benchmark(
        ("--methods", "structured", "sklearn", "--sizes", "1000", "10000", "--repeats", "3"),
        "results/solvers.json",
    ),
}


def seconds_of(found: Any, name: str = "", inside: bool = False) -> Iterator[tuple[str, float]]:
    """Yield every duration in a stored result, by a name made of the keys that lead to it."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from seconds_of(value, f"{name} {key}".strip(), inside or key.endswith("seconds"))
    elif isinstance(found, list):
        for line in found:
            if isinstance(line, dict):
                own = " ".join(str(line[key]) for key in NAMES if key in line)
                yield from seconds_of(line, f"{name} {own}".strip(), inside)
    elif inside and isinstance(found, (int, float)) and "cap_seconds" not in name:
        yield name, float(found)


def run(checkout: Path, name: str) -> dict[str, float]:
    """Run a benchmark in a checkout and return its durations."""
    benchmark = BENCHMARKS[name]
    results = checkout / "benchmarks" / benchmark.results
    results.unlink(missing_ok=True)
    command = [sys.executable, f"benchmarks/bench_{name}.py", *benchmark.options]
    done = subprocess.run(
        command, cwd=checkout, env=os.environ | {"PYTHONPATH": str(checkout / "src")}, capture_output=True, text=True
    )
    if not results.exists():  # a bar that is missed also ends with an exit code, and has results all the same
        raise SystemExit(f"{' '.join(command)} in {checkout} left no {results.name}:\n{done.stdout}\n{done.stderr}")
    return dict(seconds_of(json.loads(results.read_text(encoding="utf-8"))))


def compare(old: Path, new: Path, name: str, turns: int) -> list[dict[str, Any]]:
    """Return a line for each duration that both revisions measure."""
    taken: list[tuple[dict[str, float], dict[str, float]]] = []
    for _ in range(turns):
        before = run(old, name)
        taken.append((before, run(new, name)))
    lines = []
    for what in taken[0][0]:
        if all(what in turn[0] and what in turn[1] for turn in taken):
            older, newer = (statistics.median(turn[k][what] for turn in taken) for k in (0, 1))
            lines.append({"what": what, "before": older, "after": newer, "ratio": newer / older})
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", help="revision to compare with")
    parser.add_argument("new", nargs="?", default="HEAD")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--benchmarks", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    parser.add_argument("--store", action="store_true")
    asked = parser.parse_args()
    if asked.turns < 1:
        parser.error(f"--turns must be at least 1, got {asked.turns}.")
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        checkouts = [Path(folder) / "old", Path(folder) / "new"]
        for revision, checkout in zip((asked.old, asked.new), checkouts, strict=True):
            git = ["git", "worktree", "add", "--quiet", "--detach", str(checkout), revision]
            subprocess.run(git, cwd=HERE, check=True)
        try:
            for name in asked.benchmarks:
                found[name] = compare(*checkouts, name, asked.turns)
                print(f"{name}: seconds before, after, ratio (at most {MOST} asked of lines that are ours)", flush=True)
                for line in found[name]:
                    print(f"  {line['what']:<60} {line['before']:9.4f} {line['after']:9.4f} {line['ratio']:6.2f}")
        finally:
            for checkout in checkouts:
                subprocess.run(["git", "worktree", "remove", "--force", str(checkout)], cwd=HERE, check=False)
    if asked.store:
        names = {"old": asked.old, "new": asked.new, "turns": asked.turns}
        RESULTS.write_text(json.dumps(names | {"lines": found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
