"""`masquerade report`: a page about any records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import masquerade as mq
from masquerade.cli import output
from masquerade.cli.data_source import RecordOptions, over_records
from masquerade.cli.options import Overwrite, option
from masquerade.core.errors import InputError


@over_records
def command(
    *,
    records: RecordOptions,
    title: Annotated[str | None, option("Title of the page.", "TEXT")] = None,
    model: Annotated[
        str | None,
        option("Also test this classifier, as `learn --out` saved it, on the records.", "MODEL.json"),
    ] = None,
    level: Annotated[float, option("Confidence level of the intervals.")] = 0.95,
    out: Annotated[str, option("File for the page (.html).", "FILE", "--out", "-o")] = "report.html",
    overwrite: Overwrite = False,
) -> None:
    """Write a page about records: shares, cross-tables, tests, associations and the guarantee.

    Example: masquerade report disguised.csv --policy policy.yaml --out report.html
    """
    if not out.lower().endswith((".html", ".htm")):
        raise InputError(f"{out}: a report is a page: its name must end in .html.")
    output.refuse(
        (not 0 < level < 1, f"--level must be between 0 and 1, such as 0.95. Got {level:g} instead.")
    )
    output.check_target(out, overwrite=overwrite)
    from masquerade.report.records_page import survey_findings, survey_page  # noqa: PLC0415  (slow to load)

    classifier = None if model is None else mq.learn.load(model)
    if classifier is not None and not hasattr(classifier, "predict"):
        raise InputError(f"{model}: a model of type {classifier.to_dict()['kind']!r} predicts no target.")

    with records.open_source("counting") as source:
        found = survey_findings(
            source, records.policy, records.chosen_variables, level, disguised=not records.clear
        )
        if classifier is not None:
            tested = mq.evaluate.performance(classifier, source, level=level)
            found = replace(found, performance=tested)
    names = ", ".join(Path(name).name for name in records.data)
    files = {"policy": records.rules, "records": records.data[0]}
    page = survey_page(found, title or f"Report on {names}", files)
    output.write_whole(out, page.encode(), overwrite=overwrite)
    for warning in found.warnings:
        output.say(f"warning: {warning}")
    beyond = sum(item.beyond_chance for item in found.associations)
    output.say(
        f"{out}: {found.n:,} records, {len(found.shares)} variables, {beyond} of "
        f"{len(found.associations)} pairs significant at 5% (Pearson's test, Holm's correction)."
    )
    if records.origin_note is not None:
        output.say(records.origin_note)
