"""Pages are looked at: home, guide, API, experiments and a report, in headless Chromium as wide as a phone and a desk.

With the variable SCREENSHOTS set to a folder, pictures of all pages are left there.
"""

import functools
import html
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from dualcore import Problem
from dualcore.cli.report import Report, explain_fit, software

REPOSITORY = Path(__file__).resolve().parents[2]
WIDTHS = (400, 1200)
PAGES = ["" if path.stem == "index" else f"{path.stem}/" for path in sorted((REPOSITORY / "docs").glob("*.md"))]
PAGES += ["api/WassersteinLogisticRegression/", "api/WassersteinLinearRegression/", "api/suggest_radius/"]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = os.environ.get("CHROMIUM") or next((path for name in NAMES if (path := shutil.which(name))), None)
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--dump-dom")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on PATH; name one in the variable CHROMIUM")


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves a folder and does not talk."""

    def log_message(self, *_):
        """Say nothing."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder that is served; the tests put their pages into it."""
    served = tmp_path_factory.mktemp("pages")
    shutil.copy(Path(__file__).with_name("look.html"), served)
    return served


@pytest.fixture(scope="module")
def address(folder):
    """Serve the folder and return its address."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def site(folder):
    """Build the site into the folder that is served."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder / "site")]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=300, check=False)
    assert built.returncode == 0, built.stderr
    return "site/"


@pytest.fixture(scope="module")
def report(folder):
    """Write a report into the folder that is served."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 6))
    y = np.where(X[:, 0] + rng.logistic(size=1000) > 0, 1.0, -1.0)
    names = ["a_feature_with_a_rather_long_name", "b", "c", "d", "e", "f"]
    certificate, sections = explain_fit(Problem("logistic", radius=0.05), X, y, 0.2, names=names, classes=("no", "yes"))
    command = "dualcore report model.json " + "rows" * 30 + ".csv"
    facts = (("data", f"rows.csv, SHA-256 {'0123456789abcdef' * 4}"), *software())
    report = Report("label: a robust classifier", str(certificate), sections, command, facts)
    (folder / "report.html").write_text(report.render(), encoding="utf-8")
    return "report.html"


def look(address, page, width):
    """Return everything that is wrong with a page at a width."""
    url = f"{address}look.html?{urlencode({'page': page, 'width': width})}"
    # Virtual time passes only while nothing is loading, so that all of the page is there when it is over.
    flags = [*FLAGS, f"--window-size={width + 200},1000", "--virtual-time-budget=5000", "--enable-logging=stderr"]
    if "SCREENSHOTS" in os.environ:
        name = page.strip("/").replace("/", "-").removesuffix(".html")
        flags.append(f"--screenshot={Path(os.environ['SCREENSHOTS']).resolve() / f'{name}-{width}.png'}")
    ran = subprocess.run([CHROMIUM, *flags, url], capture_output=True, text=True, timeout=120, check=True)
    faults = json.loads(html.unescape(re.search(r'<pre id="faults">(.*?)</pre>', ran.stdout, re.DOTALL)[1]))
    faults["console"] = [line for line in ran.stderr.splitlines() if ":CONSOLE" in line]
    return {kind: found for kind, found in faults.items() if found}


@pytest.mark.needs("latex2mathml", "material", "mkdocs", "mkdocstrings")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.strip("/") or "home")
def test_a_page_of_the_site_shows_all_that_is_on_it(address, site, page, width):
    assert look(address, site + page, width) == {}


@pytest.mark.needs("matplotlib")
@pytest.mark.parametrize("width", WIDTHS)
def test_a_report_shows_all_that_is_on_it(address, report, width):
    assert look(address, report, width) == {}


FAULTY = {
    "clipped": "<p style='width: 9rem; overflow: hidden; white-space: nowrap'>A sentence that is cut off here.</p>",
    "clipped by the window": "<pre>" + "wide " * 90 + "</pre>",
    "raw mathematics": r"<p>.. math:: \min_x x^2</p>",
    "raw mathematics in a line": "<p>The mass $w_i$ of a row.</p>",
    "missing images": "<img src='data:image/png;base64,XXXX'>",
    "cut images": "<div style='overflow-x: auto'><img src='data:image/svg+xml,"
    '<svg xmlns="http://www.w3.org/2000/svg" width="1900" height="9"/>\' alt=\'wide\'></div>',
    "console": "<script>console.error('no')</script>",
}


def write(folder, body):
    head = "<!DOCTYPE html><html><head><link rel='icon' href='data:,'></head><body>"
    (folder / "written.html").write_text(f"{head}{body}</body></html>", encoding="utf-8")
    return "written.html"


@pytest.mark.parametrize("fault", FAULTY)
def test_the_look_can_fail(address, folder, fault):
    found = look(address, write(folder, FAULTY[fault]), 400)
    assert fault.removesuffix(" by the window").removesuffix(" in a line") in found


def test_what_scrolls_is_not_clipped(address, folder):
    page = write(folder, "<pre style='overflow-x: auto'>" + "wide " * 90 + "</pre>")
    assert look(address, page, 400) == {}
