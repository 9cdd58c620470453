"""Parameters of estimators, each stated once and inherited with its description; methods that learn in one step."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar, dataclass_transform

import numpy as np

T = TypeVar("T")

_SECTION = re.compile(r"^(\w+)\n-{4,}\n", re.MULTILINE)
_ENTRY = re.compile(r"^(\w+)\b.*\n?(?:[ \t]+\S.*\n?)*", re.MULTILINE)
# Sections to which a class adds what the classes above it say; all others are its own.
_INHERITED = ("Parameters", "Attributes")
# What each class itself says, by section.
_STATED: dict[type, dict[str, str]] = {}


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
def estimator(cls: type[T]) -> type[T]:
    """Make a constructor of the annotated attributes of a class and of those above it; complete the docstring alike.

    An attribute with a value is a parameter with that default. ``field(init=False)`` is for what is learned, and takes
    a parameter of a class above away. Sections "Parameters" and "Attributes" are completed by the entries of the
    classes above, nearest first; what is no parameter of this class is left out.

    Examples
    --------
    >>> @estimator
    ... class Base:
    ...     '''Base.
    ...
    ...     Parameters
    ...     ----------
    ...     radius : float, default=0.1
    ...         How far.
    ...     '''
    ...
    ...     radius: float = 0.1
    >>> @estimator
    ... class Huber(Base):
    ...     '''Huber.
    ...
    ...     Parameters
    ...     ----------
    ...     delta : float, default=1.0
    ...     '''
    ...
    ...     delta: float = 1.0
    >>> vars(Huber(delta=2.0))
    {'radius': 0.1, 'delta': 2.0}
    >>> Huber.__doc__.splitlines()[4:]
    ['delta : float, default=1.0', 'radius : float, default=0.1', '    How far.']
    """
    cls = dataclass(kw_only=True, eq=False, repr=False)(cls)
    for parameter in fields(cls):  # type: ignore[arg-type]
        # The constructor has the defaults. A class without the parameter must not inherit one as an attribute.
        if parameter.name in vars(cls):
            delattr(cls, parameter.name)
    if cls.__doc__:  # not where Python runs with -OO
        _STATED[cls] = _sections(cls.__doc__)
        cls.__doc__ = _complete(cls)
    return cls


def in_one_step(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method that learns change its estimator at the end, or not at all.

    It runs on a shallow copy, whose attributes then replace those of the estimator, by one assignment. An exception or
    an interrupt leaves the estimator as it was.
    """

    @wraps(method)
    def learn(self: Any, *args: Any, **settings: Any) -> Any:
        copied = copy(self)
        method(copied, *args, **settings)
        self.__dict__ = copied.__dict__
        return self

    return learn


def _complete(cls: type) -> str:
    """Return the docstring of a class, its inherited sections completed by the classes above it."""
    parameters = {parameter.name for parameter in fields(cls) if parameter.init}
    stated = [_STATED[base] for base in cls.__mro__ if base in _STATED]
    own = dict(stated[0])
    for title in _INHERITED:
        entries: dict[str, str] = {}
        for sections in stated:
            for entry in _ENTRY.finditer(sections.get(title, "")):
                if title != "Parameters" or entry[1] in parameters:
                    entries.setdefault(entry[1], entry[0].rstrip())
        if entries:
            own[title] = "\n".join(entries.values()) + "\n\n"
    order = [title for title in _INHERITED if title in own]
    order += [title for title in own if title and title not in order]
    return (own[""] + "".join(f"{title}\n{'-' * len(title)}\n{own[title]}" for title in order)).rstrip()


def _sections(docstring: str | None) -> dict[str, str]:
    """Return the sections of a docstring by their titles; what stands before the first has none."""
    head, *rest = _SECTION.split(inspect.cleandoc(docstring or ""))
    return {"": head.rstrip() + "\n\n", **dict(zip(rest[::2], rest[1::2], strict=True))}


def check_number(name: str, value: Any) -> float:
    """Return ``value`` if it is a real number; the losses check its range.

    Examples
    --------
    >>> check_number("delta", 2)
    2.0
    """
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise TypeError(f"{name} must be a number, got {type(value).__name__}.")
    return float(value)


def check_count(name: str, value: Any, least: int) -> None:
    """Raise unless ``value`` is a whole number of at least ``least``."""
    if not isinstance(value, (int, np.integer)):
        raise TypeError(f"{name} must be a whole number, got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value!r}.")
