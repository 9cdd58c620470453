"""`Coreset`: a few weighted rows that stand for all of them, and where they came from."""

from __future__ import annotations

import io
import json
import math
import os
import tempfile
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.geometry import FloatArray
from dualcore.measure import Measured, measure_epsilon
from dualcore.problem import Problem

__all__ = ["Anchor", "Coreset", "normalised"]

_FORMAT = 1
# What numpy, zipfile and json raise for bytes that are not theirs.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, EOFError, OSError, zipfile.BadZipFile)


@dataclass(frozen=True)
class Anchor:
    """The model around which a coreset is built: coefficients, intercept and multiplier.

    Attributes
    ----------
    coef : ndarray of shape (n_features,)
    intercept : float
    multiplier : float
        The dual variable; at least ``problem.kappa(coef)``.

    Examples
    --------
    >>> Anchor(np.array([0.5, 0.0]), 0.1, multiplier=0.5).coef.size
    2
    """

    coef: FloatArray
    intercept: float
    multiplier: float


@dataclass(frozen=True)
class Coreset:
    """Weighted rows.

    Attributes
    ----------
    indices : ndarray of shape (size,)
        Global row numbers, ascending.
    X : ndarray or CSR matrix of shape (size, n_features)
    y : ndarray of shape (size,)
    weights : ndarray of shape (size,)
        Non-negative; they sum to one.
    n_rows : int
        How many rows they stand for.
    anchor : Anchor or None
    method : str
        Which sampler drew it.
    details : dict
        Provenance: seed, cells, calibration, messages. JSON values only.

    Examples
    --------
    >>> coreset = Coreset(np.array([3]), np.ones((1, 2)), np.ones(1), np.ones(1), n_rows=10)
    >>> len(coreset)
    1
    """

    indices: npt.NDArray[np.int64]
    X: Any
    y: FloatArray
    weights: FloatArray
    n_rows: int
    anchor: Anchor | None = None
    method: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return int(self.indices.size)

    def __repr__(self) -> str:
        return f"<Coreset of {len(self)} rows for {self.n_rows}, by {self.method or 'hand'}>"

    def measure(
        self,
        problem: Problem,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        queries: int = 100,
        radius: float | None = None,
        ascents: int = 3,
        random_state: int = 0,
    ) -> Measured:
        """Return the measured epsilon: ``sup |H~ / H - 1|`` over models near the anchor, random plus locally maximised.

        Parameters
        ----------
        problem, X, y, sample_weight
            The problem and the full data.
        queries : int, default=100
            Random models in the ball around the anchor, each with a multiplier from its own interval.
        radius : float, optional
            Of the ball, in the Euclidean norm of (coef, intercept); a tenth of the anchor's norm by default.
        ascents : int, default=3
            How many of the worst queries to push uphill.
        random_state : int, default=0
        """
        if self.anchor is None:
            raise ValueError("This coreset has no anchor to measure around: it was drawn without one.")
        if queries < 1:
            raise ValueError(f"queries must be at least 1, got {queries!r}.")
        centre = (self.anchor.coef, self.anchor.intercept, self.anchor.multiplier)
        if radius is None:
            radius = 0.1 * max(float(np.hypot(np.linalg.norm(self.anchor.coef), self.anchor.intercept)), 1e-3)
        full, part = problem.validate(X, y, sample_weight), problem.validate(self.X, self.y, self.weights)
        return measure_epsilon(
            problem, full, part, centre, radius=radius, queries=queries, ascents=ascents, seed=random_state
        )

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: row number, weight, target, features."""
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("Coreset.to_frame needs pandas. Install it with: pip install 'dualcore[dask]'") from None
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
        frame.insert(0, "row", self.indices)
        frame.insert(1, "weight", self.weights)
        frame.insert(2, "y", self.y)
        return frame

    def save(self, path: str | Path) -> None:
        """Write the coreset to one ``.npz`` file (arrays, and a JSON header); atomically, and without pickle."""
        arrays: dict[str, npt.NDArray[Any]] = {"indices": self.indices, "y": self.y, "weights": self.weights}
        if sp.issparse(self.X):
            X = self.X.tocsr()
            arrays |= {"data": X.data, "columns": X.indices, "starts": X.indptr, "shape": np.array(X.shape)}
        else:
            arrays["X"] = self.X
        header: dict[str, Any] = {
            "format": _FORMAT,
            "n_rows": self.n_rows,
            "method": self.method,
            "details": self.details,
            "anchor": None,
        }
        if self.anchor is not None:
            arrays["anchor_coef"] = self.anchor.coef
            header["anchor"] = {"intercept": self.anchor.intercept, "multiplier": self.anchor.multiplier}
        buffer = io.BytesIO()
        arrays["header"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
        np.savez(buffer, allow_pickle=False, **arrays)
        write_atomically(Path(path), buffer.getvalue())

    @classmethod
    def load(cls, path: str | Path) -> Coreset:
        """Read what `save` wrote. Nothing in the file is ever executed."""
        try:
            with Path(path).open("rb") as stream, np.load(stream, allow_pickle=False) as file:
                arrays = {name: file[name] for name in file.files}
            return cls._from_arrays(arrays)
        except FileNotFoundError:
            raise
        except _UNREADABLE as error:
            raise ValueError(f"{Path(path).name} is not a coreset file written by Coreset.save: {error!r}") from None

    @classmethod
    def _from_arrays(cls, arrays: dict[str, npt.NDArray[Any]]) -> Coreset:
        header = json.loads(arrays["header"].tobytes().decode())
        if header["format"] != _FORMAT:
            raise ValueError(f"it has format {header['format']!r}; this version reads {_FORMAT}")
        X: Any = arrays.get("X")
        if X is None:
            shape = tuple(int(n) for n in arrays["shape"])
            X = sp.csr_matrix((arrays["data"], arrays["columns"], arrays["starts"]), shape=shape)
        anchor = header["anchor"]
        return cls(
            indices=arrays["indices"],
            X=X,
            y=arrays["y"],
            weights=arrays["weights"],
            n_rows=int(header["n_rows"]),
            anchor=None
            if anchor is None
            else Anchor(arrays["anchor_coef"], float(anchor["intercept"]), float(anchor["multiplier"])),
            method=header["method"],
            details=header["details"],
        )


def normalised(weights: FloatArray) -> FloatArray:
    """Return ``weights`` scaled to sum to one, to the last bit that a float64 sum allows."""
    return weights / math.fsum(weights)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that an interrupt or a full disk leaves either the old one or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)  # a temporary file is private; the result gets what any new file would
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
