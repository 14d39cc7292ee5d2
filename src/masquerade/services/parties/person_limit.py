"""Total disclosure about one person, including a planned session, compared with the party's limit.

- Reports count once per draw: sending the same reports again reveals nothing new, and reports under another
  policy multiply γ.
- Exact results (counts, parameters, models) have no γ. If the policy leaves a variable in clear, the owner
  has accepted exact results about it. If the policy disguises the variable, the consent needs
  `clear: accepted`, as it does for anything above the limit. In both cases the variable counts as clear.
- Sums with noise add their ε to ln γ. The consent accepts their δ, since it states `noise:` in full; the δ is
  shown with the total.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit, parse_limit
from masquerade.core.errors import QueryRefused, Refusal
from masquerade.core.record_gamma import Gamma, describe_clear_missing
from masquerade.services.common.ledger_totals import PersonTotal, person_total
from masquerade.services.common.release_ledger import ABOUT_ITSELF, CLEAR, KEYS, Release

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.kinds import Outflow
    from masquerade.services.parties.session import SessionSpec

BEYOND = "beyond_limit"


@dataclass(frozen=True, slots=True)
class SessionTotal:
    """Total that a party has released about one person, together with a planned session.

    Parameters
    ----------
    total : PersonTotal
        Total over all earlier releases and the session. Exact results count as clear.
    limit : PrivacyLimit
        The limit of the party for one person, with the δ that its consents to noise accept.
    exact : tuple of str
        Variables that the policy disguises, and about which the session reveals exact results.
    adds : bool
        Whether the session reveals anything that was not released before.
    clear_missing : tuple of str
        Variables among those sent whose missing answers the policy sends in clear.
    """

    total: PersonTotal
    limit: PrivacyLimit
    exact: tuple[str, ...]
    adds: bool
    clear_missing: tuple[str, ...] = ()

    @property
    def is_beyond(self) -> bool:
        """Return True if old and new reports together exceed the limit, and the session adds to them."""
        return self.adds and not self.total.is_within(self.limit)

    @property
    def needs_clear(self) -> bool:
        """Return True if the session needs `clear: accepted` in the consent."""
        return self.is_beyond or bool(self.exact)

    def lines(self) -> list[str]:
        """Return sentences about the total for a person, and about what the session needs to be accepted."""
        first = describe_clear_missing(self.clear_missing)
        lines = [*([first] if first else []), *self.total.lines(self.limit)]
        if self.exact:
            lines.append(
                f"The policy disguises {', '.join(self.exact)}, but results of this session about them are "
                "exact: they count as clear."
            )
        if self.needs_clear:
            lines.append("The session is refused unless the consent says 'clear: accepted'.")
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            **self.total.to_dict(self.limit),
            "exact": list(self.exact),
            "missing_in_clear": list(self.clear_missing),
            "needs_clear_accepted": self.needs_clear,
        }

    def check(self, spec: SessionSpec, *, is_clear_accepted: bool) -> None:
        """Raise QueryRefused if the session needs `clear: accepted` and the consent does not state it.

        The message goes to the convener, so it contains no numbers of earlier releases.
        """
        if self.needs_clear and not is_clear_accepted:
            reason = (
                f"Session {spec.session!r} would reveal more about a person than this node's limit. Its "
                "operator sees the total with 'masquerade session plan', and can accept it in the consent "
                "(clear: accepted)."
            )
            raise QueryRefused([Refusal(BEYOND, reason)])


def limit_of(stated: str | None, policy: Policy) -> PrivacyLimit:
    """Return the limit that a party states, or else the limit of its policy, or else 5%:50%."""
    return parse_limit(stated) if stated is not None else policy.limit or DEFAULT_LIMIT


def session_total(
    left: Iterable[Release],
    sends: Iterable[tuple[str, Outflow]],
    whole: Policy,
    *,
    draw: str,
    limit: PrivacyLimit,
) -> SessionTotal:
    """Add the planned outflows of a session to the party's earlier releases.

    Parameters
    ----------
    left : iterable of Release
        The ledger of the party.
    sends : iterable of (str, Outflow)
        Upper bounds on what the session would send, with their recipients.
    whole : Policy
        The policy of the party, over all of its variables: its record γ bounds all reports of one draw.
    draw : str
        Name of the draw of its reports.
    limit : PrivacyLimit
        The limit of the party for one person.
    """
    before = [one for one in left if one.kind not in ABOUT_ITSELF and one.variables != KEYS]
    items = [(who, item) for who, item in sends if item.variables and item.variables != KEYS]
    reports = [(who, item) for who, item in items if item.gamma is not None]
    new = [_release(who, item, draw if item.policy else None) for who, item in reports if item.gamma != 1]
    noisy = [_release(who, item, None) for who, item in reports if item.epsilon is not None]
    exact = {name for _, item in items if item.gamma is None for name in item.variables}
    of_draw = [one for one in (*before, *new) if one.draw == draw and one.gamma is not None]
    others = [one for one in before if one.draw != draw or one.gamma is None]
    merged = [_merge_draw(of_draw, whole.record_gamma)] if of_draw else []
    fresh = [one for one in new if one.draw is None]
    clear = [_release(who, item, None) for who, item in items if item.gamma is None]
    counted = [one if one.gamma is not None else replace(one, kind=CLEAR) for one in (*others, *clear)]
    sent = {name for one in before if one.draw == draw for name in one.variables}
    adds = bool(noisy) or any(not set(one.variables) <= sent or one.draw is None for one in new)
    total = person_total([*counted, *merged, *fresh, *noisy])
    return SessionTotal(
        total,
        replace(limit, delta=max(limit.delta, total.delta)),
        tuple(name for name in whole.disguised if name in exact),
        adds,
        tuple(name for name in whole.clear_missing if any(name in item.variables for _, item in reports)),
    )


def _release(recipient: str, item: Outflow, draw: str | None) -> Release:
    """Return a planned release; its number of records is not used here, and set to 0."""
    noise = (item.epsilon, item.delta)
    what = (item.kind, item.variables, 0, item.policy, item.gamma)
    return Release("planned", "session", recipient, *what, None, draw, *noise)


def _merge_draw(releases: list[Release], most: Gamma) -> Release:
    """Return all reports of one draw as one release; its γ is at most `most`, the γ of a whole record."""
    gamma = person_total(releases).gamma
    bound = min(gamma or most, most)
    names = tuple(dict.fromkeys(name for one in releases for name in one.variables))
    return replace(releases[-1], variables=names, gamma=bound if isinstance(bound, Fraction) else None)
