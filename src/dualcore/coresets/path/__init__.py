"""Radius paths: models for many radii from one coreset, and methods to choose a radius."""

from __future__ import annotations

from dualcore.coresets.path.choose import RadiusSelection, select_radius, suggest_radius
from dualcore.coresets.path.run import RadiusPath, radius_path
from dualcore.coresets.radii import radius_grid

__all__ = ["RadiusPath", "RadiusSelection", "radius_grid", "radius_path", "select_radius", "suggest_radius"]
