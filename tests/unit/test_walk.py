"""The walk through `fit` in CONTRIBUTING.md, call by call: what it names is called, and as deep as it says."""

from __future__ import annotations

import importlib
import re
import sys
import threading
import warnings
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import dualcore
from dualcore import WassersteinLinearSVC, WassersteinLogisticRegression
from dualcore.reading.closed import ClosedKernel
from dualcore.solvers.interior import InteriorPoint

REPOSITORY = Path(__file__).parents[2]
WALK = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## What `fit` calls")[2]
PACKAGE = str(Path(dualcore.__file__).parent)


def code_of(file, call):
    """Return the code that runs for a call that a table names."""
    thing = importlib.import_module("dualcore." + file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    for name in call.split("."):
        thing = getattr(thing, name)
    return (thing.__init__ if isinstance(thing, type) else thing).__code__


def calls_of(title):
    """Return the calls of the table below a title."""
    table = WALK.partition(f"**{title}")[2].partition("\n\n**")[0].partition("\n## ")[0]
    found = re.findall(r"^\| `([\w.]+)` \| `([\w/]+\.py)` \|", table, re.MULTILINE)
    assert found, f"CONTRIBUTING.md has no walk called {title!r}"
    return found


def watch(run):
    """Return how many frames of the package lead to each code that runs, the fewest; by thread."""
    depths = {}

    def note(frame, event, _):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            code, depth, above = frame.f_code, 0, frame
            while above is not None:
                depth += above.f_code.co_filename.startswith(PACKAGE)
                above = above.f_back
            depths[code] = min(depth, depths.get(code, depth))

    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        threading.setprofile(note)  # files are read by a thread of their own
        sys.setprofile(note)
        try:
            run()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    return depths


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(3000, 4))
    return X, np.digitize(X[:, 0] + 0.2 * rng.normal(size=3000), [0.4, 0.6])


def on_arrays(rows, folder):
    X, y = rows
    WassersteinLogisticRegression(radius=0.1).fit(X, y > 0)


def on_parquet(rows, folder):
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    X, y = rows
    columns = {f"x{number}": column for number, column in enumerate(X.T)}
    parquet.write_table(arrow.table({**columns, "clicked": (y > 0).astype(int)}), folder / "rows.parquet")
    WassersteinLogisticRegression(coreset=300, random_state=0).fit(folder, "clicked")


def on_a_box(rows, folder):
    X, y = rows
    WassersteinLinearSVC(support=(0, 1), tol=1e-3).fit(X, y > 0)
    for coreset in (None, 100):
        WassersteinLinearSVC(support=(0, 1), coreset=coreset, random_state=0, max_iter=20).fit(X[:600], y[:600] > 0)


def on_many_classes(rows, folder):
    X, y = rows
    for coreset in (None, 300):
        WassersteinLogisticRegression(multi_class="multinomial", coreset=coreset, random_state=0).fit(X, y)


@pytest.mark.parametrize(
    ("title", "run"),
    [
        ("Arrays, all rows", on_arrays),
        ("A Parquet folder", on_parquet),
        ("A box", on_a_box),
        ("Softmax", on_many_classes),
    ],
)
def test_fit_calls_what_the_walk_names(title, run, rows, tmp_path):
    called = watch(lambda: run(rows, tmp_path))
    assert [call for call, file in calls_of(title) if code_of(file, call) not in called] == []


def test_the_walk_says_how_deep_the_kernels_are(rows):
    X, y = rows
    whole = watch(lambda: WassersteinLogisticRegression().fit(X, y > 0))
    small = watch(lambda: WassersteinLogisticRegression(coreset=300, random_state=0).fit(X, y > 0))
    iteration, block = InteriorPoint._iterate.__code__, ClosedKernel.block.__code__
    measured = [whole[iteration], small[iteration], small[block]]
    assert [int(number) for number in re.findall(r"\*(\d+) frames\*", WALK)] == measured
