"""The public names of a package, each loaded when it is first used, so that importing it is quick."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any


def lazy_exports(
    package: str, homes: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return the `__getattr__`, `__dir__` and `__all__` of a package.

    `homes` has the names, blanks between them, by the module of the package, or the whole name of another's,
    that defines them; those under "" are modules themselves.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        where = home[name] or name
        module = import_module(where if where.startswith("masquerade.") else f"{package}.{where}")
        value = getattr(module, name) if home[name] else module
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        own = vars(sys.modules[package])
        return sorted([*home, *(["__version__"] if "__version__" in own else [])])

    return load, names, sorted(home)


def public_modules(path: Iterable[str]) -> list[str]:
    """Return the `__all__` of a package whose modules are imported one by one: all without `_`."""
    return sorted(module.name for module in iter_modules(path) if not module.name.startswith("_"))
