"""`masquerade report`: a page about anybody's records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from masquerade.cli import output
from masquerade.cli.data_source import Records, over_records
from masquerade.cli.options import Overwrite, option
from masquerade.core.errors import InputError


@over_records
def command(
    *,
    records: Records,
    title: Annotated[str | None, option("The page's title.", "TEXT")] = None,
    level: Annotated[float, option("Confidence level of the intervals.")] = 0.95,
    out: Annotated[str, option("Where the page goes (.html).", "FILE", "--out", "-o")] = "report.html",
    overwrite: Overwrite = False,
) -> None:
    """Write a page about records: shares, cross-tables, tests, what goes with what, and the guarantee.

    Example: masquerade report disguised.csv --policy policy.yaml --out report.html
    """
    if not out.lower().endswith((".html", ".htm")):
        raise InputError(f"{out}: a report is a page; its name ends in .html.")
    output.refuse(
        (not 0 < level < 1, f"--level must be between 0 and 1, such as 0.95. Got {level:g} instead.")
    )
    output.check_target(out, overwrite=overwrite)
    from masquerade.report.records_page import survey_findings, survey_page  # noqa: PLC0415  (draws)

    with records.opened("counting") as source:
        found = survey_findings(source, records.policy, records.chosen, level, disguised=not records.clear)
    names = ", ".join(Path(name).name for name in records.data)
    files = {"policy": records.rules, "records": records.data[0]}
    page = survey_page(found, title or f"Report on {names}", files)
    output.write_whole(out, page.encode(), overwrite=overwrite)
    for warning in found.warnings:
        output.say(f"warning: {warning}")
    beyond = sum(item.beyond_chance for item in found.associations)
    output.say(
        f"{out}: {found.n:,} records, {len(found.shares)} variables, {beyond} of "
        f"{len(found.associations)} links beyond chance."
    )
    if records.unsure is not None:
        output.say(records.unsure)
