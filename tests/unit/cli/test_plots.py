"""Pictures: drawn without a screen, showing what they are given; a clear error where matplotlib is missing."""

import sys

import numpy as np
import pytest

from dualcore import DualCoreset, Problem, fit_coreset, radius_path
from dualcore.cli.plots import plot_path, plot_rounds, to_png

needs_matplotlib = pytest.mark.needs("matplotlib")


@pytest.fixture(scope="module")
def fitted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.where(X[:, 0] + rng.logistic(size=400) > 0, 1.0, -1.0)
    problem = Problem("hinge", radius=0.05)
    return problem, X, y, fit_coreset(problem, X, y, DualCoreset(size=100, rounds=3, random_state=0))


@needs_matplotlib
def test_the_path_shows_risks_and_gaps(fitted):
    problem, X, y, _ = fitted
    path = radius_path(problem, X, y, [0.01, 0.02, 0.1], 0.2, random_state=0)
    figure = plot_path(path, marked=0.02, names=["a", "b", "c"])
    left, middle, right = figure.axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), path.risk)
    named = {text.get_text() for text in middle.get_legend().get_texts()}
    assert named == {"a", "b", "c", "other features", "radius of the model"}
    np.testing.assert_allclose(right.lines[0].get_ydata(), path.relative_gap)


@needs_matplotlib
def test_pictures_need_no_screen_and_no_window(fitted, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    *_, fit = fitted
    picture = to_png(plot_rounds(fit.history))
    assert picture.startswith(b"\x89PNG")
    assert to_png(plot_rounds(fit.history)) == picture


def test_without_matplotlib_the_extra_is_named(fitted, monkeypatch):
    *_, fit = fitted
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'dualcore\[plots\]'"):
        plot_rounds(fit.history)
