"""The dual of the worst-case risk, one class per closed form.

Strong duality turns the worst expected loss over a Wasserstein ball of radius ``sigma`` and order ``p`` into

    R(theta) = min over lam >= kappa(theta) of  sigma**p * lam + sum_i w_i h_i(theta, lam).

On unbounded features a row enters only through one scalar ``t`` (its margin or its residual) and the coefficients only
through ``size = ||theta||_*``, so everything here works on vectors ``t`` and never sees the data matrix.
"""

from __future__ import annotations

from dualcore.problem.forms.base import DualForm, Evaluated, Minimum, mean_slope, weighted_sum
from dualcore.problem.forms.first import MarginForm, ResidualForm
from dualcore.problem.forms.squared import SquaredForm, SquaredHingeForm
from dualcore.problem.geometry import Geometry
from dualcore.problem.losses import Loss, MarginLoss, Power, ResidualLoss, Squared, SquaredHinge

__all__ = [
    "DualForm",
    "Evaluated",
    "MarginForm",
    "Minimum",
    "ResidualForm",
    "SquaredForm",
    "SquaredHingeForm",
    "get_form",
    "mean_slope",
    "weighted_sum",
]


def get_form(loss: Loss, geometry: Geometry, radius: float) -> DualForm:
    """Return the closed form for this loss and geometry; TypeError where none is known."""
    if loss.order > 1 and not isinstance(loss, (Squared, SquaredHinge, Power)):
        raise TypeError(
            f"{type(loss).__name__} is of order {loss.order:g}: no closed form is known. A loss of your own must be of "
            "order 1; of higher order there are 'squared', 'squared_hinge' and 'power'."
        )
    if loss.order > 1:
        return (SquaredHingeForm if isinstance(loss, SquaredHinge) else SquaredForm)(loss, geometry, radius)
    if isinstance(loss, MarginLoss):
        return MarginForm(loss, geometry, radius)
    if isinstance(loss, ResidualLoss):
        return ResidualForm(loss, geometry, radius)
    raise TypeError(f"{type(loss).__name__} must derive from MarginLoss or ResidualLoss so that its dual is known.")
