"""The source tree as syntax: modules, what they import, what they define."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
ROOT = Path(__file__).parents[2] / "src" / "masquerade"


@dataclass(frozen=True)
class Imported:
    """One import: the module named, and whether it runs when the importing module is loaded."""

    name: str
    at_load: bool


@dataclass(frozen=True)
class Module:
    """A file of the package."""

    path: Path

    @property
    def name(self) -> str:
        """Return the dotted name."""
        parts = self.path.relative_to(ROOT.parent).with_suffix("").parts
        return ".".join(part for part in parts if part != "__init__")

    @property
    def part(self) -> str:
        """Return the part of the package that the module is, or lies in; "" for the package itself."""
        first = self.path.relative_to(ROOT).parts[0].removesuffix(".py")
        return "" if first.startswith("__") else first

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.path.read_text(encoding="utf-8"))

    @cached_property
    def imports(self) -> tuple[Imported, ...]:
        """Return every import, those for type checkers left out."""
        return tuple(imports_in(self.tree.body, at_load=True))


def imports_in(nodes: list[ast.stmt], *, at_load: bool) -> Iterator[Imported]:
    """Yield the imports among statements and inside them."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Imported(alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            # `from package import module` may name a module
            yield Imported(node.module, at_load)
            yield from (Imported(f"{node.module}.{alias.name}", at_load) for alias in node.names)
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            inner = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            below = [
                child
                for child in ast.iter_child_nodes(node)
                if isinstance(child, (ast.stmt, ast.ExceptHandler))
            ]
            yield from imports_in(below, at_load=at_load and not inner)


MODULES = tuple(Module(path) for path in sorted(ROOT.rglob("*.py")))


def for_each(items: Iterable[T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make one test of a check of one item: it checks all items and reports every failure."""

    def decorate(check: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            problems = {}
            for item in items:
                try:
                    check(item)
                except AssertionError as error:
                    problems[str(getattr(item, "name", item))] = str(error)
            assert not problems, "\n".join(f"{name}: {text}" for name, text in problems.items())

        test.__name__, test.__doc__ = check.__name__, check.__doc__
        return test

    return decorate
