"""The optional package pyarrow, imported only where it is needed."""

from __future__ import annotations

import importlib
from typing import Any


def import_arrow(name: str) -> Any:
    """Import a module of pyarrow, or say which extra brings it."""
    try:
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(
            "Reading Parquet and CSV files needs pyarrow. Install it with: pip install 'dualcore[parquet]'"
        ) from None
