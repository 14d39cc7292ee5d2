"""`masquerade release`: write a release folder for archives and other tools, and check one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from masquerade.cli import output
from masquerade.cli.options import Json, PolicyFile, argument, flag, group, option, required_option
from masquerade.cli.record_limit import AcceptGamma, confirm_record_gamma
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

app = group("Write disguised records as a folder for archives and other tools, or check such a folder.")


@app.command("make")
def make(
    data: Annotated[str, argument("Records disguised by `masquerade disguise` or a survey.", "DATA")],
    *,
    policy: PolicyFile,
    out: Annotated[Path, required_option("A new folder for the release.", "--out", "-o", metavar="FOLDER")],
    title: Annotated[str, option("Title of the data.", "TEXT")] = "Disguised records",
    description: Annotated[str, option("Description of the data in a sentence or two.", "TEXT")] = "",
    creator: Annotated[str, option("Publisher of the data.", "NAME")] = "",
    licence: Annotated[str, option("Address of the licence.", "URL", "--licence", "--license")] = "",
    url: Annotated[str, option("Address at which the data will be available.", "URL")] = "",
    version: Annotated[str, option("Version of the release.", "X.Y.Z", "--release-version")] = "1.0.0",
    table: Annotated[
        list[str] | None, option("Add the estimated counts of A,B as SDMX-CSV; may be repeated.", "A,B")
    ] = None,
    form: Annotated[str, option("Format of the records: parquet or csv.", "FORMAT", "--format")] = "parquet",
    no_attacker: Annotated[
        bool, flag("Omit from the audit the attacker who knows the population.", "--no-attacker")
    ] = False,
    accept_gamma: AcceptGamma = None,
    json: Json = False,
) -> None:
    """Audit disguised records and write them with policy, codebook, descriptions and hashes.

    Example: masquerade release make disguised.csv -p policy.yaml --out release
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.interop.croissant_description import About  # noqa: PLC0415  (loads numba)
    from masquerade.interop.release_folder import write_release  # noqa: PLC0415  (loads numba)

    if data == "-":
        raise InputError("A release is made from a file: standard input does not state its policy.")
    loaded = Policy.load(policy)
    confirm_record_gamma(loaded, accept_gamma)
    with output.report_warnings():
        made = write_release(
            data,
            loaded,
            out,
            about=About(title, description, creator, licence, url, version),
            tables=[names.split(",") for names in table or []],
            form=form,
            attacker=not no_attacker,
        )
    if made.left_out:
        output.say(f"omitted, not in the policy: {output.join_names(made.left_out)}.")
    if json:
        output.emit(made.to_dict())
    else:
        output.say(
            f"{counted(made.rows, 'record')} released into {made.path}; policy {made.policy_id[:12]}; "
            f"audit: {made.audit.headline}"
        )


@app.command("check")
def check(
    folder: Annotated[Path, argument("A folder that `masquerade release make` wrote.", "FOLDER")],
    *,
    json: Json = False,
) -> None:
    """Check that every file of a release is present and unchanged, and that all have the same policy.

    Example: masquerade release check release
    """
    from masquerade.interop.release_folder import check_release  # noqa: PLC0415  (loads numba)

    problems = check_release(folder)
    if json:
        output.emit({"folder": str(folder), "whole": not problems, "problems": problems})
    else:
        for problem in problems:
            output.say(problem)
        if not problems:
            output.emit(f"{folder}: complete and unchanged.\n")
    if problems:
        raise typer.Exit(1)
