"""What a radius path consists of, and the steps by which its progress is told."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dualcore.certificates import Certificate
from dualcore.coresets.coreset import Coreset
from dualcore.data.arrays import FloatArray
from dualcore.solvers import Solution


@dataclass(frozen=True)
class PathPoint:
    """The model of one radius."""

    radius: float
    solution: Solution  # its ``value``, ``lower_bound`` and ``gap`` are about the full data
    certificate: Certificate
    build: int | None  # which coreset of the path it was trained on; None for all rows, or a sample of them


@dataclass(frozen=True)
class PathStep:
    """Progress of a path: ``stage`` is "build", "solve" or "certify"; ``worst_gap`` is None before any certificate."""

    stage: str
    done: int
    total: int
    n_builds: int
    n_reads: int
    worst_gap: float | None


@dataclass(frozen=True)
class RadiusPath:
    """Models for a range of radii, ascending.

    Attributes
    ----------
    points : tuple of PathPoint
    coresets : tuple of Coreset
        In the order they were built; empty where every model was trained on the whole data.
    n_reads : int
        How many times the data were read from end to end, for all points together.
    seconds : float

    Examples
    --------
    >>> from dualcore import Problem, radius_path
    >>> path = radius_path(Problem("hinge"), [[2.0], [1.0], [-1.0], [-2.0]], [1.0, 1.0, -1.0, -1.0], [0.5, 0.25])
    >>> path.radii, path.risk.round(4)
    (array([0.25, 0.5 ]), array([0.25, 0.5 ]))
    """

    points: tuple[PathPoint, ...]
    coresets: tuple[Coreset, ...]
    n_reads: int
    seconds: float

    @property
    def n_builds(self) -> int:
        """How many coresets were built."""
        return len(self.coresets)

    @property
    def radii(self) -> FloatArray:
        """The radii, shape (n_radii,)."""
        return np.array([point.radius for point in self.points])

    @property
    def coef(self) -> FloatArray:
        """The coefficients, shape (n_radii, n_features)."""
        return np.stack([point.solution.coef for point in self.points])

    @property
    def intercept(self) -> FloatArray:
        """The intercepts, shape (n_radii,)."""
        return np.array([point.solution.intercept for point in self.points])

    @property
    def risk(self) -> FloatArray:
        """The worst-case risks on the full data, each at its own radius, shape (n_radii,)."""
        return np.array([point.certificate.upper for point in self.points])

    @property
    def relative_gap(self) -> FloatArray:
        """The certified relative gaps, shape (n_radii,)."""
        return np.array([point.certificate.relative_gap for point in self.points])

    def __repr__(self) -> str:
        return (
            f"<RadiusPath of {len(self.points)} radii from {self.points[0].radius:g} to {self.points[-1].radius:g}: "
            f"{self.n_builds} coreset{'s' * (self.n_builds != 1)}, {self.n_reads} reads, largest certified gap "
            f"{self.relative_gap.max():.2e}>"
        )
