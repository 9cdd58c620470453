"""``python -m dualcore.cli``."""

from __future__ import annotations

from dualcore.cli import main

main()
