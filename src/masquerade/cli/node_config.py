"""`masquerade config check`: whether a service could start with its settings file."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
        str | None,
        typer.Option(
            help="What the file must be for: party, miner, randomness, collector, …",
            metavar="KIND",
            show_default="what it is for",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Check a settings file, the environment's overrides, and the files that it names.

    Keys, tokens and identities that others may read are refused. Example: masquerade config check party.yaml
    """
    from masquerade.services.common.settings import check_files, named_files, overrides  # noqa: PLC0415
    from masquerade.services.parties.preflight import check_node  # noqa: PLC0415

    known = kinds()
    if kind is not None and kind not in known:
        raise InputError(f"There are no settings of kind {kind!r}.{did_you_mean(kind, known)}")
    kind = kind or kind_of(file) or likeliest(file)
    settings = load_kind(file, kind)
    check_files(settings, file)
    check_node(settings)
    files = [name for name, _, _ in named_files(settings)]
    changed = overrides(file, known[kind])
    if json:
        emit(as_json({"file": str(file), "kind": kind, "valid": True, "files": files, "overridden": changed}))
        return
    readable = f"; {len(files)} file{'' if len(files) == 1 else 's'} it names can be read" if files else ""
    lines = [f"{file} is valid for a {kind}{readable}."]
    lines += [f"{key} is overridden by {variable}." for key, variable in changed.items()]
    emit("\n".join(lines) + "\n")


def load_kind(file: Path, kind: str) -> Any:
    """Return the settings in a file for a kind of service; a file for another kind is told so."""
    from masquerade.services.common.settings import load  # noqa: PLC0415

    try:
        return load(file, kinds()[kind])
    except InputError:
        other = kind_of(file)
        if other is None or other == kind:
            raise
        raise InputError(f"{file}: this is a file of kind {other!r}, not {kind!r}.") from None


def kind_of(file: Path) -> str | None:
    """Return which kind of service a file has settings for; None if they are right for none."""
    from masquerade.services.common.settings import load  # noqa: PLC0415

    for kind, model in kinds().items():
        with suppress(InputError):
            load(file, model)
            return kind
    return None


def likeliest(file: Path) -> str:
    """Return the kind of file whose keys are most like those of a file that is right for none."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    keys = set(read(file))

    def likeness(item: tuple[str, type[BaseModel]]) -> int:
        fields = set(item[1].model_fields)
        return len(keys & fields) - len(keys - fields)

    return max(kinds().items(), key=likeness)[0]


def kinds() -> Mapping[str, type[BaseModel]]:
    """Return the kinds of settings files and their models."""
    from masquerade.services.collect.settings import KINDS as COLLECTING  # noqa: PLC0415  (loads pydantic)
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import KINDS as PARTIES  # noqa: PLC0415

    return {**PARTIES, "session": SessionSpec, **COLLECTING}
