"""`masquerade policy`: draft, check and identify policy files."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import masquerade as mq
from masquerade.cli.expected_errors import expected_values, expected_words, unusable_groups
from masquerade.cli.mgas import group_columns, requirement
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
    flag,
    group,
    option,
)
from masquerade.cli.output import (
    check_target,
    emit,
    join_names,
    plain_table,
    progress,
    render,
    report_warnings,
    say,
)
from masquerade.cli.policy_init import Choice, draft_within_limit, limit_from_options
from masquerade.cli.privacy import channel_words, dealing_words, gamma_words
from masquerade.core.errors import InputError, MasqueradeWarning, PolicyError, UnknownValue
from masquerade.core.record_gamma import describe_clear_missing, describe_gamma
from masquerade.core.util.formatting import category_text, counted, percent

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy

app = group("Draft, check and identify policy files.")


@app.command("init")
def init(
    data: Data,
    *,
    limit: Annotated[
        str | None,
        option(
            "The most that a whole record may reveal: a belief of 5% rises to at most 50%.", "BEFORE:AFTER"
        ),
    ] = None,
    gamma: Annotated[str | None, option("The limit as γ of a whole record.", "G")] = None,
    epsilon: Annotated[str | None, option("The limit as ε of a whole record.", "E")] = None,
    sensitive: Annotated[
        list[str] | None,
        option("Variables to disguise, NAME or A,B,C. Others are omitted. All by default.", "NAMES"),
    ] = None,
    clear: Annotated[
        list[str] | None, option("Variables that are not sensitive and are released in clear.", "NAMES")
    ] = None,
    count: Annotated[
        str | None,
        option(
            "What will be counted: 'singles, pairs' (the default), singles, 'smoker×region, age', or a "
            "learner such as naive_bayes(target).",
            "TABLES",
        ),
    ] = None,
    people: Annotated[
        int | None, option("Number of people for the expected errors; by default the records.", "N")
    ] = None,
    per_answer: Annotated[
        bool,
        flag(
            "Use one channel per variable, without a limit for the record: --epsilon then bounds each "
            "answer. Without --epsilon, every channel is left for you to decide.",
            "--per-answer",
        ),
    ] = False,
    date: Annotated[
        list[str] | None,
        option(
            "Read dates as NAME=age (on a day: NAME=age:2026-01-31), NAME=year, NAME=quarter or NAME=month; "
            "may be repeated.",
            "NAME=UNIT",
        ),
    ] = None,
    mgas: Annotated[
        list[str] | None,
        option(
            "Group a numeric column: every group has at least K records and is at least WIDTH wide; may be "
            "repeated.",
            "COLUMN=K,WIDTH",
        ),
    ] = None,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    out: Out = None,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Draft a policy from clear data; it spends one limit per person, and you decide the rest.

    Example: masquerade policy init people.csv --sensitive smoker,income --clear region --out policy.yaml
    """
    from masquerade.disguising import policy_draft  # noqa: PLC0415  (loads Arrow)
    from masquerade.disguising.column_summary import summaries  # noqa: PLC0415
    from masquerade.disguising.draft_dates import parse_dates  # noqa: PLC0415
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415
    from masquerade.frames.file_reader import open_batches  # noqa: PLC0415

    named = out is not None and out != "-"
    if named and not str(out).lower().endswith((".yaml", ".yml")):
        raise InputError(
            f"{out}: a drafted policy is YAML with comments: its name must end in .yaml or .yml."
        )
    bound = limit_from_options(limit, gamma, epsilon)
    if json and (per_answer or out is not None):
        raise InputError("--json prints the draft within a limit: omit --per-answer and --out.")
    if per_answer:
        _check_per_answer(limit, gamma, sensitive, clear, count)
    check_target(out, overwrite=overwrite)
    dates = parse_dates(date or ())
    dialect = Dialect(sep, decimal, encoding)
    asked = [requirement(text, "--mgas") for text in mgas or ()]
    if asked and data in ("-", ["-"]):
        raise InputError("--mgas reads the data twice: give a file.")
    with open_batches(data, dialect=dialect) as batches, progress("reading") as advance:
        for note in batches.notes:
            say(note)
        columns = summaries(
            batches,
            text=batches.text,
            progress=lambda: advance(batches.bytes_read, batches.total_bytes),
            missing_kinds=batches.missing_kinds,
            dates=dates,
        )
    with report_warnings():
        groups = (
            {name: bins.policy_bins() for name, bins in group_columns(data, asked, dialect).items()}
            if asked
            else {}
        )
    if per_answer:
        each = None if epsilon is None else float(epsilon)
        text = policy_draft.draft_per_answer(policy_draft.draft_variables(columns, groups=groups), each)
        done = each is not None
    else:
        chosen = Choice(tuple(sensitive or ()), tuple(clear or ()), count, people)
        drafted = draft_within_limit(columns, groups, bound, chosen, notes=_notes_on_baskets(data))
        if json:
            emit(drafted.to_dict())
            return
        text, done = drafted.to_yaml(), True
    emit(text, out, overwrite=overwrite)
    if named:
        left = "every DECIDE is yours to settle" if done else "is refused until every DECIDE is settled"
        say(f"drafted {out}: it shows values of the data, and {left}.")


def _notes_on_baskets(data: object) -> tuple[str, ...]:
    """Return a note for drafts from basket files, which cannot contain reports of class response."""
    from masquerade.frames.formats import Format, format_of  # noqa: PLC0415

    items = data if isinstance(data, list) else [data]
    paths = [Path(path) for path in items if isinstance(path, (str, Path))]
    tables = [
        path for path in paths if path.is_dir() or path.suffix == ".json"
    ]  # folders of partitions, tables
    if not any(format_of(path) is Format.BASKETS for path in paths if path not in tables):
        return ()
    return (
        "Reports of blocks are numbers, which .baskets files cannot contain: disguise into .parquet or .csv.",
    )


def _check_per_answer(limit: str | None, gamma: str | None, *others: object) -> None:
    if limit is not None or gamma is not None or any(others):
        raise InputError(
            "--per-answer takes only --epsilon: without a limit for the record there is nothing to divide."
        )


@app.command("check")
def check(
    policy: PolicyArgument,
    data: Annotated[
        list[str] | None,
        argument("Clear data to check against the policy; nothing is drawn or written.", "DATA"),
    ] = None,
    *,
    sep: Separator = None,
    decimal: Decimal = None,
    encoding: Encoding = None,
    json: Json = False,
) -> None:
    """Validate a policy file and summarise it; with DATA, check that it can read all values.

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
        partners = [name for name in group.names if name != field.variable.name]
        text = f"together with {', '.join(partners)}" if partners else ""
        if group.response is not None:
            text = dealing_words(group.response)
        elif not partners:
            text = channel_words(group.matrix_channel)
        if field.variable.name in loaded.disguised and not group.disguised:
            text = "by stratum"
        table.add_row(field.variable.name, join_names(map(category_text, field.variable.categories), 6), text)
    over, person = "NOTHING IS DISGUISED", list[str]()
    if loaded.disguised:
        person = [describe_clear_missing(loaded.clear_missing)] if loaded.clear_missing else []
        person += [f"One person: {describe_gamma(figures.record_gamma)}", ""]
        over = f"over a record {gamma_words(figures.record_gamma)}"
        over += "" if loaded.limit is None else f", of the limit {loaded.limit}"
    people = [*expected_words(loaded), *unusable_groups(loaded, joint=True)]
    emit(
        render(*person, table, f"id {loaded.id}", *people, f"{over}. masquerade privacy {policy} shows more.")
    )


def _try_on(
    policy: Policy,
    name: str,
    data: list[str],
    dialect: tuple[str | None, str | None, str | None],
    *,
    json: bool,
) -> None:
    """Read data according to a policy; print a summary, or all problems, one line per column and problem.

    `name` is the policy file, for messages; `dialect` is the separator, decimal mark and encoding.
    """
    from masquerade.disguising.files import check_files  # noqa: PLC0415  (loads Arrow)
    from masquerade.frames.dialect import Dialect  # noqa: PLC0415

    with progress("reading"):
        try:
            rows, left_out, notes, missing = check_files(data, policy, dialect=Dialect(*dialect))
        except UnknownValue as error:
            for problem in error.problems:
                say(f"{problem.file}: {problem}.")
            raise InputError(
                f"{join_names(data)}: {counted(len(error.problems), 'problem')} with values; fix the data, "
                f"or state in {name} how to read them ('categories', 'missing', 'na', 'recode')."
            ) from None
    for note in notes:
        say(note)
    shares = [{"variable": name, "share": number / max(rows, 1)} for name, number in missing.items()]
    found = {"policy": policy.id, "rows": rows, "left_out": list(left_out), "missing": shares}
    texts = [f"{name} {percent(number / max(rows, 1))}" for name, number in missing.items()]
    absent = f" Missing answers: {join_names(texts, 12)}." if texts else ""
    omitted = f" Omitted, not in the policy: {join_names(left_out)}." if left_out else ""
    emit(found if json else f"{counted(rows, 'record')} can be read by {name}.{absent}{omitted}\n")


@app.command("convert")
def convert(
    policy: PolicyArgument,
    *,
    label: Annotated[str, option("New name of the category of missing values.", "TEXT")] = "missing",
    out: Out = None,
    overwrite: Overwrite = False,
) -> None:
    """Give missing values a name, in a policy that codes them as a number such as -1.

    Records that were disguised under the old policy are still read with the old policy: keep both.

    Example: masquerade policy convert old.yaml --out policy.yaml
    """
    from masquerade.channels.policy import text as policy_text  # noqa: PLC0415  (loads numpy)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", MasqueradeWarning)  # loading warns of the number converted here
        values = mq.Policy.load(policy).to_dict()
    changed = [name for name in values["variables"] if _name_missing(values, name, label)]
    if not changed:
        raise InputError(f"{policy}: no number codes missing values; there is nothing to convert.")
    mq.Policy.from_dict(values)
    emit(policy_text.write(values, "yaml"), out, overwrite=overwrite)
    say(f"missing values of {join_names(changed)} are now called {label!r}; the policy has a new id.")


def _name_missing(values: dict[str, Any], name: str, label: str) -> bool:
    """Name the numbers that represent missing values of a variable; return True if there were any.

    Data may still contain the numbers: the new policy reads them as missing.
    """
    entry = values["variables"][name]
    listed_labels = entry.get("missing")
    absent = listed_labels if isinstance(listed_labels, list) else [listed_labels]
    numbers = [item for item in absent if type(item) is int]
    if not numbers:
        return False
    names = {number: label if index == 0 else f"{label} {index + 1}" for index, number in enumerate(numbers)}

    def rename(labels: list[Any]) -> list[Any]:
        return [names.get(item, item) if type(item) is int else item for item in labels]

    new = rename(absent)
    entry["missing"] = new if isinstance(listed_labels, list) else new[0]
    if "categories" in entry:
        entry["categories"] = rename(entry["categories"])
        recode = {names.get(key, key): read for key, read in entry.get("recode", {}).items()}
        for number, text in names.items():
            recode[text] = [*recode.get(text, []), number]
        entry["recode"] = recode
    channel = entry.get("channel", {})
    if "groups" in channel:
        channel["groups"] = [rename(labels) for labels in channel["groups"]]
    strata = values.get("strata", {})
    if strata.get("by") == name:
        strata["channels"] = {names.get(key, key): specs for key, specs in strata["channels"].items()}
    return True


@app.command("id")
def identify(policy: PolicyArgument) -> None:
    """Print the id of a policy, which is the same for every spelling of the same mechanism."""
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
