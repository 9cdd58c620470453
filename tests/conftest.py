"""What every test stands on: loud arithmetic, repeatable draws, data that may be absent."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

REPOSITORY = Path(__file__).resolve().parents[1]
SHARED_DATA = REPOSITORY.parent / "shared" / "data"

# `pytest --hypothesis-profile=explore` looks for new examples; the default run repeats itself.
settings.register_profile("fixed", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("fixed")


@pytest.fixture(autouse=True)
def floating_point_faults_raise() -> Iterator[None]:
    """Division by zero, overflow and invalid operations raise; underflow to zero is harmless.

    Code that is not ours and does not keep this rule is called inside its own ``np.errstate``.
    """
    with np.errstate(divide="raise", over="raise", invalid="raise", under="ignore"):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the repository; the test is skipped without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the real data sets are not here: no folder ../shared/data beside the repository")
    return SHARED_DATA


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        for package in mark.args:
            if find_spec(package) is None:
                pytest.skip(f"{package} is not installed")
