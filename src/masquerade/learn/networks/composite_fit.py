"""Tables of a network from counts alone: the composite likelihood of pairs and families, with its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from masquerade.core.answered_tally import AnsweredTally
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.likelihood_rows import FactorEvidence, ReportFactor, ReportFactors
from masquerade.core.query import Query
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.learn.networks.joint_fit import (
    MOST_PARAMETERS,
    JointFit,
    complete_information,
    fit_tables,
    inner_chances,
    keep_inside,
    score_rows,
)
from masquerade.learn.networks.joint_likelihood import (
    JointLikelihood,
    Structure,
    Tables,
    dimension_of,
    draw_categories,
    draw_codes,
)

DRAWS = 20_000  # records drawn from the fitted network: standard errors are known to about 0.5%
BATCH = 2_000  # number of these records in a batch
SEED = 0


@dataclass(frozen=True, slots=True, eq=False)
class _Component:
    """The reports of one table: the variables, their channels (reports, categories) and the counts."""

    names: tuple[str, ...]
    channels: tuple[Floats, ...]
    codes: tuple[np.ndarray[tuple[int], np.dtype[np.intp]], ...]
    counts: Floats

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the number of reports of each variable."""
        return tuple(len(channel) for channel in self.channels)

    @property
    def is_clear(self) -> bool:
        """Return True if the reports are the truth."""
        return all(np.array_equal(channel, np.eye(len(channel))) for channel in self.channels)


def fit_composite(source: Tally, structure: Structure, families: Mapping[str, CountTable]) -> JointFit:
    """Maximise the composite likelihood of a source's tables over the parameters of a network.

    There is a table for every pair of variables and for every family of three or more. Each is scored as if
    it had been reported alone. Clear counts need no pairs: the likelihood of their families is the joint
    likelihood, and its maximum is computed directly.

    Parameters
    ----------
    source : Tally
        Any source whose tables are counts of reports.
    structure : mapping of str to tuple of str
        Parents of every node.
    families : mapping of str to CountTable
        Counts of every node and its parents, the parents as leading axes.

    Returns
    -------
    JointFit
        The maximum, with the covariance of all parameters.

    Raises
    ------
    InputError
        If a table has no counts of reports, or variables were disguised together.

    Notes
    -----
    Formula: cl(θ) = Σ_C Σ_y n_C(y) log P_θ(y), and Cov θ̂ = H⁻¹ J H⁻¹, with H = Σ_C Σ_y n_C(y) s_C(y) s_C(y)'
    for the scores s_C of the reports of a table, and J = n Cov(Σ_C s_C) over the tables of one record.
    Reference: Godambe (1960); Lindsay (1988); Varin, Reid & Firth (2011).
    Cost: one batch with one query per pair; O(cells of all tables · cells of the cliques) a step.
    Error: tables do not show which reports belong to one record, so J is computed from `DRAWS` records drawn
    from the fitted network, and is valid if the network is right.
    """
    if isinstance(source, AnsweredTally):
        raise InputError(
            "The composite likelihood needs all people, and some answers are missing: use missing='category'."
        )
    own = {name: _component(families[name], (*structure[name], name)) for name in structure}
    if all(component.is_clear for component in own.values()):
        return _clear_fit(structure, families)
    pairs: list[tuple[str, ...]] = [*combinations(structure, 2)] or [tuple(structure)]
    tables = source.answer([Query(by=pair) for pair in pairs])
    components = [_component(table, pair) for table, pair in zip(tables, pairs, strict=True)]
    components += [component for component in own.values() if len(component.names) > 2]
    channels = _shared_channels(components)
    sizes = {name: channel.shape[1] for name, channel in channels.items()}
    joint = JointLikelihood([_stack(components, channels)], structure, sizes)
    start = inner_chances({name: np.maximum(table.values, 0.0) for name, table in families.items()})
    fit = fit_tables(joint, start)
    n = joint.n / len(components)
    covariance = fit.covariance
    if covariance is not None:
        covariance = covariance @ (n * _spread(joint, fit.tables, components, channels)) @ covariance
    return replace(
        fit,
        n=n,
        counts={name: counts / len(components) for name, counts in fit.counts.items()},
        covariance=covariance,
        is_composite=True,
    )


def _component(table: CountTable, names: Sequence[str]) -> _Component:
    """Return the reports of a table; raise InputError if it has none, or variables share a channel."""
    evidence = table.evidence
    found = evidence.report_factors(names) if isinstance(evidence, FactorEvidence) else None
    if found is None or any(len(factor.names) > 1 for factor in found.factors):
        raise InputError(
            f"The table of {', '.join(names)} is not a count of reports of single variables: it has noise or "
            "weights, or variables were disguised together. Use method='counts'."
        )
    order = [[factor.names[0] for factor in found.factors].index(name) for name in names]
    factors = [found.factors[place] for place in order]
    return _Component(
        tuple(names),
        tuple(factor.chances for factor in factors),
        tuple(factor.report for factor in factors),
        found.weights,
    )


def _shared_channels(components: Sequence[_Component]) -> dict[str, Floats]:
    """Return the channel of every variable (reports, categories); raise InputError if tables differ."""
    channels: dict[str, Floats] = {}
    for component in components:
        for name, channel in zip(component.names, component.channels, strict=True):
            if not np.array_equal(channels.setdefault(name, channel), channel):
                raise InputError(
                    f"Tables of {name!r} have different channels: the composite likelihood needs one channel "
                    "for all records. Use method='counts'."
                )
    return channels


def _stack(components: Sequence[_Component], channels: Mapping[str, Floats]) -> ReportFactors:
    """Return the cells of all tables as records, in which variables outside a table were not asked.

    A variable that was not asked has one additional report, with probability 1 for every truth.
    """
    weights = np.concatenate([component.counts for component in components])
    factors = []
    for name, channel in channels.items():
        report = np.full(len(weights), len(channel), dtype=np.intp)
        at = 0
        for component in components:
            if name in component.names:
                codes = component.codes[component.names.index(name)]
                report[at : at + len(codes)] = codes
            at += len(component.counts)
        chances = np.concatenate([channel, np.ones((1, channel.shape[1]))])
        factors.append(ReportFactor((name,), chances, report))
    return ReportFactors(tuple(factors), weights)


def _spread(
    joint: JointLikelihood,
    tables: Tables,
    components: Sequence[_Component],
    channels: Mapping[str, Floats],
) -> Floats:
    """Return the covariance of the summed scores of one record, from records drawn from the network."""
    parts = [score_rows(tables, families).T for _, _, families in joint.scores(tables)]
    scores = np.ascontiguousarray(np.concatenate(parts))  # one row per cell of the tables, as stacked
    generator = np.random.default_rng(SEED)
    gram = np.zeros((scores.shape[1],) * 2)
    for _ in range(DRAWS // BATCH):
        truth = draw_codes(joint.structure, tables, BATCH, generator)
        reports = {
            name: draw_categories(channel.T[truth[name]], generator) for name, channel in channels.items()
        }
        total, at = np.zeros((BATCH, scores.shape[1])), 0
        for component in components:
            cells = np.ravel_multi_index([reports[name] for name in component.names], component.shape)
            total += scores[at + cells]
            at += len(component.counts)
        gram += total.T @ total
    return gram / (DRAWS // BATCH * BATCH)


def _clear_fit(structure: Structure, families: Mapping[str, CountTable]) -> JointFit:
    """Return the maximum of the likelihood of clear counts: the shares of every family."""
    counts = {name: np.asarray(table.values, dtype=float) for name, table in families.items()}
    tables = {}
    for name, table in counts.items():
        total = table.sum(axis=-1, keepdims=True)
        shares = np.where(total > 0, table / np.where(total > 0, total, 1.0), 1 / table.shape[-1])
        tables[name] = keep_inside(shares)
    value = sum(float(np.sum(table * np.log(tables[name]))) for name, table in counts.items())
    sizes = {name: table.shape[-1] for name, table in counts.items()}
    dimension = dimension_of(structure, sizes)
    covariance = None
    if dimension <= MOST_PARAMETERS:
        covariance = np.asarray(np.linalg.pinv(complete_information(tables, counts), hermitian=True))
    n = float(next(iter(counts.values())).sum())
    return JointFit(tables, value, dimension, n, counts, covariance, has_converged=True, is_composite=True)
