"""The parts of torture: cases, a referee that shares no code with the package, verdicts."""

import os

# Before numpy is loaded: times are of one thread, and many workers do not share the cores badly.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
