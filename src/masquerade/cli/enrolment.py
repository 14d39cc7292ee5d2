"""Options and steps that `masquerade collect` and `masquerade count` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from masquerade.cli.options import argument, option, required_option
from masquerade.cli.output import say
from masquerade.core.errors import FileError, InputError

People = Annotated[
    list[str] | None, argument("Names of the people, as the office knows them.", "[PERSON]...")
]
OfficeFile = Annotated[Path, required_option("The settings of the enrolment office.", "--office")]
NameFile = Annotated[Path | None, option("A file with one name per line.", "FILE", "--from")]


def read_names(people: list[str] | None, listed: Path | None) -> list[str]:
    """Return the names of people to enrol: from the command line, then from a file."""
    try:
        lines = [] if listed is None else listed.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise FileError(f"{listed}: is not a text file in UTF-8.") from None
    names = [*(people or []), *(line.strip() for line in lines if line.strip())]
    if not names:
        raise InputError("Name the people to enrol, or give a file with --from.")
    return names


def ask_server(settings: Any, wait: float, **requests: dict[str, Any]) -> list[dict[str, Any]]:
    """Send requests of the operator to a running server, in sequence, and return the replies."""
    from masquerade.services.common.client import Operator  # noqa: PLC0415  (loads the web client)

    with Operator(settings, wait=wait, tell=say) as operator:
        return [operator.ask(name, values) for name, values in requests.items()]
