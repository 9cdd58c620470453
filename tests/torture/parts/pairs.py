"""Pairs of options: two traits that meet in one problem, on the same columns.

Traits that are drawn apart hardly ever meet: a lower bound was false where a column of infinite price was exactly a
multiple of one of finite price, and thousands of problems with either trait had passed. Half of the pairs here hold an
exact dependence between columns, and the other trait is given to some of the columns that take part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from .data import Array, Draw

if TYPE_CHECKING:
    from .cases import Case

Columns = npt.NDArray[np.intp]

# Share of the problems that are given a pair, and of the pairs that hold a dependence.
SHARE, _DEPENDENCES = 0.3, 0.5


def give_pair(case: Case, draw: Draw) -> None:
    """Change a case, in three of ten, by two options; ``draw`` takes note of them."""
    rng = draw.rng
    if rng.random() >= SHARE:
        return
    names = [name for name in OPTIONS if name != "limits" or case.support is not None]
    first = DEPENDENT if rng.random() < _DEPENDENCES else str(rng.choice(names))
    columns = rng.permutation(case.X.shape[1])[: int(rng.integers(1, 4))]
    if first == DEPENDENT:
        columns = make_dependence(case, draw, columns)
    else:
        OPTIONS[first](case, draw, columns)
    second = draw.pick({name: _OFTEN.get(name, 1.0) for name in names if name != first})
    OPTIONS[second](case, draw, columns)
    draw.traits.append(f"pair: {first} + {second}")


def make_dependence(case: Case, draw: Draw, sources: Columns) -> Columns:
    """Append columns that are exact combinations of others; return all that take part.

    Equal, a multiple, a sum, the intercept less a column, or indicators with the total of some of them. The columns of
    a sum are rounded to few bits, on one grid, so that no sum is rounded: numbers in single precision too.
    """
    rng, X = draw.rng, case.dense.copy()
    kind = draw.pick({"equal": 0.25, "multiple": 0.2, "sum": 0.25, "complement": 0.1, "indicators": 0.2})
    grouped = np.array([c for group in case.categories or () for c in group if c is not None], dtype=np.intp)
    if kind == "indicators" and grouped.size:  # the total of some categories
        sources = rng.permutation(grouped)[: int(rng.integers(1, grouped.size + 1))]
        new = X[:, sources].sum(axis=1)[:, None]
    elif kind == "indicators":
        code = rng.integers(0, int(rng.integers(2, 5)), size=len(X))
        shown = (code[:, None] == np.arange(code.max() + 1)).astype(np.float64)
        counted = int(rng.integers(1, shown.shape[1] + 1))
        sources, new = sources[:0], np.column_stack([shown, shown[:, :counted].sum(axis=1)])
    else:
        numbers = np.setdiff1d(sources, grouped)
        sources = sources if kind in ("sum", "equal") and rng.random() < 0.5 else sources[:1]
        if kind in ("sum", "complement") or case.X.dtype == np.float32:
            X[:, numbers] = _on_one_grid(X[:, numbers])
        factors = rng.choice([1.0, -1.0, 2.0], size=sources.size)
        if kind == "equal":
            sources, factors = sources[:1], np.ones(1)
        elif kind == "multiple":
            sources, factors = sources[:1], rng.choice([-1.0, 2.0, -0.5, 16.0], size=1)
        elif kind == "complement":
            factors = np.array([-1.0])
        new = (X[:, sources] @ factors + (1.0 if kind == "complement" else 0.0))[:, None]
    draw.traits.append(f"dependent: {kind}")
    before = X.shape[1]
    _set_rows(case, np.column_stack([X, new]))
    added = np.arange(before, before + new.shape[1])
    if case.prices is not None:
        case.prices = np.append(case.prices, 10.0 ** rng.uniform(-2, 2, size=added.size))
    if case.support is not None:
        _set_limits(case, draw, added)
    return np.append(sources, added).astype(np.intp)


def _on_one_grid(x: Array) -> Array:
    """Return columns of similar size, in multiples of one power of two, of at most 16 bits."""
    centred = x - np.median(x, axis=0)
    largest = np.abs(centred).max(axis=0, initial=0.0)
    exponent = np.frexp(np.where(largest > 0.0, largest, 1.0))[1]
    return np.asarray(np.round(np.ldexp(centred, 16 - exponent)) / 2.0**16)


def _set_rows(case: Case, X: Array) -> None:
    """Give a case other rows, in the container it has; limits that they leave are moved."""
    case.X = sp.csr_matrix(X) if sp.issparse(case.X) else X.astype(case.X.dtype)
    if case.support is not None:
        low, high = case.support
        old = low.size
        least, most = X.min(axis=0), X.max(axis=0)
        case.support = (
            np.append(np.minimum(low, least[:old]), least[old:]),
            np.append(np.maximum(high, most[:old]), most[old:]),
        )


def _some(draw: Draw, columns: Columns) -> Columns:
    """Return some of the columns, not all where there are several."""
    return draw.rng.permutation(columns)[: int(draw.rng.integers(1, max(columns.size, 2)))]


def _prices(case: Case) -> Array:
    return np.ones(case.X.shape[1]) if case.prices is None else case.prices.copy()


def _set_immovable(case: Case, draw: Draw, columns: Columns) -> None:
    """Infinite prices, mostly with what makes them count: a radius, and no ridge; limits ask for one."""
    case.prices, chosen = _prices(case), _some(draw, columns)
    case.prices[chosen] = np.inf
    case.radius = case.radius or draw.power(-2, 1)
    for j, group in enumerate(case.categories or ()):
        if set(group) & set(chosen.tolist()):
            case.category_cost[j] = np.inf
    if draw.rng.random() < 0.8:
        case.ridge = draw.power(-4, 1) if case.moves_rows else 0.0


def _set_prices(case: Case, draw: Draw, columns: Columns) -> None:
    case.prices = _prices(case)
    case.prices[columns] = 10.0 ** draw.rng.uniform(-3, 3, size=columns.size)


def _set_limits(case: Case, draw: Draw, columns: Columns) -> None:
    """Limits of their own: at the rows, further out, or none on either side."""
    grouped = [c for group in case.categories or () for c in group]
    low, high = (side.copy() for side in case.support)
    for j in np.setdiff1d(columns, [c for c in grouped if c is not None]):
        x = case.dense[:, j]
        margins = draw.rng.choice([0.0, 0.1, 1.0, np.inf], size=2) * max(float(np.ptp(x)), 1e-6)
        low[j], high[j] = x.min() - margins[0], x.max() + margins[1]
    case.support = (low, high)


def _set_intercept(case: Case, draw: Draw, columns: Columns) -> None:
    case.fit_intercept = not case.fit_intercept


def _set_radius(case: Case, draw: Draw, columns: Columns) -> None:
    case.radius = draw.power(-9, -5) if draw.rng.random() < 0.5 else draw.power(0, 3)


def _set_ridge(case: Case, draw: Draw, columns: Columns) -> None:
    case.ridge = 0.0 if case.ridge > 0.0 else draw.power(-8, 2)


def _set_label_cost(case: Case, draw: Draw, columns: Columns) -> None:
    case.label_cost = draw.power(-2, 1) if np.isinf(case.label_cost) else np.inf


def _set_weights(case: Case, draw: Draw, columns: Columns) -> None:
    """Half of the rows do not count; of every class one does."""
    n = case.X.shape[0]
    kept = draw.rng.random(n) < 0.5
    labels = np.asarray(case.y) if case.is_classification else np.zeros(n)
    for label in np.unique(labels):
        kept[draw.rng.choice(np.flatnonzero(labels == label))] = True
    case.weights = np.where(kept, np.ones(n) if case.weights is None else np.maximum(case.weights, 1e-6), 0.0)


def _set_scale(case: Case, draw: Draw, columns: Columns) -> None:
    """Powers of two: what is dependent stays so."""
    X, chosen = case.dense.copy(), _some(draw, columns)
    if case.moves_rows:  # limits are in the units of the columns, categories in none
        return
    X[:, chosen] *= 2.0 ** draw.rng.integers(-20, 21, size=chosen.size)
    _set_rows(case, X)


def _set_target(case: Case, draw: Draw, columns: Columns) -> None:
    """A target that one column fits exactly, labels that one column separates."""
    x = case.dense[:, draw.rng.choice(columns)]
    if not case.is_classification:
        case.y = 3.0 * x + (1.0 if case.fit_intercept else 0.0)
        return
    cuts = np.quantile(x, np.arange(1, case.n_classes) / case.n_classes)
    code = np.searchsorted(cuts, x)
    held = np.ones(len(x)) if case.weights is None else case.weights
    if all((held[code == k] > 0.0).any() for k in range(case.n_classes)):
        case.y = code.astype(np.int64) if case.family == "softmax" else 2.0 * code - 1.0


DEPENDENT = "dependent"
# What tells columns apart is drawn more often than what changes the problem as a whole, which counts as 1.
_OFTEN = {"immovable": 4.0, "prices": 2.0, "limits": 2.0, "target": 2.0}
OPTIONS: dict[str, Callable[[Case, Draw, Columns], None]] = {
    "immovable": _set_immovable,
    "prices": _set_prices,
    "limits": _set_limits,
    "intercept": _set_intercept,
    "radius": _set_radius,
    "ridge": _set_ridge,
    "label cost": _set_label_cost,
    "weights": _set_weights,
    "scale": _set_scale,
    "target": _set_target,
}
