"""Rigorous statements about the full data: dual points, lower bounds, and the certificate that holds both bounds."""

from dualcore.certificates.certificate import Certificate, LinearModel
from dualcore.certificates.points import DualPoint, dual_point, feasible, smoothing_widths
from dualcore.certificates.rounding import (
    EPS,
    LevelSet,
    RowLevelSet,
    SlopeNorms,
    column_sizes,
    sum_error,
)
from dualcore.certificates.rows import Bound, RowBounds, lower_bound
from dualcore.certificates.sides import SideSums, side_bound
from dualcore.certificates.sums import first_order_bound, inner_minimum, squared_bound, trivial_bound

__all__ = [
    "EPS",
    "Bound",
    "Certificate",
    "DualPoint",
    "LevelSet",
    "LinearModel",
    "RowBounds",
    "RowLevelSet",
    "SideSums",
    "SlopeNorms",
    "column_sizes",
    "dual_point",
    "feasible",
    "first_order_bound",
    "inner_minimum",
    "lower_bound",
    "side_bound",
    "smoothing_widths",
    "squared_bound",
    "sum_error",
    "trivial_bound",
]
