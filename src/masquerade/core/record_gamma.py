"""γ of a whole record: how far everything that one person sends can shift the odds about them.

Pure Python, without NumPy: the same function serves policies, survey pages and people's devices.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from itertools import product

from masquerade.core.util.formatting import percent

Gamma = Fraction | float
Chances = Mapping[int, Fraction]  # probabilities of the reports of one truth
Pair = tuple[int, int]  # two truths of one part that are compared
Factor = tuple[tuple[int, ...], dict[tuple[Pair, ...], Gamma]]  # parts, and a ratio for each of their pairs
MOST_STATES = 1 << 16  # combinations of pairs that are listed; beyond, conditions are dropped
MOST_RATIOS = 1 << 16  # products of truths, truths and reports of one channel


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A question that some people are not asked: they answer it with the code `not_asked`.

    Parameters
    ----------
    name : str
        The variable that the question asks for.
    shown : mapping of str to tuple of int
        For each earlier variable, the codes of the answers that lead to the question.
    not_asked : int
        The code that is sent through the channel for all other people.
    """

    name: str
    shown: Mapping[str, tuple[int, ...]]
    not_asked: int


@dataclass(frozen=True)
class RecordPart:
    """Variables that are reported together: in clear, through one channel, or dealt in blocks.

    Parameters
    ----------
    names, sizes : tuples
        The variables and their numbers of categories.
    gamma : Fraction or float
        γ of the part by itself. Infinite where a report rules out a truth.
    clear : bool
        Whether the variables are sent in clear. Clear values are known to the reader of a record, so the
        record's γ compares records that agree on them.
    chances : callable, optional
        Returns the chances of the reports of a truth, by its joint code (the last variable varies fastest).
        Without it every two different truths are assumed to be γ apart, as they are under a symmetric
        channel and in dealt blocks.
    reports : int
        Number of possible reports.
    shown : tuple of int, optional
        The class of each joint code, if the class is sent in clear, such as whether an answer is missing.
        The record's γ compares records that agree on it, and `gamma` is the γ within a class.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    gamma: Gamma
    clear: bool = False
    chances: Callable[[int], Chances] | None = field(default=None, compare=False)
    reports: int = 1
    shown: tuple[int, ...] = ()

    @property
    def truths(self) -> int:
        """Return the number of combinations of the variables."""
        return math.prod(self.sizes)

    @cached_property
    def ratios(self) -> dict[Pair, Gamma]:
        """Return for every two truths the largest ratio of the chances of one report."""
        truths = range(self.truths)
        if self.clear:
            return {(truth, truth): Fraction(1) for truth in truths}
        if self.shown:
            ratios = replace(self, shown=()).ratios
            return {
                pair: ratio for pair, ratio in ratios.items() if self.shown[pair[0]] == self.shown[pair[1]]
            }
        if self.chances is None or self.truths**2 * self.reports > MOST_RATIOS:
            return {(a, b): Fraction(1) if a == b else self.gamma for a in truths for b in truths}
        rows = [self.chances(truth) for truth in truths]
        return {(a, b): _largest_ratio(rows[a], rows[b]) for a in truths for b in truths}

    def codes(self, truth: int) -> dict[str, int]:
        """Return the code of each variable in a joint code."""
        values: dict[str, int] = {}
        for name, size in zip(reversed(self.names), reversed(self.sizes), strict=True):
            truth, values[name] = divmod(truth, size)
        return values


def record_gamma(
    parts: Sequence[RecordPart], follow_ups: Iterable[FollowUp] = (), known: Mapping[str, int] | None = None
) -> Gamma:
    """Return γ over everything that is reported of one record, exactly.

    Parameters
    ----------
    parts : sequence of RecordPart
        Parts of a record, reported independently given the truth. Each variable is in one part.
    follow_ups : iterable of FollowUp, optional
        Questions that depend on earlier answers. They restrict the records that can occur.
    known : mapping of str to int, optional
        Codes of clear variables that are the same in all compared records, such as the stratum.

    Returns
    -------
    Fraction or float
        The largest ratio of the chances of one report of a whole record, over all pairs of possible records
        that agree on the clear variables. Infinite without a bound. Never below the exact ratio, and
        above it only where conditions connect more answers than can be listed.

    Notes
    -----
    Formula: γ = max over records x, x' and reports y of Π_g P_g(y_g | x_g)/P_g(y_g | x'_g). Given both
    records the reports can be chosen part by part, so parts without conditions multiply. Parts that
    conditions connect are maximised over their possible pairs by eliminating one part after another.
    Reference: Evfimievski, Gehrke & Srikant (2003) for γ; Dechter (1999) for elimination.

    Examples
    --------
    >>> mask = RecordPart(("pills",), (2,), Fraction(3))
    >>> record_gamma([mask, RecordPart(("doses",), (2,), Fraction(3))])
    Fraction(9, 1)
    """
    owner = {name: index for index, part in enumerate(parts) for name in part.names}
    # a dropped condition can only raise γ, and the γ of blocks is the same with and without it
    large = {name for part in parts if part.truths**2 > MOST_STATES for name in part.names}
    conditions = [one for one in follow_ups if one.shown and large.isdisjoint((one.name, *one.shown))]
    connected = {owner[name] for one in conditions for name in (one.name, *one.shown)}
    apart = [part.gamma for index, part in enumerate(parts) if index not in connected and not part.clear]
    factors: list[Factor] = [_own_factor(index, parts[index], known or {}) for index in sorted(connected)]
    factors += [factor for one in conditions for factor in _condition(one, parts, owner)]
    for index in sorted(connected, reverse=True):  # follow-ups come after the questions they depend on
        factors = _eliminate(index, factors, parts)
    if not all(table for _, table in factors):
        return Fraction(1)  # conditions contradict what is known: no such record exists
    return multiply_gammas([*apart, *(table[()] for _, table in factors)])


def largest_record_gamma(
    strata: Mapping[int, Sequence[RecordPart]], by: str | None = None, follow_ups: Iterable[FollowUp] = ()
) -> Gamma:
    """Return γ over everything that is reported of one record, in the stratum where it is largest.

    Parameters
    ----------
    strata : mapping of int to sequence of RecordPart
        Reported parts, by the code of the variable `by`. Without strata, one entry.
    by : str, optional
        The variable that decides the stratum.
    follow_ups : iterable of FollowUp, optional
        Questions that depend on earlier answers.

    Returns
    -------
    Fraction or float
        Infinite if `by` is disguised, or a variable is disguised in one stratum and clear in another:
        the reports then reveal the stratum.
    """
    conditions = tuple(follow_ups)
    masks = [part for parts in strata.values() for part in parts if not part.clear]
    disguised = {name for part in masks for name in part.names}
    clear = {name for parts in strata.values() for part in parts if part.clear for name in part.names}
    if by in disguised or not disguised.isdisjoint(clear):
        return math.inf
    known = {code: {} if by is None else {by: code} for code in strata}
    return max(record_gamma(parts, conditions, known[code]) for code, parts in strata.items())


def names_within(strata: Mapping[int, Sequence[RecordPart]], by: str | None, most: Gamma) -> frozenset[str]:
    """Return the variables whose joint γ stays within a bound; others count as clear.

    Parameters
    ----------
    strata : mapping of int to sequence of RecordPart
        Reported parts, by the code of the variable `by`.
    by : str or None
        The variable that decides the stratum.
    most : Fraction or float
        The largest γ of a whole record. A part above it by itself counts as clear. If all other parts
        together are above it, they all count as clear.
    """
    parts = [part for own in strata.values() for part in own]
    beyond = {name for part in parts if part.clear or part.gamma > most for name in part.names}
    beyond |= set() if by is None else {by}
    while (
        added := {name for part in parts if beyond.intersection(part.names) for name in part.names} - beyond
    ):
        beyond |= added
    rest = {
        code: [replace(part, clear=True) if beyond.intersection(part.names) else part for part in own]
        for code, own in strata.items()
    }
    if largest_record_gamma(rest, by) > most:
        return frozenset()
    return frozenset(name for part in parts for name in part.names) - beyond


def deciding_variables(name: str, conditions: Mapping[str, Iterable[str]]) -> tuple[str, ...]:
    """Return the variables that decide who is asked a question, directly or through others.

    Parameters
    ----------
    name : str
        The variable that the question asks for.
    conditions : mapping of str to iterable of str
        For each question, the variables whose answers lead to it.

    Examples
    --------
    >>> deciding_variables("dose", {"dose": ["often"], "often": ["pills"]})
    ('often', 'pills')
    """
    found: dict[str, None] = {}
    waiting = list(conditions.get(name, ()))
    while waiting:
        parent = waiting.pop(0)
        if parent not in found:
            found[parent] = None
            waiting += conditions.get(parent, ())
    return tuple(found)


def describe_gamma(gamma: Gamma, belief: Fraction = Fraction(1, 20)) -> str:
    """Describe γ of a whole record in one sentence about a person.

    Formula: odds of `belief` to 1 − `belief` are multiplied by γ at most.

    >>> describe_gamma(Fraction(19))
    'Someone who thought it 5% likely can think it at most 50% likely after seeing everything.'
    """
    before = percent(float(belief))
    if gamma == math.inf:
        return f"Someone who thought it {before} likely may be certain after seeing everything."
    factor = Fraction(gamma)
    after = percent(float(factor * belief / (1 + (factor - 1) * belief)))
    return (
        f"Someone who thought it {before} likely can think it at most {after} likely after seeing everything."
    )


def describe_clear_missing(names: Sequence[str]) -> str:
    """Return the sentence about missing answers that are sent in clear, "" if there are none.

    >>> describe_clear_missing(["visits"])
    'Sent in clear: whether visits is missing. If mostly people with one answer refuse, this reveals it.'
    """
    if not names:
        return ""
    each = ", ".join(f"whether {name} is missing" for name in names)
    return f"Sent in clear: {each}. If mostly people with one answer refuse, this reveals it."


def describe_person(gamma: Gamma, clear_missing: Sequence[str] = ()) -> str:
    """Describe what a record reveals about a person: missing answers in clear first, then its γ.

    >>> describe_person(Fraction(19))
    'Someone who thought it 5% likely can think it at most 50% likely after seeing everything.'
    """
    return " ".join(one for one in (describe_clear_missing(clear_missing), describe_gamma(gamma)) if one)


def multiply_gammas(gammas: Sequence[Gamma]) -> Gamma:
    """Return the product of many γ; the two halves are multiplied first, which keeps numbers short."""
    if math.inf in gammas:
        return math.inf
    if len(gammas) < 3:
        return math.prod(gammas, start=Fraction(1))
    half = len(gammas) // 2
    return multiply_gammas(gammas[:half]) * multiply_gammas(gammas[half:])


def _largest_ratio(first: Chances, second: Chances) -> Gamma:
    if any(chance and not second.get(report) for report, chance in first.items()):
        return math.inf
    return max(chance / second[report] for report, chance in first.items() if chance)


def _own_factor(index: int, part: RecordPart, known: Mapping[str, int]) -> Factor:
    """Return the ratios of a part, over the pairs that agree with the known codes."""
    table: dict[tuple[Pair, ...], Gamma] = {
        (pair,): ratio
        for pair, ratio in part.ratios.items()
        if all(
            part.codes(truth).get(name, code) == code
            for truth in set(pair)
            for name, code in known.items()
            if name in part.names
        )
    }
    return (index,), table


def _condition(one: FollowUp, parts: Sequence[RecordPart], owner: Mapping[str, int]) -> Iterator[Factor]:
    """Yield a factor per earlier variable: where it does not lead to the question, `not_asked` is sent."""
    child = owner[one.name]
    for name, admitted in one.shown.items():
        parent = owner[name]
        scope = tuple(dict.fromkeys((parent, child)))
        if math.prod(parts[index].truths ** 2 for index in scope) > MOST_STATES:
            continue  # a dropped condition can only raise γ

        def possible(
            truths: Sequence[int], name: str = name, admitted: tuple[int, ...] = admitted,
            scope: tuple[int, ...] = scope,
        ) -> bool:  # fmt: skip
            codes: dict[str, int] = {}
            for index, truth in zip(scope, truths, strict=True):
                codes |= parts[index].codes(truth)
            return codes[name] in admitted or codes[one.name] == one.not_asked

        truths = [t for t in product(*(range(parts[index].truths) for index in scope)) if possible(t)]
        yield scope, {tuple(zip(a, b, strict=True)): Fraction(1) for a in truths for b in truths}


def _eliminate(index: int, factors: Sequence[Factor], parts: Sequence[RecordPart]) -> list[Factor]:
    """Return the factors after eliminating one part: the product of its factors, maximised over its pairs."""
    rest = [factor for factor in factors if index not in factor[0]]
    bucket = [factor for factor in factors if index in factor[0]]
    scope = tuple(sorted({other for parts_of, _ in bucket for other in parts_of} - {index}))
    if math.prod(parts[other].truths ** 2 for other in (*scope, index)) > MOST_STATES:
        # too many to list: bounding every factor by its own maximum can only raise the result
        bounds: list[Gamma] = [max(values.values(), default=Fraction(1)) for _, values in bucket]
        return [*rest, ((), {(): multiply_gammas(bounds)})]
    table: dict[tuple[Pair, ...], Gamma] = {}
    joined, products = _join(bucket)
    for pairs, value in products:
        values = dict(zip(joined, pairs, strict=True))
        key = tuple(values[other] for other in scope)
        table[key] = max(value, table.get(key, Fraction(0)))
    return [*rest, (scope, table)]


def _join(factors: Sequence[Factor]) -> tuple[tuple[int, ...], Iterable[tuple[tuple[Pair, ...], Gamma]]]:
    """Return the parts of several factors, and the product of their values wherever all have one."""
    scope, table = factors[0]
    for other, values in factors[1:]:
        shared = [part for part in other if part in scope]
        added = tuple(part for part in other if part not in scope)
        by_shared: dict[tuple[Pair, ...], list[tuple[tuple[Pair, ...], Gamma]]] = {}
        for pairs, value in values.items():
            own = dict(zip(other, pairs, strict=True))
            key = tuple(own[part] for part in shared)
            by_shared.setdefault(key, []).append((tuple(own[part] for part in added), value))
        joined: dict[tuple[Pair, ...], Gamma] = {}
        for pairs, value in table.items():
            known = dict(zip(scope, pairs, strict=True))
            for more, factor in by_shared.get(tuple(known[part] for part in shared), ()):
                joined[(*pairs, *more)] = value * factor
        scope, table = (*scope, *added), joined
    return scope, table.items()
