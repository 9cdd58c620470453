"""Losses, one class each, and the register that finds them by name."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from dualcore.problem.losses.base import Loss, MarginLoss, ResidualLoss
from dualcore.problem.losses.contract import check_loss
from dualcore.problem.losses.joint import Softmax
from dualcore.problem.losses.margin import Hinge, Logistic, SmoothHinge, SquaredHinge
from dualcore.problem.losses.residual import Absolute, EpsilonInsensitive, Huber, Pinball, Power, Squared

__all__ = [
    "JOINT_LOSSES",
    "LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "MarginLoss",
    "Pinball",
    "Power",
    "ResidualLoss",
    "SmoothHinge",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "check_loss",
    "get_loss",
]

_ONE_SCORE = (Logistic, Hinge, SmoothHinge, SquaredHinge, Huber, Pinball, EpsilonInsensitive, Absolute, Squared, Power)
LOSSES: dict[str, type[Loss]] = {cls.name: cls for cls in _ONE_SCORE}

# Losses of several scores: they take the number of classes.
JOINT_LOSSES: dict[str, type[Loss]] = {Softmax.name: Softmax}


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
        steep = getattr(loss, "lipschitz", None)
        if not isinstance(steep, (int, float, np.integer, np.floating)) or not steep > 0.0:
            raise ValueError(f"{loss!r} needs an attribute lipschitz > 0, its largest absolute slope, got {steep!r}.")
        if loss.order == 1 and not np.isfinite(steep):
            raise ValueError(
                f"{loss!r} has no finite lipschitz, so its worst-case risk of order 1 is infinite. dualcore.check_loss "
                "says what a loss of your own has to keep."
            )
        return loss
    if not isinstance(loss, str):
        raise TypeError(f"loss must be a name or a dualcore.problem.losses.Loss object, not {type(loss).__name__}.")
    known = LOSSES | JOINT_LOSSES
    if loss not in known:
        raise ValueError(f"Unknown loss {loss!r}. Use one of {sorted(known)}, or a Loss object of your own.")
    taken = inspect.signature(known[loss]).parameters
    unknown = sorted(set(parameters) - set(taken))
    if unknown:
        raise TypeError(f"Loss {loss!r} does not take the parameters {unknown}.")
    missing = [name for name, one in taken.items() if one.default is one.empty and name not in parameters]
    if missing:
        raise TypeError(f"Loss {loss!r} needs the parameters {missing}: give them to Problem or get_loss by name.")
    return known[loss](**parameters)
