"""Lazy exports: the public names of a package are imported on first use, so that importing it is fast."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

# long import lines are in parentheses
_IMPORT = re.compile(r"^    from (\S+) import \(?\s*(\w+) as \2,?\s*\)?$", re.MULTILINE)


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    The exported names are those imported below ``if TYPE_CHECKING:``, one line ``from MODULE import NAME as
    NAME`` each. Modules of the package are imported from the package itself.
    """
    module = sys.modules[package]
    home = {name: where for where, name in _IMPORT.findall(module.__spec__.loader.get_source(package))}  # type: ignore[union-attr]

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        is_module = home[name] == package
        value = import_module(f"{package}.{name}") if is_module else getattr(import_module(home[name]), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted([*home, *(["__version__"] if "__version__" in vars(module) else [])])

    return load, names, sorted(home)


def public_modules(path: Iterable[str]) -> list[str]:
    """Return the `__all__` of a package: the names of its modules, except names that start with `_`."""
    return sorted(module.name for module in iter_modules(path) if not module.name.startswith("_"))
