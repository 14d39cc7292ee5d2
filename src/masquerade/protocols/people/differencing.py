"""When two counts together would tell about few people: the rules that every person's device keeps to.

Whoever sees two clear counts sees their difference. So a later count goes only to people of the earlier ones,
and either nobody has left or so many that they hide each other.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from masquerade.core.errors import Refusal


def tolerated(minimum: int) -> int:
    """Return how many may collude so that two of any `minimum` users are honest."""
    return minimum - 2


def against_newcomers(now: AbstractSet[object], before: AbstractSet[object]) -> Refusal | None:
    """Return a refusal if anybody takes part who did not before."""
    if now <= before:
        return None
    return Refusal("not_survivors", "a later round goes only to users of the earlier ones")


def against_few_departed(now: int, before: int, minimum: int) -> Refusal | None:
    """Return why a count over `now` of the `before` users counted earlier would be about too few."""
    if not 1 <= before - now < minimum:
        return None
    return Refusal(
        "departed_too_few",
        f"{before - now} of the {before} users counted before left, fewer than {minimum}: the difference of "
        "two counts would show what they answered",
    )


def against_difference(now: AbstractSet[object], before: AbstractSet[object], minimum: int) -> Refusal | None:
    """Return why clear counts over `now` after clear counts over `before` would give somebody away.

    A user knows only the rosters that it voted in itself, so the rule has to hold for all of them together.
    Let c = minimum − 2 users collude, and call two rosters linked if they share an honest user. That user
    sees to it that one contains the other, that they are equal or differ by at least `minimum` users, and
    that twice the smaller has more users than the larger and c together. Then:

    - two rosters within a third, linked to it, share more than c users, so an honest one: they are linked;
    - two rosters that contain a third, linked to it, share its honest users: they are linked;
    - so rosters linked to the same one are linked, and all that hang together form a chain, each within the
      one before; rosters of different chains have no honest user in common.

    Whatever is computed from sums over a chain comes from sums over its smallest roster and over what left
    from one to the next: at least `minimum` users each, two of them honest, who hide each other.

    Where a quorum of all users signs every list of who is counted (secure aggregation), any two lists have an
    honest signer in common and the last clause is not needed; `aggregation.history` has that proof.
    """
    refusal = against_newcomers(now, before) or against_few_departed(len(now), len(before), minimum)
    if refusal is not None:
        return refusal
    least = (len(before) + tolerated(minimum)) // 2 + 1
    if len(now) < least:
        return Refusal(
            "departed_too_many",
            f"{len(now)} of the {len(before)} users counted before take part, and at least {least} must: "
            "two later rounds might else have no honest user in common who would notice what they give away",
        )
    return None
