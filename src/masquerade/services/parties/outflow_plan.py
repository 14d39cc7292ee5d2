"""What a party would send in a session, told before it consents: from its own files, nobody is asked.

It is the most that can leave: what is sent is written into the release ledger, and never more than this.
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
from masquerade.services.common.release_ledger import Entry
from masquerade.services.parties.kinds import Outflow
from masquerade.services.parties.linkage import MASKED_KEYS, PSEUDONYMS
from masquerade.services.parties.local_data import brought
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import PartySettings, SessionNodeSettings, consent_values


@dataclass(frozen=True, slots=True)
class Planned:
    """Something that would leave: to whom, what, of which variables, γ, and whether it has left before.

    Reports that a recipient has already are the same ones: sent again they tell nothing new.
    """

    recipient: str
    kind: str
    variables: tuple[str, ...]
    gamma: Fraction | None
    before: bool = False

    def covers(self, recipient: str, kind: str, variables: Iterable[str], gamma: Fraction | None) -> bool:
        """Tell whether a release is part of it."""
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
    """All that a party would send: the policy of what it brings, what leaves, what is not needed.

    `differences` are what its consent says otherwise than the session: with any, nothing leaves.
    """

    policy: Policy
    items: tuple[Planned, ...]
    unneeded: tuple[str, ...]
    differences: tuple[str, ...]
    consented: bool


def planned(spec: SessionSpec, settings: PartySettings, left: Sequence[Entry] = ()) -> OutflowPlan:
    """Return what a party would send in a session; `left` is what has left it before.

    Without a consent in its file, it is what would leave if it consented to all variables of its policy.
    """
    if settings.name not in spec.parties:
        raise InputError(f"{settings.name!r} is no party of session {spec.session!r}.")
    whole, consent = Policy.load(settings.data.policy), settings.consent(spec.session)
    variables = whole.schema.names if consent is None else consent.variables
    policy = brought(whole, variables, spec.needed(variables))
    asked = set(spec.learn.needed(policy.schema.names))
    items = []
    for recipient, item in (*_linking(spec), *spec.kind.sends(spec, settings.name, policy)):
        releases = [entry.release for entry in left if entry.release.recipient == recipient]
        before = item.policy is not None and any(
            (it.kind, it.variables, it.gamma) == (item.kind, item.variables, item.gamma) and it.policy
            for it in releases
        )
        items.append(Planned(recipient, item.kind, item.variables, item.gamma, before))
    return OutflowPlan(
        policy,
        tuple(dict.fromkeys(items)),
        tuple(name for name in variables if name not in asked),
        () if consent is None else tuple(consent.differences(spec)),
        consent is not None,
    )


def written_consent(spec: SessionSpec, settings: SessionNodeSettings) -> dict[str, Any]:
    """Return the consent of a party or helper to exactly this session, with the variables that it needs."""
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
    needed = spec.needed(variables)
    return consent_values(spec, variables if needed is None else needed)


def consent_text(spec: SessionSpec, values: dict[str, Any], file: str) -> str:
    """Return a consent as YAML for a node's file, with what it is to in words above."""
    goal = json.dumps(spec.learn.model_dump(mode="json", exclude_defaults=True), ensure_ascii=False)
    lines = [
        f"# Consent to session {spec.session!r} by {spec.protocol}, convened by {spec.convener}.",
        f"# Learnt, and nothing else: {goal}",
        f"# Put it below consents: in {file}",
    ]
    return "\n".join(lines) + "\n" + yaml.safe_dump([values], sort_keys=False, allow_unicode=True)


def _linking(spec: SessionSpec) -> Iterator[tuple[str, Outflow]]:
    """Yield what linking takes; pseudonyms of a shared key leave with cells, if any do."""
    if spec.linking == "intersection":
        yield spec.convener, MASKED_KEYS
        yield spec.convener, PSEUDONYMS
