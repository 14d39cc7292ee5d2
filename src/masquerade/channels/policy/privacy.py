"""Privacy measures of a policy, computed from its channels."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from masquerade.channels import measures
from masquerade.channels.channel import MOST_ENTRIES, Channel
from masquerade.channels.class_response import ClassResponse
from masquerade.channels.policy.group import Group
from masquerade.channels.policy.policy import Policy, policy_of
from masquerade.channels.policy.record import gamma_of, record_gamma
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.guarantee import READER, Disclosure, Guarantee
from masquerade.core.record_gamma import describe_clear_missing
from masquerade.core.schema import Category
from masquerade.core.util.display import Printed
from masquerade.core.util.formatting import category_text, exact_text, gamma_words, log_gamma, printable

ASSUMPTIONS = (
    "every value is drawn once per person (memoise repeated releases; each further draw multiplies γ)",
    "the disguise used OS randomness that nobody recorded",
)
DEALT = (
    "blocks were dealt at random before the first answer and are public: they reveal nothing; a variable in "
    "a block has the γ of the whole record, and fresh blocks in a later wave are a further draw"
)


@dataclass(frozen=True, slots=True)
class ChannelPrivacy:
    """The privacy measures of one channel, of a single variable or of variables disguised together."""

    variables: tuple[str, ...]
    stratum: Category | None
    gamma: Fraction | float
    gamma_within: Fraction | float
    disclosed_groups: tuple[tuple[Any, ...], ...]
    breach: tuple[tuple[float, float], ...]
    prior_entropy: float | None
    entropy: float | None
    k: int | None
    distance: float | None
    vulnerability: float | None
    capacity: float | None

    @property
    def title(self) -> str:
        """Return the variables, and the stratum if the channel is used only there."""
        names = " + ".join(self.variables)
        return names if self.stratum is None else f"{names} (stratum {category_text(self.stratum)})"

    @property
    def epsilon(self) -> float:
        """Return ln γ."""
        return log_gamma(self.gamma)


@dataclass(frozen=True, slots=True)
class PolicyPrivacy(Printed):
    """The privacy measures of a whole policy."""

    policy_id: str
    variables: tuple[ChannelPrivacy, ...]
    groups: tuple[ChannelPrivacy, ...]
    clear: tuple[str, ...]
    record_gamma: Fraction | float
    guarantee: Guarantee
    clear_missing: tuple[str, ...] = ()

    @printable
    def summary(self) -> str:
        """Return γ and ε of every channel and of a record, and the variables in clear, one line per item.

        Missing answers in clear come first.
        """
        rows = [(", ".join(item.variables), item.gamma) for item in (*self.variables, *self.groups)]
        lines = [
            f"{name}: {gamma_words(gamma)}" for name, gamma in [*rows, ("whole record", self.record_gamma)]
        ]
        clear = [f"disclosed in clear: {', '.join(self.clear)}"] if self.clear else []
        missing = [describe_clear_missing(self.clear_missing)] if self.clear_missing else []
        return "\n".join(missing + lines + clear)

    def __repr__(self) -> str:
        """Show the summary."""
        return self.summary()

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON: the exact γ as text, γ as a float, null for infinity.

        A γ whose fraction would have thousands of digits is rounded up.
        """
        return {
            "policy": self.policy_id,
            "record": gamma_figures(self.record_gamma),
            "disclosed_in_clear": list(self.clear),
            "missing_in_clear": list(self.clear_missing),
            "variables": [_channel_dict(item) for item in self.variables],
            "groups": [_channel_dict(item) for item in self.groups],
            "guarantee": self.guarantee.to_dict(),
        }


def privacy(
    policy: Policy | str | Path,
    priors: Mapping[str, Sequence[float]] | None = None,
    beliefs: Sequence[float] = (0.01, 0.05, 0.1, 0.5),
    threshold: float = 0.0,
) -> PolicyPrivacy:
    """Compute the privacy measures of all channels of a policy.

    Parameters
    ----------
    policy : Policy, str or Path
        A policy, or the path of a policy file.
    priors : mapping of str to sequence of float, optional
        Distributions of variables, for entropy, anonymity and vulnerability. By default uniform. γ and ε do
        not depend on them.
    beliefs : sequence of float, optional
        Prior beliefs ρ1 whose largest posterior ρ2* is computed.
    threshold : float, optional
        Truths with a posterior probability up to this do not count for k-anonymity.

    Returns
    -------
    PolicyPrivacy
        Measures per variable, per group of variables, and for a whole record.

    Raises
    ------
    InputError
        If a prior is given for an unknown variable, or does not sum to 1.

    Examples
    --------
    >>> found = mq.privacy(mq.data.students_policy())
    >>> found.record_gamma
    Fraction(12, 1)
    >>> print(found.summary())
    pills: γ = 3 (ε = 1.10)
    sleep: γ = 4 (ε = 1.39)
    whole record: γ = 12 (ε = 2.48)
    disclosed in clear: exams, year
    """
    policy = policy_of(policy)
    given = dict(priors or {})
    for name in given:
        if name not in policy.schema:
            raise InputError(
                f"A prior is given for {name!r}, an unknown variable.{did_you_mean(name, policy.schema)}"
            )
    figure_of = partial(_figure, policy, priors=given, beliefs=beliefs, threshold=threshold)
    disguised = set(policy.disguised)
    alone: list[ChannelPrivacy] = []
    together: list[ChannelPrivacy] = []
    listed: set[tuple[str, ...]] = set()  # groups that do not differ between strata, already listed
    for stratum in policy.strata or (None,):
        for group in policy.groups_of(stratum):
            differs = stratum if stratum is not None and group not in policy.groups else None
            if not group.disguised or (differs is None and group.names in listed):
                continue
            single = [figure_of(group, (name,), differs) for name in group.names]
            joint = figure_of(group, group.names, differs) if len(group.names) > 1 else None
            alone += [item for item in single if item is not None]
            together += [] if joint is None else [joint]
            if differs is None:
                listed |= {item.variables for item in (*single, joint) if item is not None}
    clear = tuple(name for name in policy.schema if name not in disguised)
    gamma = record_gamma(policy)
    guarantee = guarantee_of(policy)
    return PolicyPrivacy(
        policy.id, tuple(alone), tuple(together), clear, gamma, guarantee, policy.clear_missing
    )


def _figure(
    policy: Policy,
    group: Group,
    names: tuple[str, ...],
    stratum: Category | None,
    *,
    priors: Mapping[str, Sequence[float]],
    beliefs: Sequence[float],
    threshold: float,
) -> ChannelPrivacy | None:
    """Return the measures of the variables `names` of a group; None if they have no channel of their own."""
    places = [group.names.index(name) for name in names]
    prior = priors.get(names[0]) if len(names) == 1 else None
    if group.response is not None:
        bounds = tuple((belief, measures.breach_bound(group.channel.gamma, belief)) for belief in beliefs)
        alone = places[0] if len(names) == 1 else None
        figures = _dealt_figures(group.response, alone, prior, threshold)
        dealt_gamma = group.response.gamma
        return ChannelPrivacy(names, stratum, dealt_gamma, dealt_gamma, (), bounds, *figures)
    channel: Channel | None = group.matrix_channel
    if names != group.names:
        channel = None if group.own_report else marginal_of(group, places)
    if channel is None:
        return None
    small = channel.truths * channel.reports <= MOST_ENTRIES
    anonymity = channel.k_anonymity(prior, threshold) if small else None
    labels = policy.schema[names[0]].categories if len(names) == 1 else tuple(range(channel.truths))
    blocks = channel.blocks
    gamma = gamma_of(group, policy) if names == group.names else channel.gamma
    return ChannelPrivacy(
        names,
        stratum,
        gamma,
        channel.gamma_within,
        tuple(tuple(labels[code] for code in block) for block in blocks) if len(blocks) > 1 else (),
        tuple((belief, measures.breach_bound(gamma, belief)) for belief in beliefs),
        measures.entropy(measures.check_prior(prior, channel.truths)),
        channel.entropy(prior) if small else None,
        anonymity.k if anonymity else None,
        anonymity.distance if anonymity else None,
        channel.vulnerability(prior) if small else None,
        channel.capacity if small else None,
    )


def marginal_of(group: Group, places: Sequence[int]) -> Channel | None:
    """Return the channel of the variables at `places` if their reports depend on them alone."""
    return group.matrix_channel.marginal(group.sizes, group.report_sizes, places)


def _dealt_figures(
    response: ClassResponse, place: int | None, prior: Sequence[float] | None, threshold: float
) -> tuple[float | None, float | None, int | None, float | None, float | None, float | None]:
    """Return the measures of a variable in class response, over everything that a report reveals about it.

    They depend on a prior. γ does not: every variable in a block has the γ of the record.
    """
    if place is None:
        return None, None, None, None, None, None
    sampled = response.sampled_channel((place,))
    matrix = sampled.channel(sampled.shares)
    anonymity = measures.k_anonymity(matrix, prior, threshold)
    return (
        measures.entropy(measures.check_prior(prior, len(matrix))),
        measures.conditional_entropy(matrix, prior),
        anonymity.k,
        anonymity.distance,
        measures.bayes_vulnerability(matrix, prior),
        float(matrix.max(axis=0).sum()),
    )


def guarantee_of(policy: Policy) -> Guarantee:
    """Return the disclosures of records disguised by a policy: γ by group, the largest over strata."""
    gammas: dict[tuple[str, ...], Fraction | float] = {}
    for stratum in policy.strata or (None,):
        for group in policy.groups_of(stratum):
            bound = gamma_of(group, policy) if group.disguised else math.inf
            gammas[group.names] = max(gammas.get(group.names, Fraction(1)), bound)
    disguised = set(policy.disguised)
    clear = tuple(name for name in policy.schema if name not in disguised)
    disclosures = [
        Disclosure(READER, "disguised values", names, gamma if isinstance(gamma, Fraction) else None)
        for names, gamma in gammas.items()
        if not disguised.isdisjoint(names)
    ]
    if clear:
        disclosures.append(Disclosure(READER, "clear values", clear, None))
    if policy.clear_missing:
        disclosures.insert(0, Disclosure(READER, "clear missing answers", policy.clear_missing, None))
    dealt = any(group.response is not None for group in policy.groups)
    assumptions = (*ASSUMPTIONS, DEALT) if dealt else ASSUMPTIONS
    return Guarantee(tuple(disclosures), assumptions if disguised else ())


def gamma_figures(gamma: Fraction | float) -> dict[str, Any]:
    """Return plain values of a γ for JSON: its float, the exact fraction as text, and ε."""
    if not isinstance(gamma, Fraction):
        return {"gamma": None, "gamma_exact": None, "epsilon": None}
    epsilon = log_gamma(gamma)
    number = float(gamma) if epsilon < 300 * math.log(10) else None
    return {"gamma": number, "gamma_exact": exact_text(gamma), "epsilon": epsilon}


def _channel_dict(item: ChannelPrivacy) -> dict[str, Any]:
    within = gamma_figures(item.gamma_within)
    return {
        "variables": list(item.variables),
        "stratum": item.stratum,
        **gamma_figures(item.gamma),
        "within_group": within if item.disclosed_groups else None,
        "disclosed_groups": [list(group) for group in item.disclosed_groups],
        "breach": [{"rho1": before, "rho2": after} for before, after in item.breach],
        "prior_entropy_bits": item.prior_entropy,
        "conditional_entropy_bits": item.entropy,
        "k_anonymity": item.k,
        "k_distance_bits": item.distance,
        "bayes_vulnerability": item.vulnerability,
        "bayes_capacity": item.capacity,
    }
