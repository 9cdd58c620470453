"""``python -m dualcore``: the command line."""

from __future__ import annotations

from dualcore.cli import main

if __name__ == "__main__":  # tools that import all modules must not run it
    main()
