"""`masquerade release`: a folder that archives and other tools open, and its check."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from masquerade.cli import output
from masquerade.cli.options import Json, PolicyFile, argument, flag, group, option, required
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import counted

app = group("Disguised records as a folder that archives and other tools open; and is it whole?")


@app.command("make")
def make(
    data: Annotated[str, argument("Records that `masquerade disguise` or a survey disguised.", "DATA")],
    *,
    policy: PolicyFile,
    out: Annotated[Path, required("A new folder for the release.", "--out", "-o", metavar="FOLDER")],
    title: Annotated[str, option("What the data are called.", "TEXT")] = "Disguised records",
    description: Annotated[str, option("What they are about, in a sentence or two.", "TEXT")] = "",
    creator: Annotated[str, option("Who publishes them.", "NAME")] = "",
    licence: Annotated[str, option("Address of the licence.", "URL", "--licence", "--license")] = "",
    url: Annotated[str, option("Where they will be found.", "URL")] = "",
    version: Annotated[str, option("Version of the release.", "X.Y.Z", "--release-version")] = "1.0.0",
    table: Annotated[
        list[str] | None, option("Add the estimated counts of A,B as SDMX-CSV; may be repeated.", "A,B")
    ] = None,
    form: Annotated[str, option("The records as parquet or csv.", "FORMAT", "--format")] = "parquet",
    no_attacker: Annotated[
        bool, flag("Leave the attacker who knows the population out of the audit.", "--no-attacker")
    ] = False,
    json: Json = False,
) -> None:
    """Audit disguised records and write them with policy, codebook, descriptions and hashes.

    Example: masquerade release make disguised.csv -p policy.yaml --out release
    """
    from masquerade.interop.croissant_description import About  # noqa: PLC0415  (loads numba)
    from masquerade.interop.release_folder import write_release  # noqa: PLC0415  (loads numba)

    if data == "-":
        raise InputError("A release is made of a file: standard input carries no mark of its policy.")
    with output.warnings_said():
        made = write_release(
            data,
            policy,
            out,
            about=About(title, description, creator, licence, url, version),
            tables=[names.split(",") for names in table or []],
            form=form,
            attacker=not no_attacker,
        )
    if made.left_out:
        output.say(f"left out, not in the policy: {output.listed(made.left_out)}.")
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
    """Tell whether every file of a release is there and unchanged, and whether all are about one policy.

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
            output.emit(f"{folder}: whole and unchanged.\n")
    if problems:
        raise typer.Exit(1)
