"""One policy from several: what records that come from several parties went through, and what they tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.channels.privacy import guarantee_of
from masquerade.core.errors import PolicyError
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.schema import Field


def combined(policies: Sequence[Policy]) -> Policy:
    """Return the policy over all variables; a variable in two policies must have the same channel in both.

    Strata are refused: a party's channels would depend on another party's column.
    """
    fields: dict[str, Field] = {}
    groups: dict[tuple[str, ...], Group] = {}
    for policy in policies:
        if policy.stratum_variable is not None:
            raise PolicyError("a policy with strata cannot be combined with other parties' policies.")
        for field in policy.fields:
            name = field.variable.name
            group = policy.group(name)
            known = groups.get(group.names)
            if name in fields and (fields[name] != field or known is None or not same(known, group)):
                raise PolicyError(
                    f"two parties have {name!r} with other categories or through other channels."
                )
            fields[name] = field
        groups |= {group.names: group for group in policy.groups}
    return Policy(list(fields.values()), channels_of(groups.values()))


def restricted(policy: Policy, names: Collection[str]) -> Policy:
    """Return the policy of some variables; those disguised together stay together."""
    kept = [group for group in policy.groups if any(name in names for name in group.names)]
    inside = {name for group in kept for name in group.names}
    for name in names:
        policy.schema[name]
    fields = [field for field in policy.fields if field.variable.name in inside]
    return Policy(fields, channels_of(kept))


def channels_of(groups: Collection[Group]) -> dict[tuple[str, ...], Channel]:
    """Return the channels that hide something or have labels of their own."""
    return {group.names: group.channel for group in groups if group.disguised or group.channel.labels}


def same(first: Group, second: Group) -> bool:
    """Tell whether two groups are the same mechanism."""
    return first.names == second.names and first.channel.fingerprint == second.channel.fingerprint


def seen_by(role: str, policy: Policy, own: Sequence[str] = ()) -> Guarantee:
    """Return who learns what: one role sees the reports of all variables but its own."""
    reports = guarantee_of(policy)
    disclosures = []
    for item in reports.disclosures:
        names = tuple(name for name in item.variables if name not in own)
        if names:
            disclosures.append(Disclosure(role, item.kind, names, item.gamma))
    return Guarantee(
        tuple(disclosures),
        (*reports.assumptions, f"{role} destroys pseudonyms as it joins, and keeps no order within a part"),
        {role: "malicious"},
        None,
        (),
        0,
    )
