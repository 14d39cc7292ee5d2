"""`masquerade output`: check results against disclosure rules; decide whether they may be published."""

from __future__ import annotations

import json as json_text
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from masquerade.cli import output
from masquerade.cli.options import Json, argument, flag, group, option, required_option
from masquerade.core.errors import FileError, InputError

if TYPE_CHECKING:
    from masquerade.sources.control.inference_control import Rules

MOST_BYTES = 1 << 26
output_app = group("Check results against disclosure rules, and decide whether they may be published.")
Record = Annotated[Path, argument("The folder of the record.", "RECORD")]


@output_app.command("check")
def check(
    file: Annotated[
        Path, argument("Results as JSON: tables (masquerade estimate --json) and models.", "FILE")
    ],
    *,
    rules: Annotated[
        str, required_option("A file of rules (YAML), or datashield, acro or cms11.", "--rules")
    ],
    record: Annotated[
        Path, required_option("Folder that records checks and decisions.", "--record", metavar="FOLDER")
    ],
    exception: Annotated[
        str, option("Why results should be published although they break a rule.", "TEXT")
    ] = "",
    json: Json = False,
) -> None:
    """Check results: pass, review (a rule could not be evaluated) or fail.

    Tables are checked together with all tables that were accepted in the same record. Exit code 1 if a result
    fails.

    Example: masquerade output check tables.json --rules acro --record outputs
    """
    from masquerade.services.common.output_record import OutputRecord  # noqa: PLC0415  (loads scipy)

    loaded = _read_rules(rules)
    entries = OutputRecord(record).add(_read_outputs(file), loaded, exception)
    if json:
        output.emit(entries)
    else:
        lines = [f"Rules: {json_text.dumps(loaded.to_dict(), ensure_ascii=False)}"]
        for entry in entries:
            reasons = f" ({'; '.join(entry['reasons'])})" if entry["reasons"] else ""
            lines.append(f"{entry['id']}: {entry['status']}: {entry['question']}{reasons}")
        output.emit("\n".join(lines) + "\n")
    if any(entry["status"] == "fail" for entry in entries):
        raise typer.Exit(1)


@output_app.command("decide")
def decide(
    record: Record,
    number: Annotated[int, argument("The id of the result.", "ID")],
    *,
    accept: Annotated[bool, flag("The result may be published.", "--accept")] = False,
    reject: Annotated[bool, flag("The result may not be published.", "--reject")] = False,
    by: Annotated[str, required_option("Who decides.", "--by", metavar="NAME")],
    reason: Annotated[
        str, option("The reason; required unless a result that passed is accepted.", "TEXT")
    ] = "",
    json: Json = False,
) -> None:
    """Accept or reject a result. The decision becomes a line of kind `output` in the ledger of the record.

    Example: masquerade output decide outputs 3 --accept --by officer-1 --reason "published elsewhere"
    """
    from masquerade.services.common.output_record import OutputRecord  # noqa: PLC0415  (loads scipy)

    output.refuse((accept == reject, "Give either --accept or --reject."))
    if not record.is_dir():
        raise FileError(f"{record}: there is no such record.")
    entry = OutputRecord(record).decide(number, accept=accept, by=by, reason=reason)
    if json:
        output.emit(entry)
        return
    done = "accepted" if accept else "rejected"
    output.emit(f"{number}: {done} by {by} (line {entry['decision']['line']} of the ledger)\n")


def _read_rules(name: str) -> Rules:
    """Return the rules of a profile or a file, including rules on contributions to sums."""
    from masquerade.services.common.settings_file import read  # noqa: PLC0415
    from masquerade.sources.control.disclosure_profiles import PROFILES  # noqa: PLC0415
    from masquerade.sources.control.inference_control import Rules  # noqa: PLC0415  (loads numpy)

    if name in PROFILES and not Path(name).exists():
        return Rules.profile(name, magnitudes=True)
    values = read(Path(name))
    stated = values.get("rules", values)
    if not isinstance(stated, dict) or not stated:
        raise InputError(f"{name}: has no rules, such as 'rules: {{profile: acro}}'.")
    try:
        return Rules.from_dict(stated, magnitudes=True)
    except InputError as error:
        raise InputError(f"{name}: {error}") from None


def _read_outputs(path: Path) -> list[dict[str, Any]]:
    """Return the results in a file: a single result, a list, or the list under the key `outputs`."""
    from masquerade.core.util.json_text import read_json  # noqa: PLC0415

    values = read_json(path, most=MOST_BYTES)
    if isinstance(values, dict):
        values = values.get("outputs", [values])
    if not isinstance(values, list) or not values or not all(isinstance(it, dict) for it in values):
        raise InputError(f"{path}: must be JSON with a result, or a list of results.")
    return values
