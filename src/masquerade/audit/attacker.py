"""What an attacker who knows the population achieves against one variable of a disguised record.

γ bounds how far any belief can move, whoever believes it. This module says how far the beliefs of an
attacker move who knows how the variables go together: on average, and at worst.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
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

MOST_CELLS = 1 << 18  # of truths, and of reports, for an exact sum
RECORDS = 2000  # simulated, where the sum is too long
MARGIN = 2.0  # standard errors beyond the largest that chance gives
Codes = NDArray[np.unsignedinteger[Any]]


@dataclass(frozen=True, slots=True)
class Success:
    """How often the best guess of a variable is right, and how far its odds move.

    `prior` without any report, `own` by the variable's own report, `others` by all others, `whole` by the
    whole record; `stderr` is that of `whole` where records were sampled (0: exact). `shift` is the largest
    factor by which the odds of two categories moved, over all reports or over those sampled; `bound` is ln γ
    of the record.

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
    """Return what an attacker achieves who knows the population's network, the policy and a record's reports.

    Formula: V = Σ over reports of max_x P(x, reports): by contraction where all truths and all reports are
    few (`exact`), else the mean over simulated records of the largest posterior (Rao & Blackwell: less
    variable than counting right guesses), which is exact for each record, by virtual evidence.
    Reference: Smith (2009), Bayes vulnerability; Pearl (1988), virtual evidence.
    Error: `stderr` for sampled records; a network that was learnt is itself an estimate.

    >>> [found] = mq.audit.attack(mq.data.eleven_nodes_policy(), mq.data.eleven_nodes(), ["A"])
    >>> round(found.prior, 3), round(found.own, 3), found.stderr
    (0.7, 0.75, 0.0)
    """
    for name in network.schema:
        if name not in policy.schema:
            raise InputError(f"The network has a variable {name!r} that the policy has not.")
    if any(group.response is not None for group in policy.groups):
        raise InputError(
            "Variables that are dealt in blocks are not attacked here: γ holds for their record."
        )
    known = policy.select(network.schema.names) if set(network.schema) != set(policy.schema) else policy
    wanted = known.disguised if targets is None else tuple(targets)
    for name in wanted:
        known.schema[name]
    hidden = set(known.disguised) == set(known.schema)  # a clear column may tell anything about others
    bound = log_gamma(privacy(known).record_gamma) if hidden else math.inf
    small = known.stratum_variable is None and _size(known) <= MOST_CELLS
    if exact and not small:
        raise InputError("The policy is too large for an exact sum: let records be sampled.")
    if small if exact is None else exact:
        joint = _joint(network, known)
        return tuple([_exact(known, joint, name, bound) for name in wanted])
    return _sampled(known, network, wanted, bound, generator=np.random.default_rng(seed), records=records)


def forest(source: Tally) -> BayesianNetwork:
    """Return a network over the variables of a source in which each has at most one parent.

    Formula: the spanning forest of largest mutual information (Chow & Liu, 1968) among pairs with a cell that
    is further from independence than noise takes any of them, by its standard error.
    Cost: one batch of questions for all pairs, one for the parameters.
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
    """Return successes as figures beside the words."""
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
        note if sampled else "Summed over all reports.",
    )


def _gamma(epsilon: float) -> float:
    return math.exp(epsilon) if epsilon < 700 else math.inf


def _size(policy: Policy) -> int:
    truths = math.prod(math.prod(group.sizes) for group in policy.groups)
    reports = math.prod(group.channel.reports for group in policy.groups)
    return max(truths, reports) * max(len(policy.schema[name]) for name in policy.schema)


def _joint(network: BayesianNetwork, policy: Policy) -> Floats:
    """Return the joint distribution of all variables, an axis for every group of the policy."""
    order = [name for group in policy.groups for name in group.names]
    letters = {name: i for i, name in enumerate(order)}
    operands: list[Any] = []
    for table in network.usable("inference"):
        operands += [table.probabilities, [letters[axis.name] for axis in table.axes]]
    joint = np.einsum(*operands, list(range(len(order))), optimize="greedy")
    return np.asarray(joint).reshape([math.prod(group.sizes) for group in policy.groups])


def _exact(policy: Policy, joint: Floats, target: str, bound: float) -> Success:
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


def _sampled(
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
    """Return P(reports | truths) of every group, records × categories of its variables."""
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
    """Return how often the best guess is right after so many fresh draws of one value; None if too long.

    Formula: Σ over counts of reports of max_x π(x) · multinomial(counts; P[x]).
    """
    truths, reports = matrix.shape
    if math.comb(draws + reports - 1, reports - 1) > exact_cells:
        return None
    counts = np.array(list(_compositions(draws, reports)))
    logs = np.where(matrix > 0, np.log(np.where(matrix > 0, matrix, 1.0)), -np.inf)
    with np.errstate(invalid="ignore"):
        terms = counts[:, None, :] * logs[None, :, :]
    terms = np.where(counts[:, None, :] == 0, 0.0, terms)
    ways = np.array(
        [math.lgamma(draws + 1) - sum(math.lgamma(k + 1) for k in row) for row in counts.tolist()]
    )
    joint = np.exp(terms.sum(axis=2) + ways[:, None]) * prior[None, :truths]
    return float(joint.max(axis=1).sum())


def _compositions(total: int, parts: int) -> Iterable[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def repeated_gamma(gamma: Fraction | float, draws: int) -> float:
    """Return ε of so many fresh draws of one value."""
    return draws * log_gamma(gamma)
