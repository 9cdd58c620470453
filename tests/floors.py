"""Print the oldest versions that pyproject.toml allows, as constraints for pip."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).resolve().parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"^(?P<name>[A-Za-z0-9_-]+)(?:\[[\w,]+\])?>=(?P<floor>[\d.]+)")
# What a user installs, and what the tests need to run at all; linters and peers may be new.
EXTRAS = ("plots", "parquet", "dask")
TOOLS = ("hypothesis", "pytest")


def floors(text: str) -> list[str]:
    """Return ``name==version`` of every dependency at its floor.

    >>> floors('''[project]
    ... dependencies = ["numpy>=2.0"]
    ... [project.optional-dependencies]
    ... plots = ["matplotlib>=3.9"]
    ... parquet = []
    ... dask = ["dask[dataframe]>=2024.8"]
    ... dev = ["dualcore[plots]", "pytest>=8.2", "ruff>=0.9"]
    ... ''')
    ['numpy==2.0', 'matplotlib==3.9', 'dask==2024.8', 'pytest==8.2']
    """
    project = tomllib.loads(text)["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *(line for extra in EXTRAS for line in extras[extra])]
    wanted += [line for line in extras["dev"] if line.startswith(TOOLS) and "xdist" not in line]
    found = []
    for line in wanted:
        match = REQUIREMENT.match(line)
        if match is None:
            raise ValueError(f"{line!r} has no floor: write it as name>=version.")
        found.append(f"{match['name']}=={match['floor']}")
    return found


if __name__ == "__main__":
    sys.stdout.write("\n".join(floors(PYPROJECT.read_text(encoding="utf-8"))) + "\n")
