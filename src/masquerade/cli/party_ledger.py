"""`masquerade party ledger`: what left this party, and whether the record of it is intact."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from masquerade.cli.options import Json
from masquerade.cli.output import as_json, emit, listed, plain_table, render
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from masquerade.services.common.release_ledger import Entry


def ledger_app(
    place: Annotated[
        str,
        typer.Argument(
            help="A release ledger (releases.jsonl), or the state folder of a service.",
            metavar="LEDGER",
            show_default=False,
        ),
    ],
    action: Annotated[
        str | None,
        typer.Argument(help="verify: only check that nothing was changed or removed.", metavar="verify"),
    ] = None,
    *,
    json: Json = False,
) -> None:
    """Show what left this party: when, to whom, what, under which policy, for how much γ.

    Every line is checked against the one before, and the last against what the service remembers. Example:
    masquerade party ledger state
    """
    from masquerade.services.common.release_ledger import (  # noqa: PLC0415
        inspect,
        spending,
        summary,
    )

    if action is not None and place == "verify" != action:
        place, action = action, place  # said in the other order
    if action not in (None, "verify"):
        raise InputError(f"What follows a ledger is 'verify' or nothing. Got {action!r} instead.")
    entries, known = inspect(Path(place))
    last = entries[-1].hash if entries else None
    if action == "verify":
        checked = {
            "ledger": place,
            "intact": True,
            "releases": len(released(entries)),
            "restores": len(entries) - len(released(entries)),
            "last": last,
            "end_known": known is not None,
        }
        emit(as_json(checked) if json else intact(place, entries, end_known=known is not None))
        return
    if json:
        spent = [item.to_dict() for item in spending(entries)]
        emit(as_json({"releases": [entry.to_dict() for entry in entries], "spent": spent}))
        return
    emit(render(*([table(entries)] if entries else []), summary(entries)))


def intact(place: str, entries: Sequence[Entry], *, end_known: bool) -> str:
    """Return that a ledger is in order, and what could not be seen."""
    number, restores = len(released(entries)), len(entries) - len(released(entries))
    text = f"{place}: intact, {number} release{'' if number == 1 else 's'}"
    text += "." if not restores else f", and {restores} restore{'' if restores == 1 else 's'} of the state."
    if entries:
        text += f" The last: {entries[-1].hash}"
    if not end_known:
        text += "\nWhether lines at the end were removed cannot be seen without the service's state folder."
    return text + "\n"


def released(entries: Sequence[Entry]) -> list[Entry]:
    """Return the lines that tell of a release, not of a restored state."""
    from masquerade.services.common.release_ledger import RESTORED  # noqa: PLC0415

    return [entry for entry in entries if entry.release.kind != RESTORED]


def table(entries: Sequence[Entry]) -> Table:
    """Return the releases as a table."""
    from masquerade.core.words import gamma_text  # noqa: PLC0415

    result = plain_table("What left this party")
    for name in ("", "when (UTC)", "to", "session", "what", "variables", "rows", "policy", "γ"):
        result.add_column(name, justify="right" if name in ("", "rows", "γ") else "left")
    for entry in entries:
        item = entry.release
        result.add_row(
            str(entry.number),
            entry.time[:19].replace("T", " "),
            item.recipient,
            item.session,
            item.kind,
            listed(item.variables, 6),
            f"{item.rows:,}",
            (item.policy or "")[:12],
            gamma_text(item.gamma),
        )
    return result
