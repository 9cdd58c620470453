"""Old module names give the very modules of the new names."""

import importlib
import sys

import pytest

from dualcore.data.renamed import RENAMED


@pytest.mark.parametrize(("old", "new"), sorted(RENAMED.items()))
def test_an_old_name_gives_the_module_of_the_new_one(old, new):
    if old in ("plots", "report"):
        pytest.importorskip("matplotlib")
    there = importlib.import_module(f"dualcore.{new}")
    assert importlib.import_module(f"dualcore.{old}") is there
    assert there.__spec__.name == f"dualcore.{new}"


def test_modules_inside_a_renamed_package_are_not_loaded_twice():
    old, new = importlib.import_module("dualcore.losses.base"), importlib.import_module("dualcore.problem.losses.base")
    assert old is new
    assert sys.modules["dualcore.losses.base"] is new


def test_other_names_are_not_found():
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dualcore.novelty")
