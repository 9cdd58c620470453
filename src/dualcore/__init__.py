"""Wasserstein-robust linear models on data too large to train on, with certificates about the full data."""

from __future__ import annotations

from dualcore.certificate import Certificate, certify
from dualcore.problem import Problem
from dualcore.solvers import IncompatibleError, Solution, solve
from dualcore.worstcase import WorstCase, worst_case_distribution

__all__ = [
    "Certificate",
    "IncompatibleError",
    "Problem",
    "Solution",
    "WorstCase",
    "certify",
    "solve",
    "worst_case_distribution",
]
__version__ = "0.1.0"
