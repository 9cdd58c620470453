"""Cases: problem ``k`` of seed ``s`` is always the same, whatever was drawn before it.

Three of ten problems are changed at the end by a pair of options (`pairs.py`). Without it, ``paired=False``, all
problems of a seed are those of the editions that drew no pairs.

A family is a function that draws a case; `FAMILIES` is the register. A new one is a function, a line there, a
referee in `referees.py` and a way to ask the package in `ask.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from .data import Array, Draw, draw_codes, draw_features, draw_sizes, draw_target, draw_weights
from .pairs import give_pair

MARGIN_LOSSES = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
RESIDUAL_LOSSES = ("huber", "pinball", "epsilon_insensitive", "absolute", "squared", "power")
ORDER_ONE = ("logistic", "hinge", "smooth_hinge", "huber", "pinball", "epsilon_insensitive", "absolute")


@dataclass
class Case:
    """One problem, in plain numbers. ``X`` is what the package gets; `dense` is what the referee reads."""

    family: str
    loss: str
    parameters: dict[str, float]
    X: Any
    radius: float
    ridge: float
    norm: str
    label_cost: float
    prices: Array | None
    fit_intercept: bool
    support: tuple[Array, Array] | None = None
    categories: list[list[int | None]] | None = None
    category_cost: list[float] | None = None
    n_classes: int = 2
    y: Any = None
    weights: Array | None = None
    traits: list[str] = field(default_factory=list)
    seed: int = 0
    number: int = 0
    small: bool = False
    forced: bool = False
    paired: bool = True

    @property
    def moves_rows(self) -> bool:
        """Whether the adversary moves every row in its own way."""
        return self.support is not None or self.categories is not None

    @property
    def dense(self) -> Array:
        """The rows as float64, exactly."""
        return np.asarray(self.X.toarray() if sp.issparse(self.X) else self.X, dtype=np.float64)

    @property
    def is_classification(self) -> bool:
        return self.loss in MARGIN_LOSSES

    @property
    def numbers(self) -> int:
        """``n m``, the measure of size that time limits refer to."""
        return int(self.X.shape[0] * self.X.shape[1])

    @property
    def command(self) -> str:
        family = self.family if self.forced else None
        return command(self.seed, self.number, self.small, family, paired=self.paired)

    def settings(self) -> dict[str, Any]:
        """The arguments of ``dualcore.Problem``."""
        names = ("radius", "norm", "label_cost", "ridge", "fit_intercept", "support", "categories", "category_cost")
        found = {"loss": self.loss, "feature_weights": self.prices} | {name: getattr(self, name) for name in names}
        if self.family == "softmax":
            found |= {"loss": "softmax", "n_classes": self.n_classes}
        return {name: value for name, value in (found | self.parameters).items() if value is not None}

    def describe(self) -> dict[str, Any]:
        """A short description for the record."""
        kept = {name: getattr(self, name) for name in ("radius", "ridge", "norm", "label_cost", "traits")}
        finite = self.prices is None or bool(np.isfinite(self.prices).all())
        return kept | {
            "loss": self.loss,
            **self.parameters,
            "n": int(self.X.shape[0]),
            "m": int(self.X.shape[1]),
            "prices": None if self.prices is None else "finite" if finite else "some infinite",
            "intercept": self.fit_intercept,
            **({"classes": self.n_classes} if self.family == "softmax" else {}),
        }


def command(seed: int, number: int, small: bool, family: str | None, *, paired: bool = True) -> str:
    """Return the command that repeats a case alone; it names the case, so a run knows by it what is done."""
    options = f"--seed {seed}{' --small' if small else ''}{f' --family {family}' if family else ''}"
    options += "" if paired else " --unpaired"
    return f"python -m tests.torture {options} --only {number}"


def draw_case(seed: int, number: int, *, small: bool = False, family: str | None = None, paired: bool = True) -> Case:
    """Return problem ``number`` of ``seed``; ``small`` caps its size, ``family`` forces its kind."""
    draw = Draw(np.random.default_rng([seed, number, int(small)]))
    drawn = draw.pick({name: share for name, (share, _) in FAMILIES.items()})
    if np.random.default_rng([seed, number, int(small), 1]).random() < _CATEGORIES:
        drawn = "categories"
    case = FAMILIES[family or drawn][1](draw, small)
    if case.family == "box":
        _widen(case, Draw(np.random.default_rng([seed, number, int(small), 2])), draw.traits)
    if paired:
        give_pair(case, Draw(np.random.default_rng([seed, number, int(small), 3]), draw.traits))
    case.seed, case.number, case.small, case.traits = seed, number, small, draw.traits
    case.forced, case.paired = family is not None, paired
    return case


def _widen(case: Case, draw: Draw, traits: list[str]) -> None:
    """Give one in four boxes a radius that takes rows nearly anywhere, and labels a price of the same order."""
    low, high = np.asarray(case.support)
    width = high - low
    if not np.isfinite(width).all() or not (width > 0.0).any() or draw.rng.random() >= _WIDE_RADIUS:
        return
    order = {"l1": 1, "l2": 2, "linf": np.inf}[case.norm]
    case.radius = float(np.linalg.norm(width, ord=order) * draw.rng.uniform(0.1, 1.5))
    if draw.rng.random() < 0.5:
        case.label_cost = float(np.median(width) * draw.power(-0.5, 0.5))
    traits.append("wide radius")


def draw_loss(draw: Draw, names: tuple[str, ...]) -> tuple[str, dict[str, float]]:
    name = str(draw.rng.choice(names))
    rng = draw.rng
    drawn: dict[str, Callable[[], dict[str, float]]] = {
        "huber": lambda: {"delta": draw.power(-2, 3)},
        "pinball": lambda: {"quantile": float(rng.choice([0.5, 0.9, 0.05, rng.uniform(0.01, 0.99)]))},
        "epsilon_insensitive": lambda: {"epsilon": float(rng.choice([0.0, 0.1, draw.power(-3, 1)]))},
        "power": lambda: {"power": float(rng.choice([1.2, 1.5, 2.0, 3.0, 4.0, rng.uniform(1.2, 8.0)]))},
    }
    return name, drawn[name]() if name in drawn else {}


def draw_prices(draw: Draw, m: int) -> Array | None:
    """Return feature weights or None; sometimes some are infinite."""
    kind = draw.pick({"none": 0.7, "spread": 0.15, "some infinite": 0.15})
    if kind == "none":
        return None
    prices = 10.0 ** draw.rng.uniform(-2, 2, size=m)
    if kind == "some infinite":
        prices[draw.rng.random(m) < 0.4] = np.inf
        if np.isinf(prices).all() and draw.rng.random() < 0.9:
            prices[draw.rng.integers(m)] = 1.0
    return np.asarray(prices)


def draw_problem(draw: Draw, m: int) -> dict[str, Any]:
    """Return radius, ridge, norm, label cost, prices and intercept."""
    rng = draw.rng
    return {
        "radius": 0.0 if rng.random() < 0.2 else draw.power(-6, 1) if rng.random() < 0.5 else draw.power(-2, 0),
        "ridge": 0.0 if rng.random() < 0.65 else draw.power(-4, 1),
        "norm": str(rng.choice(["l1", "l2", "linf"])),
        "label_cost": np.inf if rng.random() < 0.5 else draw.power(-2, 1),
        "prices": draw_prices(draw, m),
        "fit_intercept": bool(rng.random() < 0.8),
    }


def container(draw: Draw, X: Array) -> Any:
    """Return the rows as the package gets them: float64, float32 or sparse."""
    kind = draw.pick({"float64": 0.84, "float32": 0.08, "sparse": 0.08})
    if kind == "float64":
        return X
    draw.traits.append(kind)
    if kind == "float32":
        return X.astype(np.float32)
    return sp.csr_matrix(X * (draw.rng.random(X.shape) < draw.rng.uniform(0.1, 0.6)))


def draw_plain(draw: Draw, small: bool) -> Case:
    """A problem on all of R^m."""
    n, m = draw_sizes(draw, *((150, 12, 600) if small else (3000, 60, 180_000)))
    loss, parameters = draw_loss(draw, MARGIN_LOSSES + RESIDUAL_LOSSES)
    X = container(draw, draw_features(draw, n, m))
    return _with_targets(draw, Case("plain", loss, parameters, X, **draw_problem(draw, m)))


def draw_box(draw: Draw, small: bool) -> Case:
    """A problem with limits: on all sides, or on some sides only."""
    n, m = draw_sizes(draw, *((40, 4, 100) if small else (300, 8, 1200)))
    loss, parameters = draw_loss(draw, ORDER_ONE)
    rows = draw_features(draw, n, m)
    spread = np.maximum(rows.max(axis=0) - rows.min(axis=0), 1e-6)
    settings = draw_problem(draw, m)
    if settings["radius"] == 0.0 and draw.rng.random() < 0.7:
        settings["radius"] = draw.power(-2, 1)
    if draw.rng.random() < 0.5:  # a radius that is felt whatever the scale of the rows
        settings["radius"] *= float(np.median(spread))
    low, high = (side * draw.rng.choice([0.0, 0.1, 1.0]) * spread for side in (-1.0, 1.0))
    low, high = low + rows.min(axis=0), high + rows.max(axis=0)
    if draw.chance(0.3, "open walls"):
        low[draw.rng.random(m) < 0.4] = -np.inf
        high[draw.rng.random(m) < 0.4] = np.inf
    settings["support"] = (low, high)
    return _with_targets(draw, Case("box", loss, parameters, rows, **settings))


def draw_categories(draw: Draw, small: bool) -> Case:
    """A problem of one to three groups of one-hot columns, at most 64 assignments, and up to two numbers."""
    rng = draw.rng
    n, n_numbers = int(rng.integers(6, 30 if small else 80)), int(rng.integers(0, 3))
    sizes = [int(rng.integers(1, 5)) for _ in range(int(rng.integers(1, 4)))]
    dropped = [size == 1 or bool(rng.random() < 0.4) for size in sizes]
    while np.prod([size + drop for size, drop in zip(sizes, dropped, strict=True)]) > 64:
        sizes[int(np.argmax(sizes))] -= 1
    m = n_numbers + sum(sizes)
    loss, parameters = draw_loss(draw, ORDER_ONE)
    X = np.zeros((n, m))
    groups: list[list[int | None]] = []
    order, at = rng.permutation(m), 0
    for size, drop in zip(sizes, dropped, strict=True):
        columns, at = order[at : at + size], at + size
        shares = rng.dirichlet(np.full(size + drop, rng.choice([0.3, 2.0])))
        chosen = rng.choice(size + drop, size=n, p=shares)
        X[np.flatnonzero(chosen < size), columns[chosen[chosen < size]]] = 1.0
        groups.append([None] * drop + columns.tolist())
    numbers = order[at:]
    if numbers.size:
        X[:, numbers] = draw_features(draw, n, numbers.size)
    settings = draw_problem(draw, m)
    if settings["radius"] == 0.0 and rng.random() < 0.8:
        settings["radius"] = draw.power(-3, 1)
    if numbers.size and draw.chance(0.4, "walls"):
        low, high = np.full(m, -np.inf), np.full(m, np.inf)
        room = rng.choice([0.0, 0.5]) * np.maximum(np.ptp(X[:, numbers], axis=0), 1e-6)
        low[numbers], high[numbers] = X[:, numbers].min(axis=0) - room, X[:, numbers].max(axis=0) + room
        if draw.chance(0.3, "open walls"):
            high[numbers[0]] = np.inf
        settings["support"], settings["norm"] = (low, high), "l1"
    case = _with_targets(draw, Case("categories", loss, parameters, X, categories=groups, **settings))
    case.category_cost = [draw.power(-2, 1) for _ in groups]
    if draw.chance(0.15, "immovable group"):
        case.category_cost[0] = np.inf
    return case


def draw_softmax(draw: Draw, small: bool) -> Case:
    """A problem of many classes, up to 2,500 coefficients."""
    n_classes = int(draw.rng.integers(2, 6 if small else 13))
    n, m = draw_sizes(draw, *((60, 6, 300) if small else (1500, 60, 30_000)))
    while n_classes * (m + 1) > (40 if small else 2500 if draw.rng.random() < 0.1 else 300):
        n_classes, m = max(2, n_classes - 1), max(1, m - 1)
    n = max(n, n_classes + 1)
    X = container(draw, draw_features(draw, n, m))
    return _with_targets(draw, Case("softmax", "logistic", {}, X, n_classes=n_classes, **draw_problem(draw, m)))


def _with_targets(draw: Draw, case: Case) -> Case:
    """Give a case labels or targets, and weights."""
    code = None
    if case.is_classification:
        code = draw_codes(draw, case.dense, case.n_classes)
        case.y = code if case.family == "softmax" else 2.0 * code - 1.0
    else:
        case.y = draw_target(draw, case.dense)
    case.weights = draw_weights(draw, case.X.shape[0], code)
    return case


_CATEGORIES = 0.12
# Share of boxes whose radius takes rows nearly anywhere.
_WIDE_RADIUS = 0.25

FAMILIES: dict[str, tuple[float, Callable[[Draw, bool], Case]]] = {
    "plain": (0.65, draw_plain),
    "box": (0.15, draw_box),
    "softmax": (0.2, draw_softmax),
    # Drawn by a generator of its own, in place of another, so that all other problems of a seed stay what they were.
    "categories": (0.0, draw_categories),
}
