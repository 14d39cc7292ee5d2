"""Confirmation before a release in which a whole record has a γ above the limit."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from decimal import ROUND_CEILING, Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Annotated

from masquerade.cli.options import option
from masquerade.cli.output import join_names, say
from masquerade.core.errors import InputError
from masquerade.core.record_gamma import FollowUp, Gamma, describe_clear_missing, describe_gamma
from masquerade.core.util.formatting import gamma_words

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.services.parties.settings import SessionNodeSettings

AcceptGamma = Annotated[
    str | None,
    option(
        "Accept this γ of a whole record, over this and earlier releases, beyond the policy's limit "
        "(5%:50% if it states none). Without this option the command asks.",
        "GAMMA",
        "--accept-gamma",
    ),
]
OwnLimit = Annotated[
    str,
    option(
        "The most that everything you send may reveal: a belief of 5% rises to at most 50%; or gamma=19, "
        "epsilon=2.9.",
        "LIMIT",
        "--limit",
    ),
]
DEFAULT = "5%:50%"
AGREED = "yes"
OTHER_RELEASE = (
    "Repeat an earlier release under its memo and policy, keep the records of other people in a folder of "
    "their own"
)
LONGEST = 7  # most digits before the decimal point that are written out


def parse_accepted(accepted: str | None) -> Gamma | None:
    """Parse the γ of `--accept-gamma`; return None if it is not given."""
    from masquerade.channels.rationals import rational  # noqa: PLC0415

    if accepted is None:
        return None
    return math.inf if accepted.strip() == "inf" else rational(accepted, "--accept-gamma")


def confirm_total(
    policy: Policy, together: float | None, accepted: str | None = None, instead: str = OTHER_RELEASE
) -> None:
    """Print what all releases reveal about a person; raise an error above the limit unless accepted.

    Parameters
    ----------
    policy : Policy
        Its limit is used, or 5%:50% if it states none.
    together : float or None
        ε of a record over all draws, or None if the ε of a draw is unknown.
    accepted : str, optional
        The γ that the user accepts, from `--accept-gamma`.
    instead : str, optional
        Advice for the error message, without a full stop.

    Raises
    ------
    InputError
        If the total is above the limit and the user does not accept it.
    """
    from masquerade.channels.privacy_level import DEFAULT_LIMIT  # noqa: PLC0415  (loads pydantic's models)
    from masquerade.disguising.earlier_draws import (  # noqa: PLC0415  (loads Arrow)
        describe_total,
        gamma_of_total,
        is_beyond,
    )

    limit, meaning, bound = policy.limit or DEFAULT_LIMIT, describe_total(together), parse_accepted(accepted)
    gamma = gamma_of_total(together)
    if not is_beyond(together, limit):
        say(meaning)
        return
    if bound is not None and gamma <= bound:
        say(f"warning: {meaning}")
        return
    beyond = f"{meaning} This is beyond the limit ({limit})."
    if _may_ask() and bound is None and _agrees(beyond):
        return
    needed = _round_up(math.inf if gamma == math.inf else Fraction(gamma))
    raise InputError(f"{beyond} Nothing was released. {instead}, or accept it with --accept-gamma {needed}.")


def _may_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def _agrees(meaning: str) -> bool:
    """Return True if the user types "yes"; otherwise raise InputError."""
    say(meaning)
    sys.stderr.write(f"Type {AGREED!r} to accept this for every person: ")
    sys.stderr.flush()
    if sys.stdin.readline().strip().lower() == AGREED:
        return True
    raise InputError("Not accepted: nothing was released.")


def confirm_record_gamma(
    policy: Policy, accepted: str | None = None, follow_ups: Iterable[FollowUp] = ()
) -> None:
    """Raise InputError if the γ of a record is above 5%:50% and neither the policy nor the user accepts it.

    Parameters
    ----------
    policy : Policy
        If it states a limit, γ was checked against it when the policy was loaded, and the user is not asked.
    accepted : str, optional
        The γ that the user accepts, from `--accept-gamma`.
    follow_ups : iterable of FollowUp, optional
        Questions that depend on earlier answers.

    Raises
    ------
    InputError
        If the record's γ is above 5%:50% and the user does not accept it.
    """
    from masquerade.channels.policy.record import record_gamma  # noqa: PLC0415  (loads numpy)
    from masquerade.channels.privacy_level import DEFAULT_LIMIT  # noqa: PLC0415  (loads pydantic's models)

    bound = parse_accepted(accepted)
    if policy.clear_missing:
        say(describe_clear_missing(policy.clear_missing))
    if policy.limit is not None or not policy.disguised:
        return
    gamma = record_gamma(policy, follow_ups)
    if gamma <= DEFAULT_LIMIT.gamma or (bound is not None and gamma <= bound):
        return
    clear = f" In clear: {join_names(policy.clear_variables)}." if policy.clear_variables else ""
    meaning = (
        f"The policy states no limit, and a whole record has {gamma_words(gamma)}. {describe_gamma(gamma)}"
    )
    if _may_ask() and bound is None and _agrees(f"{meaning}{clear}"):
        return
    needed = f"--accept-gamma {_round_up(gamma)}"
    raise InputError(
        f"{meaning}{clear} Nothing was released. State a limit in the policy, such as "
        "'limit: {breach: 5%:50%}' ('masquerade policy init' spends it on all variables), or accept it with "
        f"{needed}."
    )


def confirm_consents(settings: SessionNodeSettings, accepted: str | None = None) -> SessionNodeSettings:
    """Ask the operator to accept the γ of the records that a party's consents allow to leave.

    Parameters
    ----------
    settings : SessionNodeSettings
        If the node has no records or no consents, it sends nothing, and the user is not asked.
    accepted : str, optional
        The γ that the user accepts, from `--accept-gamma`.

    Returns
    -------
    SessionNodeSettings
        The settings, with the accepted γ as the limit for a person.
    """
    from masquerade.channels.policy import Policy  # noqa: PLC0415  (loads numpy)
    from masquerade.channels.privacy_level import DEFAULT_LIMIT, parse_limit  # noqa: PLC0415
    from masquerade.protocols.vertical.disguised_cells import restrict_to_variables  # noqa: PLC0415
    from masquerade.services.parties.settings import PartySettings  # noqa: PLC0415

    variables = {name for consent in settings.consents for name in consent.variables}
    if not isinstance(settings, PartySettings) or not variables:
        return settings
    policy = Policy.load(settings.data.policy)
    if policy.limit is not None:
        return settings
    sent = policy if policy.stratum_variable is not None else restrict_to_variables(policy, sorted(variables))
    gamma = sent.record_gamma
    if not sent.disguised or (settings.limit is not None and gamma <= parse_limit(settings.limit).gamma):
        return settings
    confirm_record_gamma(sent, accepted)
    # an unbounded γ can only be allowed by the consent
    if gamma <= DEFAULT_LIMIT.gamma or not isinstance(gamma, Fraction):
        return settings
    return settings.model_copy(update={"limit": f"gamma={gamma}"})


def _round_up(gamma: Gamma) -> str:
    """Return a short decimal that is not below γ."""
    if not isinstance(gamma, Fraction):
        return "inf"
    exact = Decimal(gamma.numerator) / Decimal(gamma.denominator)
    above = exact if Fraction(exact) == gamma else exact.next_plus()
    digits = Decimal(1).scaleb(exact.adjusted() - 3)
    rounded = above.quantize(digits, rounding=ROUND_CEILING).normalize()
    return f"{rounded:f}" if exact.adjusted() < LONGEST else f"{rounded:e}"
