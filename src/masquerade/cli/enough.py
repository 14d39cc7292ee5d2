"""`masquerade enough`: the associations that a file is large enough to show."""

from __future__ import annotations

from typing import Annotated

from masquerade.cli import output
from masquerade.cli.data_source import RecordOptions, over_records
from masquerade.cli.options import Json, Out, Overwrite, option
from masquerade.cli.stats import give


@over_records
def command(
    *,
    records: RecordOptions,
    power: Annotated[float, option("Power with which an association must be detected.")] = 0.8,
    level: Annotated[float, option("Level of the tests of all pairs together.")] = 0.05,
    json: Json = False,
    plot: Annotated[
        str | None, option("Plot the result into this file (.png, .svg or .pdf).", "FILE")
    ] = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Compute which links between variables a file can show at all, given its disguise and size.

    Example: masquerade enough disguised.csv --policy policy.yaml --out enough.html
    """
    output.check_plot(plot, overwrite=overwrite)
    output.check_target(out, overwrite=overwrite)
    if out not in {None, "-"} and not json:
        from masquerade.report.export import check_ending  # noqa: PLC0415  (few results are exported)

        check_ending(str(out))
    from masquerade.plan.enough import visible_pairs  # noqa: PLC0415  (loads numpy)

    with records.open_source("counting", "figures are") as source:
        result = visible_pairs(source, records.chosen_variables or None, power=power, level=level)
    give(result, json=json, out=out, overwrite=overwrite, plot=plot)
    if records.origin_note is not None:
        output.say(records.origin_note)
