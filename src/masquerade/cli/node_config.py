"""`masquerade config check`: whether a service could start with its settings file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masquerade.cli.options import Json
from masquerade.cli.output import as_json, emit
from masquerade.core.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel


def check_config(
    file: Annotated[
        Path, typer.Argument(help="The settings file (YAML).", metavar="FILE", show_default=False)
    ],
    *,
    kind: Annotated[
        str,
        typer.Option(help="What the file is for: party, miner, randomness, collector, …", metavar="KIND"),
    ] = "party",
    json: Json = False,
) -> None:
    """Check a settings file, the environment's overrides, and the files that it names.

    Keys, tokens and identities that others may read are refused. Example: masquerade config check party.yaml
    """
    from masquerade.parties.checking import check_node  # noqa: PLC0415
    from masquerade.serving.settings import check_files, load, named_files, overrides  # noqa: PLC0415

    known = kinds()
    if kind not in known:
        raise InputError(f"There are no settings of kind {kind!r}.{did_you_mean(kind, known)}")
    settings = load(file, known[kind])
    check_files(settings, file)
    check_node(settings)
    files = [name for name, _, _ in named_files(settings)]
    changed = overrides(file, known[kind])
    if json:
        emit(as_json({"file": str(file), "kind": kind, "valid": True, "files": files, "overridden": changed}))
        return
    readable = f"{len(files)} file{'' if len(files) == 1 else 's'} it names can be read"
    lines = [f"{file} is valid for a {kind}; {readable}."]
    lines += [f"{key} is overridden by {variable}." for key, variable in changed.items()]
    emit("\n".join(lines) + "\n")


def kinds() -> Mapping[str, type[BaseModel]]:
    """Return the kinds of settings files and their models."""
    from masquerade.collect.settings import KINDS as COLLECTING  # noqa: PLC0415  (loads pydantic)
    from masquerade.parties.settings import KINDS as PARTIES  # noqa: PLC0415

    return {**PARTIES, **COLLECTING}
