"""Methods whose function lives on a higher floor: found by its name when it is called, as plugins are."""

from __future__ import annotations

from importlib import import_module
from types import MethodType
from typing import Any


class LateMethod:
    """A function of another package as a method: the object is its first argument.

    ``table.shares("smoker")`` is ``masquerade.stats.shares(table, "smoker")``, with its help and signature.
    """

    def __init__(self, package: str) -> None:
        self._package = package
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name that the class gives to the method for that of the function."""
        self._name = name

    def __get__(self, holder: object | None, owner: type) -> Any:
        """Return the function, bound to the object; on the class the function itself."""
        function = getattr(import_module(self._package), self._name)
        return function if holder is None else MethodType(function, holder)
