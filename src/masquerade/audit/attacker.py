"""How well an attacker who knows the population can guess one variable of a disguised record.

γ bounds how far any belief can move, for every attacker. This module computes how far the beliefs of one
attacker move, on average and in the worst case: the attacker who knows the joint distribution of all
variables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from masquerade.audit.findings import AuditTable
from masquerade.channels.policy import Group, Policy
from masquerade.channels.policy.privacy import privacy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query
from masquerade.core.util.formatting import log_gamma
from masquerade.disguising.seeded import simulate_codes

if TYPE_CHECKING:
    from masquerade.core.table import CountTable
    from masquerade.core.tally import Tally
    from masquerade.learn.networks.network import BayesianNetwork

MOST_CELLS = 1 << 18  # largest number of truths, and of reports, for an exact sum
RECORDS = 2000  # simulated records where the sum has too many terms
MARGIN = 2.0  # standard errors above the largest deviation expected by chance
Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Success:
    """Success rate of the best guess of a variable, and the change of its odds.

    Attributes
    ----------
    target : str
        The variable that is guessed.
    prior : float
        Success without any report.
    own : float
        Success with the report of the variable itself.
    others : float
        Success with the reports of all other variables.
    whole : float
        Success with the whole record.
    stderr : float
        Standard error of `whole`. 0 if it is exact.
    shift : float
        Largest factor by which the odds of two categories moved, over all reports or over the sampled ones.
    bound : float
        ln γ of the record.

    Examples
    --------
    >>> [found] = mq.audit.attack(mq.data.eleven_nodes_policy(), mq.data.eleven_nodes(), ["A"])
    >>> found.target, round(found.prior, 3), found.prior <= found.own <= found.whole
    ('A', 0.7, True)
    """

    target: str
    prior: float
    own: float
    others: float
    whole: float
    stderr: float
    shift: float
    bound: float


def attack(
    policy: Policy,
    network: BayesianNetwork,
    targets: Iterable[str] | None = None,
    *,
    records: int = RECORDS,
    seed: int | None = None,
    exact: bool | None = None,
) -> tuple[Success, ...]:
    """Compute the success of an attacker who knows the population's network and the policy.

    Parameters
    ----------
    policy : Policy
        Policy under which the record was disguised.
    network : BayesianNetwork
        Joint distribution of the variables in the population, over all or some variables of the policy.
    targets : iterable of str, optional
        Variables to guess. Without it, all disguised variables.
    records : int, optional
        Number of simulated records if success is estimated by sampling.
    seed : int, optional
        Seed of the simulated records.
    exact : bool, optional
        True for an exact sum over all reports, False for sampling. Without it, exact if the sum is short
        enough.

    Returns
    -------
    tuple of Success
        One result per target.

    Raises
    ------
    InputError
        If the network has a variable that the policy lacks, if variables are dealt in blocks, or if the
        policy is too large for an exact sum.

    Notes
    -----
    Formula: V = Σ over reports of max_x P(x, reports). It is computed by contraction where truths and reports
    are few (`exact`). Otherwise it is the mean, over simulated records, of the largest posterior, which is
    exact for each record by virtual evidence (Rao & Blackwell: less variable than counting right guesses).
    Reference: Smith (2009), Bayes vulnerability; Pearl (1988), virtual evidence.
    Error: `stderr` for sampled records. A learnt network is itself an estimate.

    Examples
    --------
    >>> [found] = mq.audit.attack(mq.data.eleven_nodes_policy(), mq.data.eleven_nodes(), ["A"])
    >>> round(found.prior, 3), round(found.own, 3), found.stderr
    (0.7, 0.75, 0.0)
    """
    for name in network.schema:
        if name not in policy.schema:
            raise InputError(f"The network has a variable {name!r} that is not in the policy.")
    if any(group.response is not None for group in policy.groups):
        raise InputError(
            "This attack is not computed where each person reports on a few of the variables: the γ of a "
            "record bounds what it could learn."
        )
    known = policy.select(network.schema.names) if set(network.schema) != set(policy.schema) else policy
    wanted = known.disguised if targets is None else tuple(targets)
    for name in wanted:
        known.schema[name]
    hidden = set(known.disguised) == set(known.schema)  # a clear column may reveal anything about the others
    bound = log_gamma(privacy(known).record_gamma) if hidden else math.inf
    small = known.stratum_variable is None and _size(known) <= MOST_CELLS
    if exact and not small:
        raise InputError("The policy is too large for an exact sum. Omit 'exact' to sample records.")
    if small if exact is None else exact:
        joint = _joint(network, known)
        return tuple([_sum_success(known, joint, name, bound) for name in wanted])
    return _sample_success(
        known, network, wanted, bound, generator=np.random.default_rng(seed), records=records
    )


def forest(source: Tally) -> BayesianNetwork:
    """Learn a network in which each variable has at most one parent.

    Notes
    -----
    Formula: the spanning forest of largest mutual information (Chow & Liu, 1968) over the pairs with at least
    one cell that deviates from independence by more than noise explains, given its standard error.
    Cost: one batch of queries for all pairs, one for the parameters.
    """
    from masquerade.learn.networks.network import bayesian_network  # noqa: PLC0415  (learners load when needed)

    names = list(source.schema)
    pairs = list(combinations(names, 2))
    answers = source.answer([Query(by=pair) for pair in pairs])
    noise = math.sqrt(2 * math.log(max(sum(table.values.size for table in answers), 2))) + MARGIN
    links = [
        (strength, *pair)
        for pair, table in zip(pairs, answers, strict=True)
        if (strength := _strength(table, noise)) > 0
    ]
    near: dict[str, set[str]] = {name: set() for name in names}
    tree = {name: {name} for name in names}
    for _, a, b in sorted(links, reverse=True):
        if tree[a] is not tree[b]:
            near[a].add(b)
            near[b].add(a)
            both = tree[a] | tree[b]
            tree |= dict.fromkeys(both, both)
    parents: dict[str, tuple[str, ...]] = {}
    for name in names:
        waiting: list[tuple[str, tuple[str, ...]]] = [] if name in parents else [(name, ())]
        while waiting:
            node, above = waiting.pop()
            parents[node] = above
            waiting += [(other, (node,)) for other in sorted(near[node]) if other not in parents]
    return bayesian_network(source, parents, prior=0.5, nonnegative=True)


def _strength(table: CountTable, noise: float) -> float:
    """Return the mutual information of two variables in nats, 0 where noise alone may explain it."""
    n = table.n
    values = table.values
    product = np.outer(values.sum(axis=1), values.sum(axis=0)) / n
    error = table.stderr()
    if n <= 0 or not np.any(np.abs(values - product) > noise * error):
        return 0.0
    shares = np.maximum(values / n, 1e-9)
    shares /= shares.sum()
    even = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    return float((shares * np.log(shares / even)).sum())


def success_table(found: Sequence[Success]) -> AuditTable:
    """Return the successes as a table of an audit."""
    rows = tuple(
        (one.target, one.prior, one.own, one.others, one.whole, one.shift, _gamma(one.bound)) for one in found
    )
    sampled = max((one.stderr for one in found), default=0.0)
    note = f"Over simulated records; standard error of the success by the whole record at most {sampled:.4f}."
    columns = ("variable", "no report", "own report", "others' reports", "whole record", "odds shift reached")
    return AuditTable(
        "How often a best guess is right, for an attacker who knows the population",
        (*columns, "bound (γ)"),
        rows,
        note if sampled else "Exact sums over all reports.",
    )


def _gamma(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _size(policy: Policy) -> int:
    truths = math.prod(math.prod(group.sizes) for group in policy.groups)
    reports = math.prod(group.channel.reports for group in policy.groups)
    return max(truths, reports) * max(len(policy.schema[name]) for name in policy.schema)


def _joint(network: BayesianNetwork, policy: Policy) -> Floats:
    """Return the joint distribution of all variables, with one axis per group of the policy."""
    order = [name for group in policy.groups for name in group.names]
    letters = {name: i for i, name in enumerate(order)}
    operands: list[Any] = []
    for table in network.usable("inference"):
        operands += [table.probabilities, [letters[axis.name] for axis in table.axes]]
    joint = np.einsum(*operands, list(range(len(order))), optimize="greedy")
    return np.asarray(joint).reshape([math.prod(group.sizes) for group in policy.groups])


def _sum_success(policy: Policy, joint: Floats, target: str, bound: float) -> Success:
    groups = policy.groups
    place, group = next((i, one) for i, one in enumerate(groups) if target in one.names)
    size = group.sizes[group.names.index(target)]
    lump = _lump(group, target)
    chosen = np.zeros((len(lump), size))
    chosen[np.arange(len(lump)), lump] = 1.0
    # truths of the target's group × (category, report): the group's channel, split by the category
    split = chosen[:, :, None] * group.matrix_channel.matrix[:, None, :]
    spread = joint
    for axis, other in enumerate(groups):
        if axis != place:
            spread = np.moveaxis(np.tensordot(spread, other.matrix_channel.matrix, (axis, 0)), -1, axis)
    others = np.tensordot(spread, chosen, (place, 0))  # reports of others × categories
    whole = np.tensordot(spread, split, (place, 0))  # reports of others × categories × own report
    alone = np.tensordot(joint.sum(axis=tuple(i for i in range(joint.ndim) if i != place)), split, (0, 0))
    prior = alone.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        moved = whole / prior[:, None]
        ratio = moved.max(axis=-2) / moved.min(axis=-2)
    reached = ratio[whole.sum(axis=-2) > 0]
    return Success(
        target,
        float(prior.max()),
        float(alone.max(axis=0).sum()),
        float(others.max(axis=-1).sum()),
        float(whole.max(axis=-2).sum()),
        0.0,
        float(np.nanmax(reached)),
        bound,
    )


def _lump(group: Group, target: str) -> NDArray[np.int64]:
    codes = np.unravel_index(np.arange(math.prod(group.sizes)), group.sizes)
    return codes[group.names.index(target)]


def _sample_success(
    policy: Policy,
    network: BayesianNetwork,
    targets: Sequence[str],
    bound: float,
    *,
    generator: np.random.Generator,
    records: int,
) -> tuple[Success, ...]:
    codes = network.sample_codes(records, generator)
    reports = simulate_codes(codes, policy, generator)
    seen = _likelihoods(policy, codes, reports)
    found = []
    for target in targets:
        group = policy.group(target)
        prior = network.posteriors(target, {})[0]
        others = network.posteriors(
            target, {names: one for names, one in seen.items() if names != group.names}
        )
        own = network.posteriors(target, {group.names: seen[group.names]})
        if len(group.names) == 1:
            whole = others * seen[group.names]
            whole /= whole.sum(axis=1, keepdims=True)
        else:
            whole = network.posteriors(target, seen)
        best = whole.max(axis=1)
        with np.errstate(divide="ignore", invalid="ignore"):
            moved = whole[:, prior > 0] / prior[prior > 0]
            shift = float((moved.max(axis=1) / moved.min(axis=1)).max())
        found.append(
            Success(
                target,
                float(prior.max()),
                float(own.max(axis=1).mean()),
                float(others.max(axis=1).mean()),
                float(best.mean()),
                float(best.std(ddof=1) / math.sqrt(len(best))),
                shift,
                bound,
            )
        )
    return tuple(found)


def _likelihoods(
    policy: Policy, codes: dict[str, Codes], reports: dict[str, Codes]
) -> dict[tuple[str, ...], Floats]:
    """Return P(reports | truths) of every group: records × categories of its variables."""
    by = policy.stratum_variable
    found: dict[tuple[str, ...], Floats] = {}
    for place, usual in enumerate(policy.groups):
        report = np.ravel_multi_index(
            tuple(reports[name].astype(np.int64) for name in usual.reports), usual.report_sizes
        )
        rows = np.empty((len(report), math.prod(usual.sizes)))
        for stratum in policy.strata or (None,):
            own = np.ones(len(report), dtype=bool)
            if stratum is not None and by is not None:
                own = codes[by] == policy.schema[by].code(stratum)
            matrix = policy.groups_of(stratum)[place].matrix_channel.matrix
            rows[own] = matrix[:, report[own]].T
        found[usual.names] = rows.reshape(len(report), *usual.sizes)
    return found


def averaging(matrix: Floats, prior: Floats, draws: int, exact_cells: int = 1 << 16) -> float | None:
    """Return the success of the best guess after `draws` fresh draws of one value.

    Returns None if the sum has more than `exact_cells` terms.

    Formula: Σ over counts of reports of max_x π(x) · multinomial(counts; P[x]).
    """
    truths, reports = matrix.shape
    if math.comb(draws + reports - 1, reports - 1) > exact_cells:
        return None
    counts, ways = _ways_to_draw(draws, reports)
    logs = np.where(matrix > 0, np.log(np.where(matrix > 0, matrix, 1.0)), -np.inf)
    with np.errstate(invalid="ignore"):
        terms = counts[:, None, :] * logs[None, :, :]
    terms = np.where(counts[:, None, :] == 0, 0.0, terms)
    joint = np.exp(terms.sum(axis=2) + ways[:, None]) * prior[None, :truths]
    return float(joint.max(axis=1).sum())


@lru_cache(maxsize=32)
def _ways_to_draw(draws: int, reports: int) -> tuple[NDArray[np.int64], Floats]:
    """Return all counts of the reports drawn, and the logarithm of the number of orders of each."""
    counts = np.array(list(_compositions(draws, reports)))
    ways = [math.lgamma(draws + 1) - sum(math.lgamma(k + 1) for k in row) for row in counts.tolist()]
    return counts, np.array(ways)


def _compositions(total: int, parts: int) -> Iterable[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def repeated_gamma(gamma: Fraction | float, draws: int) -> float:
    """Return ε of `draws` fresh draws of one value."""
    return draws * log_gamma(gamma)
