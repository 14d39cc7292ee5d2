"""When a question must not be answered: the rules that the miner announces and every user enforces."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from masquerade.core.errors import Refusal
from masquerade.protocols.frequency.terms import MOST_PROOFS, Question, Terms

Roster = frozenset[str]


def roster_refusals(
    terms: Terms, now: Roster, earlier: Iterable[Roster], questions: Sequence[Question]
) -> list[Refusal]:
    """Return why these users must not answer these questions after rounds with `earlier` rosters.

    Whoever sees two counts over rosters that differ by few people sees what those few answered: a later round
    goes only to users of the earlier ones, and either nobody left or so many that they hide each other;
    unless all that is asked is disguised, and so bounded even if seen as it is.
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
    disguised = all(name in terms.bounded for question in questions for name in question.names)
    for before in earlier:
        if now - before:
            found.append(Refusal("not_survivors", "a later round goes only to users of the earlier ones"))
            break
        departed = len(before - now)
        if 1 <= departed < terms.minimum and not disguised:
            found.append(
                Refusal(
                    "departed_too_few",
                    f"{departed} of the users counted before left, fewer than {terms.minimum}: the "
                    "difference of two counts would show what they answered; wait for the next epoch",
                )
            )
            break
    return found


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
