"""What is asked of a part, the peers beside it, their times, and the memory of a process of its own."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.linear_model import HuberRegressor, LogisticRegression
from sklearn.svm import LinearSVC

Line = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What the command line asks of a part.

    ``seconds`` is how long a part of many problems may take, ``before`` its stored line, from which it goes on.
    """

    quick: bool
    repeats: int
    seconds: float = float("inf")
    before: Line | None = None


PEERS: dict[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegression(C=np.inf, tol=1e-4, max_iter=1000),
    "svm": lambda: LinearSVC(loss="hinge", max_iter=1000),
    # The first iterations of a longer run: what they take is a lower bound on the time of the peer.
    "svm-short": lambda: LinearSVC(loss="hinge", max_iter=100),
    "huber": lambda: HuberRegressor(alpha=0.0, max_iter=1000),
    "huber-short": lambda: HuberRegressor(alpha=0.0, max_iter=100),
    "liblinear": lambda: LogisticRegression(C=1.0, solver="liblinear", max_iter=1000),
}


def seconds_in_turns(methods: dict[str, Callable[[], Any]], repeats: int, once: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the median seconds of every method, which take turns; those in ``once`` run one time only."""
    taken: dict[str, list[float]] = {name: [] for name in methods}
    for turn in range(repeats):
        for name, method in methods.items():
            if turn == 0 or name not in once:
                began = time.perf_counter()
                method()
                taken[name].append(time.perf_counter() - began)
    return {name: statistics.median(each) for name, each in taken.items()}


# The peak is read from /proc, because ru_maxrss of a child begins at that of its parent.
_CHILD = """
import json, re, sys, warnings
from pathlib import Path
warnings.simplefilter("ignore")
import numpy as np, scipy.optimize, sklearn.linear_model, pyarrow.parquet
import dualcore
from dualcore import *
def peak_kilobytes():
    return int(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = peak_kilobytes()
{body}
print(json.dumps(dict(out, megabytes=(peak_kilobytes() - before) / 1024.0)))
"""


def in_a_process(body: str) -> Line:
    """Run statements that set ``out`` in a fresh process; return it with the peak memory beyond the imports."""
    done = subprocess.run(
        [sys.executable, "-c", _CHILD.format(body=body)], check=True, capture_output=True, text=True, timeout=3600
    )
    return dict(json.loads(done.stdout.splitlines()[-1]))
