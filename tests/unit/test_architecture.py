"""The package keeps its plan: eight packages and the attacks, imports only go down, and none of them grows."""

import ast
import io
import re
import sys
import tokenize
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGE = REPOSITORY / "src" / "dualcore"

# Eight packages and one module, the lowest first: each may import those before it. The front page (`__init__`) gathers
# the public names, so only what stands above it may import it back.
PACKAGES = ("data", "problem", "certificates", "reading", "solvers", "coresets", "estimators", "attacks")
PACKAGES += ("__init__", "cli", "__main__")
# The only modules beside the packages: the attacks, the front page, and what makes ``python -m dualcore`` the command
# line, which Python looks for here and nowhere else.
BESIDE = ("attacks", "__init__", "__main__")
# By package: the most lines of code (docstrings, comments and blank lines do not count) and the most numbers in
# module-level assignments. Both may only be lowered. A change that removes code lowers them; a change that adds code
# removes as much elsewhere in the package.
MOST = {
    "beside": (442, 3),
    "certificates": (1_675, 20),
    "cli": (1_275, 8),
    "coresets": (2_572, 18),
    "data": (2_101, 20),
    "estimators": (1_895, 8),
    "problem": (3_389, 17),
    "reading": (1_131, 17),
    "solvers": (7_315, 113),
}
# Lines of all kinds in what measures the package: benchmarks and the experiments of the paper.
MOST_BESIDE = 5_125
# A count this far below its limit, absolutely and relative to the limit, must be entered as the new limit.
LOOSE, LOOSE_SHARE = 5, 0.03
# Class names that occur more than once in the package, and file names that occur more than once in one of its parts.
# Entries may only be removed.
SAME_CLASSES: set[str] = set()
SAME_FILES: set[str] = set()
# Names that every folder may use.
SHARED_FILES = {"__init__.py", "base.py"}
# Lower bounds search for one number, a multiplier or a share. Minimisation over more variables is training.
SCALAR_SEARCHES = {"scipy.optimize.brentq", "scipy.optimize.minimize_scalar"}
OPTIMISERS = ("dualcore.solvers", "scipy.optimize", "clarabel")
LAYOUT = {tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
NOT_CODE = LAYOUT | {tokenize.COMMENT}
NAMELESS = {"common", "helper", "helpers", "misc", "tools", "util", "utils"}
REFEREES = {"cvxpy", "dro", "skwdro"}
IMPORT_NAMES = {"scikit_learn": {"sklearn"}, "dask": {"dask", "distributed"}}
# Spelt without the slash, so that this file passes its own search.
ABSOLUTE_ROOTS = ("home", "mnt", "opt", "root", "tmp", "usr", "Users", "var", "work")
ABSOLUTE_PATH = re.compile(r"(?<![\w./~<>})\]])/(?:" + "|".join(ABSOLUTE_ROOTS) + r")\b")


@cache
def parsed(text: str) -> list[ast.AST]:
    """Every node of a module, the module first."""
    return list(ast.walk(ast.parse(text)))


def package_of(module: Path, package: Path) -> str:
    return module.relative_to(package).parts[0].removesuffix(".py")


def imported_modules(module: Path, package: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything ``module`` imports.

    Function bodies and ``TYPE_CHECKING`` blocks count, relative imports are resolved, and
    ``from a import b`` yields ``a.b``, because ``b`` may be a module.
    """
    parents = (package.name, *module.relative_to(package).parent.parts)
    for node in parsed(module.read_text(encoding="utf-8")):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else ()
            stem = ".".join((*base, *([node.module] if node.module else [])))
            for name in node.names:
                yield node.lineno, f"{stem}.{name.name}"
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", None))
            target = getattr(node.args[0], "value", None)
            if called in {"import_module", "__import__"} and isinstance(target, str):
                yield node.lineno, target


def modules_of(package: Path) -> list[Path]:
    return sorted(package.rglob("*.py"))


def forbidden_imports(package: Path) -> list[str]:
    """One sentence for each import that does not go down."""
    faults = []
    for module in modules_of(package):
        importer = package_of(module, package)
        level = PACKAGES.index(importer) if importer in PACKAGES else -1
        for line, name in imported_modules(module, package):
            top, *rest = name.split(".")
            if top != package.name:
                continue
            # A public name taken from the package itself comes through the front page.
            target = rest[0] if rest and rest[0] in PACKAGES else "__init__"
            if target not in PACKAGES[: level + 1]:
                where = f"{module.relative_to(package).as_posix()}:{line}"
                faults.append(f"{where} imports {name}, but {importer} may not import {target}")
    return faults


def unplanned_modules(package: Path) -> list[str]:
    """Modules outside the packages, or with a name that says nothing."""
    faults = []
    for module in modules_of(package):
        parts = module.relative_to(package).with_suffix("").parts
        path = "/".join(parts)
        if parts[0] not in PACKAGES or (len(parts) == 1 and parts[0] not in BESIDE):
            faults.append(f"{path}: {parts[0]} is none of the packages")
        faults.extend(
            f"{path}: {part} says nothing about what it holds" for part in parts if part.strip("_").lower() in NAMELESS
        )
    return faults


def code_lines(text: str) -> int:
    """Count the lines that hold code: no docstring, no comment alone, no blank line."""
    docstrings: set[int] = set()
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in parsed(text):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            docstrings.update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def constant_numbers(text: str) -> int:
    """Count the numbers in assignments at the level of the module."""
    return sum(
        isinstance(part, ast.Constant) and isinstance(part.value, int | float) and not isinstance(part.value, bool)
        for node in parsed(text)[0].body
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for part in ast.walk(node.value)
    )


def counts_of(package: Path) -> dict[str, tuple[int, int]]:
    """Return lines of code and numbers in module-level assignments by package; "beside" is what stands in none."""
    counts: dict[str, tuple[int, int]] = {}
    for module in modules_of(package):
        name, text = package_of(module, package), module.read_text(encoding="utf-8")
        name = "beside" if name in BESIDE else name
        lines, numbers = counts.get(name, (0, 0))
        counts[name] = lines + code_lines(text), numbers + constant_numbers(text)
    return counts


def wrong_counts(counts: dict[str, tuple[int, int]], most: dict[str, tuple[int, int]]) -> list[str]:
    """One sentence for each count that grew, or that fell so far that the table has to follow."""
    faults = []
    for name in sorted(counts.keys() | most.keys()):
        found, allowed = counts.get(name, (0, 0)), most.get(name, (0, 0))
        for what, now, limit in zip(("lines of code", "numbers in assignments"), found, allowed, strict=True):
            if now > limit:
                faults.append(f"{name}: {now} {what}, {now - limit} more than the {limit} of MOST: delete as many")
            elif limit - now > max(LOOSE, LOOSE_SHARE * limit):
                faults.append(f"{name}: {now} {what}, MOST says {limit}: lower it, {name!r}: {found}")
    return faults


def same_classes(package: Path) -> set[str]:
    """Return the names that more than one class of the package has."""
    names = Counter(
        node.name
        for module in modules_of(package)
        for node in parsed(module.read_text(encoding="utf-8"))
        if isinstance(node, ast.ClassDef)
    )
    return {name for name, times in names.items() if times > 1}


def same_files(package: Path) -> set[str]:
    """Return the files, as package/name, that occur more than once in the tree of one package."""
    files = Counter((package_of(module, package), module.name) for module in modules_of(package))
    return {f"{where}/{name}" for (where, name), times in files.items() if times > 1 and name not in SHARED_FILES}


def training_imports(package: Path) -> list[str]:
    """Return what modules under certificates import to minimise over models."""
    return [
        f"{module.relative_to(package).as_posix()}:{line} imports {name}"
        for module in modules_of(package / "certificates")
        for line, name in imported_modules(module, package)
        if name not in SCALAR_SEARCHES and any(name == tool or name.startswith(tool + ".") for tool in OPTIMISERS)
    ]


def third_party_imports(package: Path) -> dict[str, str]:
    """Top-level name of each foreign package, with one module that imports it."""
    return {
        name.split(".")[0]: module.relative_to(package).as_posix()
        for module in modules_of(package)
        for _, name in imported_modules(module, package)
        if name.split(".")[0] not in sys.stdlib_module_names | {package.name}
    }


def declared_imports() -> set[str]:
    """Import names of the run-time dependencies and of the extras meant for users."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    requirements = list(project["dependencies"])
    for extra in ("plots", "parquet", "dask"):
        requirements += extras[extra]
    names = {re.split(r"[^\w-]", entry)[0].replace("-", "_").lower() for entry in requirements}
    return {imported for name in names for imported in IMPORT_NAMES.get(name, {name})}


def write_package(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "dualcore"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return package


def test_the_package_keeps_its_plan():
    assert PACKAGE / "__init__.py" in modules_of(PACKAGE)
    assert (PACKAGE / "py.typed").is_file()
    assert forbidden_imports(PACKAGE) == []
    assert unplanned_modules(PACKAGE) == []
    assert training_imports(PACKAGE) == []


def test_no_package_grows():
    assert wrong_counts(counts_of(PACKAGE), MOST) == []


def test_benchmarks_and_experiments_stay_short():
    scripts = [script for folder in ("benchmarks", "experiments") for script in (REPOSITORY / folder).rglob("*.py")]
    assert sum(len(script.read_text(encoding="utf-8").splitlines()) for script in scripts) <= MOST_BESIDE


def test_a_name_means_one_thing():
    assert same_classes(PACKAGE) == SAME_CLASSES
    assert same_files(PACKAGE) == SAME_FILES


def test_every_foreign_import_is_a_declared_dependency():
    declared = declared_imports()
    assert REFEREES.isdisjoint(declared)  # they stay outside the package
    assert {"numpy", "sklearn", "distributed", "matplotlib"} <= declared
    undeclared = {k: v for k, v in third_party_imports(PACKAGE).items() if k not in declared}
    assert undeclared == {}


def test_the_package_names_no_absolute_path():
    suffixes = {".cfg", ".css", ".html", ".js", ".json", ".md", ".py", ".toml", ".txt", ".yaml"}
    found = [
        f"{path.relative_to(PACKAGE).as_posix()}: {match.group()}"
        for path in sorted(PACKAGE.rglob("*"))
        if path.suffix in suffixes
        for match in ABSOLUTE_PATH.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("module", "text", "target"),
    [
        ("data/rows.py", "import dualcore.problem\n", "problem"),
        ("problem/losses/hinge.py", "from ...solvers import solve\n", "solvers"),
        ("certificates/rows.py", "def f():\n    from dualcore.solvers import solve\n", "solvers"),
        ("solvers/solve.py", "if TYPE_CHECKING:\n    from ..coresets.samplers import S\n", "coresets"),
        ("reading/read.py", "importlib.import_module('dualcore.coresets.path')\n", "coresets"),
        ("attacks.py", "from dualcore.cli import main\n", "cli"),
        ("problem/problem.py", "from dualcore.novelty import thing\n", "__init__"),
        # These go down.
        ("problem/losses/hinge.py", "from dualcore.problem.losses.base import Loss\nfrom . import base\n", None),
        ("coresets/samplers/grid.py", "from ...problem import Problem\nfrom ...solvers import solve\n", None),
        ("__init__.py", "from .estimators import Classifier\n", None),
        ("cli/app.py", "def demo():\n    from dualcore import Problem\n", None),
        ("__main__.py", "from dualcore.cli import main\n", None),
    ],
)
def test_an_import_that_climbs_is_reported(tmp_path, module, text, target):
    faults = forbidden_imports(write_package(tmp_path, {module: text}))
    assert len(faults) == (target is not None)
    assert all(fault.startswith(f"{module}:") for fault in faults)
    assert all(fault.endswith(f"may not import {target}") for fault in faults)


@pytest.mark.parametrize("name", ["novelty.py", "utils.py", "problem/_helpers.py", "misc/norms.py"])
def test_a_module_outside_the_packages_is_reported(tmp_path, name):
    faults = unplanned_modules(write_package(tmp_path, {"problem/geometry.py": "", name: ""}))
    assert faults
    assert all(fault.startswith(name.removesuffix(".py")) for fault in faults)


def test_a_package_that_grows_or_shrinks_is_reported(tmp_path):
    text = '"""Text."""\n# A comment.\nA = 1\nB: int = 2\n'
    package = write_package(tmp_path, {"__init__.py": "", "problem/problem.py": text, "data/rows.py": text})
    assert counts_of(package) == {"beside": (0, 0), "problem": (2, 2), "data": (2, 2)}
    [lines, numbers] = wrong_counts(counts_of(package), {"problem": (2, 2), "data": (1, 1)})
    assert lines == "data: 2 lines of code, 1 more than the 1 of MOST: delete as many"
    assert numbers.startswith("data: 2 numbers")
    assert wrong_counts({"data": (100, 0)}, {"data": (105, 0)}) == []
    [fault] = wrong_counts({"data": (100, 0)}, {"data": (106, 0)})
    assert "lower it, 'data': (100, 0)" in fault


def test_names_that_stand_for_two_things_are_reported(tmp_path):
    files = {"data/rows.py": "class Rows: ...\n", "data/sources/rows.py": "class Part: ...\n"}
    files |= {"cli/rows.py": "def f():\n    class Rows: ...\n", "data/base.py": "", "data/sources/base.py": ""}
    package = write_package(tmp_path, files)
    assert same_classes(package) == {"Rows"}
    assert same_files(package) == {"data/rows.py"}


@pytest.mark.parametrize("text", ["import clarabel\n", "from scipy.optimize import brentq, minimize\n"])
def test_a_certificate_that_trains_is_reported(tmp_path, text):
    package = write_package(tmp_path, {"certificates/rows.py": text, "solvers/solve.py": text})
    [fault] = training_imports(package)
    assert fault.startswith("certificates/rows.py:")


def test_foreign_imports_are_seen_wherever_they_hide(tmp_path):
    text = "import os\nimport numpy as np\ndef f():\n    import cvxpy.atoms as a\n"
    package = write_package(tmp_path, {"problem.py": text, "plots.py": "from dro import x\n"})
    assert third_party_imports(package) == {"numpy": "problem.py", "cvxpy": "problem.py", "dro": "plots.py"}
