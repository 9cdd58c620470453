"""Items 17 to 23: inputs and files."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from dualcore import Coreset, CoresetStream, Problem, fit_coreset, open_source, solve
from dualcore.cli.model import Model
from reported_parts.outcomes import Check, Outcome, labels, quietly, refusal

SOURCE = Path(__file__).resolve().parents[2] / "src"
# Sends the interrupt from within an import, so that it cannot come late.
_INTERRUPTER = """
import importlib.abc, os, signal, sys, time

class Interrupter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == {package!r}:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Interrupter())
"""


def sample(n: int = 300, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    return X, labels(X[:, 0] + rng.normal(size=n))


def command(folder: Path, *arguments: Any) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    line = [sys.executable, "-m", "dualcore.cli", *(str(each) for each in arguments)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), str(SOURCE)])}
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def masks_and_complex_numbers() -> Outcome:
    """Item 17: masked arrays and complex targets."""
    X, y = sample()
    masked = np.ma.masked_array(X, mask=np.arange(X.size).reshape(X.shape) == 5)
    said = [
        refusal(lambda: solve(Problem("logistic", radius=0.1), masked, y)),
        refusal(lambda: solve(Problem("huber", radius=0.1, delta=1.0), X, y + 1j)),
    ]
    now = "; ".join("taken silently" if each is None else f"refused: {each[:60]}" for each in said)
    return Outcome("masks are ignored, imaginary parts lost", now, None not in said)


def changed_files() -> Outcome:
    """Item 18: files that somebody changed, and an archive of 2 MB that inflates to 2 GB."""
    X, y = sample()
    problem, taken = Problem("logistic", radius=0.1), []
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "c.npz"
        fit_coreset(problem, X, y, coreset=50, random_state=0).coreset.save(path)
        with np.load(path) as file:
            arrays = {key: file[key] for key in file.files}
        weights = arrays["weights"]
        changes = {
            "NaN weight": {"weights": np.append(weights[1:], np.nan)},
            "negative weight": {"weights": np.append(weights[1:], -1.0)},
            "wrong length": {"weights": weights[1:]},
        }
        for what, change in changes.items():
            np.savez(path, **(arrays | change))
            taken += [] if refusal(lambda: Coreset.load(path)) else [what]
        np.savez(path, **{key: value for key, value in arrays.items() if key != "y"})
        taken += [] if refusal(lambda: Coreset.load(path)) else ["missing key"]
        taken += [] if refusal(lambda: CoresetStream.load(path)) else ["a coreset as a stream"]
        taken += [] if refusal(lambda: Model.load(path)) else ["a coreset as a model"]
        with (
            zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
            archive.open("X.npy", "w", force_zip64=True) as f,
        ):
            np.lib.format.write_array_header_1_0(f, {"descr": "<f8", "fortran_order": False, "shape": (1 << 28,)})
            for _ in range(2048):
                f.write(bytes(1 << 20))
        began, size = time.process_time(), path.stat().st_size / 1e6
        taken += [] if refusal(lambda: Coreset.load(path)) else ["an archive that inflates"]
        seconds = time.process_time() - began
    quick = seconds < 1.0
    now = (
        f"taken: {', '.join(taken) or 'none of 7'}; the {size:.1f} MB archive is refused before it is inflated: {quick}"
    )
    return Outcome(
        "NaN or negative weights, wrong lengths and kinds, 2 MB that inflate to 2 GB: loaded", now, not taken and quick
    )


def compared_by_value() -> Outcome:
    """Item 19: problems and streams compare by value."""
    X, y = sample()
    weights = ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    problems = [Problem("logistic", radius=0.1, feature_weights=each) for each in (*weights, weights[0])]
    streams = [
        CoresetStream(problem, size=30, random_state=0, first_row=10**6 * k) for k, problem in enumerate(problems)
    ]
    for stream in streams:
        stream.update(X, y)
    ok = problems[0] != problems[1] and problems[0] == problems[2]
    ok = ok and refusal(lambda: streams[0].merge(streams[1])) is not None
    now = "problems are unequal, and their streams are not merged" if ok else "they do not compare by value"
    return Outcome("feature_weights differ silently", now, ok)


def rewritten_while_read() -> Outcome:
    """Item 20: a .npy file rewritten between reads."""
    X, y = sample(6000)
    with tempfile.TemporaryDirectory() as name:
        for file, array in (("X.npy", X), ("y.npy", y)):
            np.save(Path(name) / file, array)
        source = open_source(Path(name) / "X.npy", Path(name) / "y.npy")
        source.fold(lambda chunk: float(chunk.X.sum()), sum)
        np.save(Path(name) / "X.npy", X[::-1] + 1.0)
        said = refusal(lambda: source.fold(lambda chunk: float(chunk.X.sum()), sum))
    return Outcome("unnoticed", "unnoticed" if said is None else f"refused: {said[-60:]}", said is not None)


def numbers_out_of_range() -> Outcome:
    """Item 21: weights of 1e-320, values of 1e200, a label cost of 1e-320."""
    X, y = sample()
    problem, tiny = Problem("logistic", radius=0.1), np.full(300, 1e-320)
    plain = quietly(problem, X, y).value
    weighted = fit_coreset(problem, X, y, 100, sample_weight=tiny, random_state=0).certificate
    right = weighted.lower <= plain * (1.0 + 1e-9) and weighted.upper >= plain * (1.0 - 1e-6)
    large = X.copy()
    large[7, 1] = 1e200
    said = [
        refusal(lambda: solve(problem, large, y)),
        refusal(lambda: Problem("logistic", radius=0.1, label_cost=1e-320)),
    ]
    now = f"weights of 1e-320: certified within [{weighted.lower:.4f}, {weighted.upper:.4f}], optimum {plain:.4f}; "
    now += "; ".join("taken" if each is None else f"refused: {each[:50]}" for each in said)
    return Outcome(
        "sample_weight 1e-320 loops forever; 1e200 and 1e-320 give nonsense", now, right and None not in said
    )


def unlike_files() -> Outcome:
    """Item 22: folders in which one file has an extra column, or numbers as text."""
    X, y = sample(400)
    names, same = ["no" if each < 0.0 else "yes" for each in y], []
    plain = ["a,b,label", *(f"{row[0]:.6f},{row[1]:.6f},{name}" for row, name in zip(X, names, strict=True))]
    extra = ["a,b,c,label", *(f"{row[0]:.6f},{row[1]:.6f},1,{name}" for row, name in zip(X, names, strict=True))]
    text = ["a,b,label", *(f"{row[0]:.6f},x{row[1]:.2f},{name}" for row, name in zip(X, names, strict=True))]
    for second in (extra, text):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name) / "rows"
            folder.mkdir()
            for k, lines in enumerate((plain, second)):
                (folder / f"{k}.csv").write_text("\n".join(lines) + "\n")
            ran = [
                command(Path(name), "fit", folder, "-t", "label", "--out", "m.json", "--quiet", *options)
                for options in ((), ("--coreset", "800"))
            ]
            same.append((ran[0].returncode, ran[0].stderr) == (ran[1].returncode, ran[1].stderr))
    now = f"the same answer with and without --coreset: extra column {same[0]}, numbers as text {same[1]}"
    return Outcome("another answer with --coreset than without", now, all(same))


def outputs_and_interrupts() -> Outcome:
    """Item 23: symlinked outputs, stale partial files, an interrupt while importing."""
    if os.name != "posix":
        return Outcome("links replaced, .part files left, tracebacks", "not looked at on this system", ok=True)
    X, y = sample()
    coreset = fit_coreset(Problem("logistic", radius=0.1), X, y, coreset=50, random_state=0).coreset
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "real").mkdir()
        (folder / "link.npz").symlink_to(folder / "real" / "c.npz")
        (folder / "real" / "c.npz").touch()
        stale = folder / "real" / "c.npz.0123456789abcdef.part"
        stale.touch()
        coreset.save(folder / "link.npz")
        linked = (folder / "link.npz").is_symlink() and (folder / "real" / "c.npz").stat().st_size > 0
        swept = not stale.exists()
    clean = []
    for package in ("numpy", "sklearn", "typer"):
        with tempfile.TemporaryDirectory() as name:
            (Path(name) / "sitecustomize.py").write_text(_INTERRUPTER.format(package=package))
            ran = command(Path(name), "fit", "rows.csv")
        clean.append((ran.returncode, ran.stderr) == (130, "error: interrupted\n"))
    now = f"written through the link: {linked}; .part swept: {swept}; interrupts that end with 130: {sum(clean)} of 3"
    return Outcome("links replaced, .part files left, tracebacks", now, linked and swept and all(clean))


CHECKS: dict[int, Check] = {
    17: masks_and_complex_numbers,
    18: changed_files,
    19: compared_by_value,
    20: rewritten_while_read,
    21: numbers_out_of_range,
    22: unlike_files,
    23: outputs_and_interrupts,
}
