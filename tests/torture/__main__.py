"""``python -m tests.torture`` from the root of a checkout."""

import sys

from .parts.run import main

# Workers are spawned and import the module of their function, which this one could not be.
sys.exit(main())
