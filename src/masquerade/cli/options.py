"""Options that several commands share, spelt once."""

from __future__ import annotations

from typing import Annotated

import typer

Data = Annotated[
    list[str],
    typer.Argument(
        help="CSV (also .csv.gz), Parquet or Arrow files, a quoted pattern, or - for CSV on standard input.",
        metavar="DATA",
        show_default=False,
    ),
]
PolicyFile = Annotated[
    str,
    typer.Option(
        "--policy", "-p", help="The policy file (YAML or JSON).", metavar="FILE", show_default=False
    ),
]
PolicyArgument = Annotated[
    str, typer.Argument(help="The policy file (YAML or JSON).", metavar="POLICY", show_default=False)
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the file if it exists.")]
Out = Annotated[
    str | None,
    typer.Option("--out", "-o", help="Write to this file instead of standard output.", metavar="FILE"),
]
