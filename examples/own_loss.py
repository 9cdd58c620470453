"""Your own loss in ten lines: log-cosh, a smooth relative of the absolute loss."""

import numpy as np

from dualcore import Problem, check_loss, fit_coreset, solve
from dualcore.problem.losses import ResidualLoss


class LogCosh(ResidualLoss):
    """``log(cosh(r))``, written so that it cannot overflow."""

    name = "log_cosh"
    lipschitz = 1.0

    def value(self, t):
        return np.abs(t) + np.log1p(np.exp(-2.0 * np.abs(t))) - np.log(2.0)

    def slope(self, t):
        return np.tanh(t)


print(check_loss(LogCosh()))
rng = np.random.default_rng(0)
X = rng.normal(size=(20_000, 5))
y = X @ np.arange(5.0) + rng.standard_t(2, size=20_000)
problem = Problem(LogCosh(), radius=0.05, norm="l2")

whole = solve(problem, X, y)
small = fit_coreset(problem, X, y, coreset=0.05, random_state=0)
print(f"all {len(y)} rows: risk {whole.value:.6f}, certified gap {whole.relative_gap:.1e} ({whole.solver} solver)")
print(
    f"{len(small.coreset)} rows: risk {small.certificate.upper:.6f}, certified gap {small.certificate.relative_gap:.1e}"
)
