"""The command line, model files, pictures and the report."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line; what it needs is imported only now."""
    from dualcore.cli.app import main as run

    run()
