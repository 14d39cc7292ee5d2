"""Text reports of simulations: results, costs, who was caught, and who learns what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from masquerade.cli.output import join_names, plain_table
from masquerade.core.util.formatting import counted, duration

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from masquerade.simulation import (
        Census,
        CensusComparison,
        Culprit,
        HiddenModel,
        HiddenStructureResult,
        KAnonymity,
        PopulationCost,
        PrivateAnswers,
        SuppressionRunResult,
    )

MOST_SHOWN = 12
BY = {"frequency": "frequency mining", "aggregation": "secure aggregation", "mix": "a mix"}


def users_text(result: Census, learnt: str) -> list[RenderableType]:
    """Format the result of a simulation of users."""
    lines = [
        f"{learnt} over {people(result.n)} by {BY[result.protocol]}: {result.counted:,} counted"
        + (f", {result.left:,} left" if result.left else "")
        + ".",
        _compared_text(result.compared, result.counted),
        *_caught_lines(result.caught),
        *(f"- {note}" for note in result.notes),
    ]
    return _add_costs(lines, [result.model.summary(), ""], result)


def k_anonymity_text(result: KAnonymity) -> list[RenderableType]:
    """Format the result of a simulation of k-anonymity (formulation 1)."""
    lines = [
        (
            f"k-anonymity over {people(result.n)}, formulation 1, {result.mode}, k = {result.k}: "
            f"{counted(result.opened, 'row')} of {counted(result.classes, 'class', 'classes')} "
            f"{'is' if result.opened == 1 else 'are'} open{_left(result)}."
        ),
        *(f"- {n:,} not open: {why}." for why, n in result.closed.items()),
        f"Quasi-identifiers: {join_names(result.quasi)}; sensitive: {join_names(result.sensitive)}.",
        (
            "The opened rows are exactly the rows that the clear table of all good reports would show."
            if result.as_expected
            else "Bad reports prevented rows from opening: the clear table of good reports would show more."
        ),
        *_caught_lines(result.faults),
    ]
    unnamed = result.cheated - len({fault.name for fault in result.faults})
    if unnamed > 0:
        why = "their classes stay closed, and there a bad share looks like any other"
        lines.append(f"Not identified: {counted(unnamed, 'more cheater')}; {why}.")
    return _add_costs(lines, [], result)


def hidden_text(result: HiddenStructureResult, clear: Mapping[str, tuple[str, ...]]) -> list[RenderableType]:
    """Format the result of a structure search on shares, compared with the same search on joined records."""
    table = plain_table("What opened", ["variable", "owner", "parents"])
    holder = {name: owner for owner, names in result.owners.items() for name in names}
    for name, given in result.structure.items():
        table.add_row(name, holder[name], ", ".join(given) or "none")
    wrong = [name for name, given in result.structure.items() if clear[name] != given]
    same = (
        f"Different parents from those on joined records: {join_names(wrong)}."
        if wrong
        else "As on joined records."
    )
    cost = result.cost
    lines = [
        (
            f"The structure of {counted(len(holder), 'variable')} over {people(result.n)} "
            f"of {join_names(list(result.owners))}, by {result.score}, on shares. {same}"
        ),
        (
            f"{cost.rounds:,} rounds, {cost.sent / 1e6:,.1f} MB between owners, "
            + (f"{cost.dealt / 1e6:,.1f} MB from the helper, " if cost.dealt else "no helper, ")
            + f"{duration(result.seconds)} {'in this process' if cost.dealt else 'on this machine'}. "
            f"Opened: at most {result.bits_told} bits, no count."
        ),
    ]
    learns = "\n".join(["Who learns what", *(f"- {line}" for line in result.guarantee.summary().split("\n"))])
    return ["\n".join(lines), "", table, "", learns]


def control_text(result: PrivateAnswers) -> list[RenderableType]:
    """Format the answers to private queries."""
    table = plain_table("What the client learnt", ["question"], ["people"])
    for where, count in zip(result.questions, result.counts, strict=True):
        cell = ", ".join(f"{name} = {label}" for name, label in where.items())
        table.add_row(cell, "refused" if count is None else f"{count:,}")
    cost, rules = result.cost, result.rules
    refused = sum(count is None for count in result.counts)
    lines = [
        (
            f"{counted(len(result.counts), 'question')} about {people(result.n)}, {refused:,} refused: cells "
            f"of fewer than {people(rules.least_people)}, or with more than {rules.most_overlap:,} in common "
            "with an answered cell."
        ),
        (
            f"{cost.rounds:,} rounds, {_size(result.key_bytes)} of keys, {_size(cost.sent)} between servers, "
            f"{_size(cost.dealt)} from the helper, {duration(result.seconds)} in this process."
        ),
    ]
    learns = "\n".join(["Who learns what", *(f"- {line}" for line in result.guarantee.summary().split("\n"))])
    return ["\n".join(lines), "", table, "", learns]


def hidden_model_text(result: HiddenModel[Any], what: str, *, same: bool) -> list[RenderableType]:
    """Format a tree or clusters learnt on shares, compared with the same learner on joined records."""
    cost = result.cost
    compared = (
        "As on joined records."
        if same
        else "Different from the result on joined records. With k-means, steps may be too few, or clusters "
        "too small."
    )
    lines = [
        f"{what} over {people(result.n)} of {join_names(list(result.owners))}, on shares. {compared}",
        (
            f"{cost.rounds:,} rounds, {cost.sent / 1e6:,.1f} MB between owners, {cost.dealt / 1e6:,.1f} MB "
            f"from the helper, {duration(result.seconds)} in this process."
        ),
    ]
    learns = "\n".join(["Who learns what", *(f"- {line}" for line in result.guarantee.summary().split("\n"))])
    return ["\n".join(lines), "", result.model.summary(), "", learns]


def suppression_text(result: SuppressionRunResult) -> list[RenderableType]:
    """Format the result of a simulation of formulation 2, with its table of groups."""
    cells = len(result.rows) * len(result.quasi)
    lines = [
        (
            f"k-anonymity over {people(result.n)}, formulation 2, k = {result.k}: "
            f"{counted(len(result.rows), 'row')} in {counted(result.groups, 'group')}, "
            f"{result.suppressed:,} of {counted(cells, 'cell')} suppressed{_left(result)}."
        ),
        (
            f"The table {'equals' if result.as_expected else 'differs from'} the table that the algorithm "
            "makes from all clear rows."
        ),
        *_caught_lines(result.faults),
    ]
    return _add_costs(lines, [_released_table(result)], result)


def _add_costs(
    lines: list[str], middle: list[RenderableType], result: Census | KAnonymity | SuppressionRunResult
) -> list[RenderableType]:
    """Combine the sections of a report, and append those of all simulations: costs, and who learns what."""
    learns = "\n".join(["Who learns what", *(f"- {line}" for line in result.guarantee.summary().split("\n"))])
    return ["\n".join(lines), "", *middle, _cost_table(result.cost), _cost_note(result.cost), "", learns]


def _left(result: KAnonymity | SuppressionRunResult) -> str:
    return f"; {people(result.left)} left" if result.left else ""


def _released_table(result: SuppressionRunResult) -> Table:
    """Return a table of the distinct released rows and their counts."""
    table = plain_table("The released table", result.quasi, ["rows"])
    found = Counter(result.rows)
    for row, times in list(found.items())[:MOST_SHOWN]:
        table.add_row(*("*" if value is None else value for value in row), f"{times:,}")
    if len(found) > MOST_SHOWN:
        table.add_row(f"… {len(found) - MOST_SHOWN:,} more")
    return table


def people(number: int) -> str:
    """Format a number of people."""
    return counted(number, "person", "people")


def _compared_text(found: CensusComparison, number: int) -> str:
    whom = f"the clear records of the {people(number)} counted"
    if found.equal:
        return f"The model equals that of {whom}: all {found.counts:,} counts are the same."
    text = (
        f"The model differs from that of {whom}: {found.differing:,} of {found.counts:,} counts differ, "
        f"the most by {found.largest:+,.6g} ({found.where})"
    )
    if found.errors is not None:
        text += f"; at most {found.errors:.2f} standard errors of the disguise"
    return text + "."


def _caught_lines(caught: Sequence[Culprit]) -> list[str]:
    reasons = dict.fromkeys(culprit.why for culprit in caught)
    return [
        f"Caught: {join_names([culprit.name for culprit in caught if culprit.why == why])} ({why})."
        for why in reasons
    ]


def _cost_table(cost: PopulationCost) -> Table:
    table = plain_table("What it cost", [""], ["processor time", "sent", "received"])
    person, sent, received = cost.client_seconds, cost.sent, cost.received
    table.add_row("a person, on average", duration(person.mean), _size(sent.mean), _size(received.mean))
    table.add_row("a person, at worst", duration(person.worst), _size(sent.worst), _size(received.worst))
    for role, seconds in cost.roles.items():
        table.add_row(role, duration(seconds), "", "")
    return table


def _cost_note(cost: PopulationCost) -> str:
    whom = f"{people(cost.measured_on)} who shared no work"
    rounds = counted(cost.rounds, "round")
    clock = f"{duration(cost.wall)} of wall-clock time, all in one process"
    return f"{rounds}, {clock}. A person’s time was measured on {whom}."


def _size(count: float) -> str:
    """Format a number of bytes.

    >>> _size(251), _size(22860), _size(3_000_000)
    ('251 B', '22.9 kB', '3.0 MB')
    """
    if count < 1000:
        return f"{count:,.0f} B"
    return f"{count / 1000:,.1f} kB" if count < 1e6 else f"{count / 1e6:,.1f} MB"
