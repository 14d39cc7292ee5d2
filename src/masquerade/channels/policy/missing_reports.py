"""Missing answers in the reports of a policy: their labels, and variables that send them in clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from masquerade.core.errors import PolicyError
from masquerade.core.schema import Field, Schema, Variable

if TYPE_CHECKING:
    from masquerade.channels.policy.group import Group

MOST_TOLD = 4096  # channels with more combinations are not searched for missing answers in clear


def report_field(variable: Variable) -> Field:
    """Return the field that reads a column of reports: an empty cell is the first missing category, if any.

    >>> report_field(mq.Variable("visits", (0, 1, "not stated"), ["not stated"])).missing
    'not stated'
    """
    return Field(variable, variable.missing[0] if variable.missing else None)


def clear_missing_in(group: Group, schema: Schema) -> tuple[str, ...]:
    """Return the variables of a group whose reports reveal with certainty whether the answer is missing."""
    candidates = [name for name in group.names if schema[name].missing]
    if not candidates or not group.disguised or group.response is not None:
        return ()
    if group.matrix_channel.truths > MOST_TOLD:
        return ()
    blocks = group.matrix_channel.blocks
    return tuple(
        name
        for name in candidates
        if all(len({_is_missing(group, schema, name, truth) for truth in block}) == 1 for block in blocks)
    )


def missing_classes(group: Group, schema: Schema) -> tuple[int, ...]:
    """Return the class of each truth that reports reveal: 0 for all answers, and one class per missing label.

    Empty if reports do not reveal whether the answer is missing.
    """
    if len(group.names) > 1 or not clear_missing_in(group, schema):
        return ()
    variable = schema[group.names[0]]
    return tuple(0 if code in variable.answered_codes else code + 1 for code in range(len(variable)))


def _is_missing(group: Group, schema: Schema, name: str, truth: int) -> bool:
    """Return True if a joint code has a missing category of the variable `name`."""
    for other, size in zip(reversed(group.names), reversed(group.sizes), strict=True):
        truth, code = divmod(truth, size)
        if other == name:
            return schema[name].categories[code] in schema[name].missing
    return False


def check_clear_missing(groups: Iterable[Group], fields: Mapping[str, Field], schema: Schema) -> None:
    """Raise PolicyError if reports reveal whether an answer is missing and the policy does not accept it."""
    for group in groups:
        for name in clear_missing_in(group, schema):
            if not fields[name].clear_missing or len(group.names) > 1:
                raise PolicyError(
                    f"variables.{name}: its reports show in clear whether the answer is missing, which can "
                    "give away the answer. Let missing answers go through the channel, too, or accept it: "
                    "'clear_missing: accepted', with a channel for the answers alone."
                )
            channel, answered = group.matrix_channel, schema[name].answered_codes
            if any(truth not in channel.row(truth) or len(channel.row(truth)) > 1
                   for truth in range(channel.truths) if truth not in answered):  # fmt: skip
                raise PolicyError(f"variables.{name}: a missing answer in clear must be reported unchanged.")
