"""On which code a stored result was measured.

The fingerprint of a result is a hash of the syntax trees of the package, its command line left out, and of the scripts
that make the result. Comments, docstrings and layout do not change it.
"""

from __future__ import annotations

import ast
import hashlib
from functools import cache
from pathlib import Path

import dualcore

REPOSITORY = Path(__file__).resolve().parents[1]
PACKAGE = Path(dualcore.__file__).parent  # what is measured, wherever it is installed
# The scripts that make each result; those that only show it are left out.
MADE_BY = {
    "categories_programme": ("benchmarks/bench_categories.py", "benchmarks/category_programme.py"),
    "categories_study": ("benchmarks/bench_categories.py",),
    "default_radius": ("benchmarks/bench_default_radius.py", "experiments/datasets.py"),
    "digits": ("docs/images/draw_digits.py",),
    "exact": ("benchmarks/bench_exact.py", "benchmarks/stored.py"),
    "experiments": tuple(f"experiments/{name}.py" for name in ("data", "datasets", "methods", "runner", "settings")),
    "gallery": ("docs/images/draw_gallery.py", "examples/*.py"),
    "mechanisms": ("benchmarks/bench_mechanisms.py", "benchmarks/stored.py"),
    "multi_class": ("benchmarks/bench_multi_class.py", "benchmarks/stored.py"),
    "sources": ("benchmarks/bench_sources.py", "benchmarks/make_parquet.py"),
    "speed": ("benchmarks/bench_speed.py", "benchmarks/stored.py"),
    "study": tuple(f"experiments/study/{name}.py" for name in ("models", "run", "scores", "tables", "troubles")),
    "torture": ("tests/torture/parts/*.py",),
}


@cache
def fingerprint(result: str, package: Path = PACKAGE) -> str:
    """Return the fingerprint for one result of `MADE_BY`, the same for the whole process.

    A run asks for it before it measures: files may change while it runs, the code that it imported does not.
    """
    scripts = [path for pattern in MADE_BY[result] for path in REPOSITORY.glob(pattern)]
    files = {path.relative_to(REPOSITORY).as_posix(): path for path in scripts}
    files |= {path.relative_to(package).as_posix(): path for path in package.rglob("*.py")}
    listing = "".join(f"{name} {digest(path)}\n" for name, path in sorted(files.items()) if not name.startswith("cli/"))
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


@cache
def digest(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return hashlib.sha256(repr(outline(tree)).encode()).hexdigest()


def outline(node: object) -> object:
    """Return a syntax tree as nested lists, without docstrings and without fields that are empty.

    Versions of Python differ in the empty fields that a node has.
    """
    if isinstance(node, list):
        return [outline(each) for each in node if not _is_docstring(each)]
    if isinstance(node, ast.AST):
        fields = ((name, outline(value)) for name, value in ast.iter_fields(node) if value not in (None, []))
        return [type(node).__name__, *fields]
    return repr(node)


def _is_docstring(node: object) -> bool:
    value = node.value if isinstance(node, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)
