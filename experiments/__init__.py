"""The paper's tables, run again and beside them what refined coresets give; and the tables it does not have.

>>> from experiments import TABLES, reproduce
>>> len([name for name, table in TABLES.items() if table.printed])
15
"""

from __future__ import annotations

from experiments.document import write_document
from experiments.runner import DEFAULT_FOLDER, Reproduction, reproduce, run_study
from experiments.settings import STUDIES, TABLES, Study, Table

__all__ = [
    "DEFAULT_FOLDER",
    "STUDIES",
    "TABLES",
    "Reproduction",
    "Study",
    "Table",
    "reproduce",
    "run_study",
    "write_document",
]
