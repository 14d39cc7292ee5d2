"""Disclosures of a computation on shares, and the power of members that do not follow the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from masquerade.core.guarantee import Adversary, Disclosure, Guarantee
from masquerade.protocols.mpc.k_means import Lloyd
from masquerade.protocols.mpc.structure import Search
from masquerade.protocols.mpc.tree import Growth


def opened_by(search: Search) -> str:
    """Describe what a search opens, and the largest number of bits it reveals."""
    opened = "the parents of every variable" if search.hide_order else "who won every step of the search"
    return f"{opened}, at most {search.bits_told} bits, and no count or score"


def structure_guarantee(
    owners: Sequence[str],
    variables: Sequence[str],
    search: Search,
    *,
    helper: str,
    convener: str | None = None,
    counts: Sequence[str] = (),
) -> Guarantee:
    """Return the disclosures of a structure search; `counts` are children whose counts are opened.

    A `convener` relays the rounds: it reads what is opened, and sees masked numbers.
    """
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    # which questions come next follows from who won, unless every set of parents is scored anyway
    asked = "how many questions of which sizes, and no value"
    if not search.hide_order or counts:
        asked = "how many questions of which sizes, which may tell who won, and no count or score"
    bound = Fraction(1) if search.hide_order and not counts else None
    bits = f"at most {search.bits_opened} bits{' and opened counts of any sets' if counts else ''}"
    told = [Disclosure(reader, opened_by(search), tuple(variables), None) for reader in readers]
    if counts:
        kind = "exact counts of these and the parents found for them"
        told += [Disclosure(reader, kind, tuple(counts), None) for reader in readers]
    return Guarantee(
        (*told, Disclosure(helper, asked, tuple(variables), bound)),
        computation_assumptions(owners, helper, convener, opened=bits, asked_tells=bound is None),
        _adversaries(owners, helper, convener),
        1,
        (*((helper, reader) for reader in readers), (owners[0], owners[1])),
        0,
    )


def structure_guarantee_without_dealer(
    owners: Sequence[str], variables: Sequence[str], search: Search
) -> Guarantee:
    """Return the disclosures of a structure search by Shamir shares, without a dealer of randomness."""
    most = (len(owners) - 1) // 2
    deviating = (
        "all parties follow the program, which is not verified: an owner with false records or false shares "
        "falsifies the opened results, and can choose them so that the results answer its own query about "
        f"others' records, with at most {search.bits_opened} bits"
    )
    return Guarantee(
        tuple(Disclosure(owner, opened_by(search), tuple(variables), None) for owner in owners),
        (deviating, "records were linked row by row in advance, and their number is public"),
        _adversaries(owners, owners[0], None),
        most,
        (),
        0,
    )


def _adversaries(owners: Sequence[str], helper: str, convener: str | None) -> dict[str, Adversary]:
    """Return the adversaries: an outside convener relays signed and sealed messages, and may do anything."""
    found: dict[str, Adversary] = dict.fromkeys((*owners, helper), "semi-honest")
    return found if convener is None or convener in owners else {**found, convener: "malicious"}


HELD_CELLS = "which of their cells lie where, by pseudonym"


def clusters_opened(*, least: int, steps: int, hide_steps: bool) -> str:
    """Describe what is opened about clusters, and when."""
    when = f"after {steps} steps, once" if hide_steps else f"after each of at most {steps} steps"
    return f"centres and sizes of clusters of at least {least} records {when}, and no record's cluster"


def clusters_bits(plan: Lloyd) -> int:
    """Return the largest number of bits that are opened about clusters."""
    if not plan.hide_steps:
        return plan.steps * sum(plan.opened_bits)
    return sum(plan.opened_bits) + plan.k * (len(plan.most) * plan.centre_bits + 1)


def clusters_guarantee(
    owners: Sequence[str],
    variables: Sequence[str],
    plan: Lloyd,
    *,
    helper: str,
    convener: str | None = None,
) -> Guarantee:
    """Return the disclosures of clusters found on shares.

    A `convener` relays the rounds and brings records into a common order: it sees which owner has which
    cells.
    """
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    opened = clusters_opened(least=plan.least, steps=plan.steps, hide_steps=plan.hide_steps)
    told = [Disclosure(reader, opened, tuple(variables), None) for reader in readers]
    if convener is not None:
        told.append(Disclosure(convener, HELD_CELLS, tuple(variables), None))
    asked, bound = "how many records, centres and steps, and no value", Fraction(1)
    moving = (
        "no two sessions are about almost the same people: their difference would reveal the few people who "
        "are in one only"
    )
    if not plan.hide_steps:
        asked = "how many records and centres, and after how many steps none moved"
        if plan.secret_start:
            asked += ", and none was unknown"
        moving = (
            "the difference of two steps is about the records that moved between clusters, which may be "
            f"fewer than {plan.least}: hide the steps if that reveals too much"
        )
    order = (
        f"{convener} orders records by their pseudonyms: a false order, in which a cell has no owner or "
        "two, or a record has cells of two pseudonyms, ends the computation before anything opens, except "
        "with probability below 2^-100"
    )
    few = (
        f"if all clusters of fewer than {plan.least} records together have fewer too, their total size "
        "follows from the number of all records, and their total sums follow for a party that knows the "
        "sums of all records, from another step or as the owner of a column"
    )
    bits = f"at most {clusters_bits(plan):,} bits"
    return Guarantee(
        (*told, Disclosure(helper, asked, tuple(variables), bound if plan.hide_steps else None)),
        (
            *computation_assumptions(owners, helper, convener, opened=bits, asked_tells=not plan.hide_steps),
            moving,
            *((few,) if plan.least > 1 else ()),
            *(() if convener is None else (order,)),
        ),
        _adversaries(owners, helper, convener),
        1,
        (*((helper, reader) for reader in readers), (owners[0], owners[1])),
        0,
    )


def tree_opened(growth: Growth, sizes: Mapping[str, int]) -> str:
    """Describe what a tree opens, and the largest number of bits it reveals."""
    bits = growth.bits_told(sizes)
    bound = "" if bits is None else f", at most {bits:,} bits"
    return f"which feature splits every node and the class of every leaf{bound}, and no count or gain"


def tree_guarantee(
    owners: Sequence[str],
    sizes: Mapping[str, int],
    growth: Growth,
    *,
    helper: str,
    convener: str | None = None,
) -> Guarantee:
    """Return the disclosures of a tree grown on shares; `sizes` are numbers of categories."""
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    names = (growth.target, *growth.features)
    told = [Disclosure(reader, tree_opened(growth, sizes), names, None) for reader in readers]
    asked = "how many questions of which sizes, which may tell what split, and no count or gain"
    opened = growth.bits_opened(sizes)
    bits = "as many bits as are opened" if opened is None else f"at most {opened:,} bits"
    return Guarantee(
        (*told, Disclosure(helper, asked, names, None)),
        computation_assumptions(owners, helper, convener, opened=bits),
        _adversaries(owners, helper, convener),
        1,
        (*((helper, reader) for reader in readers), (owners[0], owners[1])),
        0,
    )


def computation_assumptions(
    owners: Sequence[str],
    helper: str,
    convener: str | None,
    *,
    opened: str,
    asked_tells: bool = True,
) -> tuple[str, ...]:
    """Return the assumptions of a computation on shares, including the effect of malicious members.

    `opened` states how much a malicious owner can learn, and `asked_tells` whether the requests to the helper
    depend on what was opened.
    """
    first, second = owners[:2]
    deviating = (
        "all parties follow the program, which is not verified: an owner with false records or false shares "
        "falsifies the opened results, and can choose them so that the results answer its own query about "
        f"others' records, with {opened}"
    )
    dealing = (
        f"a {helper} that deals falsely can falsify the opened results unnoticed, or end the computation; "
        "on its own it "
        + (
            "learns of the opened results only what the next requests reveal, which it can turn into an "
            "answer to its own query"
            if asked_tells
            else "learns from this only whether the computation ended"
        )
    )
    carrying = (
        f"Ed25519, X25519, HKDF and ChaCha20-Poly1305 are secure: {convener}, who relays the rounds, can "
        "stop a computation but not change it"
    )
    return (
        f"the {helper} colludes with nobody: with any reader of the rounds it could unmask everything",
        f"{first} and {second}, who hold the shares, do not combine them",
        deviating,
        dealing,
        "AES with a fixed key behaves like a random permutation; AES-256 and HKDF are secure",
        "records were linked row by row in advance, and their number is public",
        *(() if convener is None else (carrying,)),
    )
