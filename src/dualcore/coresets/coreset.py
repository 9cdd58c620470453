"""`Coreset`: a few weighted rows that represent all rows, and their provenance."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from dualcore.coresets.packing import read_packed, write_packed
from dualcore.data.arrays import FloatArray
from dualcore.problem import Anchor, Problem
from dualcore.reading.measure import Measured, measure_epsilon

_FORMAT = 5


@dataclass(frozen=True, eq=False)
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
        Number of rows that they represent.
    anchor : Anchor or None
    method : str
        Name of the sampler.
    details : dict
        Provenance: seed, cells, calibration, messages. JSON values only.
    excess : float or None
        Excess risk of the model trained on these rows alone: its risk on all rows minus that of the fitted model,
        relative to the latter, measured by a read of all rows. It is negative if training of the fitted model stopped
        early. None if it was not measured. With several radii it is
        the largest of them if they are those of a path, else that of the problem's radius. In a box, with categories,
        and with too few rows for all radii it is that of one radius. With several classes, each against the rest, it is
        the largest.
    exact_at : tuple of float
        Radii whose models are optima of the weighted rows; empty for random draws, also with calibrated weights. With
        kinks, and rows hardly more than the matched numbers, a model may fail to be an optimum, or be one of many:
        radii at which it fails are left out, and all of them where ``excess`` is beyond +-1e-6 (+-1e-5 where rows move
        in a box or between categories).
    n_reads : int
        How often the data were read to build and to check it.

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
    excess: float | None = None
    exact_at: tuple[float, ...] = ()
    n_reads: int = 0

    def __len__(self) -> int:
        return int(self.indices.size)

    def __repr__(self) -> str:
        excess = f", excess {self.excess:.1g}" if self.excess and abs(self.excess) > 1e-6 else ""
        return f"<Coreset of {len(self)} rows for {self.n_rows}, by {self.method or 'hand'}{excess}>"

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
            Number of random models in the ball around the anchor, each with a random feasible multiplier.
        radius : float, optional
            Radius of the ball, in the Euclidean norm of (coef, intercept); a tenth of the anchor's norm by default.
        ascents : int, default=3
            Number of the worst queries from which the error is maximised locally.
        random_state : int, default=0
        """
        if self.anchor is None:
            raise ValueError("This coreset has no anchor to measure around: it was drawn without one.")
        if queries < 1:
            raise ValueError(f"queries must be at least 1, got {queries!r}.")
        if radius is None:
            lengths = np.linalg.norm(self.anchor.coef), np.linalg.norm(self.anchor.intercept)
            radius = 0.1 * max(float(np.hypot(*lengths)), 1e-3)
        full, part = problem.validate(X, y, sample_weight), problem.validate(self.X, self.y, self.weights)
        settings = {"queries": queries, "ascents": ascents, "seed": random_state}
        return measure_epsilon(problem, full, part, self.anchor, radius=radius, **settings)

    def to_frame(self) -> Any:
        """Return a pandas DataFrame: row number, weight, target, features.

        The features have the names of ``details["feature_names"]``, which estimators fill in, else ``x0, x1, ...``.
        Columns of text that an estimator coded (``details["coding"]``) are text again, and targets are labels
        (``details["labels"]``). Where rows were left out (``drop_missing``) the row number counts those that were kept:
        use the features that stand here, not ``frame.iloc[row]``.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("Coreset.to_frame needs pandas. Install it with: pip install 'dualcore[dask]'") from None
        X = self.X.toarray() if sp.issparse(self.X) else self.X
        names = self.details.get("feature_names") or [f"x{j}" for j in range(X.shape[1])]
        frame = pd.DataFrame(X, columns=names)
        for name, levels in self.details.get("coding", {}).items():
            coded = frame[[f"{name}={level}" for level in levels]]
            texts = np.array([*levels, None], dtype=object)
            found = texts[np.where(coded.any(axis=1), coded.to_numpy().argmax(axis=1), len(levels))]
            frame.insert(frame.columns.get_loc(coded.columns[0]), name, found)
            frame = frame.drop(columns=coded.columns)
        y, labels = self.y, self.details.get("labels")
        if labels is not None:
            y = np.array(labels)[(y > 0.0 if len(labels) == 2 else y).astype(np.int64)]
        for place, (name, values) in enumerate((("row", self.indices), ("weight", self.weights), ("y", y))):
            frame.insert(place, name, values, allow_duplicates=True)  # a feature may have that name too
        return frame

    def save(self, path: str | Path) -> None:
        """Write the coreset to one ``.npz`` file (arrays, and a JSON header); atomically, and without pickle.

        Raises
        ------
        ValueError
            If `load` would refuse the file: weights that do not sum to one, for example.
        """
        total = math.fsum(self.weights)
        if not abs(total - 1.0) <= 1e-6:
            raise ValueError(f"This coreset cannot be saved: 'weights' must sum to one, their sum is {total!r}.")
        write_packed(path, _FORMAT, self)

    @classmethod
    def load(cls, path: str | Path) -> Coreset:
        """Read what `save` wrote. Nothing in the file is ever executed.

        Raises
        ------
        ValueError
            If the file was not written by `save`, or was damaged or changed since.
        """
        found: Coreset = read_packed(path, _FORMAT, "coreset file written by Coreset.save", (cls, Anchor))
        return found


def normalised(weights: FloatArray) -> FloatArray:
    """Return ``weights`` scaled to sum to one up to rounding."""
    return weights / math.fsum(weights)
