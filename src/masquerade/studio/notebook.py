"""Export of a project as a notebook: each step as its command and as the equivalent line of Python."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from masquerade.core.util.formatting import visible
from masquerade.studio import steps
from masquerade.studio.allow_list import KeptStep

HEAD = "import masquerade as mq"


def lines_of(kept_steps: Sequence[KeptStep]) -> list[tuple[str, str]]:
    """Return the command of every step, in one line without control characters, and its line of Python."""
    return [(visible(steps.format_command(step.command)), steps.python(step.command)) for step in kept_steps]


def jupyter(kept_steps: Sequence[KeptStep]) -> bytes:
    """Return a Jupyter notebook, to be opened in the project's folder."""
    cells: list[dict[str, Any]] = [_cell("code", HEAD, 0)]
    for number, (command, line) in enumerate(lines_of(kept_steps)):
        # an indented code block: nothing within the line can end it
        cells += [_cell("markdown", f"    {command}", 2 * number + 1), _cell("code", line, 2 * number + 2)]
    book: dict[str, Any] = {"cells": cells, "metadata": {"language_info": {"name": "python"}}}
    book |= {"nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()


def marimo(kept_steps: Sequence[KeptStep]) -> str:
    """Return a marimo notebook, to be opened in the project's folder."""
    head = f"\n@app.cell\ndef _():\n    {HEAD}\n    return (mq,)\n"
    parts = ["import marimo\n\napp = marimo.App()\n", head]
    for command, line in lines_of(kept_steps):
        parts.append(f"\n@app.cell\ndef _(mq):\n    # {command}\n    {line}\n    return\n")
    return "\n".join(parts) + '\n\nif __name__ == "__main__":\n    app.run()\n'


def _cell(kind: str, source: str, number: int) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": source, **code}
