"""Reconciliation of policies: the strictest consent that all parties of a planned session share.

Each party writes an offer: the policy of the variables that it would bring, its limit, and its other
conditions. `reconcile` combines offers into one proposal. Nothing is sent, and no record is read.

- A variable is proposed if all parties that hold it offer it, with the same categories and disguised
  together with the same other variables. Its channel is the one with the smallest γ among these parties.
- The strictest limit applies to the whole record. If the channels together exceed it, the ε of every
  disguised variable is multiplied by the same factor.
- The proposal has the largest of the least numbers of records, the smallest tables, all protected sets, and
  the learners and receivers that every party accepts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from masquerade.channels import for_gamma
from masquerade.channels.channel import Channel
from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import parse_limit
from masquerade.core.errors import InputError
from masquerade.core.util.formatting import gamma_text
from masquerade.core.util.private_file import is_file_inside
from masquerade.learn import catalogue
from masquerade.plan.expected_errors import expected_errors
from masquerade.services.common.settings import PublicFile, Strict, load
from masquerade.services.parties.settings import Limit

Unit = tuple[str, ...]  # variables that are disguised together

SCALE = 1000  # denominator of a γ that is reduced to meet the limit
MOST_TABLES = 500  # most tables of the same number of variables for which errors are computed
WHOLE = ("linear", "k-means")  # learners that count all their variables together


class Offer(Strict):
    """Conditions that a party would accept in a session that is not agreed on yet."""

    masquerade: Literal[1] = 1
    """The version of the format, 1."""
    party: str = Field(min_length=1)
    """The name of the party."""
    policy: PublicFile
    """The policy of the variables that the party would bring: categories, and the weakest channels."""
    people: int = Field(ge=1)
    """The number of the party's records."""
    limit: Limit | None = None
    """The limit for one person, as `5%:50%` or `gamma=19`; by default the policy's limit."""
    withheld: tuple[str, ...] = ()
    """Variables of the policy that no session may use."""
    least_records: int = Field(20, ge=1)
    """The least number of records that are counted together."""
    most_variables: int | None = Field(None, ge=1)
    """The most variables of a table."""
    protect: tuple[tuple[str, ...], ...] = ()
    """Sets of variables that no table may combine, as `[[age, sex, region]]`."""
    learners: tuple[str, ...] | None = None
    """The learners that are allowed, as `[network, tree]`; by default any learner."""
    receivers: tuple[str, ...] | None = None
    """The nodes that may receive the model; by default all receivers that other parties name."""

    @field_validator("learners")
    @classmethod
    def _check_learners(cls, names: tuple[str, ...] | None) -> tuple[str, ...] | None:
        for name in names or ():
            if name not in catalogue.names():
                raise ValueError(f"{name!r} is not one of {', '.join(catalogue.names())}")
        return names

    @classmethod
    def read(cls, path: Path) -> Offer:
        """Return the offer in a file.

        Parameters
        ----------
        path : Path
            File of the offer, which may come from another party. Its policy is in or below the same folder.

        Returns
        -------
        Offer
            The offer.

        Raises
        ------
        InputError
            If the file is not an offer, or names a policy elsewhere.
        """
        offer = load(path, cls, environment={})
        if not is_file_inside(offer.policy, path.parent):
            raise InputError(f"{path}: policy: must be a file in or below the folder of the offer.")
        return offer

    def load_policy(self) -> Policy:
        """Return the party's policy; raise InputError if it withholds an unknown variable."""
        policy = Policy.load(self.policy)
        for name in self.withheld:
            policy.schema[name]  # raises an error for an unknown variable
        return policy

    def gamma_limit(self, policy: Policy) -> Fraction | float:
        """Return the largest γ of a record that the party accepts, inf without a limit."""
        if self.limit is not None:
            return parse_limit(self.limit).gamma
        return math.inf if policy.limit is None else policy.limit.gamma


@dataclass(frozen=True, slots=True)
class ProposedMask:
    """The channel of variables that are disguised together.

    `gamma` is the γ of the proposal, `offered` the smallest γ that a holder offers; both are inf for clear
    variables. `bound_by` names the parties that offer this smallest γ. `second` is the smallest γ without
    these parties, None if no other party holds the variables.
    """

    names: Unit
    holders: tuple[str, ...]
    gamma: Fraction | float
    offered: Fraction | float
    bound_by: tuple[str, ...]
    second: Fraction | float | None


@dataclass(frozen=True, slots=True)
class TableError:
    """Half-width of the 95% interval of a share, in a typical and the worst table of `width` variables."""

    width: int
    tables: int
    typical: float
    worst: float


@dataclass(frozen=True, slots=True)
class LearnerOutlook:
    """Feasibility of a learner under the proposal.

    `width` is the number of variables of the smallest tables that it counts, `margin` their error. If the
    learner is not possible, `margin` is None and `reason` states why.
    """

    learner: str
    width: int
    margin: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Relaxation:
    """A condition that one party could relax, and what all parties would gain."""

    party: str
    relax: str
    gain: str


@dataclass(frozen=True, slots=True, eq=False)
class ConsentProposal:
    """The strictest common consent of all parties, and the conditions that parties could relax for more."""

    parties: tuple[str, ...]
    partition: Literal["rows", "columns", "cells"]
    people: int
    policy: Policy | None
    limit: Fraction | float
    masks: tuple[ProposedMask, ...]
    left_out: tuple[tuple[str, str], ...]
    least_records: int
    most_variables: int | None
    protect: tuple[Unit, ...]
    learners: tuple[LearnerOutlook, ...]
    receivers: tuple[str, ...] | None
    errors: tuple[TableError, ...]
    relaxations: tuple[Relaxation, ...]

    @property
    def is_possible(self) -> bool:
        """Return True if some learner can run for some receiver."""
        return self.receivers != () and any(it.margin is not None for it in self.learners)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {
            "possible": self.is_possible,
            "parties": list(self.parties),
            "partition": self.partition,
            "people": self.people,
            "limit": None if self.limit == math.inf else float(self.limit),
            "masks": [
                {
                    "variables": list(it.names),
                    "holders": list(it.holders),
                    "gamma": None if it.gamma == math.inf else float(it.gamma),
                    "bound_by": list(it.bound_by),
                }
                for it in self.masks
            ],
            "left_out": [{"variables": names, "reason": reason} for names, reason in self.left_out],
            "least_records": self.least_records,
            "most_variables": self.most_variables,
            "protect": [list(some) for some in self.protect],
            "receivers": None if self.receivers is None else list(self.receivers),
            "learners": [
                {"learner": it.learner, "variables": it.width, "margin": it.margin, "reason": it.reason}
                for it in self.learners
            ],
            "errors": [
                {"variables": it.width, "tables": it.tables, "typical": it.typical, "worst": it.worst}
                for it in self.errors
            ],
            "relaxations": [
                {"party": it.party, "relax": it.relax, "gain": it.gain} for it in self.relaxations
            ],
            "policy": None if self.policy is None else self.policy.to_dict(),
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """An offer with its policy."""

    offer: Offer
    policy: Policy

    @property
    def name(self) -> str:
        return self.offer.party

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(name for name in self.policy.schema.names if name not in self.offer.withheld)

    def channel(self, unit: Unit) -> Channel | None:
        """Return the channel of a unit, None if it is clear."""
        group = self.policy.group(unit[0])
        return group.matrix_channel if group.disguised else None


def reconcile(offers: Sequence[Offer]) -> ConsentProposal:
    """Return the strictest common consent of several parties.

    Raises InputError if fewer than two offers are given, or two by the same party.
    """
    names = [offer.party for offer in offers]
    if len(names) < 2:
        raise InputError("Reconciling needs the offers of two parties or more.")
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{name!r} makes two offers: each party makes one.")
    sides = [_Side(offer, offer.load_policy()) for offer in offers]
    units, left_out = _common_units(sides)
    limits = {side.name: side.offer.gamma_limit(side.policy) for side in sides}
    limit = min(limits.values())
    masks = _masks(sides, units, limit)
    policy = _joint_policy(sides, masks)
    partition = _partition(sides)
    counts = [side.offer.people for side in sides]
    people = sum(counts) if partition == "rows" else min(counts)
    most = min((it.offer.most_variables for it in sides if it.offer.most_variables is not None), default=None)
    protect = tuple(dict.fromkeys(some for side in sides for some in side.offer.protect))
    errors = _errors(policy, people, most, protect)
    accepted = _in_all([side.offer.learners for side in sides])
    learners = tuple(_outlook(name, accepted, policy, errors, sides) for name in catalogue.names())
    return ConsentProposal(
        tuple(names),
        partition,
        people,
        policy,
        limit,
        masks,
        left_out,
        max(side.offer.least_records for side in sides),
        most,
        protect,
        learners,
        _in_all([side.offer.receivers for side in sides]),
        errors,
        tuple(_relaxations(sides, limits, masks, policy, people)),
    )


def _common_units(sides: Sequence[_Side]) -> tuple[list[Unit], tuple[tuple[str, str], ...]]:
    """Return the units that all their holders offer in the same form, and each other unit with a reason."""
    units: list[Unit] = []
    left_out: list[tuple[str, str]] = []
    every = dict.fromkeys(
        side.policy.group(name).names for side in sides for name in side.policy.schema.names
    )
    for unit in every:
        holders = [side for side in sides if set(unit) & set(side.policy.schema.names)]
        words = ", ".join(unit)
        withheld = [side.name for side in holders if set(unit) - set(side.variables)]
        grouped = [side for side in holders if set(unit) <= set(side.policy.schema.names)]
        if any(side.policy.group(unit[0]).names != unit for side in grouped):
            left_out.append((words, "disguised together with others by one party, and not by another"))
        elif withheld:
            left_out.append((words, f"withheld by {', '.join(withheld)}"))
        elif len({tuple(side.policy.schema[name].categories for name in unit) for side in holders}) > 1:
            left_out.append((words, f"categories differ between {', '.join(side.name for side in holders)}"))
        else:
            units.append(unit)
    return units, tuple(left_out)


def _gamma(channel: Channel | None) -> Fraction | float:
    """Return γ of a channel, inf if there is no channel."""
    return math.inf if channel is None else channel.gamma


def _masks(
    sides: Sequence[_Side], units: Iterable[Unit], limit: Fraction | float
) -> tuple[ProposedMask, ...]:
    """Return the strictest channel of every unit, made stricter until a record is within the limit."""
    masks = []
    for unit in units:
        gammas = {it.name: _gamma(it.channel(unit)) for it in sides if set(unit) <= set(it.variables)}
        least = min(gammas.values())
        bound = tuple(name for name, gamma in gammas.items() if gamma == least)
        second = min((gamma for gamma in gammas.values() if gamma > least), default=None)
        masks.append(ProposedMask(unit, tuple(gammas), least, least, bound, second))
    disguised = [float(it.offered) for it in masks if it.offered != math.inf]
    total = sum(math.log(gamma) for gamma in disguised)
    if limit == math.inf or total <= math.log(limit):
        return tuple(masks)
    factor = math.log(limit) / total
    return tuple(
        it
        if it.offered == math.inf
        else ProposedMask(
            it.names, it.holders, _scale_gamma(it.offered, factor), it.offered, it.bound_by, it.second
        )
        for it in masks
    )


def _scale_gamma(gamma: Fraction | float, factor: float) -> Fraction:
    """Return γ after its ε = ln γ is multiplied by a factor, rounded down but always above 1."""
    return max(Fraction(math.floor(SCALE * float(gamma) ** factor), SCALE), Fraction(SCALE + 1, SCALE))


def _joint_policy(sides: Sequence[_Side], masks: Sequence[ProposedMask]) -> Policy | None:
    """Return the policy of all proposed variables, None if no variable is proposed."""
    if not masks:
        return None
    categories: dict[str, Any] = {}
    channels: dict[str | tuple[str, ...], Channel] = {}
    for mask in masks:
        holder = next(side for side in sides if side.name in mask.bound_by)
        schema = holder.policy.schema
        categories |= {name: schema[name].categories for name in mask.names}
        channel = holder.channel(mask.names)
        if channel is None:
            continue
        if mask.gamma != mask.offered:
            channel = for_gamma(math.prod(len(schema[name]) for name in mask.names), mask.gamma)
        channels[mask.names if len(mask.names) > 1 else mask.names[0]] = channel
    return Policy.build(categories, channels)


def _partition(sides: Sequence[_Side]) -> Literal["rows", "columns", "cells"]:
    """Return the partition of the data among the parties.

    The same variables at all parties mean rows, disjoint variables columns, and anything else cells.
    """
    sets = [set(side.policy.schema.names) for side in sides]
    if all(some == sets[0] for some in sets):
        return "rows"
    disjoint = all(a.isdisjoint(b) for a, b in combinations(sets, 2))
    return "columns" if disjoint else "cells"


def _in_all(lists: Sequence[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    """Return the names that are in every list; a list that is None accepts all names."""
    stated = [some for some in lists if some is not None]
    if not stated:
        return None
    return tuple(name for name in dict.fromkeys(stated[0]) if all(name in some for some in stated))


def _errors(
    policy: Policy | None, people: int, most: int | None, protect: Sequence[Unit]
) -> tuple[TableError, ...]:
    """Return expected errors of tables of one, two and three variables, assuming equal shares."""
    if policy is None:
        return ()
    names = policy.schema.names
    errors = []
    for width in range(1, min(3, len(names), most or 3) + 1):
        tables = [
            it for it in combinations(names, width) if not any(set(some) <= set(it) for some in protect)
        ]
        margins = _margins(policy, tables[:MOST_TABLES], people)
        if margins:
            errors.append(TableError(width, len(tables), float(np.median(margins)), max(margins)))
    return tuple(errors)


def _margins(policy: Policy, tables: Sequence[Unit], people: int) -> list[float]:
    """Return the half-width of the 95% interval of a share in each table."""
    shares = {name: np.full(len(policy.schema[name]), 1 / len(policy.schema[name])) for name in policy.schema}
    return [it.margin(people) for it in expected_errors(policy, tables, shares)]


def _outlook(
    name: str,
    accepted: tuple[str, ...] | None,
    policy: Policy | None,
    errors: Sequence[TableError],
    sides: Sequence[_Side],
) -> LearnerOutlook:
    """Return the feasibility of a learner, judged by the smallest tables that it counts."""
    width = 1 if name == "tables" else 2
    if accepted is not None and name not in accepted:
        against = [it.name for it in sides if it.offer.learners is not None and name not in it.offer.learners]
        return LearnerOutlook(name, width, None, f"not accepted by {', '.join(against)}")
    if name in WHOLE:
        return _whole_outlook(name, policy, errors, sides)
    of_width = next((it for it in errors if it.width == width), None)
    if of_width is None:
        return LearnerOutlook(name, width, None, f"no table of {width} variables is left")
    if not math.isfinite(of_width.typical):
        return LearnerOutlook(name, width, None, "the channels leave nothing to estimate")
    return LearnerOutlook(name, width, of_width.typical, "")


def _whole_outlook(
    name: str, policy: Policy | None, errors: Sequence[TableError], sides: Sequence[_Side]
) -> LearnerOutlook:
    """Return the feasibility of a learner that counts all its variables in one table."""
    every = () if policy is None else policy.schema.names
    most = min((it.offer.most_variables or len(every) for it in sides), default=0)
    protected = any(set(some) <= set(every) for side in sides for some in side.offer.protect)
    if policy is None or len(every) > most or protected:
        return LearnerOutlook(
            name, len(every), None, "it counts all variables together, which a party forbids"
        )
    people = _people_of(sides)
    margins = _margins(policy, [every], people) if len(every) <= 12 else [math.inf]
    if not errors or not math.isfinite(margins[0]):
        return LearnerOutlook(name, len(every), None, "the table of all variables cannot be estimated")
    return LearnerOutlook(name, len(every), margins[0], "")


def _people_of(sides: Sequence[_Side]) -> int:
    counts = [side.offer.people for side in sides]
    return sum(counts) if _partition(sides) == "rows" else min(counts)


def _relaxations(
    sides: Sequence[_Side],
    limits: dict[str, Fraction | float],
    masks: Sequence[ProposedMask],
    policy: Policy | None,
    people: int,
) -> Iterable[Relaxation]:
    """Yield the conditions that each party could relax, with the gain."""
    for mask in masks:
        if mask.second is not None and len(mask.bound_by) < len(mask.holders):
            words, now = ", ".join(mask.names), _unit_margin(mask.names, mask.offered, policy, people)
            then = _unit_margin(mask.names, mask.second, policy, people)
            for name in mask.bound_by:
                yield Relaxation(
                    name,
                    f"{words}: γ = {gamma_text(mask.offered)} to {_gamma_words(mask.second)}",
                    f"a share of {words} is known to ± {100 * then:.2f} points, not {100 * now:.2f}",
                )
    for mask in masks:
        if mask.gamma != mask.offered:
            least = min(limits.values())
            for name in (name for name, limit in limits.items() if limit == least):
                now = _unit_margin(mask.names, mask.gamma, policy, people)
                then = _unit_margin(mask.names, mask.offered, policy, people)
                yield Relaxation(
                    name,
                    f"its limit, γ = {gamma_text(least)} for a record",
                    f"a share of {', '.join(mask.names)}: ± {100 * then:.2f} points, not {100 * now:.2f}",
                )
    yield from _refusals(sides)


def _refusals(sides: Sequence[_Side]) -> Iterable[Relaxation]:
    """Yield relaxations of withheld variables, and of conditions in which one party is the strictest."""
    k = sorted(side.offer.least_records for side in sides)
    widths = [side.offer.most_variables for side in sides]
    for side in sides:
        others = [it for it in sides if it is not side]
        if side.offer.withheld:
            yield Relaxation(side.name, f"withheld: {', '.join(side.offer.withheld)}", "these variables")
        if side.offer.least_records == k[-1] > k[-2]:
            yield Relaxation(side.name, f"least_records: {k[-1]}", f"groups of at least {k[-2]} records")
        most = side.offer.most_variables
        rest = [it for it in widths if it is not most]
        if most is not None and widths.count(most) == 1 and all(it is None or it > most for it in rest):
            yield Relaxation(side.name, f"most_variables: {most}", "larger tables")
        for what in ("learners", "receivers"):
            accepted = getattr(side.offer, what)
            common = _in_all([getattr(it.offer, what) for it in others])
            missing = [name for name in common or () if accepted is not None and name not in accepted]
            if missing:
                yield Relaxation(side.name, f"{what}: add {', '.join(missing)}", "all others accept these")


def _unit_margin(unit: Unit, gamma: Fraction | float, policy: Policy | None, people: int) -> float:
    """Return the half-width of the 95% interval of a share of a unit's cells under the symmetric channel."""
    if policy is None:
        return math.nan
    sizes = {name: policy.schema[name].categories for name in unit}
    cells = math.prod(len(labels) for labels in sizes.values())
    channels = {} if gamma == math.inf else {unit if len(unit) > 1 else unit[0]: for_gamma(cells, gamma)}
    return _margins(Policy.build(sizes, channels), [unit], people)[0]


def _gamma_words(gamma: Fraction | float) -> str:
    return "clear" if gamma == math.inf else f"γ = {gamma_text(gamma)}"
