"""The contract of a loss, as a check for custom losses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dualcore.data.arrays import FloatArray
from dualcore.problem.losses.base import Loss, MarginLoss, ResidualLoss


def _wide_grid() -> FloatArray:
    """Return powers of ten on both sides of zero."""
    powers = np.geomspace(1e-8, 1e8, 161)
    return np.concatenate([-powers[::-1], [0.0], powers])


def _near_grid() -> FloatArray:
    """Return a fine grid where the curvature of losses changes."""
    return np.linspace(-40.0, 40.0, 4001)


_WIDE, _NEAR = _wide_grid(), _near_grid()


def check_loss(loss: Loss) -> str:
    """Check that a loss meets the contract; the error names the first violation in one sentence.

    The checks are: arithmetic is valid up to ``|t| = 1e8`` and in float32; the value is non-negative and convex; the
    slope is its derivative; Lipschitz constant, kinks, curvature and conjugate are right; a margin loss is
    non-increasing, a residual loss vanishes at zero. A subclass must define only ``value``, ``slope`` and
    ``lipschitz``; the rest is checked whether it is a default or was overridden.

    Parameters
    ----------
    loss : Loss
        An object, not a class.

    Returns
    -------
    str
        A summary of the checks.

    Raises
    ------
    AssertionError
        With one sentence on the first promise that is broken.

    Examples
    --------
    >>> from dualcore.problem.losses import Hinge
    >>> print(check_loss(Hinge()))
    Hinge(): a margin loss of order 1, Lipschitz constant 1, kinks at 1; 10 checks passed.
    """
    _require(
        isinstance(loss, (MarginLoss, ResidualLoss)),
        f"{loss!r} is not an object of a subclass of MarginLoss or ResidualLoss, so its dual is not known.",
    )
    _require(hasattr(loss, "lipschitz"), f"{loss!r} has no attribute lipschitz, its largest absolute slope.")
    for check in _CHECKS:
        try:
            check(loss)
        except (FloatingPointError, TypeError, IndexError) as error:
            raise AssertionError(f"{loss!r} fails in floating-point arithmetic or on arrays: {error}.") from error
    kind = "margin" if isinstance(loss, MarginLoss) else "residual"
    kinks = f"kinks at {', '.join(f'{kink:g}' for kink in loss.kinks)}" if loss.kinks else "no kinks"
    return (
        f"{loss!r}: a {kind} loss of order {loss.order}, Lipschitz constant {loss.lipschitz:g}, {kinks}; "
        f"{len(_CHECKS)} checks passed."
    )


def _require(condition: Any, sentence: str) -> None:
    """Raise AssertionError, also with ``python -O``."""
    if not condition:
        raise AssertionError(sentence)


def _first(bad: Any, t: Any) -> str:
    """Return a description of the first argument with a violation; empty if there is none."""
    where = np.flatnonzero(bad)
    return f"t = {float(t[where[0]]):g}" if where.size else "no t"


def _corners(loss: Loss) -> FloatArray:
    return np.array(sorted({*loss.kinks, *loss.curvature_jumps}), dtype=np.float64)


def _away(loss: Loss, t: FloatArray, distance: FloatArray | float) -> FloatArray:
    """Return the ``t`` that have no kink or jump of the curvature within ``distance``."""
    gaps = np.abs(t[:, None] - _corners(loss)[None, :])
    return t[(gaps > np.broadcast_to(distance, t.shape)[:, None]).all(axis=1)]


def _check_arithmetic(loss: Loss) -> None:
    for name in ("value", "slope", "curvature"):
        function: Callable[[FloatArray], Any] = getattr(loss, name)
        argument = _WIDE.copy()
        argument.flags.writeable = False
        try:
            with np.errstate(all="raise", under="ignore"):
                result = function(argument)
        except FloatingPointError as error:
            raise AssertionError(
                f"{name} of {loss!r} overflows or divides by zero for |t| up to 1e8 ({error}): rewrite it so that "
                "exponentials only see negative numbers."
            ) from error
        except ValueError as error:
            raise AssertionError(f"{name} of {loss!r} fails, or writes into its argument: {error}.") from error
        ok = isinstance(result, np.ndarray) and result.shape == _WIDE.shape and result.dtype == np.float64
        _require(ok, f"{name} of {loss!r} must return a float64 array of the shape of its argument.")
        _require(
            np.isfinite(result).all(), f"{name} of {loss!r} is not finite at {_first(~np.isfinite(result), _WIDE)}."
        )
        _require(
            name == "curvature" or (result.flags.writeable and not np.shares_memory(result, argument)),
            f"{name} of {loss!r} must return a new array: callers write into it.",
        )
        _require(function(np.empty(0)).shape == (0,), f"{name} of {loss!r} must take an empty array.")


def _check_float32(loss: Loss) -> None:
    narrow = _away(loss, _WIDE, 1e-6).astype(np.float32)
    for name in ("value", "slope"):
        with np.errstate(all="raise", under="ignore"):
            got, expected = getattr(loss, name)(narrow), getattr(loss, name)(narrow.astype(np.float64))
        close = np.isclose(got, expected, rtol=2e-6, atol=1e-6)
        _require(close.all(), f"{name} of {loss!r} goes wrong for float32 arguments, at {_first(~close, narrow)}.")


def _check_value(loss: Loss) -> None:
    value = loss.value(_NEAR)
    _require((value >= 0.0).all(), f"{loss!r} is negative at {_first(value < 0.0, _NEAR)}: a loss is at least zero.")
    bad = loss.value(0.5 * (_NEAR[:-1] + _NEAR[1:])) > 0.5 * (value[:-1] + value[1:]) + 1e-12 * (1.0 + value[1:])
    _require(not bad.any(), f"{loss!r} is not convex near {_first(bad, _NEAR)}: its dual would be wrong.")


def _check_slope(loss: Loss) -> None:
    t = _away(loss, _NEAR, 2e-6 * (1.0 + np.abs(_NEAR)))
    step = 1e-6 * (1.0 + np.abs(t))
    difference = (loss.value(t + step) - loss.value(t - step)) / (2.0 * step)
    close = np.isclose(loss.slope(t), difference, rtol=1e-6, atol=1e-7)
    _require(close.all(), f"slope of {loss!r} is not the derivative of its value at {_first(~close, t)}.")
    both = np.concatenate([_NEAR, _WIDE])
    for mine, alone in zip(loss.value_and_slope(both), (loss.value(both), loss.slope(both)), strict=True):
        _require(np.allclose(mine, alone, rtol=1e-13, atol=0.0), f"value_and_slope of {loss!r} disagrees with the two.")


def _check_lipschitz(loss: Loss) -> None:
    slope = loss.slope(_WIDE)
    steepest = float(np.abs(slope).max())
    if loss.order > 1:
        _require(
            loss.lipschitz == np.inf,
            f"{loss!r} is of order {loss.order:g}, so its lipschitz is inf, not {loss.lipschitz!r}.",
        )
        return
    _require(
        0.0 < loss.lipschitz < np.inf, f"lipschitz of {loss!r} must be positive and finite, got {loss.lipschitz!r}."
    )
    exact = abs(steepest - loss.lipschitz) <= 1e-6 * loss.lipschitz and steepest <= loss.lipschitz * (1.0 + 1e-12)
    _require(
        exact,
        f"lipschitz of {loss!r} is {loss.lipschitz!r} but its largest slope is {steepest!r}: the two must agree, the "
        "worst-case risk is proportional to it.",
    )
    low, high = loss.slope_range
    tight = np.isclose([slope.min(), slope.max()], [low, high], rtol=0.0, atol=1e-6 * loss.lipschitz)
    inside = (slope >= low - 1e-15).all() and (slope <= high + 1e-15).all()
    _require(
        inside and tight.all(),
        f"slope_range of {loss!r} is {(low, high)} but its slopes run from {slope.min():g} to {slope.max():g}: "
        "override slope_range.",
    )


def _check_kind(loss: Loss) -> None:
    if isinstance(loss, ResidualLoss):
        _require(loss.value(np.zeros(1))[0] == 0.0, f"{loss!r} must vanish at zero, where the prediction is right.")
        return
    rises = np.diff(loss.value(_NEAR)) > 0.0
    _require(not rises.any(), f"{loss!r} is a margin loss but rises near {_first(rises, _NEAR)}: it must not.")
    if isinstance(loss, MarginLoss):
        gain = loss.flip_gain(_NEAR)
        close = np.isclose(gain, loss.value(-_NEAR) - loss.value(_NEAR), rtol=1e-12, atol=1e-12)
        _require(close.all(), f"flip_gain of {loss!r} is not L(-z) - L(z) at {_first(~close, _NEAR)}.")


def _check_kinks(loss: Loss) -> None:
    for kink in loss.kinks:
        before, after = loss.slope(np.array([kink - 1e-9, kink + 1e-9]))
        _require(after - before > 1e-6, f"{loss!r} names a kink at {kink!r}, but its slope does not jump there.")
    # Elsewhere: bisect every interval towards the half with the larger rise of the slope, until only a jump is left.
    left = np.linspace(-40.0, 40.0, 8001)[:-1]
    right = left + 0.01
    free = np.array([not any(a <= kink <= b for kink in loss.kinks) for a, b in zip(left, right, strict=True)])
    left, right = left[free], right[free]
    for _ in range(25):
        middle = 0.5 * (left + right)
        low, here, high = loss.slope(left), loss.slope(middle), loss.slope(right)
        lower = here - low > high - here
        left, right = np.where(lower, left, middle), np.where(lower, middle, right)
    # The intervals are now 3e-10 wide; relative, because the slope of a power also rises on them.
    jumps = loss.slope(right) - loss.slope(left) > 1e-6 * np.maximum(1.0, np.abs(loss.slope(left)))
    _require(not jumps.any(), f"the slope of {loss!r} jumps at {_first(jumps, left)}: name that point in kinks.")


def _check_curvature(loss: Loss) -> None:
    curvature = loss.curvature(_WIDE)
    _require((curvature >= 0.0).all(), f"curvature of {loss!r} is negative at {_first(curvature < 0.0, _WIDE)}.")
    t = _away(loss, _NEAR, 3e-3)
    difference = (loss.slope(t + 1e-5) - loss.slope(t - 1e-5)) / 2e-5
    curvature = loss.curvature(t)
    wrong = ~np.isclose(curvature, difference, rtol=1e-3, atol=1e-5)
    # An undeclared jump of the curvature affects single differences: only consecutive errors count.
    wrong = wrong[:-1] & wrong[1:]
    _require(not wrong.any(), f"curvature of {loss!r} is not the derivative of its slope at {_first(wrong, t)}.")


def _check_conjugate(loss: Loss) -> None:
    low, high = loss.slope_range
    for side, outside in ((low, low - 1e-6), (high, high + 1e-6)):
        if np.isfinite(side):
            finite = np.isfinite(loss.conjugate(np.array([side]))).all()
            beyond = np.isinf(loss.conjugate(np.array([outside]))).all()
            _require(finite and beyond, f"conjugate of {loss!r} must be finite on slope_range and inf outside it.")
    t = _NEAR[::20]
    slope, value = loss.slope(t), loss.value(t)
    excess = value + loss.conjugate(slope) - slope * t
    equal = np.abs(excess) <= 1e-8 * (1.0 + np.abs(slope * t))
    _require(equal.all(), f"conjugate of {loss!r} is not s t - L(t) at the slope s of {_first(~equal, t)}.")
    s = np.linspace(max(low, -50.0), min(high, 50.0), 101)
    gap = value[None, :] + loss.conjugate(s)[:, None] - s[:, None] * t[None, :]
    short = (gap < -1e-8 * (1.0 + np.abs(s[:, None] * t[None, :]))).any(axis=1)
    _require(
        not short.any(), f"conjugate of {loss!r} is too small at s = {s[np.argmax(short)]:g}: bounds would be wrong."
    )


def _check_pieces(loss: Loss) -> None:
    if loss.pieces is not None:
        pieces = np.max([slope * _NEAR + offset for slope, offset in loss.pieces], axis=0)
        close = np.isclose(loss.value(_NEAR), pieces, rtol=1e-13, atol=1e-13)
        _require(close.all(), f"pieces of {loss!r} do not make its value at {_first(~close, _NEAR)}.")


_CHECKS: tuple[Callable[[Loss], None], ...] = (
    _check_arithmetic,
    _check_float32,
    _check_value,
    _check_slope,
    _check_kind,
    _check_kinks,
    _check_lipschitz,
    _check_pieces,  # before the curvature, which the base class takes from them
    _check_curvature,
    _check_conjugate,
)
