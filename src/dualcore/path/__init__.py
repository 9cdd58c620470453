"""Radius paths: models for many radii from a few coresets, and ways to choose a radius."""

from __future__ import annotations

from dualcore.path.choose import RadiusSelection, select_radius, suggest_radius
from dualcore.path.points import PathPoint, PathStep, RadiusPath
from dualcore.path.run import radius_path

__all__ = [
    "PathPoint",
    "PathStep",
    "RadiusPath",
    "RadiusSelection",
    "radius_path",
    "select_radius",
    "suggest_radius",
]
