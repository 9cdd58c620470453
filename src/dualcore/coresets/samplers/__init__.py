"""Samplers: methods that choose a few weighted rows to represent all rows."""

from __future__ import annotations

from dualcore.coresets.samplers.base import CoresetFit, Sampler
from dualcore.coresets.samplers.baselines import ImportanceCoreset, UniformCoreset
from dualcore.coresets.samplers.dual import DualCoreset
from dualcore.coresets.samplers.grid import grid_coreset
from dualcore.coresets.samplers.gridcoreset import GridCoreset, LayeredCoreset
from dualcore.coresets.training import Round

__all__ = [
    "CoresetFit",
    "DualCoreset",
    "GridCoreset",
    "ImportanceCoreset",
    "LayeredCoreset",
    "Round",
    "Sampler",
    "UniformCoreset",
    "grid_coreset",
]
