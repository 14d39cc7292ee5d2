"""Outflows of a session, computed before a party consents, from its own files and without a connection.

They are an upper bound: every release that the ledger records in the session is covered by one of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import yaml

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.disguising.memo import Memo
from masquerade.services.common.release_ledger import FILE, Entry, inspect
from masquerade.services.parties.kinds import Outflow
from masquerade.services.parties.linkage import linking_outflows
from masquerade.services.parties.local_data import MEMO, restrict_policy
from masquerade.services.parties.person_limit import SessionTotal, limit_of, session_total
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import PartySettings, SessionNodeSettings, consent_values


@dataclass(frozen=True, slots=True)
class PlannedOutflow:
    """An expected release: recipient, kind, variables, γ, and whether the same data was released before.

    Reports that the recipient already has are sent again unchanged: they reveal nothing new.
    """

    recipient: str
    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    before: bool = False

    def covers(self, recipient: str, kind: str, variables: Iterable[str], gamma: Fraction | None) -> bool:
        """Return True if a release has the same recipient, kind and γ, and no further variables.

        Parameters
        ----------
        recipient, kind, gamma
            Recipient, kind and γ of the release.
        variables : iterable of str
            Variables that were released.

        Returns
        -------
        bool
            Whether this outflow covers the release.
        """
        same = (self.recipient, self.kind, self.gamma) == (recipient, kind, gamma)
        return same and set(variables) <= set(self.variables)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        gamma = None if self.gamma is None else str(self.gamma)
        return {
            "recipient": self.recipient,
            "kind": self.kind,
            "variables": list(self.variables),
            "gamma": gamma,
            "before": self.before,
        }


@dataclass(frozen=True, slots=True)
class OutflowPlan:
    """All outflows of a party in a session.

    Attributes
    ----------
    policy : Policy
        The policy of the variables that the party brings.
    items : tuple of PlannedOutflow
        The expected releases.
    unneeded : tuple of str
        Variables that the party consents to and the session does not need.
    differences : tuple of str
        Fields in which the party's consent differs from the session; unless empty, nothing leaves.
    consented : bool
        Whether the party's file has a consent to the session.
    person : SessionTotal
        Total that the session and all earlier releases reveal about one person.
    """

    policy: Policy
    items: tuple[PlannedOutflow, ...]
    unneeded: tuple[str, ...]
    differences: tuple[str, ...]
    consented: bool
    person: SessionTotal


def plan_outflows(spec: SessionSpec, settings: PartySettings, left: Sequence[Entry] = ()) -> OutflowPlan:
    """Return the outflows of a party in a session.

    Parameters
    ----------
    spec : SessionSpec
        The session.
    settings : PartySettings
        The party's file. Without a consent to the session, consent to all variables of its policy is assumed.
    left : sequence of Entry, optional
        The party's release ledger.

    Returns
    -------
    OutflowPlan
        The outflows, the variables that are not needed, and differences from the consent.

    Raises
    ------
    InputError
        If the node is not a party of the session.
    """
    if settings.name not in spec.parties:
        raise InputError(f"{settings.name!r} is not a party of session {spec.session!r}.")
    whole, consent = Policy.load(settings.data.policy), settings.consent(spec.session)
    variables = whole.schema.names if consent is None else consent.variables
    policy = restrict_policy(whole, variables, spec.needed_variables(variables))
    asked = set(spec.learn.needed_variables(policy.schema.names))
    items, sends = [], tuple(spec.kind.sends(spec, settings.name, policy))
    for recipient, item in (*_linking(spec), *sends):
        releases = [entry.release for entry in left if entry.release.recipient == recipient]
        before = item.policy is not None and any(
            (it.kind, it.variables, it.gamma) == (item.kind, item.variables, item.gamma) and it.policy
            for it in releases
        )
        items.append(PlannedOutflow(recipient, item.kind, item.variables, item.gamma, before))
    return OutflowPlan(
        policy,
        tuple(dict.fromkeys(items)),
        tuple(name for name in variables if name not in asked),
        () if consent is None else tuple(consent.differences(spec)),
        consent is not None,
        session_total(
            (entry.release for entry in left),
            sends,
            whole,
            draw=_draw(settings, whole),
            limit=limit_of(settings.limit, whole),
        ),
    )


def _draw(settings: PartySettings, policy: Policy) -> str:
    """Return the name of the draw of a party's reports; without a memo, they are yet to be drawn."""
    memo = settings.state / MEMO
    return f"{Memo.load(memo).id if memo.exists() else 'new'}:{policy.id}"


def draft_consent(spec: SessionSpec, settings: SessionNodeSettings) -> dict[str, Any]:
    """Return the consent of a party or helper to exactly this session, with the variables it needs."""
    name = settings.name
    if name == spec.helper:
        return consent_values(spec)
    if name not in spec.parties:
        raise InputError(
            f"{name!r} is neither a party nor the helper of session {spec.session!r}: it consents to nothing."
        )
    if not isinstance(settings, PartySettings):
        raise InputError(f"{name!r} is a party of session {spec.session!r}, but its file has no data.")
    variables = Policy.load(settings.data.policy).schema.names
    needed = spec.needed_variables(variables)
    return consent_values(spec, variables if needed is None else needed)


def _person_lines(spec: SessionSpec, settings: SessionNodeSettings) -> list[str]:
    """Describe what a session and all earlier releases reveal about one person; empty at a helper."""
    if not isinstance(settings, PartySettings) or settings.name not in spec.parties:
        return []
    left = inspect(settings.state)[0] if (settings.state / FILE).exists() else ()
    return plan_outflows(spec, settings, left).person.lines()


def consent_text(spec: SessionSpec, values: dict[str, Any], file: str, settings: SessionNodeSettings) -> str:
    """Return a consent as YAML for a node's file, below comments that describe the session."""
    goal = json.dumps(spec.learn.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
    lines = [
        f"# Consent to session {spec.session!r} by {spec.protocol}, convened by {spec.convener}.",
        f"# Learnt, and nothing else: {goal}",
        *(f"# {line}" for line in _person_lines(spec, settings)),
        f"# Put it below 'consents:' in {file}",
    ]
    return "\n".join(lines) + "\n" + yaml.safe_dump([values], sort_keys=False, allow_unicode=True)


def _linking(spec: SessionSpec) -> Iterator[tuple[str, Outflow]]:
    """Yield the outflows of linking; pseudonyms of a keyed session leave with cells, if at all."""
    if spec.linking == "intersection":
        for number in range(spec.linking_rounds):
            for item in linking_outflows(spec, number):
                yield spec.convener, item
