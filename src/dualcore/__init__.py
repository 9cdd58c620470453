"""Wasserstein-robust linear models on data too large to train on, with certificates about the full data."""

from __future__ import annotations

from dualcore.problem import Problem
from dualcore.worstcase import WorstCase, worst_case_distribution

__all__ = ["Problem", "WorstCase", "worst_case_distribution"]
__version__ = "0.1.0"
