"""`masquerade audit`: prove a mechanism, test a pipeline, attack a release before others do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from masquerade.cli import output
from masquerade.cli.options import Json, Overwrite, PolicyArgument, flag, group, option
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.audit.findings import Audit

app = group("Prove a mechanism, test a pipeline, attack a release: what to do before you sign.")

Page = Annotated[str | None, option("Also write it as a page (.html).", "FILE", "--out", "-o")]
Quick = Annotated[bool, flag("Leave out the survey page's JavaScript.", "--no-page")]


def check_page(out: str | None, *, overwrite: bool) -> None:
    """Refuse, before any work, a page that cannot be written."""
    if out is not None and not out.lower().endswith((".html", ".htm")):
        raise InputError(f"{out}: an audit is written as a page; its name ends in .html.")
    output.check_target(out, overwrite=overwrite)


def show(found: Audit, *, json: bool, out: str | None, overwrite: bool) -> None:
    """Print an audit, write its page, and exit with 1 if a claim is contradicted."""
    if out is not None:
        output.write_whole(out, found.to_html().encode(), overwrite=overwrite)
        output.say(f"the page is {out}.")
    output.emit(found.to_dict() if json else found.summary() + "\n")
    if found.contradicted:
        raise typer.Exit(found.exit_code)


@app.command("policy")
def policy(
    policy: PolicyArgument,
    *,
    no_page: Quick = False,
    json: Json = False,
    out: Page = None,
    overwrite: Overwrite = False,
) -> None:
    """Prove, by walking every interval of its samplers, that a policy draws what it says.

    Example: masquerade audit policy policy.yaml --out audit.html
    """
    from masquerade.audit.enumeration import audit_policy  # noqa: PLC0415  (loads numba)

    check_page(out, overwrite=overwrite)
    show(audit_policy(policy, page=not no_page), json=json, out=out, overwrite=overwrite)
