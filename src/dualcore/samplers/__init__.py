"""Samplers: ways to choose a few weighted rows that stand for all of them."""

from __future__ import annotations

from dualcore.samplers.base import CoresetFit, Round, Sampler
from dualcore.samplers.baselines import ImportanceCoreset, LayeredCoreset, UniformCoreset
from dualcore.samplers.dual import DualCoreset
from dualcore.samplers.grid import GridDraw, grid_coreset

__all__ = [
    "CoresetFit",
    "DualCoreset",
    "GridDraw",
    "ImportanceCoreset",
    "LayeredCoreset",
    "Round",
    "Sampler",
    "UniformCoreset",
    "grid_coreset",
]
