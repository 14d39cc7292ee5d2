"""Draft a policy from clear data. The draft lists the observed values and leaves all decisions to the user.

Categories come from the policy, never silently from data: a draft is refused until the user has edited it.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import yaml

from masquerade.channels.designs import bin_labels
from masquerade.channels.policy import text as policy_text
from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.core.util.formatting import percent
from masquerade.disguising.column_summary import MOST_CATEGORIES, ColumnSummary
from masquerade.disguising.draft_bins import BINS, cut_points, plain, round_bins
from masquerade.disguising.draft_dates import HINT, all_periods, date_lines

LONGEST_LABEL = 80
FEW = 5  # up to this number of values, all may be distinct by chance
MANY_ROWS = 1000
REPEATS = 20  # numbers with decimals are categories if each occurs at least this often on average
WIDTH = 105  # width of comments in the draft
_IDENTIFIER = re.compile(
    r"(?:^|[\W_])(?:id|ids|uuid|guid|ssn|iban|passport|e-?mail|phone|mobile|address|street|name|surname|"
    r"(?:first|last|full|user)_?name|nachname|vorname|kennung|telefon|adresse|stra(?:ss|ß)e)(?:$|[\W_])",
    re.IGNORECASE,
)

LIMIT_HEADER = """\
# A policy drafted from data. Settle every DECIDE below before it is used: are these all the categories that
# may ever occur? Only those that were seen are listed, and such a list reveals something about the data.
# Remove what nobody will count, and draft again: every variable takes a part of the limit.
"""
REFUSED = "masquerade refuses it until every DECIDE below is settled."
SETTLE = "Settle every DECIDE below before it is used."
HEADER = f"""\
# A policy drafted from data. {REFUSED}
#
# Decide for each variable:
#  1. Are these all the categories that may ever occur? Only those that were seen are listed, and such a list
#     reveals something about the data: give the full code list of the variable instead.
#  2. Is it sensitive, and which guarantee does it need? Put a channel in place of {{kind: decide}}, such as
#       channel: {{kind: for_gamma, gamma: 19}}      # no belief of 5% can rise above 50%
#       channel: {{kind: symmetric, p: 0.3}}         # kept with 70%, else any other, equally likely
#     or remove the 'channel' line: then the variable is released in clear.
#  3. Is it needed at all? Remove what nobody will count: every variable adds to what a record reveals.
#
# Afterwards: masquerade policy check FILE, masquerade privacy FILE.
"""


@dataclass(frozen=True)
class Draft:
    """The variables of a policy, drafted from data, before their channels are decided.

    Parameters
    ----------
    entries : mapping of str to list of str
        For each variable the lines of YAML that state how it is read.
    left_out : mapping of str to str
        The columns that are not variables, each with the reason.
    rows : int
        Number of records.
    """

    entries: Mapping[str, Sequence[str]]
    left_out: Mapping[str, str]
    rows: int

    def variables(self) -> dict[str, Any]:
        """Return the variables as plain values, without channels."""
        text = "\n".join(self._lines({}))
        values: dict[str, Any] = policy_text.parse(text, "yaml")
        return {"masquerade": 1, **values}

    def to_yaml(
        self,
        header: str,
        channels: Mapping[str, Sequence[str]],
        head: Mapping[str, Any] | None = None,
        tail: Sequence[str] = (),
    ) -> str:
        """Return the policy file.

        Parameters
        ----------
        header : str
            Comments at the top.
        channels : mapping of str to sequence of str
            Lines about the channel of each variable.
        head : mapping, optional
            Further keys of the file, before the variables.
        tail : sequence of str, optional
            Lines after the variables.
        """
        lines = [header, "masquerade: 1"]
        lines += [f"{key}: {_in_one_line(value)}" for key, value in (head or {}).items()]
        lines += [*self._lines(channels), *tail]
        if self.left_out:
            lines += ["", "# Left out (a released record has none of these):"]
            lines += [
                f"#   {quote_label(name, key=True)}: {reason}" for name, reason in self.left_out.items()
            ]
        return "\n".join(lines) + "\n"

    def _lines(self, channels: Mapping[str, Sequence[str]]) -> list[str]:
        lines = ["variables:"]
        for name, entry_lines in self.entries.items():
            rows = [*entry_lines, *channels.get(name, ())]
            lines += [f"  {quote_label(name, key=True)}:", *(f"    {line}" for line in rows)]
        return lines


def draft_variables(
    columns: Sequence[ColumnSummary],
    *,
    groups: Mapping[str, Sequence[float]] | None = None,
    named: Iterable[str] = (),
    most_categories: int | None = None,
) -> Draft:
    """Draft the variables of a policy from summaries of columns.

    Parameters
    ----------
    columns : sequence of ColumnSummary
    groups : mapping, optional
        Cut points of numbers that are already grouped, for example by MGAS.
    named : iterable of str, optional
        Columns that the user named. They become variables whatever their name or number of categories.
    most_categories : int, optional
        Text columns with more categories than this are left out. Numbers get about half as many bins.

    Returns
    -------
    Draft

    Raises
    ------
    InputError
        If no column can be a variable.
    """
    known, wanted = groups or {}, set(named)
    left_out: dict[str, str] = {}
    entries: dict[str, list[str]] = {}
    bins = BINS if most_categories is None else max(most_categories // 2, 2)
    for column in columns:
        why = "" if column.name in known else reason_against(column, named=column.name in wanted)
        if not why and most_categories is not None and column.name not in wanted:
            why = _too_many(column, most_categories)
        if why:
            left_out[column.name] = why
        else:
            entries[column.name] = entry(column, known.get(column.name), bins=bins)
    if not entries:
        why = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:3])
        raise InputError(
            f"No column can be drafted as a variable ({why})."
            if why
            else "The data have no records to draft from."
        )
    return Draft(entries, left_out, max((column.seen_rows for column in columns), default=0))


def _too_many(column: ColumnSummary, most: int) -> str:
    """Return the reason if a column has too many categories to count in pairs, otherwise ""."""
    categories = 0 if _binned(column, most) or column.values is None else len(column.values)
    if categories <= most:
        return ""
    return f"{categories} categories are too many to count well under one limit; --sensitive includes it"


def draft_per_answer(draft: Draft, epsilon: float | None = None) -> str:
    """Return a policy in YAML with one channel per variable, or with a decision left open for each.

    Parameters
    ----------
    draft : Draft
    epsilon : float, optional
        The ε of every variable. Without it, the user decides on each channel.
    """
    header, channel = HEADER, ["# DECIDE: which guarantee it needs", "channel: {kind: decide}"]
    if epsilon is not None:
        spent = f"{math.floor(epsilon * 1e6 + 1e-7) / 1e6:.6f}".rstrip("0").rstrip(".")
        channel = [
            "# ε of this variable alone: over a record all of them add up",
            f"channel: {{kind: for_epsilon, epsilon: {spent}}}",
        ]
        header = header.replace(REFUSED, SETTLE)
    return draft.to_yaml(header, dict.fromkeys(draft.entries, channel))


def draft_with_limit(
    draft: Draft, costs: Sequence[str], head: Mapping[str, Any], parts: Mapping[str, Any]
) -> str:
    """Return a policy in YAML whose channels spend one limit on all variables.

    Parameters
    ----------
    draft : Draft
    costs : sequence of str
        Descriptions of the guarantee and its cost, for the comments at the top.
    head : mapping
        The keys `limit` and `clear`.
    parts : mapping
        The channels: 'variables', 'joint' and 'blocks' in the form of a policy file.
    """
    channels = {name: [f"channel: {_in_one_line(spec)}"] for name, spec in parts.get("variables", {}).items()}
    comments = "".join(f"# {part}".rstrip() + "\n" for line in costs for part in _wrap(line))
    return draft.to_yaml(f"{LIMIT_HEADER}#\n{comments}", channels, head, _tail_lines(parts))


def _wrap(line: str) -> list[str]:
    """Return a sentence wrapped to the width of comments; an indented table row is unchanged."""
    if line.startswith(" "):
        return [line]
    # a name may contain a YAML line break, which would end the comment
    return textwrap.wrap(" ".join(line.split()), WIDTH, break_on_hyphens=False)


def _tail_lines(parts: Mapping[str, Any]) -> list[str]:
    """Return joint channels and blocks as lines of YAML, one line per channel and per block of a design."""
    lines: list[str] = []
    if "joint" in parts:
        lines += ["joint:", *(f"  - {_in_one_line(entry)}" for entry in parts["joint"])]
    for block in parts.get("blocks", ()):
        own = {key: value for key, value in block.items() if key != "design"}
        first, *rest = (f"{key}: {_in_one_line(value)}" for key, value in own.items())
        lines += ["blocks:", f"  - {first}", *(f"    {line}" for line in rest)]
        if "design" in block:
            lines.append("    design:  # the blocks that are dealt, and how often")
            lines += [f"      - {_in_one_line(entry)}" for entry in block["design"]]
    return lines


def _in_one_line(value: Any) -> str:
    text = yaml.safe_dump(
        policy_text.plain_values(value),
        default_flow_style=True,
        width=math.inf,
        allow_unicode=True,
        sort_keys=False,
    )
    return str(text).removesuffix("...\n").strip()


def reason_against(column: ColumnSummary, *, named: bool = False) -> str:
    """Return the reason if a column is not a variable, else "". A `named` column's name is not checked."""
    several = column.values is None or len(column.values) > FEW
    no_repeat = several and not column.repeats
    constant = column.values is not None and len(column.values) == 1
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name)
    by_kind = {"text": _against_text, "whole": _against_numbers, "number": _against_numbers}
    reasons = (
        (column.rows == 0, "has no values"),
        (column.kind == "other" and column.is_date, HINT),
        (column.kind == "other", "lists and the like: turn it into text or numbers first"),
        (not named and _IDENTIFIER.search(words) is not None, "looks like an identifier by its name"),
        (constant, "has one value only, so it carries no information"),
    )
    found = next((reason for holds, reason in reasons if holds), "")
    return found or (by_kind[column.kind](column, no_repeat=no_repeat) if column.kind in by_kind else "")


def _against_text(column: ColumnSummary, *, no_repeat: bool) -> str:
    if column.is_date and (column.values is None or no_repeat):
        return HINT
    if column.values is None and column.date is not None:
        return f"more than {MOST_CATEGORIES} {column.date.unit}s: read the dates as years or ages"
    if column.values is None:
        return f"more than {MOST_CATEGORIES} different texts; if it is a code, list all its categories"
    if max(len(str(value)) for value in column.values) > LONGEST_LABEL:
        return "looks like free text"
    return "no text occurs twice: looks like names or free text" if no_repeat else ""


def _against_numbers(column: ColumnSummary, *, no_repeat: bool) -> str:
    dense = column.high - column.low < 2 * column.rows
    if column.kind == "whole" and no_repeat and (dense or column.rows >= MANY_ROWS):
        return "no number occurs twice: looks like an identifier"
    labels = (
        bin_labels(list(map(float, round_bins(column.low, column.high, column.sample))))
        if _binned(column)
        else ()
    )
    if len(set(labels)) < len(labels):
        return "the numbers are too large for their narrow range: shift or scale them first"
    return ""


def _binned(column: ColumnSummary, most: int = MOST_CATEGORIES) -> bool:
    if column.kind == "number":
        return not column.values or column.rows < REPEATS * len(column.values)
    several = column.values is None or len(column.values) > FEW
    many = column.values is None or len(column.values) > most
    return column.kind == "whole" and (many or (several and not column.repeats))


def entry(column: ColumnSummary, groups: Sequence[float] | None = None, *, bins: int = BINS) -> list[str]:
    """Return the lines that state how a variable is read.

    Parameters
    ----------
    column : ColumnSummary
    groups : sequence of float, optional
        Cut points that are already known.
    bins : int, optional
        Approximate number of bins for numbers.
    """
    lines = date_lines(column.date)
    if groups is not None or _binned(column, MOST_CATEGORIES if bins == BINS else 2 * bins):
        if groups is None:
            cuts = round_bins(column.low, column.high, column.sample, bins)
            if cuts != cut_points(column.low, column.high, bins):
                lines.append(
                    "# bins with about equal numbers of records: the cut points reveal something about them"
                )
        else:
            cuts = [Decimal(repr(edge)) for edge in groups]
            lines.append("# grouped by MGAS from these data: the cut points reveal something about them")
        lines.append("# DECIDE: cut points; a number outside them is refused, so cover all that may occur")
        lines.append(f"bins: [{', '.join(map(plain, cuts))}]")
        lines += _missing_lines(column, is_listed=False)
    else:
        labels = [*_answers(column), *column.missing_labels]
        lines.append("# DECIDE: all categories that may occur, not only those seen")
        lines.append(f"categories: [{', '.join(map(quote_label, labels))}]")
        if column.kind == "number" or (column.kind == "whole" and len(column.values or ()) > BINS):
            edges = ", ".join(map(plain, round_bins(column.low, column.high, column.sample)))
            lines.append(f"# or, as a number, in place of the categories:  bins: [{edges}]")
        lines += _missing_lines(column, is_listed=True)
    if column.na:
        lines.append("# DECIDE: these texts look like empty cells; they are read as missing")
        lines.append(f"na: [{', '.join(map(quote_label, column.na))}]")
    if column.recodes:
        lines.append("# DECIDE: these look like typing errors; they are read as the category before them")
        lines.append("recode:")
        for label, worse in column.recodes.items():
            lines.append(f"  {quote_label(label)}: [{', '.join(map(quote_label, worse))}]")
    return lines


def _answers(column: ColumnSummary) -> Sequence[Category]:
    """Return the categories seen; of quarters and months all from the first to the last."""
    if column.date is None or column.kind != "text" or not column.values:
        return column.values or ()
    return all_periods(column.date, column.values)


def _missing_lines(column: ColumnSummary, *, is_listed: bool) -> list[str]:
    """Return the lines about missing values: their share, and the categories that they become."""
    labels = column.missing_labels
    if not labels:
        return []
    of_these = "these categories" if len(labels) > 1 else "this category"
    become = of_these if is_listed else ("one more category" if len(labels) == 1 else "more categories")
    share, listed = percent(column.missing_share), ", ".join(map(quote_label, labels))
    return [
        f"# DECIDE: {share} of the values are missing; they become {become} (else they are refused)",
        f"missing: {listed}" if len(labels) == 1 else f"missing: [{listed}]",
    ]


def quote_label(label: Category, *, key: bool = False) -> str:
    """Return a label, or a name, as YAML text on one line."""
    if not isinstance(label, str):
        return str(label).lower()
    if (
        key
        and re.fullmatch(r"[A-Za-z_]\w*", label, re.ASCII)
        and label.lower() not in {"true", "false", "null"}
    ):
        return label
    return str(yaml.safe_dump(label, default_style='"', allow_unicode=True, width=math.inf)).strip()
