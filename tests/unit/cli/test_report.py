"""The report: one file, nothing fetched, every picture in it; `tests/browser` opens one."""

import re
import struct
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from dualcore import Problem, WassersteinLogisticRegression, radius_path
from dualcore.cli.plots import plot_path, to_png
from dualcore.cli.report import Picture, Report, Section, explain_changes, explain_fit, software

pytestmark = pytest.mark.needs("matplotlib")

PANELS = {"rounds": 2, "weights": 1, "path": 3}


def make_data(n=1500):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3))
    return X, np.where(X @ [1.0, -0.5, 0.0] + rng.logistic(size=n) > 0, 1.0, -1.0)


@pytest.fixture(scope="module")
def report():
    X, y = make_data()
    told = []
    settings = {"names": ["a", "<b>", "c"], "progress": told.append}
    certificate, sections = explain_fit(Problem("logistic", radius=0.05), X, y, 0.1, **settings)
    assert told[0] == "training, and choosing a coreset"
    return Report("A <model> & more", str(certificate), sections, "dualcore fit 'a b.csv'", software())


class Page(HTMLParser):
    """Every tag with its attributes, and the visible text."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def test_the_report_stands_alone_and_says_what_is_known_and_how_to_get_there(report):
    text = report.render()
    page = Page(text)
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == sum(PANELS.values())
    assert all(image["src"].startswith("data:image/png;base64,") and image["alt"] for image in images)
    assert [attributes["id"] for tag, attributes in page.tags if tag == "figure"] == list(PANELS)
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "object", "embed"}
    assert not re.search(r"https?://|url\(|@import", text)
    assert "default-src 'none'" in text
    assert re.search(r"The worst-case risk of this model on the full data is 0\.\d+; no model can have less", page.text)
    for part in ("A <model> & more", "dualcore fit 'a b.csv'", "numpy", "relative gap"):
        assert part in page.text


def test_no_panel_is_much_wider_than_a_phone(report):
    """Panels are 1.4 times as wide as a phone at most, so that a letter of 10 points has 7 there."""
    pictures = {picture.name: picture.panels for section in report.sections for picture in section.pictures}
    assert {name: len(panels) for name, panels in pictures.items()} == PANELS
    widths = [struct.unpack(">I", panel[16:20])[0] for panels in pictures.values() for panel in panels]
    assert max(widths) <= 520
    assert 'alt="Radius path, panel 3 of 3"' in report.render()


def test_pictures_show_what_they_are_given_and_need_no_screen(monkeypatch):
    X, y = make_data(300)
    path = radius_path(Problem("hinge"), X, y, [0.01, 0.02, 0.1], 0.3, random_state=0)
    monkeypatch.setenv("MPLBACKEND", "TkAgg")
    left, middle, right = plot_path(path, marked=0.02, names=["a", "b", "c"]).axes
    np.testing.assert_allclose(left.lines[0].get_ydata(), path.risk)
    named = {text.get_text() for text in middle.get_legend().get_texts()}
    assert named == {"a", "b", "c", "other features", "radius of the model"}
    np.testing.assert_allclose(right.lines[0].get_ydata(), path.relative_gap)
    pictures = [to_png(plot_path(path)) for _ in range(2)]
    assert pictures[0].startswith(b"\x89PNG")
    assert pictures[0] == pictures[1]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r"pip install 'dualcore\[plots\]'"):
        plot_path(path)


def test_text_is_escaped():
    picture = Picture("x", "t<i>tle", 'c"aption', b"png")
    section = Section("<s>", "te<xt", (("h<1>",), ("c<2>",)), (picture,))
    page = Page(Report("<t>", "<c>", (section,), "<r>", (("<f>", "<g>"),)).render())
    assert not {"t", "c", "s", "r", "f", "g", "i"} & {tag for tag, _ in page.tags}
    for part in ("<t>", "<c>", "<s>", "te<xt", "h<1>", "c<2>", "t<i>tle", 'c"aption', "<r>", "<f>", "<g>"):
        assert part in page.text


@pytest.mark.parametrize(("n", "size"), [(20_000, 0.05), (600, 30)])  # few rows are certified once more, all at hand
def test_the_report_is_about_the_fit_that_the_estimator_makes(n, size):
    X, y = make_data(n)
    w, at = 1.0 + np.arange(n) % 3, {"random_state": 0}
    certificate, sections = explain_fit(Problem("logistic", radius=0.05), X, y, size, w, draw=False, **at)
    model = WassersteinLogisticRegression(radius=0.05, coreset=size, **at).fit(X, y, sample_weight=w)
    assert certificate.lower == pytest.approx(model.certificate_.lower, rel=1e-12)
    assert sections[0].table[-1][-1] == f"{certificate.relative_gap:.2e}"


# Categories


def explain(radius, most=10):
    X = np.array([[1.0, 0.0, 0.3], [0.0, 1.0, -0.2], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    y, names = np.array([1.0, -1.0, 1.0, 1.0]), ("city=Lima", "city=Oslo", "age")
    problem, coef = Problem("hinge", radius=radius, categories=[[None, 0, 1]]), np.array([1.0, -1.0, 0.1])
    return explain_changes(problem, coef, 0.0, X, y, names, ["city=(unseen)"], most=most)


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
    nothing = explain(0.0)
    assert (nothing.table, nothing.pictures) == ((), ())
    assert "no category changes" in nothing.text
