"""Modules by the names they had before the package was parted in nine: ``dualcore.losses`` and others still import."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

# Deprecated: they go with the next version but one.
_MOVED = {
    "certificates": ("bundle", "psd"),
    "cli": ("commands", "model", "plots", "report", "tables"),
    "coresets": ("coreset", "measure", "path", "refine", "samplers", "softmax", "stream", "streamfile"),
    "data": ("keys", "rows", "sources", "storage", "sums", "threads"),
    "experiments": ("attacks", "datasets"),
    "problem": ("bounds", "forms", "geometry", "losses", "normal", "worstcase"),
    "reading": ("cells", "summary"),
}
RENAMED = {name: f"{package}.{name}" for package, names in _MOVED.items() for name in names}
RENAMED |= {"boxform": "problem.families.box", "boxmoves": "problem.families.boxmoves"}


class _Renamed(MetaPathFinder, Loader):
    """Give the module of the new name to whoever imports the old one: one module, not a copy of it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, rest = fullname.partition(".")
        first, _, inner = rest.partition(".")
        if package != "dualcore" or first not in RENAMED:
            return None
        name = ".".join(part for part in (package, RENAMED[first], inner) if part)
        return ModuleSpec(fullname, self, origin=name)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.origin))
        self._own = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._own  # the import system put the old name in its place


def install() -> None:
    """Let the old names be imported."""
    if not any(isinstance(finder, _Renamed) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Renamed())
