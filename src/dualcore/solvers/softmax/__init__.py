"""Training softmax models, which have one score per class."""

from __future__ import annotations

from dualcore.solvers.softmax.classsolvers import ClassDescentSolver, ClassNewtonSolver, class_models

__all__ = ["ClassDescentSolver", "ClassNewtonSolver", "class_models"]
