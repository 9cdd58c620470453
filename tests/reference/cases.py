"""Small worst-case risk problems, drawn by Hypothesis, on which the dual is checked against brute force."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any
from zlib import crc32

import numpy as np
from hypothesis import Phase, given, seed, settings
from hypothesis import strategies as st

from dualcore import Problem

NORMS = ("l1", "l2", "linf")
LABEL_COSTS = (0.5, 2.0, 7.0, np.inf)
MARGIN_LOSSES = ("logistic", "hinge", "smooth_hinge", "squared_hinge")
RESIDUAL_LOSSES = ("huber", "pinball", "epsilon_insensitive", "absolute", "squared")
SECOND_ORDER = ("squared", "squared_hinge")
LOSS_NAMES = MARGIN_LOSSES + RESIDUAL_LOSSES
FIRST_ORDER = tuple(name for name in LOSS_NAMES if name not in SECOND_ORDER)
PARAMETERS: dict[str, dict[str, tuple[float, ...]]] = {
    "huber": {"delta": (0.3, 1.35)},
    "pinball": {"quantile": (0.1, 0.5, 0.8)},
    "epsilon_insensitive": {"epsilon": (0.0, 0.1, 1.0)},
}


@dataclass(frozen=True)
class Case:
    """A problem, a model and the data it is judged on; ``weights`` need not sum to one."""

    loss: str
    norm: str
    label_cost: float
    radius: float
    coef: np.ndarray
    intercept: float
    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None = None
    parameters: dict[str, float] = field(default_factory=dict)

    @property
    def order(self) -> int:
        return 2 if self.loss in SECOND_ORDER else 1

    @property
    def is_classification(self) -> bool:
        return self.loss in MARGIN_LOSSES

    @property
    def masses(self) -> np.ndarray:
        n = len(self.y)
        return np.full(n, 1.0 / n) if self.weights is None else self.weights / self.weights.sum()

    @property
    def problem(self) -> Problem:
        return Problem(self.loss, radius=self.radius, norm=self.norm, label_cost=self.label_cost, **self.parameters)

    @property
    def model(self) -> tuple[np.ndarray, float]:
        return self.coef, self.intercept

    @property
    def data(self) -> tuple[np.ndarray, np.ndarray]:
        return self.X, self.y

    def replace(self, **changes: Any) -> Case:
        return replace(self, **changes)


def small_case(loss: str, **changes: Any) -> Case:
    """Three rows that are always the same."""
    X = np.array([[1.0, -2.0], [0.5, 3.0], [-1.0, 0.4]])
    y = np.array([1.0, -1.0, -1.0]) if loss in MARGIN_LOSSES else np.array([0.3, -2.0, 1.5])
    parameters = {name: values[1] for name, values in PARAMETERS.get(loss, {}).items()}
    return Case(loss, "l2", 2.0, 0.5, np.array([1.2, -0.7]), 0.1, X, y, None, parameters).replace(**changes)


# Tenths rather than floats: ties and zeros come up by themselves, numbers too small to matter do not. The simplest is
# 1, because a model of zeros, which Hypothesis would always try first, says little.
tenths = st.integers(-40, 20).map(lambda k: (k + 10) / 10.0)


def vectors(size: int) -> st.SearchStrategy[np.ndarray]:
    return st.lists(tenths, min_size=size, max_size=size).map(np.array)


@st.composite
def cases(
    draw: st.DrawFn,
    loss: str | st.SearchStrategy[str],
    norm: str | st.SearchStrategy[str] = st.sampled_from(NORMS),  # noqa: B008
    label_cost: float | st.SearchStrategy[float] = st.sampled_from(LABEL_COSTS),  # noqa: B008
    *,
    max_rows: int = 5,
    max_features: int = 3,
    weighted: bool = True,
) -> Case:
    """Draw a case of one loss.

    A flip pays where a row lies farther than about the label cost from the separating hyperplane, so half of the
    classification cases are stretched to that scale and most labels agree with the model.
    """
    loss = draw(loss) if isinstance(loss, st.SearchStrategy) else loss
    norm = draw(norm) if isinstance(norm, st.SearchStrategy) else norm
    label_cost = draw(label_cost) if isinstance(label_cost, st.SearchStrategy) else label_cost
    n, m = draw(st.integers(2, max_rows)), draw(st.integers(1, max_features))
    coef, intercept = draw(vectors(m)), draw(tenths)
    stretch = draw(st.sampled_from((1.0, 2.0, 0.5)))
    if loss in MARGIN_LOSSES and np.isfinite(label_cost):
        stretch *= 2.0 * label_cost
    X = stretch * draw(vectors(n * m)).reshape(n, m)
    if loss in MARGIN_LOSSES:
        agrees = np.array(draw(st.lists(st.sampled_from((1.0, 1.0, 1.0, 1.0, 1.0, -1.0)), min_size=n, max_size=n)))
        y = agrees * np.where(X @ coef + intercept >= 0.0, 1.0, -1.0)
        if abs(y.sum()) == n:
            y[draw(st.integers(0, n - 1))] *= -1.0
    else:
        y = 2.0 * draw(vectors(n))
    weights = None
    if weighted and draw(st.booleans()):
        counts = st.lists(st.integers(0, 5), min_size=n, max_size=n).filter(any)
        weights = np.array(draw(counts), dtype=float)
    radius = draw(st.sampled_from((0.5, 0.1, 1.0, 3.0, 0.5, 0.01, 1.0, 0.0)))
    parameters = {name: draw(st.sampled_from(values)) for name, values in PARAMETERS.get(loss, {}).items()}
    return Case(loss, norm, label_cost, radius, coef, intercept, X, y, weights, parameters)


def some_model(size: int) -> st.SearchStrategy[tuple[np.ndarray, float]]:
    """Coefficients and an intercept to compare a model with."""
    return st.tuples(vectors(size), tenths)


def for_every_geometry(loss: str, examples: int, check: Callable[[Case], None]) -> None:
    """Run ``check`` on ``examples`` cases of each norm and label cost, each with draws of its own."""
    for norm, cost in product(NORMS, LABEL_COSTS):

        @seed(crc32(f"{loss} {norm} {cost}".encode()))
        @settings(max_examples=examples, deadline=None, phases=(Phase.generate,))  # a search is too slow to shrink
        @given(cases(loss, norm, cost))
        def run(case):
            check(case)

        run()
