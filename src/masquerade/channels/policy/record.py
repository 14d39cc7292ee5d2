"""The reports that a record consists of under a policy, and γ over all of them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

from masquerade.channels import measures
from masquerade.channels.policy.missing_reports import missing_classes
from masquerade.core.record_gamma import FollowUp, Gamma, RecordPart, largest_record_gamma

if TYPE_CHECKING:
    from masquerade.channels.policy.group import Group
    from masquerade.channels.policy.policy import Policy
    from masquerade.core.schema import Category


def record_gamma(policy: Policy, follow_ups: Iterable[FollowUp] = ()) -> Gamma:
    """Return γ over all disguised variables of a record, given its variables in clear.

    Parameters
    ----------
    policy : Policy
        The policy; the result is the largest γ of its strata.
    follow_ups : iterable of FollowUp, optional
        Questions that depend on earlier answers, such as `show_if` of a survey.

    Returns
    -------
    Fraction or float
        γ, exactly; infinite if unbounded, as for a variable that is disguised in one stratum and clear in
        another.

    Examples
    --------
    >>> record_gamma(mq.data.students_policy())
    Fraction(12, 1)
    """
    return largest_record_gamma(record_parts(policy), policy.stratum_variable, follow_ups)


def record_parts(policy: Policy) -> dict[int, list[RecordPart]]:
    """Return the reported parts of a record, by the code of its stratum."""
    by = policy.stratum_variable
    return {
        0 if by is None else _code(policy, by, stratum): [
            _part(group, policy) for group in policy.groups_of(stratum)
        ]
        for stratum in policy.strata or (None,)
    }


def _code(policy: Policy, by: str, stratum: Category | None) -> int:
    assert stratum is not None  # noqa: S101  (for the type checker: a policy with `by` has strata)
    return policy.schema[by].code(stratum)


def _part(group: Group, policy: Policy) -> RecordPart:
    """Return the part of a record that one group reports."""
    channel = group.channel
    if not group.disguised:
        return RecordPart(group.names, group.sizes, math.inf, clear=True)
    if group.response is not None:
        return RecordPart(group.names, group.sizes, channel.gamma)
    return RecordPart(
        group.names,
        group.sizes,
        gamma_of(group, policy),
        chances=group.matrix_channel.row,
        reports=group.matrix_channel.reports,
        shown=missing_classes(group, policy.schema),
    )


def gamma_of(group: Group, policy: Policy) -> Gamma:
    """Return γ of one group's channel, within the classes of truths that reports reveal."""
    clear_classes = missing_classes(group, policy.schema)
    if not clear_classes:
        return group.channel.gamma
    classes: dict[int, list[int]] = {}
    for truth, index in enumerate(clear_classes):
        classes.setdefault(index, []).append(truth)
    return max(measures.gamma(group.matrix_channel, truths) for truths in classes.values())
