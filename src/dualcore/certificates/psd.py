"""Positive semidefinite systems that may be singular."""

from __future__ import annotations

import numpy as np

from dualcore.data.arrays import FloatArray


def solve_psd(system: FloatArray, right: FloatArray) -> FloatArray:
    """Solve a positive semidefinite system by its eigenvectors, after equilibration.

    Directions whose eigenvalue is below ``1e-13`` times the largest are left at zero.

    Examples
    --------
    >>> solve_psd(np.array([[4.0, 0.0], [0.0, 0.0]]), np.array([2.0, 1.0]))
    array([0.5, 0. ])
    """
    scale = np.sqrt(np.maximum(np.diag(system), 0.0))
    scale[scale == 0.0] = 1.0
    values, vectors = np.linalg.eigh(system / np.outer(scale, scale))
    # Eigenvalues below this share of the largest are zero up to rounding.
    keep = values > 1e-13 * values.max(initial=0.0)
    part = vectors[:, keep].T @ (right / scale)
    return np.asarray(vectors[:, keep] @ (part / values[keep]) / scale)
