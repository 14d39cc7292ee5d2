"""What the reference documents: the public packages, and the names that each lists."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

from tests.architecture.modules import ROOT


def packages() -> tuple[str, ...]:
    """Return the packages of which the site has a page; read, because its hooks need what builds it."""
    tree = ast.parse((ROOT.parents[1] / "scripts" / "site_hooks.py").read_text(encoding="utf-8"))
    [found] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "PACKAGES"
    ]
    return tuple(ast.literal_eval(found))


def public(package: str) -> Iterator[tuple[str, Any]]:
    """Yield the public names of a package and what they stand for; packages within it are left out."""
    module = importlib.import_module(package)
    own = [name for name in vars(module) if getattr(vars(module)[name], "__module__", "") == package]
    for name in getattr(module, "__all__", own):
        thing = getattr(module, name)
        if not inspect.ismodule(thing) and not name.startswith("_"):
            yield name, thing


PACKAGES = packages()
PUBLIC = {f"{package}.{name}": thing for package in PACKAGES for name, thing in public(package)}
DEFINED = {(thing.__module__, thing.__qualname__): name for name, thing in PUBLIC.items() if callable(thing)}
