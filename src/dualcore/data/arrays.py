"""The type of arrays, the largest number that is accepted, and conversion of user input to arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# No number that enters may be larger, and none that is divided by smaller than its inverse: a product of six of them
# is still finite.
LARGEST = 1e50


def plain_array(name: str, values: Any) -> npt.NDArray[Any]:
    """Return ``values`` as an array; a mask or an imaginary part, which would be lost, is an error.

    Examples
    --------
    >>> plain_array("y", np.ma.masked_array([1.0, 2.0], mask=[False, True]))
    Traceback (most recent call last):
    ValueError: y has masked values. Drop or fill them first: a mask is not used.
    """
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked values. Drop or fill them first: a mask is not used.")
    array = np.asarray(values) if isinstance(values, np.ma.MaskedArray) else np.asanyarray(values)  # keeps a map
    if array.dtype.kind == "c":
        raise ValueError(f"{name} must be numeric; found dtype {array.dtype}. Take the real part first.")
    return array
