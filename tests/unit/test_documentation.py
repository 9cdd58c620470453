"""The documentation says what happens: its code runs, its numbers are those of the scripts, and nothing is left out."""

import ast
import html
import inspect
import json
import os
import re
import runpy
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import numpy as np
import pytest

import dualcore

REPOSITORY = Path(__file__).resolve().parents[2]


def text_of(name: str) -> str:
    return (REPOSITORY / name).read_text(encoding="utf-8")


EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
OUTPUT = re.compile(r"<!-- output of examples/(\w+)\.py -->\n```text\n(.*?)```", re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What a block prints, where the page says so.
PRINTED = re.compile(
    r"^```python\n(?P<code>(?:(?!^```).)*?)^```\n\n<!-- printed -->\n```text\n(?P<output>.*?)^```", re.M | re.S
)
# A script of the gallery, included; a cluster that is not here.
NOT_TO_RUN = ("--8<--", "scheduler-address")
NEEDS_MKDOCS = pytest.mark.needs("latex2mathml", "material", "mkdocs", "mkdocstrings")
NEEDS = {"out_of_core": "pyarrow"}


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_in_seconds_prints_and_leaves_nothing(script, capsys, monkeypatch, tmp_path):
    if script.stem in NEEDS:
        pytest.importorskip(NEEDS[script.stem])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", [str(script)])
    began = time.process_time()
    runpy.run_path(str(script), run_name="__main__")
    assert time.process_time() - began < 120.0  # generous: a busy machine takes several times as long
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) >= 2
    assert os.listdir(tmp_path) == []
    # What pages quote is what the script prints, up to what another BLAS may change.
    for page in PAGES:
        for name, quoted in OUTPUT.findall(page.read_text(encoding="utf-8")):
            if name == script.stem:
                assert alike(quoted, printed), f"{page.name} quotes another output of {script.name}:\n{printed}"


def alike(quoted: str, printed: str) -> bool:
    """Whether two outputs have the same words and, to 0.02, the same numbers."""
    number = r"\d+\.\d+"
    words = [re.sub(number, "#", text).split() for text in (quoted, printed)]
    values = [np.array(re.findall(number, text), dtype=float) for text in (quoted, printed)]
    return words[0] == words[1] and np.allclose(*values, atol=0.02)


def test_the_comparison_of_outputs_can_fail():
    assert alike("a 0.50 b\n", "a 0.51 b")
    assert not alike("a 0.50 b", "a 0.60 b")
    assert not alike("a 0.50 b", "c 0.50 b")


def test_the_gallery_quotes_the_attack_on_digits():
    stored = json.loads(text_of("docs/data/digits.json"))
    page = text_of("docs/gallery.md")
    place = stored["attacks"].index(stored["radius"])
    for name, values in stored["accuracy"].items():
        assert f"{100 * values[place]:.1f} %" in page, name
        assert values[0] == 1.0 or f"{100 * values[0]:.1f} %" in page, name


def test_the_guide_quotes_what_decided_the_default_of_many_classes():
    stored = json.loads(text_of("benchmarks/results/multi_class.json"))
    guide = text_of("docs/guide.md")
    paragraph = guide[guide.index('The default is `"auto"`') :].split("\n\n")[0]
    for line in stored["lines"]:
        for method in ("ovr", "multinomial"):
            assert f"{line[method]['accuracy']:.3f}" in paragraph, line["data"]


def test_the_guide_quotes_what_decided_the_default_radius():
    tables = json.loads(text_of("benchmarks/results/default_radius.json")).values()
    rows = [row for table in tables if isinstance(table, dict) for row in table.values() if isinstance(row, dict)]
    ratios = np.array(
        [[row[name]["ratio"] for name in ("0.1", "0.03", "0.01", "0.003", "0.001", "auto")] for row in rows]
    )
    for name, values in {"mean": np.exp(np.log(ratios).mean(axis=0)), "worst": ratios.max(axis=0)}.items():
        assert f"| {name} | {' | '.join(f'{value:.2f}' for value in values)} |" in text_of("docs/guide.md")


def test_the_guide_quotes_the_scripts_where_robustness_pays_and_the_gallery_shows_all():
    found = {name for name, _ in OUTPUT.findall(text_of("docs/guide.md"))}
    assert found == {"choose_radius", "poisoned_labels", "shifted_features"}
    shown = re.findall(r'--8<-- "(\w+)\.py"', text_of("docs/gallery.md"))
    assert sorted(shown) == [script.stem for script in EXAMPLES]


@pytest.mark.needs("pyarrow")
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_the_code_of_a_page_runs(page, monkeypatch, tmp_path):
    blocks = [b for b in PYTHON.findall(page.read_text(encoding="utf-8")) if not any(mark in b for mark in NOT_TO_RUN)]
    monkeypatch.chdir(tmp_path)
    write_clicks(tmp_path / "clicks")
    rng = np.random.default_rng(0)
    parts = [(rng.normal(size=(2000, 2)), rng.choice([-1.0, 1.0], size=2000)) for _ in range(4)]
    names = {"arrivals": parts, "problem": dualcore.Problem("logistic", radius=0.05)}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/guide.md"])
def test_a_page_shows_what_its_code_prints(page, capsys):
    blocks = list(PRINTED.finditer(text_of(page)))
    assert blocks
    for block in blocks:
        capsys.readouterr()
        exec(compile(block["code"], page, "exec"), {})
        printed = capsys.readouterr().out
        assert alike(block["output"], printed), printed


# Blocks that a renderer makes from a stored file, tables that name theirs, code and its output.
SOURCED = re.compile(
    r"<!-- (?:measured|study).*?<!-- (?:measured|study): end -->|<!-- stored in .*?(?:\n\n|\Z)|```.*?```|`[^`\n]*`",
    re.DOTALL,
)
MEASURED = re.compile(
    r"(?<![\w.])\d[\d,]*(?:\.\d+)? ?(?:s|ms|seconds|minutes|hours|kB|MB|GB|TB|times)\b|(?<![\w.])0?\.\d{3,}\b"
)
# What looks like a measurement and is none: limits, examples, settings. The accuracies of the guide are compared with
# `multi_class.json` by a test of their own; `experiments.md` is rendered as a whole.
NOT_MEASURED = {
    "billion_rows": {"4 MB", "2 GB"},
    "guide": {"40 minutes", "1.35 times", "64 MB", "0.001", "0.003", "0.955", "0.765", "0.893", "0.947", "0.714"}
    | {"0.951", "0.978", "0.973", "0.985"},
    "should_i_use_it": {"0.025 times"},
    "speed": {"1.5 GB"},
}


@pytest.mark.parametrize("page", [path for path in PAGES if path.stem != "experiments"], ids=lambda path: path.stem)
def test_a_measured_number_has_a_stored_source(page):
    text = SOURCED.sub("", page.read_text(encoding="utf-8"))
    assert set(MEASURED.findall(text)) <= NOT_MEASURED.get(page.stem, set())


def write_clicks(folder: Path) -> None:
    """Write the folder of Parquet files that the pages speak of."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(1)
    folder.mkdir()
    for number in range(3):
        X = rng.normal(size=(4000, 2))
        clicked = (X[:, 0] + rng.logistic(size=4000) > 0).astype(np.int64)
        pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "clicked": clicked}), folder / f"{number}.parquet")


def test_every_public_name_is_documented_with_an_example():
    api = text_of("docs/api.md").splitlines()
    for name in dualcore.__all__:
        thing = getattr(dualcore, name)
        is_error = inspect.isclass(thing) and issubclass(thing, Exception)
        assert is_error or ">>> " in (inspect.getdoc(thing) or ""), name
        assert f"::: dualcore.{name}" in api
        if inspect.isclass(thing):
            methods = [member for member in vars(thing) if not member.startswith("_") and callable(vars(thing)[member])]
            assert [method for method in methods if not inspect.getdoc(getattr(thing, method))] == [], name


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Build the site once for the tests below."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    built = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    assert built.returncode == 0, built.stderr
    return folder


def words(page: Path) -> str:
    """Return the text of a page of the site, tags and doubled spaces removed."""
    text = re.sub(r"<[^>]+>", " ", page.read_text(encoding="utf-8"))
    return " ".join(html.unescape(text).split())


@NEEDS_MKDOCS
def test_the_site_builds_without_a_warning_and_every_public_name_has_a_page(site):
    assert "WassersteinLogisticRegressionCV" in (site / "api" / "index.html").read_text(encoding="utf-8")
    assert "flip_labels" in (site / "gallery" / "index.html").read_text(encoding="utf-8")
    home = (site / "index.html").read_text(encoding="utf-8")
    assert [name for name in dualcore.__all__ if f'href="api/{name}/"' not in home] == []


@NEEDS_MKDOCS
@pytest.mark.parametrize("name", [name for name in dualcore.__all__ if name.startswith("Wasserstein")])
def test_the_page_of_an_estimator_has_its_true_defaults_types_and_inherited_methods(site, name):
    page, estimator = words(site / "api" / name / "index.html"), getattr(dualcore, name)
    for parameter in inspect.signature(estimator).parameters.values():
        # The numbers and words of the signature, however they are written: inf for np.inf, 1e-6 for 1e-06.
        entry = re.search(rf"\b{parameter.name} \( (?P<type>.*?) , default: (?P<default>.*?) \) –", page)
        assert entry, parameter.name
        try:
            default = ast.literal_eval(entry["default"])
        except ValueError:
            default = float(entry["default"].replace("np.", ""))
        assert default == parameter.default
        assert entry["type"] != "str"  # choices are listed
    for method in ("fit", "predict", "worst_case_risk", "worst_case_distribution"):
        assert f'id="dualcore.{name}.{method}"' in (site / "api" / name / "index.html").read_text(encoding="utf-8")


@NEEDS_MKDOCS
def test_formulas_of_docstrings_are_rendered_and_nothing_comes_from_elsewhere(site):
    assert "<munder>" in (site / "api" / "solve" / "index.html").read_text(encoding="utf-8")
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert ".. math::" not in text, page
        assert re.findall(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//[^"]*', text) == [], page
        assert re.findall(r'<link[^>]* href="(?:https?:)?//[^"]*', text) == [], page


def test_pages_words_and_versions_are_those_that_exist():
    listed = re.findall(r": (\w+\.md)$", text_of("mkdocs.yml"), re.MULTILINE)
    assert sorted(listed) == [page.name for page in PAGES[1:]]
    glossary = text_of("docs/glossary.md")
    known = set(re.findall(r"^\| \*\*(\w+)\*\*", glossary, re.MULTILINE))
    ours = "h kappa lambda anchor cell leaf flip family read certificate coreset calibration stratum"
    assert set(ours.split()) <= known
    for path in re.findall(r"`([a-z]+/[\w/]+(?:\.py)?)` \|$", glossary, re.MULTILINE):
        assert (REPOSITORY / "src" / "dualcore" / path).exists(), path
    cited = re.findall(r"^version: (\S+)$", text_of("CITATION.cff"), re.MULTILINE)
    assert cited == [tomllib.loads(text_of("pyproject.toml"))["project"]["version"]] == [dualcore.__version__]


@pytest.mark.parametrize("script", ["render_billion_rows.py", "render_torture.py", "render_speed.py"])
def test_pages_show_what_is_stored(script):
    command = [sys.executable, str(REPOSITORY / "benchmarks" / script), "--check"]
    assert subprocess.run(command, check=False).returncode == 0
