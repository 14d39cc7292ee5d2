"""When a question must not be answered: the rules that the miner announces and every user enforces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet

from masquerade.core.errors import Refusal
from masquerade.protocols.frequency.agreement import MOST_PROOFS, Question, Terms, tolerated

Roster = frozenset[str]


def roster_refusals(
    terms: Terms, now: Roster, earlier: Iterable[Roster], questions: Sequence[Question]
) -> list[Refusal]:
    """Return why these users must not answer these questions after rounds with `earlier` rosters.

    Whoever sees two counts over rosters that differ by few people sees what those few answered: a later round
    goes only to users of the earlier ones, and either nobody left or so many that they hide each other, and
    more than half stay (`against_difference` says why); unless all that is asked is disguised, and so bounded
    even if seen as it is.
    """
    found: list[Refusal] = []
    if len(now) < terms.minimum:
        found.append(
            Refusal("roster_too_small", f"{len(now)} users take part, and at least {terms.minimum} must")
        )
    counts = sum(question.counts(terms) for question in questions)
    if len(now) * counts > MOST_PROOFS:
        found.append(
            Refusal(
                "too_many_cells",
                f"{len(now):,} users and {counts:,} counts make {len(now) * counts:,} pairs of keys that "
                f"every user has to check (at most {MOST_PROOFS:,}): ask for less at a time, or use secure "
                "aggregation",
            )
        )
    clear = asks_clear(terms, questions)
    for before in earlier:
        refusal = against_difference(now, before, terms.minimum) if clear else against_newcomers(now, before)
        if refusal is not None:
            return [*found, refusal]
    return found


def asks_clear(terms: Terms, questions: Sequence[Question]) -> bool:
    """Tell whether any question is about a variable that is not disguised."""
    return any(name not in terms.bounded for question in questions for name in question.names)


def against_newcomers(now: AbstractSet[object], before: AbstractSet[object]) -> Refusal | None:
    """Return a refusal if anybody takes part who did not before."""
    if now <= before:
        return None
    return Refusal("not_survivors", "a later round goes only to users of the earlier ones")


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
    """
    newcomers = against_newcomers(now, before)
    if newcomers is not None:
        return newcomers
    departed, least = len(before) - len(now), (len(before) + tolerated(minimum)) // 2 + 1
    if 1 <= departed < minimum:
        return Refusal(
            "departed_too_few",
            f"{departed} of the users counted before left, fewer than {minimum}: the difference of two "
            "counts would show what they answered",
        )
    if len(now) < least:
        return Refusal(
            "departed_too_many",
            f"{len(now)} of the {len(before)} users counted before take part, and at least {least} must: "
            "two later rounds might else have no honest user in common who would notice what they give away",
        )
    return None


def spent_refusals(questions: Sequence[Question], spent: Iterable[Question]) -> list[Refusal]:
    """Return a refusal if votes on one of these questions have left already."""
    gone = set(spent)
    return [
        Refusal(
            "already_spent",
            f"votes on {' × '.join(question.names)} have left in this epoch: wait for the next one",
        )
        for question in questions
        if question in gone
    ]
