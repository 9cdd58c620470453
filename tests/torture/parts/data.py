"""Hostile data: features, targets, labels and weights with the traits that break solvers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]


@dataclass
class Draw:
    """A generator of random numbers that remembers which traits were drawn."""

    rng: np.random.Generator
    traits: list[str] = field(default_factory=list)

    def chance(self, probability: float, trait: str = "") -> bool:
        """Return True with this probability, and note the trait then."""
        happens = bool(self.rng.random() < probability)
        if happens and trait:
            self.traits.append(trait)
        return happens

    def pick(self, choices: dict[str, float]) -> str:
        """Return one of the names, by its share."""
        shares = np.array(list(choices.values()))
        return str(self.rng.choice(list(choices), p=shares / shares.sum()))

    def power(self, low: float, high: float) -> float:
        """Return ``10 ** u``, ``u`` uniform between the two exponents."""
        return float(10.0 ** self.rng.uniform(low, high))


def draw_sizes(draw: Draw, most_rows: int, most_columns: int, most_numbers: int) -> tuple[int, int]:
    """Return rows and columns, either even on a logarithmic scale; in a tenth of the cases more columns than rows."""
    while True:
        n = round(np.exp(draw.rng.uniform(np.log(4), np.log(most_rows))))
        m = round(np.exp(draw.rng.uniform(0.0, np.log(most_columns))))
        if draw.rng.random() < 0.1 and m > 4:
            n = int(draw.rng.integers(4, m))
        if n * m <= most_numbers:
            if m > n:
                draw.traits.append("wide")
            return n, m


def draw_features(draw: Draw, n: int, m: int) -> Array:
    """Return rows with the scales, offsets, duplicates, constants and near copies of columns that were drawn."""
    rng = draw.rng
    kind = draw.pick({"normal": 0.5, "uniform": 0.1, "binary": 0.1, "low rank": 0.1, "t2": 0.1, "cauchy": 0.1})
    if kind == "normal":
        X = rng.normal(size=(n, m))
    elif kind == "uniform":
        X = rng.uniform(-1.0, 1.0, size=(n, m))
    elif kind == "binary":
        X = (rng.random((n, m)) < rng.uniform(0.1, 0.9)).astype(np.float64)
    elif kind == "low rank":
        rank = max(1, m // 3)
        X = rng.normal(size=(n, rank)) @ rng.normal(size=(rank, m)) + draw.power(-8, 0) * rng.normal(size=(n, m))
    else:
        X = rng.standard_t(2.0 if kind == "t2" else 1.0, size=(n, m))
    draw.traits.append(kind)
    if draw.chance(0.25, "scaled"):
        X *= 10.0 ** rng.uniform(-6, 6, size=m if rng.random() < 0.6 else 1)
    if draw.chance(0.2, "offset"):
        spread = np.maximum(np.abs(X).mean(axis=0), 1e-300)
        relative = rng.random() < 0.7
        X += rng.choice([-1.0, 1.0], size=m) * 10.0 ** rng.uniform(0, 12, size=m) * (spread if relative else 1.0)
    if draw.chance(0.07, "constant column"):
        X[:, rng.integers(m)] = rng.choice([0.0, 1.0, draw.power(-6, 6)])
    if m > 1 and draw.chance(0.07, "duplicate column"):
        first, second = rng.choice(m, size=2, replace=False)
        X[:, second] = X[:, first] * rng.choice([1.0, 1.0, -1.0, 2.0, 0.1])
    if m > 1 and draw.chance(0.12):
        difference = draw.power(-13, -6)
        draw.traits.append(f"near-collinear {difference:.0e}")
        first, second = rng.choice(m, size=2, replace=False)
        X[:, second] = X[:, first] * (1.0 + difference * rng.normal(size=n))
    return X


def standardised(X: Array) -> Array:
    """Return columns of mean 0 and mean absolute value 1 (0 where they are constant)."""
    centred = X - X.mean(axis=0)
    spread = np.abs(centred).mean(axis=0)
    return centred / np.where(spread > 0.0, spread, 1.0)


def draw_target(draw: Draw, X: Array) -> Array:
    """Return a real target that is linear in the rows, with noise of some kind or none, scaled and shifted or not."""
    rng, (n, m) = draw.rng, X.shape
    signal = standardised(X) @ (rng.normal(size=m) * (rng.random(m) < 0.7)) / np.sqrt(m)
    kind = draw.pick({"noise": 0.5, "cauchy noise": 0.15, "exact fit": 0.12, "pure noise": 0.13, "rounded": 0.1})
    draw.traits.append(kind)
    if kind == "noise":
        y = signal + draw.power(-4, 1) * rng.normal(size=n)
    elif kind == "cauchy noise":
        y = signal + rng.standard_cauchy(size=n)
    elif kind == "exact fit":
        y = signal.copy()
    elif kind == "rounded":
        y = np.round(2.0 * signal + rng.normal(size=n))
    else:
        y = rng.normal(size=n)
    if draw.chance(0.2, "target scaled"):
        y *= draw.power(-6, 6)
    if draw.chance(0.2):
        offset = draw.power(0, 12) * rng.choice([-1.0, 1.0])
        draw.traits.append(f"target + {offset:.1e}")
        y = y + offset
    return np.asarray(y)


def draw_codes(draw: Draw, X: Array, n_classes: int) -> npt.NDArray[np.int64]:
    """Return class numbers, every class present: noisy, separable, random or unbalanced."""
    rng, (n, m) = draw.rng, X.shape
    scores = standardised(X) @ rng.normal(size=(m, n_classes)) / np.sqrt(m)
    kind = draw.pick({"noisy": 0.5, "separable": 0.2, "random labels": 0.15, "rare class": 0.15})
    draw.traits.append(kind)
    if kind == "noisy":
        scores = scores + draw.power(-1, 0.5) * rng.normal(size=(n, n_classes))
    elif kind == "random labels":
        scores = rng.normal(size=(n, n_classes))
    elif kind == "rare class":
        scores[:, 0] -= np.quantile(scores[:, 0] - scores[:, 1:].max(axis=1), 0.95)
    code = scores.argmax(axis=1)
    for k in range(n_classes):  # rows may have to change class so that none is empty
        if not (code == k).any():
            full = np.bincount(code, minlength=n_classes).argmax()
            code[rng.choice(np.flatnonzero(code == full))] = k
    return code.astype(np.int64)


def draw_weights(draw: Draw, n: int, groups: npt.NDArray[np.int64] | None) -> Array | None:
    """Return sample weights or None; every group keeps a row of positive weight."""
    kind = draw.pick({"none": 0.7, "zeros": 0.1, "spread": 0.12, "zeros and spread": 0.08})
    if kind == "none":
        return None
    draw.traits.append(f"weights: {kind}")
    weights = 10.0 ** draw.rng.uniform(-6, 0, size=n) if "spread" in kind else np.ones(n)
    if "zeros" in kind:
        weights[draw.rng.random(n) < draw.rng.uniform(0.05, 0.5)] = 0.0
        for group in [np.arange(n)] if groups is None else [np.flatnonzero(groups == k) for k in np.unique(groups)]:
            if not (weights[group] > 0.0).any():
                weights[draw.rng.choice(group)] = 1.0
    return np.asarray(weights)
