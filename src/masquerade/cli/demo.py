"""`masquerade demo`: a whole story on made-up people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from masquerade.cli.options import Json
from masquerade.cli.output import as_json, emit


def command(
    *,
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder for the files it makes.")] = Path("demo"),
    n: Annotated[int, typer.Option("--n", help="How many people to make up.", min=100)] = 20_000,
    json: Json = False,
) -> None:
    """Disguise made-up people, count them, and write a report to look at."""
    from masquerade.report.demo import run_demo  # noqa: PLC0415  (loads everything)

    result = run_demo(out, n)
    if json:
        emit(as_json({"text": result.text, "report": str(result.report)}))
    else:
        emit(result.text.rstrip("\n") + "\n")
