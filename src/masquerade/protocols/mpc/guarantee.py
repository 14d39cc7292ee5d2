"""Who learns what of a computation on shares, and what those can do who do not follow the program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction

from masquerade.core.guarantee import Adversary, Disclosure, Guarantee
from masquerade.protocols.mpc.k_means import Lloyd
from masquerade.protocols.mpc.structure import Search
from masquerade.protocols.mpc.tree import Growth


def opened_by(search: Search) -> str:
    """Return what a search opens, and how many bits that tells at most."""
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
    """Return who learns what of a search for a structure; `counts` are children whose counts are opened.

    A `convener` carries the rounds: it reads what is opened, and masked numbers pass by.
    """
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    # which questions come next follows from who won, unless every set of parents is scored anyway
    asked = "how many questions of which sizes, and no value"
    if not search.hide_order or counts:
        asked = "how many questions of which sizes, which may tell who won, and no count or score"
    bound = Fraction(1) if search.hide_order and not counts else None
    bits = f"{search.bits_opened} bits at most{' and opened counts of any sets' if counts else ''}"
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
    """Return the disclosures of a structure search by Shamir shares, where nobody deals randomness."""
    most = (len(owners) - 1) // 2
    deviating = (
        "all follow the program, nothing checks it: an owner that brings false records or shows false shares "
        "makes what opens false, and can choose them so that what opens answers a question of its own about "
        f"others' records, {search.bits_opened} bits at most"
    )
    return Guarantee(
        tuple(Disclosure(owner, opened_by(search), tuple(variables), None) for owner in owners),
        (deviating, "records were linked row by row beforehand, and their number is public"),
        _adversaries(owners, owners[0], None),
        most,
        (),
        0,
    )


def _adversaries(owners: Sequence[str], helper: str, convener: str | None) -> dict[str, Adversary]:
    """Return who may do what: a convener outside carries what is signed and sealed, and may do anything."""
    found: dict[str, Adversary] = dict.fromkeys((*owners, helper), "semi-honest")
    return found if convener is None or convener in owners else {**found, convener: "malicious"}


HELD_CELLS = "which of their cells lie where, by pseudonym"


def clusters_opened(*, least: int, steps: int, hide_steps: bool) -> str:
    """Return what opens of clusters, and when."""
    when = f"after {steps} steps, once" if hide_steps else f"after each of at most {steps} steps"
    return f"centres and sizes of clusters of at least {least} records {when}, and no record's cluster"


def clusters_bits(plan: Lloyd) -> int:
    """Return how many bits open of clusters at most."""
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
    """Return who learns what of clusters that are found on shares.

    A `convener` carries the rounds and brings records into a common order: it sees who holds which cells.
    """
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    opened = clusters_opened(least=plan.least, steps=plan.steps, hide_steps=plan.hide_steps)
    told = [Disclosure(reader, opened, tuple(variables), None) for reader in readers]
    if convener is not None:
        told.append(Disclosure(convener, HELD_CELLS, tuple(variables), None))
    asked, bound = "how many records, centres and steps, and no value", Fraction(1)
    moving = "two sessions over almost the same people differ by the few in whom they differ"
    if not plan.hide_steps:
        asked = "how many records and centres, and after how many steps none moved"
        if plan.secret_start:
            asked += ", and none was unknown"
        moving = (
            "differences of two steps are about the records that moved between clusters, perhaps fewer than "
            f"{plan.least}: whoever cannot live with that hides steps"
        )
    order = (
        f"{convener} brings records into order as their pseudonyms say: an order in which a cell lies with "
        "nobody or with two, or a record has cells of two pseudonyms, ends the computation before anything "
        "opens, but for a probability below 2^-100"
    )
    few = (
        f"where clusters of fewer than {plan.least} records have fewer together, their size follows from the "
        "number of all, and their sums for whoever knows all sums, from another step or as a column's owner"
    )
    bits = f"{clusters_bits(plan):,} bits at most"
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
    """Return what a tree opens, and how many bits that tells at most."""
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
    """Return who learns what of a tree that is grown on shares; `sizes` are numbers of categories."""
    readers = tuple(dict.fromkeys((*owners, *(() if convener is None else (convener,)))))
    names = (growth.target, *growth.features)
    told = [Disclosure(reader, tree_opened(growth, sizes), names, None) for reader in readers]
    asked = "how many questions of which sizes, which may tell what split, and no count or gain"
    opened = growth.bits_opened(sizes)
    bits = "as many bits as are opened" if opened is None else f"{opened:,} bits at most"
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
    """Return what a computation on shares rests on, a plain word about malicious members among it.

    `opened` says how much a malicious owner can have answered, and `asked_tells` whether what the helper is
    asked follows from what was opened.
    """
    first, second = owners[:2]
    deviating = (
        "all follow the program, nothing checks it: an owner that brings false records or shows false shares "
        "makes what opens false, and can choose them so that what opens answers a question of its own about "
        f"others' records, {opened}"
    )
    dealing = (
        f"a {helper} that deals falsely makes what opens false, unnoticed, or the computation end; alone it "
        + (
            "sees of what opens what the next questions tell, which it can so make an answer to its own"
            if asked_tells
            else "learns no more by it than whether it ended"
        )
    )
    carrying = (
        f"Ed25519, X25519, HKDF and ChaCha20-Poly1305 are secure: {convener}, who carries rounds, can stop a "
        "computation and change nothing in it"
    )
    return (
        f"the {helper} colludes with nobody: with anybody who reads the rounds it could unmask everything",
        f"{first} and {second}, who hold the shares, do not put them together",
        deviating,
        dealing,
        "AES with a fixed key behaves like a random permutation; AES-256 and HKDF are secure",
        "records were linked row by row beforehand, and their number is public",
        *(() if convener is None else (carrying,)),
    )
