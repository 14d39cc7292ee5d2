"""Draw who imports whom: packages by floor, and cycles between modules, from the source tree as text.

`python scripts/import_graph.py` prints the picture that stands in docs/architecture.md;
`python scripts/import_graph.py --write` puts it there. Lazy imports count, those for type checkers do not.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGE = ROOT / "docs" / "architecture.md"
BEGIN, END = "<!-- import graph: scripts/import_graph.py --write -->\n", "<!-- end of import graph -->\n"
WIDTH = 110


@cache
def modules() -> Mapping[str, Path]:
    """Return every module of the package by its dotted name."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(part for part in parts if part != "__init__")] = path
    return found


def imported(nodes: list[ast.stmt]) -> Iterator[str]:
    """Yield the modules that statements import, wherever they stand but under TYPE_CHECKING."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules() else node.module
        elif not (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
            children = ast.iter_child_nodes(node)
            yield from imported([n for n in children if isinstance(n, (ast.stmt, ast.ExceptHandler))])


@cache
def edges() -> Mapping[str, frozenset[str]]:
    """Return for every module the modules of the package that it imports."""
    found = {}
    for name, path in modules().items():
        names = imported(ast.parse(path.read_text(encoding="utf-8")).body)
        found[name] = frozenset(other for other in names if other in modules() and other != name)
    return found


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other in a circle (Tarjan's strong components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(edges()[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            group = [stack.pop()]
            while group[-1] != name:
                group.append(stack.pop())
            if len(group) > 1:
                found.append(sorted(group))

    for name in modules():
        if name not in index:
            visit(name)
    return found


def part(module: str) -> str:
    """Return the package that a module lies in; the front of all is called masquerade."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "masquerade"


def packages() -> dict[str, set[str]]:
    """Return for every package the packages that it imports; the front, which only forwards, left out."""
    found: dict[str, set[str]] = {}
    for name, others in edges().items():
        found.setdefault(part(name), set()).update(map(part, others))
    for name, others in found.items():
        others -= {name, "masquerade"}
    return {name: others for name, others in found.items() if name not in {"masquerade", "__main__"}}


def floors(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the packages in floors: each imports only from floors below its own."""
    height: dict[str, int] = {}

    def of(name: str) -> int:
        if name not in height:
            height[name] = 1 + max(map(of, graph[name]), default=-1)
        return height[name]

    for name in graph:
        of(name)
    return [sorted(n for n in graph if height[n] == level) for level in range(max(height.values()), -1, -1)]


def picture() -> str:
    """Return the packages from the top floor to the ground, each with what it imports directly."""
    graph = packages()
    lines = []
    for level in floors(graph):
        for name in level:
            about = ", ".join(sorted(graph[name])) or "nothing of ours"
            first, *rest = wrapped(about, WIDTH - 14)
            lines += [f"{name:<12}  {first}", *(f"{'':<14}{line}" for line in rest)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def wrapped(text: str, width: int) -> list[str]:
    """Return text cut into lines between words."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def block() -> str:
    """Return the part of the page that is made here."""
    return f"{BEGIN}\n```\n{picture()}```\n\n{END}"


def main() -> None:
    """Print the picture, or write it into the page."""
    if "--write" not in sys.argv[1:]:
        sys.stdout.write(picture())
        for cycle in cycles():
            sys.stdout.write(f"cycle: {' '.join(cycle)}\n")
        return
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN, 1)
    PAGE.write_text(before + block() + rest.split(END, 1)[1], encoding="utf-8")


if __name__ == "__main__":
    main()
