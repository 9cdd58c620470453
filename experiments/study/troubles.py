"""What can go wrong between training and use, each kind with the belief that a careful user would state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt
from sklearn.preprocessing import StandardScaler

from dualcore.attacks import add_noise, flip_labels
from dualcore.data.arrays import FloatArray
from experiments.data import Split
from experiments.study.tables import Pair

FEW_ROWS = 30
MOST_TEST_ROWS = 1000
DRIFT = 0.5  # of a column, in standard deviations
ATTACK = 0.3  # length of the move of every test row, in standard deviations

Training = Literal["usual", "few", "wrong 10", "wrong 20", "subgroup"]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Trouble:
    """A way of choosing the training rows, and of changing the test rows.

    ``belief`` is what a user states beforehand: parameters of the robust estimator, or nothing.
    """

    title: str
    training: Training = "usual"
    belief: dict[str, float | str] = field(default_factory=dict)
    change: Callable[[FloatArray, np.random.Generator], FloatArray] | None = None
    attack: float = 0.0  # how far each test row moves against the model that is tested


_MOVED: dict[str, float | str] = {"radius": DRIFT, "norm": "linf"}
TROUBLES: dict[str, Trouble] = {
    "none": Trouble("none"),
    "few": Trouble(f"few rows ({FEW_ROWS})", "few"),
    "wrong-10": Trouble("10 % of the labels wrong", "wrong 10", {"radius": 0.1, "label_cost": 1.0}),
    "wrong-20": Trouble("20 % of the labels wrong", "wrong 20", {"radius": 0.1, "label_cost": 0.5}),
    "drift": Trouble("columns drift", belief=_MOVED, change=lambda X, rng: X + DRIFT * rng.standard_normal(X.shape[1])),
    "noise": Trouble("noise in the features", belief=_MOVED, change=lambda X, rng: add_noise(X, DRIFT, rng)),
    "attack": Trouble("attack within the radius", belief={"radius": ATTACK}, attack=ATTACK),
    "subgroup": Trouble("a rare subgroup", "subgroup"),
}


def draw(rows: Pair, n: int, training: Training, classes: bool, rng: np.random.Generator) -> Split:
    """Draw ``n`` training rows, fewer where the trouble is that, and test rows from the others.

    Columns and real targets are in deviations of the training rows.
    """
    X, y = rows
    n = min(n, FEW_ROWS) if training == "few" else n
    if training == "subgroup":
        train, test = _subgroup(X, y, n, classes, rng)
    else:
        order = _shuffled(y, np.arange(y.size), n, classes, rng)
        train, test = order[:n], order[n:]
    test = test[:MOST_TEST_ROWS]
    y_train = y[train]
    if training in ("wrong 10", "wrong 20"):
        y_train = _wrong(y_train, 0.1 if training == "wrong 10" else 0.2, classes, rng)
    scaler = StandardScaler().fit(X[train])
    centre, unit = (0.0, 1.0) if classes else (np.mean(y_train), np.std(y_train))
    targets = ((y_train - centre) / unit, (y[test] - centre) / unit)
    return Split(scaler.transform(X[train]), targets[0], scaler.transform(X[test]), targets[1])


def _shuffled(y: FloatArray, rows: Rows, n: int, classes: bool, rng: np.random.Generator) -> Rows:
    """Return the rows in random order; the first ``n`` hold the classes in their shares."""
    order = rng.permutation(rows)
    if not classes:
        return order
    share = n / order.size
    first = np.concatenate([own[: round(share * own.size)] for own in (order[y[order] == c] for c in (-1.0, 1.0))])
    return np.concatenate([first, rng.permutation(np.setdiff1d(order, first))])


def _wrong(y: FloatArray, share: float, classes: bool, rng: np.random.Generator) -> FloatArray:
    """Flip a share of the labels; of real targets a share is exchanged among each other."""
    if classes:
        return np.asarray(flip_labels(y, share, rng), dtype=np.float64)
    y, chosen = y.copy(), rng.choice(y.size, size=int(share * y.size), replace=False)
    y[chosen] = y[rng.permutation(chosen)]
    return y


def _subgroup(X: FloatArray, y: FloatArray, n: int, classes: bool, rng: np.random.Generator) -> tuple[Rows, Rows]:
    """Return training rows of which 5 % are of the subgroup, and the rest of the subgroup to test on.

    The subgroup is the quarter of the rows, of each class, that lies farthest along the first principal direction.
    """
    scaled = StandardScaler().fit_transform(X)
    along = np.linalg.svd(scaled, full_matrices=False)[2][0]
    far = np.zeros(y.size, dtype=bool)
    for own in [np.flatnonzero(y == c) for c in (-1.0, 1.0)] if classes else [np.arange(y.size)]:
        far[own] = scaled[own] @ along > np.quantile(scaled[own] @ along, 0.75)
    rare = round(0.05 * n)
    group = _shuffled(y, np.flatnonzero(far), rare, classes, rng)
    others = _shuffled(y, np.flatnonzero(~far), n - rare, classes, rng)
    return np.concatenate([others[: n - rare], group[:rare]]), group[rare:]
