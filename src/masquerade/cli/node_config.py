"""`masquerade config check`: whether a service could start with its settings file."""

from __future__ import annotations

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
    from masquerade.services.common.settings import named_files, overrides  # noqa: PLC0415

    known = kinds()
    if kind is not None and kind not in known:
        raise InputError(f"There are no settings of kind {kind!r}.{did_you_mean(kind, known)}")
    kind = kind or likeliest(file)
    settings = checked(file, kind)
    files = [name for name, _, _ in named_files(settings)]
    changed = overrides(file, known[kind])
    if json:
        emit(as_json({"file": str(file), "kind": kind, "valid": True, "files": files, "overridden": changed}))
        return
    readable = f"; {len(files)} file{'' if len(files) == 1 else 's'} it names can be read" if files else ""
    lines = [f"{file} is valid for a {kind}{readable}."]
    lines += [f"{key} is overridden by {variable}." for key, variable in changed.items()]
    emit("\n".join(lines) + "\n")


def checked(file: Path, kind: str) -> Any:
    """Return the settings in a file for a kind of service, after looking at every file they name."""
    from masquerade.services.common.settings import check_files  # noqa: PLC0415
    from masquerade.services.parties.settings import PartySettings  # noqa: PLC0415

    settings = load_kind(file, kind)
    check_files(settings, file)
    if isinstance(settings, PartySettings):
        from masquerade.services.parties.local_data import check_records  # noqa: PLC0415  (loads Arrow)

        check_records(settings)
    return settings


def load_kind(file: Path, kind: str) -> Any:
    """Return the settings in a file for a kind of service; a file for another kind is told so."""
    from masquerade.services.common.settings import load  # noqa: PLC0415

    try:
        return load(file, kinds()[kind])
    except InputError:
        other = likeliest(file)
        if other == kind:
            raise
        raise InputError(f"{file}: this is a file of kind {other!r}, not {kind!r}.") from None


def likeliest(file: Path) -> str:
    """Return the kind of service whose keys are most like those of a file."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415

    keys = set(read(file))

    def likeness(item: tuple[str, type[BaseModel]]) -> int:
        fields = item[1].model_fields
        needed = {name for name, field in fields.items() if field.is_required()}
        return len(keys & fields.keys()) - len(keys - fields.keys()) - len(needed - keys)

    return max(kinds().items(), key=likeness)[0]


def kinds() -> Mapping[str, type[BaseModel]]:
    """Return the kinds of settings files and their models."""
    from masquerade.services.collect.settings import KINDS as COLLECTING  # noqa: PLC0415  (loads pydantic)
    from masquerade.services.parties.session import SessionSpec  # noqa: PLC0415
    from masquerade.services.parties.settings import KINDS as PARTIES  # noqa: PLC0415

    return {**PARTIES, "session": SessionSpec, **COLLECTING}
