"""List stored results that are older than the code they measure.

    python benchmarks/check_age.py    # exits with 1 if there is one

A result is older where a later commit changed ``src/dualcore`` or the scripts that make results.
A change of documentation or tests does not count.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
# What makes the results of a folder, beside the package itself; renderers only show them.
MADE_BY = {
    "benchmarks/results": ["benchmarks/bench_*.py", "benchmarks/stored.py"],
    "docs/data/experiments": ["experiments/*.py"],
    "docs/data/study.json": ["experiments/study/*.py"],
}


def last_change(*paths: str) -> int:
    """Return when a commit last changed one of these paths, in seconds; 0 where none did."""
    command = ["git", "log", "-1", "--format=%ct", "--", *paths]
    found = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout.strip()
    return int(found) if found else 0


def main() -> int:
    older = []
    for place, scripts in MADE_BY.items():
        folder = REPOSITORY / place
        files = [folder] if folder.is_file() else sorted(path for path in folder.glob("*") if path.is_file())
        code = last_change("src/dualcore", *scripts)
        older += [path for path in files if last_change(path.relative_to(REPOSITORY).as_posix()) < code]
    for path in older:
        print(f"{path.relative_to(REPOSITORY).as_posix()} is older than the code it measures")
    return int(bool(older))


if __name__ == "__main__":
    sys.exit(main())
