"""``size`` as a count or as a fraction."""

from __future__ import annotations

import numpy as np
import pytest

from dualcore.coresets.samplers.resolve import resolve_size


@pytest.mark.parametrize(
    ("size", "rows"),
    [
        (1, 1),
        (7, 7),
        (100, 100),
        (1000, 100),
        (0.05, 5),
        (1.0, 100),
        (1e-9, 1),
        (np.int32(3), 3),
        (np.float64(0.5), 50),
    ],
)
def test_counts_and_fractions(size, rows):
    found = resolve_size(size, 100)
    assert found == rows
    assert type(found) is int


@pytest.mark.parametrize("size", [0, -3])
def test_no_rows_are_refused(size):
    with pytest.raises(ValueError, match="at least one row"):
        resolve_size(size, 100)


def test_a_fraction_outside_its_range_is_refused_and_a_count_named():
    for size in [0.0, -0.1, 1.5, 20.0, np.nan]:
        with pytest.raises(ValueError, match=r"in \(0, 1\], got .* whole number"):
            resolve_size(size, 100)


def test_another_type_is_refused():
    for size in ["5", None, True, [5]]:
        with pytest.raises(TypeError, match=f"got {type(size).__name__}"):
            resolve_size(size, 100)
