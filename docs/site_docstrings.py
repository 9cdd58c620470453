"""Numpydoc as this package writes it, put into words that griffe reads without loss.

griffe takes the first of several choices for the default (``{"l1", "l2"}, default="l2"`` becomes ``"l1"``), and gives
all names of one entry (``norm, ridge, tol``) the type and the default of the first. It reads a list of words as a
tuple. Entries that say "as in `ArraySource`" are replaced by those of that class. Estimators get their constructor and
half of their docstring when their module is imported, which griffe does not do: both are taken from the class itself.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

from griffe import Extension, Function, Module, Object, Parameter, ParameterKind, Parameters

import dualcore.estimators

CHOICES = re.compile(r"^(?P<head> *\*{0,2}\w+ : )\{(?P<choices>[^{}]*)\}(?P<rest>.*)$", re.MULTILINE)
WORDS = re.compile(r"^(?P<head> *\*{0,2}\w+ : )(?P<words>\w+(?:, \w+)+ or \w+\b.*)$", re.MULTILINE)
SEVERAL = re.compile(r"^(?P<names>\w+(?:, \w+)+)(?P<type> : .*)?\n(?P<text>(?:    .*\n?|\n(?=    ))*)", re.MULTILINE)

REFERENCE = re.compile(r"^(?P<name>\w+)\n    (?:\S.*, )?[Aa]s in `(?P<other>\w+)`\.$", re.MULTILINE)
ENTRY = r"^{name} : .*\n(?:    .*\n)*"


def plain(text: str) -> str:
    r"""Return a docstring in which choices are words and every parameter has an entry of its own.

    >>> plain('norm : {"l1", "l2"} or Norm, default="l2"')
    'norm : one of "l1", "l2" or Norm, default="l2"'
    >>> plain("size : None, float or int, default=None")
    'size : one of None, float or int, default=None'
    >>> plain("Add.\n\na, b\n    As above.")
    'Add.\n\na\n    As above.\nb\n    As above.'
    """
    text = inspect.cleandoc(text.replace("\\\n", ""))  # a raw docstring keeps the backslash that continues a line
    text = CHOICES.sub(lambda found: f"{found['head']}one of {found['choices']}{found['rest']}", text)
    text = WORDS.sub(lambda found: f"{found['head']}one of {found['words']}", text)
    return SEVERAL.sub(_each, text)


def _each(found: re.Match[str]) -> str:
    entry, text = found["type"] or "", found["text"]
    entries = (f"{name}{entry}\n{text.rstrip()}" for name in found["names"].split(", "))
    return "\n".join(entries) + text[len(text.rstrip()) :]


def complete(text: str, others: dict[str, str]) -> str:
    r"""Return a docstring in which entries that refer to another class are those of that class.

    >>> complete("tol\n    As in `Plain`.\n", {"Plain": "tol : float, default=1\n    When to stop.\n"})
    'tol : float, default=1\n    When to stop.\n'
    """

    def entry(found: re.Match[str]) -> str:
        there = re.search(ENTRY.format(name=found["name"]), others.get(found["other"], ""), re.MULTILINE)
        return there[0].rstrip("\n") if there else found[0]

    return REFERENCE.sub(entry, text)


class PlainDocstrings(Extension):
    """Rewrites docstrings before they are parsed."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Rewrite the docstrings of a package, once all of it is known."""
        found = list(_objects(pkg))
        for thing in found:
            if thing.is_class and thing.name in dualcore.estimators.__all__:
                _inspect_estimator(thing, getattr(dualcore.estimators, thing.name))
        for thing in found:
            if thing.docstring is not None and "----\n" in thing.docstring.value:
                thing.docstring.value = plain(thing.docstring.value)
        texts = {thing.name: thing.docstring.value for thing in found if thing.is_class and thing.docstring}
        for thing in found:
            # Some refer to a class that itself refers to another.
            for _again in range(2):
                if thing.is_class and thing.docstring is not None:
                    thing.docstring.value = complete(thing.docstring.value, texts)


def _inspect_estimator(thing: Object, cls: type) -> None:
    """Give an estimator the docstring and the constructor that it has at run time."""
    if thing.docstring is not None:
        thing.docstring.value = inspect.getdoc(cls) or ""
    parameters = [Parameter("self", kind=ParameterKind.positional_or_keyword)]
    for name, parameter in inspect.signature(cls).parameters.items():
        parameters.append(Parameter(name, kind=ParameterKind.keyword_only, default=repr(parameter.default)))
    thing.set_member("__init__", Function("__init__", parameters=Parameters(*parameters)))


def _objects(parent: Object) -> Iterator[Object]:
    for member in parent.members.values():
        if isinstance(member, Object):
            yield member
            yield from _objects(member)
