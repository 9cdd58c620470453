"""Records: one line per trained model, appended to a file that an interrupt cannot spoil."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.fingerprint import fingerprint
from dualcore import __version__

PACKAGES = ("numpy", "scipy", "scikit-learn", "clarabel")
ENVIRONMENTS = "environments.csv"


@dataclass(frozen=True)
class Record:
    """One trained model."""

    study: str
    row: str
    method: str
    trial: int
    seed: int
    size: int  # rows it was trained on
    risk: float  # worst-case risk on all training rows
    score: float  # test accuracy in percent, or the loss summed over the test rows
    lower: float | None  # what the method proved: no model has a smaller worst-case risk
    seconds: float  # CPU time of the process
    environment: str  # key of a line of ``environments.csv``: versions and CPU

    def cells(self) -> list[str]:
        """Return the fields as they are written: risks to ten significant digits, the rest to as many as it has."""
        digits = {"score": 7, "seconds": 4}
        found = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [
            "" if value is None else f"{value:.{digits.get(name, 10)}g}" if isinstance(value, float) else str(value)
            for name, value in found
        ]

    @classmethod
    def parse(cls, line: dict[str, str]) -> Record:
        """Return the record of one line of a file."""
        return cls(**{field.name: _PARSE[str(field.type)](line[field.name]) for field in fields(cls)})


_PARSE: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": int,
    "float": float,
    "float | None": lambda text: float(text) if text else None,
}
COLUMNS = [field.name for field in fields(Record)]


def cpu_model() -> str:
    """Return the name of the processor as the system gives it."""
    info = Path("/proc/cpuinfo")
    if info.is_file():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def environment(result: str = "experiments") -> dict[str, str]:
    """Return what a time or a last digit of a result may depend on, with a key made of it.

    Examples
    --------
    >>> sorted(environment())[:3]
    ['clarabel', 'code', 'cpu']
    """
    found = {"dualcore": __version__} | {name: version(name) for name in PACKAGES}
    found |= {"python": platform.python_version(), "system": f"{platform.system()} {platform.machine()}"}
    found |= {"cpu": cpu_model(), "code": fingerprint(result)}
    digest = hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()
    return {"environment": digest[:8], **found}


class Store:
    """The records of a study in ``folder / (study + ".csv")``.

    Records are only ever appended, a batch in one write that is on the disk before the next begins. A line that
    was cut short by a crash has no end and is dropped when the file is opened again. The folder is made where needed.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = Store(folder, "demo")
    ...     store.append([Record("demo", "1%", "Fit", 0, 7, 12, 0.5, 90.0, None, 0.1, "")])
    ...     [record.row for record in store.read()]
    ['1%']
    """

    def __init__(self, folder: str | os.PathLike[str], study: str) -> None:
        self.folder = Path(folder)
        self.path = self.folder / f"{study}.csv"
        self._mended = False

    def read(self) -> list[Record]:
        """Return what is stored; of two records of one trial the first."""
        if not self.path.exists():
            return []
        text = self.path.read_bytes().decode()
        lines = csv.DictReader(io.StringIO(text[: text.rfind("\n") + 1]))
        if lines.fieldnames is not None and list(lines.fieldnames) != COLUMNS:
            raise ValueError(
                f"{self.path.name} has the columns {lines.fieldnames}, not {COLUMNS}: it was written by another "
                "version. Move it away, or name another folder."
            )
        kept: dict[tuple[str, str, int], Record] = {}
        for line in lines:
            record = Record.parse(line)
            kept.setdefault((record.row, record.method, record.trial), record)
        return list(kept.values())

    def append(self, records: Iterable[Record]) -> None:
        """Write a batch in one piece."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._mend()
        _append(self.path, COLUMNS, [record.cells() for record in records])

    def environments(self) -> dict[str, dict[str, str]]:
        """Return the environments of the folder by their keys."""
        path = self.folder / ENVIRONMENTS
        lines = csv.DictReader(io.StringIO(path.read_text(encoding="utf-8") if path.exists() else ""))
        return {line["environment"]: line for line in lines}

    def note(self, found: dict[str, str]) -> str:
        """Write the environment down unless it already is; return its key."""
        known, key = self.environments(), found["environment"]
        if key not in known:
            # The whole file: lines of earlier versions may lack a column.
            lines = [[line.get(name, "") for name in found] for line in (*known.values(), found)]
            self._replace(self.folder / ENVIRONMENTS, list(found), lines)
        return key

    def discard_other_code(self, code: str) -> None:
        """Remove the records that were not measured on ``code``."""
        known, records = self.environments(), self.read()
        kept = [record for record in records if known.get(record.environment, {}).get("code") == code]
        if len(kept) < len(records):
            self._replace(self.path, COLUMNS, [record.cells() for record in kept])

    def _replace(self, path: Path, columns: list[str], lines: list[list[str]]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(".part")
        part.unlink(missing_ok=True)
        _append(part, columns, lines)
        os.replace(part, path)

    def _mend(self) -> None:
        """Cut off a line without an end, once."""
        if self.path.exists() and not self._mended:
            content = self.path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):
                os.truncate(self.path, whole)
        self._mended = True


def _append(path: Path, columns: list[str], lines: list[list[str]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not path.exists() or path.stat().st_size == 0:
        writer.writerow(columns)
    writer.writerows(lines)
    # One unbuffered write: in append mode the system puts it at the end whole, whatever else writes.
    with path.open("ab", buffering=0) as file:
        file.write(text.getvalue().encode())
        os.fsync(file.fileno())
