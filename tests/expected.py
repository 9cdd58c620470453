"""Warnings of ours that a test expects without being about them."""

import pytest

# Coresets of few rows, drawn so small on purpose, or trained for a round only.
warns_of_gap = pytest.mark.filterwarnings("ignore:.*more than the target_gap of 0.001:UserWarning")
# Rows of noise, or a radius so large that all coefficients are zero.
warns_of_radius = pytest.mark.filterwarnings("ignore:.*leaves nothing to learn:UserWarning")
# Data on which a solver may end before it reaches the tolerance; the test compares risks and bounds.
may_stop_early = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
