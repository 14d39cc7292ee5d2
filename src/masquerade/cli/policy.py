"""`masquerade policy`: draft, check and identify policy files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import masquerade as mq
from masquerade.cli.expected_errors import expected_values, expected_words, unusable_groups
from masquerade.cli.mgas import grouped, requirement
from masquerade.cli.options import (
    Data,
    Decimal,
    Encoding,
    Json,
    Out,
    Overwrite,
    PolicyArgument,
    Separator,
    argument,
    group,
    option,
)
from masquerade.cli.output import (
    check_target,
    emit,
    listed,
    plain_table,
    progress,
    render,
    say,
    warnings_said,
)
from masquerade.cli.privacy import channel_words, gamma_words
from masquerade.core.errors import InputError, PolicyError, UnknownValue
from masquerade.core.util.formatting import category_text, counted

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy

app = group("Draft, check and identify policy files.")


@app.command("init")
def init(
    data: Data,
    *,
    epsilon: Annotated[
        float | None, option("Give every variable a symmetric channel with this ε; else to be decided.", "E")
    ] = None,
    per: Annotated[
        Literal["variable", "record"],
        option("Whether --epsilon is for each variable or divided over a record."),
    ] = "variable",
    mgas: Annotated[
        list[str] | None,
        option(
            "Group this number: every group has at least K records and is WIDTH wide; repeat for more.",
            "COLUMN=K,WIDTH",
        ),
    ] = None,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Draft a policy from clear data; a person decides the rest (look for DECIDE).

    Example: masquerade policy init people.csv --epsilon 1.5 --per record --out policy.yaml
    """
    from masquerade.disguising.policy_draft import draft, summaries  # noqa: PLC0415  (loads Arrow)
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415

    named = out is not None and out != "-"
    if named and not str(out).lower().endswith((".yaml", ".yml")):
        raise InputError(f"{out}: a drafted policy is YAML with comments; its name ends in .yaml or .yml.")
    if epsilon is not None and not 0 < epsilon <= 40:
        raise InputError(f"--epsilon is above 0 and at most 40. Got {epsilon:g} instead.")
    check_target(out, overwrite=overwrite)
    written = Dialect(sep, decimal, encoding)
    asked = [requirement(text, "--mgas") for text in mgas or ()]
    if asked and data in ("-", ["-"]):
        raise InputError("--mgas reads the data twice: give a file.")
    with open_batches(data, dialect=written) as batches, progress("reading") as advance:
        for note in batches.notes:
            say(note)
        columns = summaries(
            batches, text=batches.text, progress=lambda: advance(batches.bytes_read, batches.total_bytes)
        )
    with warnings_said():
        groups = (
            {one: bins.policy_bins() for one, bins in grouped(data, asked, written).items()} if asked else {}
        )
    emit(draft(columns, epsilon, per=per, groups=groups), out, overwrite=overwrite)
    if named:
        left = (
            "is refused until every DECIDE is settled" if epsilon is None else "every DECIDE is to be settled"
        )
        say(f"drafted {out}: it shows values of the data, and {left}.")


@app.command("check")
def check(
    policy: PolicyArgument,
    data: Annotated[
        list[str] | None, argument("Clear data to try it on: nothing is drawn or written.", "DATA")
    ] = None,
    *,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Validate a policy file and summarise it; with DATA, say whether all values can be read by it.

    Example: masquerade policy check policy.yaml people.csv
    """
    loaded = mq.Policy.load(policy)
    if data:
        _try_on(loaded, policy, data, (sep, decimal, encoding), json=json)
        return
    useless = unusable_groups(loaded)
    if useless:
        raise PolicyError(f"{policy}: {' '.join(useless)}")
    figures = mq.privacy(loaded)
    if json:
        record = figures.to_dict()["record"]
        expected = expected_values(loaded)
        emit({"policy": loaded.id, "record": record, "variables": _variables(loaded), "expected": expected})
        return
    table = plain_table(f"{policy} is a valid policy", ["variable", "categories", "disguise"])
    for field in loaded.fields:
        group = loaded.group(field.variable.name)
        beside = [name for name in group.names if name != field.variable.name]
        words = f"together with {', '.join(beside)}" if beside else ""
        if group.response is not None:
            words = f"dealt in blocks of {group.response.k}"
        elif not beside:
            words = channel_words(group.matrix_channel)
        if field.variable.name in loaded.disguised and not group.disguised:
            words = "by stratum"
        table.add_row(field.variable.name, listed(map(category_text, field.variable.categories), 6), words)
    over = (
        f"over a record {gamma_words(figures.record_gamma)}" if loaded.disguised else "NOTHING IS DISGUISED"
    )
    people = [*expected_words(loaded), *unusable_groups(loaded, joint=True)]
    emit(render(table, f"id {loaded.id}", *people, f"{over}. masquerade privacy {policy} tells more."))


def _try_on(
    policy: Policy,
    name: str,
    data: list[str],
    written: tuple[str | None, str | None, str | None],
    *,
    json: bool,
) -> None:
    """Read data by a policy and tell all that is wrong with them, in a line for each column and problem."""
    from masquerade.disguising.files import check_files  # noqa: PLC0415  (loads Arrow)
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415

    with progress("reading"):
        try:
            rows, left_out, notes = check_files(data, policy, dialect=Dialect(*written))
        except UnknownValue as error:
            for problem in error.problems:
                say(f"{problem.file}: {problem}.")
            raise InputError(
                f"{listed(data)}: {counted(len(error.problems), 'problem')} with values; mend the data, or "
                f"say in {name} how they are read ('categories', 'missing', 'na', 'recode')."
            ) from None
    for note in notes:
        say(note)
    found = {"policy": policy.id, "rows": rows, "left_out": list(left_out)}
    beside = f" Left out, not in the policy: {listed(left_out)}." if left_out else ""
    emit(found if json else f"{counted(rows, 'record')} can be read by {name}.{beside}\n")


@app.command("id")
def identify(policy: PolicyArgument) -> None:
    """Print the id of a policy: the same for every spelling of the same mechanism."""
    emit(mq.Policy.load(policy).id + "\n")


@app.command("schema")
def schema(*, out: Out = None, overwrite: Overwrite = False) -> None:
    """Print the JSON Schema of policy files, for editors."""
    emit(mq.Policy.json_schema(), out, overwrite=overwrite)


def _variables(policy: Policy) -> list[dict[str, Any]]:
    return [
        {
            "name": field.variable.name,
            "categories": list(field.variable.categories),
            "disguised": field.variable.name in policy.disguised,
            "together_with": [n for n in policy.group(field.variable.name).names if n != field.variable.name],
        }
        for field in policy.fields
    ]
