"""The best l2 move of every row, by halving: a part of the path is dropped once nothing on it can be better.

Along the path both the loss and the cheapest cost are convex in the gain ``s``, so both of their slopes only rise. Over
a part from ``a`` to ``b`` what a move earns therefore changes at a rate between ``L'(a) - lam phi'(b)`` and
``L'(b) - lam phi'(a)``. Two lines with these slopes, one through each end, bound it from above. A peak may be as narrow
as it likes: behind a limit the cost bends at once, while the loss takes over again far out, so that points at fixed
shares of the way may all lie below it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .risks import POLYHEDRAL, lines

_ROUNDS = 100
# Parts that cannot beat the best point by this share of the loss and the cost there, or by what rounding can do to
# their own, are dropped. Without the second, long parts that are flat but for rounding would be halved without end.
_NOTHING, _NOISE = 1e-13, 4e-15
# What rounding can do to a slope.
_ROUNDING = 4e-16


def slopes(loss: str, t: Any, **parameters: float) -> tuple[Any, Any]:
    """Return the slopes of a loss of order 1 in the margin or residual, from the left and from the right."""
    if loss in POLYHEDRAL:
        pieces = np.array(lines(loss, parameters), dtype=np.float64)
        values = pieces[:, :1] * t + pieces[:, 1:]
        active = values >= values.max(axis=0)
        rates = pieces[:, :1]
        return np.where(active, rates, np.inf).min(axis=0), np.where(active, rates, -np.inf).max(axis=0)
    if loss == "huber":
        slope = np.clip(t, -parameters["delta"], parameters["delta"])
    else:
        slope = -np.clip(1.0 - t, 0.0, 1.0) if loss == "smooth_hinge" else -0.5 * (1.0 - np.tanh(0.5 * t))
    return slope, slope


class Road(NamedTuple):
    """The l2 path of some rows in float64: start of the signal, its direction, yields and room of the features."""

    start: Any
    side: float
    u: Any
    cap: Any
    loss: Callable[[Any], Any]
    slopes: Callable[[Any], tuple[Any, Any]]


class _Places(NamedTuple):
    """Places on paths: key, gain, what is earned, its size, slopes of the loss on both sides, slope of the cost."""

    key: Any
    gain: Any
    worth: Any
    size: Any
    before: Any
    after: Any
    price: Any


def _places(road: Road, row: Any, key: Any, lam: float) -> _Places:
    v = np.minimum(road.cap[row], key[:, None] * road.u)
    gain, cost = v @ road.u, np.sqrt((v * v).sum(axis=1))
    t = road.start[row] + road.side * gain
    loss = np.asarray(road.loss(t), dtype=np.float64)
    left, right = road.slopes(t)
    before, after = (left, right) if road.side > 0 else (-right, -left)
    first = np.sqrt(np.where(road.cap[row] > 0.0, road.u**2, 0.0).sum(axis=1))
    price = np.divide(key, cost, out=np.divide(1.0, first, out=np.zeros_like(first), where=first > 0), where=cost > 0)
    return _Places(key, gain, loss - lam * cost, np.abs(loss) + lam * cost, before, after, lam * price)


def best_keys(road: Road, keys: Any, lam: float) -> Any:
    """Return where on the path every row earns most, between the first and the last of its ``keys``.

    ``keys`` has one sorted line a row.
    """
    n, count = keys.shape
    row = np.repeat(np.arange(n), count)
    all_places = _places(road, row, keys.ravel(), lam)
    top = all_places.worth.reshape(n, count).argmax(axis=1)
    at = np.arange(n) * count + top
    key, best, size = all_places.key[at], all_places.worth[at], all_places.size[at]
    ends = np.arange(n * count).reshape(n, count)
    left, right = (_Places(*(each[part.ravel()] for each in all_places)) for part in (ends[:, :-1], ends[:, 1:]))
    row = np.repeat(np.arange(n), count - 1)
    for _ in range(_ROUNDS):
        width = right.gain - left.gain
        pad = _ROUNDING * (np.abs(right.after) + right.price)
        rise, fall = right.after - left.price + pad, left.before - right.price - pad
        inside = (rise > 0.0) & (fall < 0.0) & (width > 0.0)
        # Elsewhere what is earned only rises or only falls: an end is best.
        row, width, rise, fall = row[inside], width[inside], rise[inside], fall[inside]
        left, right = (_Places(*(each[inside] for each in ends)) for ends in (left, right))
        meet = np.clip((right.worth - left.worth - fall * width) / (rise - fall), 0.0, width)
        bound = left.worth + rise * meet
        middle = left.key + np.clip(meet / width, 0.1, 0.9) * (right.key - left.key)
        least = best[row] + _NOTHING * size[row] + _NOISE * right.size
        keep = (bound > least) & (middle > left.key) & (middle < right.key)
        if not keep.any():
            break
        row = row[keep]
        left, right = (_Places(*(each[keep] for each in ends)) for ends in (left, right))
        new = _places(road, row, middle[keep], lam)
        order = np.argsort(new.worth, kind="stable")  # of two places of one row the better is written last
        better = order[new.worth[order] > best[row[order]]]
        key[row[better]], best[row[better]], size[row[better]] = new.key[better], new.worth[better], new.size[better]
        row = np.concatenate([row, row])
        left, right = (
            _Places(*(np.concatenate(pair) for pair in zip(*both, strict=True))) for both in ((left, new), (new, right))
        )
    return key
