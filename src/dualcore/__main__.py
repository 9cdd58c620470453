"""``python -m dualcore``: the command line."""

from __future__ import annotations

from dualcore.cli import main

main()
