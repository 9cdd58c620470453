"""Estimators inherit parameters together with what is said about them."""

from __future__ import annotations

import inspect
import re

import pytest

import dualcore

ESTIMATORS = [getattr(dualcore, name) for name in dualcore.__all__ if name.startswith("Wasserstein")]


def described(cls, title="Parameters"):
    """Return the names and descriptions of a section of a docstring."""
    section = re.search(rf"^{title}\n-+\n(.*?)(?=^\w+\n-+\n|\Z)", inspect.getdoc(cls), re.MULTILINE | re.DOTALL)[1]
    return dict(re.findall(r"^(\w+)\b(.*(?:\n[ \t]+\S.*)*)", section, re.MULTILINE))


@pytest.mark.parametrize("cls", ESTIMATORS)
def test_every_parameter_is_described_once_keyword_only_and_no_attribute_of_the_class(cls):
    assert sorted(described(cls)) == sorted(inspect.signature(cls).parameters)
    parameters = inspect.signature(cls).parameters.values()
    assert {parameter.kind for parameter in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert [parameter.name for parameter in parameters if hasattr(cls, parameter.name)] == []
    # A classifier speaks of flips, and an estimator with cross-validation has no radius.
    assert ("label flip" in described(cls)["label_cost"]) == hasattr(cls, "decision_function")
    assert ("classes_" in described(cls, "Attributes")) == hasattr(cls, "decision_function")
    chooses = cls.__name__.endswith("CV")
    assert hasattr(cls(), "radius") is not chooses
    assert ("radius_" in described(cls, "Attributes")) is chooses
