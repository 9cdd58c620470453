"""What the texts of options mean, checked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from dualcore import (
    WassersteinHuberRegressor,
    WassersteinLinearRegression,
    WassersteinLinearSVC,
    WassersteinLinearSVR,
    WassersteinLogisticRegression,
    WassersteinQuantileRegressor,
)
from dualcore.cli.coding import Coding
from dualcore.cli.commands.outcome import OptionError
from dualcore.cli.tables import TableError

ESTIMATORS: dict[str, type[Any]] = {
    "logistic": WassersteinLogisticRegression,
    "hinge": WassersteinLinearSVC,
    "huber": WassersteinHuberRegressor,
    "pinball": WassersteinQuantileRegressor,
    "epsilon_insensitive": WassersteinLinearSVR,
    "squared": WassersteinLinearRegression,
}
# Losses with a parameter of their own.
OWN_PARAMETER = {"huber": "delta", "pinball": "quantile", "epsilon_insensitive": "epsilon"}


def parse_size(text: str) -> float | int:
    """Return a size of a coreset: a whole number is a number of rows, any other a share of them.

    Examples
    --------
    >>> parse_size("5000"), parse_size("0.05")
    (5000, 0.05)
    """
    try:
        size: float | int = int(text)
    except ValueError:
        size = _as_float(text)
    if not (size >= 1 if isinstance(size, int) else 0.0 < size <= 1.0):
        which = "like 0.05" if math.isnan(size) else "in (0, 1]"
        raise OptionError(f"A coreset size is a number of rows or a share {which}, got {text!r}.")
    return size


def _as_float(text: str) -> float:
    """Return a number, NaN where the text is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def parse_radii(text: str) -> list[float]:
    """Return radii from ``low:high:count`` (evenly spaced logarithms) or from a list with commas.

    Examples
    --------
    >>> parse_radii("0.1,0.2"), len(parse_radii("0.01:1:20"))
    ([0.1, 0.2], 20)
    """
    try:
        if ":" in text:
            low, high, count = text.split(":")
            if not 0.0 < float(low) < float(high) or int(count) < 2:
                raise ValueError
            return [float(r) for r in np.geomspace(float(low), float(high), int(count))]
        radii = sorted({float(part) for part in text.split(",")})
        if not all(0.0 <= radius < math.inf for radius in radii):
            raise ValueError
        return radii
    except ValueError:
        raise OptionError(f"--radii takes LOW:HIGH:COUNT or a list like 0.01,0.1,1, got {text!r}.") from None


def parse_fill(text: str | None) -> float | str | None:
    """Return what is put for missing values: "mean", "median" or a number.

    Examples
    --------
    >>> parse_fill("mean"), parse_fill("0"), parse_fill(None)
    ('mean', 0.0, None)
    """
    if text is None or text in ("mean", "median"):
        return text
    number = _as_float(text)
    if not math.isfinite(number):
        raise OptionError(f"--fill takes mean, median or a number, got {text!r}.")
    return number


def category_costs(texts: Sequence[str], coding: Coding | None) -> list[float]:
    """Return the price of a change for every coded column, from texts like ``2`` and ``city=inf``.

    Without a coding the texts are checked alone.

    Examples
    --------
    >>> category_costs(["2", "city=inf"], {"city": ["Lima", "Oslo"], "mark": ["no", "yes"]})
    [inf, 2.0]
    """
    every, own = 1.0, dict[str, float]()
    for text in texts:
        name, equals, price = text.rpartition("=")
        cost = _as_float(price)
        if not cost > 0.0:
            raise OptionError(f"--category-cost takes a positive number, inf, or COLUMN=PRICE, got {text!r}.")
        if equals:
            own[name] = cost
        else:
            every = cost
    if coding is None:
        return []
    if texts and not coding:
        raise OptionError("--category-cost prices changes of columns of text, and no feature is coded from text here.")
    strangers = sorted(set(own) - set(coding))
    if strangers:
        raise OptionError(f"--category-cost names {strangers[0]!r}; the columns of text are {', '.join(coding)}.")
    return [own.get(name, every) for name in coding]


def parse_separator(text: str | None) -> str | None:
    r"""Return what stands between values; ``tab`` and ``\t`` are a tab.

    Examples
    --------
    >>> parse_separator("tab"), parse_separator(";")
    ('\t', ';')
    """
    if text is None:
        return None
    found = {"tab": "\t", "\\t": "\t", "space": " "}.get(text, text)
    if len(found) != 1:
        raise OptionError(f"--separator takes one character, or tab, got {text!r}.")
    return found


def text_target(source: str, target: str) -> TableError:
    """Return the error of a regression whose target is text."""
    return TableError(
        f"Column {target!r} of {source} is not numeric, and a regression learns numbers. For labels use --loss "
        "logistic or --loss hinge."
    )
