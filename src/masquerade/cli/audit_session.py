"""`masquerade audit session`: attacks on the answers that parties gave, or on a trial run of a protocol."""

from __future__ import annotations

from typing import Annotated

from masquerade.cli.audit import Page, check_page, show
from masquerade.cli.audit import app as audit_app
from masquerade.cli.options import Json, Overwrite, argument, group, option
from masquerade.core.errors import InputError

app = group("Attack the answers that parties gave, or the protocols they use, before others do.")
audit_app.add_typer(app, name="session")

States = Annotated[list[str], argument("State folders of one or more parties.", "STATE...")]
Parties = Annotated[int, option("Number of parties in the secure sum.", "N", "--parties", "-p")]
Records = Annotated[int, option("Number of records.", "N", "--records", "-n")]


@app.command("answers")
def answers(
    states: States,
    *,
    protect: Annotated[
        list[str] | None,
        option("Variables A,B whose joint cells must not be computable; may be repeated.", "NAMES"),
    ] = None,
    most_variables: Annotated[
        int | None, option("No cell of more than N variables may be computable.", "N", "--most-variables")
    ] = None,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Find the cells that can be computed by adding and subtracting the counts in the parties' answers.

    Queries are read from the state folders, even while parties run. Answers are neither stored nor needed.
    Exit code 1 if a protected cell can be computed.

    Example: masquerade audit session answers north/state
    """
    from masquerade.audit.differencing import audit_states  # noqa: PLC0415  (loads numba)
    from masquerade.sources.control.inference_control import Rules  # noqa: PLC0415

    check_page(out, overwrite=overwrite)
    sets = [[name.strip() for name in names.split(",")] for names in protect or ()]
    rules = Rules(sets, most_variables) if sets or most_variables is not None else None
    show(audit_states(states, rules), json=json, out=out, overwrite=overwrite)


@app.command("coalitions")
def coalitions(
    *, parties: Parties = 5, json: Json = False, out: Page = None, overwrite: Overwrite = False
) -> None:
    """Run a secure sum of synthetic parties and show what every coalition of them learns.

    Example: masquerade audit session coalitions --parties 5
    """
    from masquerade.audit.coalitions import audit_coalitions  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    show(audit_coalitions(parties), json=json, out=out, overwrite=overwrite)


@app.command("projection")
def projection(
    *,
    records: Records = 60,
    known: Annotated[
        str | None,
        option("How many columns the attacker knows: one or more numbers, as 5,15,30.", "NUMBERS", "--known"),
    ] = None,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Rotate synthetic columns as their owners would, and guess a column from columns known in clear.

    Example: masquerade audit session projection --records 60 --known 5,15,30
    """
    from masquerade.audit.known_columns import KNOWN, audit_known_columns  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    shares = [max(1, round(records * k / 60)) for k in KNOWN]
    try:
        numbers = shares if known is None else [int(number) for number in known.split(",")]
    except ValueError:
        raise InputError(f"--known lists whole numbers, such as 5,15,30. Got {known!r} instead.") from None
    show(audit_known_columns(records, numbers), json=json, out=out, overwrite=overwrite)
