"""What a report says about categories: a table, and a picture that a phone shows without scrolling."""

import struct

import numpy as np
import pytest

from dualcore import Problem
from dualcore.cli.plots import plot_changes
from dualcore.cli.reporting import explain_changes

pytestmark = pytest.mark.needs("matplotlib")

X = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
Y = np.array([1.0, -1.0, 1.0, 1.0])
NAMES = ("city=Lima", "city=Oslo", "age")


def explain(radius, most=10):
    problem = Problem("hinge", radius=radius, categories=[[None, 0, 1]])
    coef = np.array([1.0, -1.0, 0.1])
    return explain_changes(problem, coef, 0.0, X, Y, names=NAMES, unseen=["city=(unseen)"], most=most)


def test_changes_are_listed_by_their_share():
    section = explain(0.7)
    assert section.table == (
        ("category", "becomes", "share of rows"),
        ("city=Lima", "city=Oslo", "45.00%"),
        ("city=Oslo", "city=Lima", "25.00%"),
    )
    assert "changes a category in 70.00% of the rows" in section.text
    assert "shown" not in section.text
    few = explain(1.0, most=1)
    assert len(few.table) == 2
    assert "The 1 largest of 3 changes are shown." in few.text
    assert ("city=(unseen)", "city=Oslo", "25.00%") in explain(1.0).table


def test_nothing_changes_at_radius_zero():
    section = explain(0.0)
    assert (section.table, section.pictures) == ((), ())
    assert "no category changes" in section.text


def test_the_picture_fits_a_phone():
    (picture,) = explain(0.7).pictures
    width = struct.unpack(">I", picture.png[16:20])[0]
    assert width <= 450
    figure = plot_changes(["a" * 100, "b to c"], [0.25, 0.125])
    (axes,) = figure.axes
    assert [bar.get_width() for bar in axes.patches] == [25.0, 12.5]
    assert [len(text.get_text()) for text in axes.texts] == [40, 6]
    figure.canvas.draw()
    right = figure.bbox.width
    assert all(text.get_window_extent().x1 <= right for text in axes.texts)
