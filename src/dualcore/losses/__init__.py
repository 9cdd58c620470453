"""Scalar losses, one class each, and the register that finds them by name."""

from __future__ import annotations

import inspect
from typing import Any

from dualcore.losses.base import Loss, MarginLoss, ResidualLoss
from dualcore.losses.contract import check_loss
from dualcore.losses.margin import Hinge, Logistic, SmoothHinge, SquaredHinge
from dualcore.losses.residual import Absolute, EpsilonInsensitive, Huber, Pinball, Squared

__all__ = [
    "LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Pinball",
    "ResidualLoss",
    "SmoothHinge",
    "Squared",
    "SquaredHinge",
    "check_loss",
    "get_loss",
]

LOSSES: dict[str, type[Loss]] = {
    cls.name: cls
    for cls in (Logistic, Hinge, SmoothHinge, SquaredHinge, Huber, Pinball, EpsilonInsensitive, Absolute, Squared)
}


def get_loss(loss: str | Loss, **parameters: Any) -> Loss:
    """Return the loss called ``loss``, built with ``parameters``; a Loss object passes through.

    Examples
    --------
    >>> get_loss("huber", delta=0.5)
    Huber(delta=0.5)
    """
    if isinstance(loss, Loss):
        if parameters:
            raise TypeError(f"loss is already a {type(loss).__name__}: give it {sorted(parameters)} when you build it.")
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a dualcore.losses.Loss object, not {type(loss).__name__}.")
    if loss not in LOSSES:
        raise ValueError(f"Unknown loss {loss!r}. Use one of {sorted(LOSSES)}, or a Loss object of your own.")
    unknown = sorted(set(parameters) - set(inspect.signature(LOSSES[loss]).parameters))
    if unknown:
        raise TypeError(f"Loss {loss!r} does not take the parameters {unknown}.")
    return LOSSES[loss](**parameters)
