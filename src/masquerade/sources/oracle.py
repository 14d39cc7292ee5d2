"""The oracle: a slow, independent implementation of counting, against which sources are tested.

Every record is a dense vector over the table of all variables, inverted by least squares. Only channels and
schemas are shared with sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import prod
from typing import Any

import numpy as np

from masquerade.channels.channel import Channel
from masquerade.channels.policy import Group, Policy
from masquerade.core.axes import Floats
from masquerade.core.errors import InputError
from masquerade.core.query import Query

MOST_NUMBERS = 1 << 25  # largest total size of the vectors of all records


@dataclass(frozen=True)
class Expected:
    """Estimated counts with both types of covariance, cells in C order of the query's axes."""

    values: Floats
    population: Floats
    given_records: Floats


class Oracle:
    """Slow, independent implementation of counting: one dense vector of truths per record.

    Parameters
    ----------
    samples : sequence of frames
        Sets of records that were disguised by the policy, independently of each other. Their tables are
        added.
    policy : Policy
        Policy of the records.

    Examples
    --------
    >>> from masquerade.testing import Oracle
    >>> policy = mq.data.students_policy()
    >>> reports = mq.disguise(mq.data.students(), policy)
    >>> Oracle([reports], policy).expected(mq.Query(by="exams")).values.round(6).tolist()
    [300.0, 300.0]
    """

    def __init__(self, samples: Sequence[Any], policy: Policy) -> None:
        self.schema = policy.schema
        self.n = sum(len(frame) for frame in samples)
        if self.n * prod(self.schema.shape(tuple(self.schema))) > MOST_NUMBERS:
            raise InputError("Too many records and categories for the slow implementation: use fewer.")
        self._samples = [record_vectors(frame, policy) for frame in samples]
        self.dealt = _dealt_group(policy) is not None
        self._blocks = [_blocks_of(frame, policy) for frame in samples]
        self._known: dict[Query, Expected] = {}

    def expected(self, query: Query) -> Expected:
        """Return the answer that a source must give."""
        if query not in self._known:
            parts = [
                self._of_sample(vectors, query, blocks)
                for vectors, blocks in zip(self._samples, self._blocks, strict=True)
            ]
            sums = (
                sum(values)
                for values in zip(*((p.values, p.population, p.given_records) for p in parts), strict=True)
            )
            self._known[query] = Expected(*map(np.asarray, sums))
        return self._known[query]

    def _of_sample(self, vectors: Floats, query: Query, blocks: Sequence[_Block]) -> Expected:
        records, names = len(vectors), list(self.schema)
        for name, label in query.where:
            vectors = np.take(vectors, self.schema[name].code(label), axis=1 + names.index(name))
            names.remove(name)
        for name in [name for name in names if name not in query.by]:
            vectors = vectors.sum(axis=1 + names.index(name))
            names.remove(name)
        cells = vectors.transpose([0, *(1 + names.index(name) for name in query.by)]).reshape(records, -1)
        values, square = cells.sum(axis=0), cells.T @ cells
        samples: dict[object, list[int]] = {}
        for row, (kind, own, classes) in enumerate(blocks):
            asked = frozenset(own) & set(query.names)
            told = len(asked) >= (2 if kind == "differences" else 1)
            samples.setdefault((kind, asked, classes) if told else None, []).append(row)
        if samples:  # sample sizes were known before people reported
            sums = [(cells[rows].sum(axis=0), len(rows)) for rows in samples.values()]
            square = square - sum(np.outer(s, s) / size for s, size in sums)
            square = square + np.outer(values, values) / records
        return Expected(values, square - np.outer(values, values) / max(records, 1), square - np.diag(values))


_Block = tuple[str, tuple[str, ...], int]  # type, variables and classes of a block


def _blocks_of(frame: Any, policy: Policy) -> list[_Block]:
    """Return the block, or the group of a survey design, dealt to each record. Empty without blocks."""
    group = _dealt_group(policy)
    if group is None:
        return []
    if group.response is None:
        dealt = policy.observed[group.reports[0]]
        return [("cells", group.names, dealt.code(label)) for label in frame[dealt.name]]
    blocks = _all_blocks(group)
    return [blocks[code - 1] for code in frame[group.reports[0]]]


def _dealt_group(policy: Policy) -> Group | None:
    """Return the group whose variables are dealt in blocks or whose people are dealt into samples, if any."""
    return next(
        (each for each in policy.groups if each.response is not None or each.matrix_channel.sampled_channel),
        None,
    )


def _all_blocks(group: Group) -> list[_Block]:
    """Return the blocks in the order of their numbers."""
    response = group.response
    assert response is not None  # noqa: S101  (for the type checker: checked before)
    size = dict(zip(group.names, group.sizes, strict=True))
    cells = [
        ("cells", own, prod(size[name] for name in own)) for own in combinations(group.names, response.k)
    ]
    if response.cells == 1:
        return cells
    differences = combinations(group.names, response.k + 1)
    return cells + [("differences", own, 2**response.k) for own in differences]


def _dealt_channel(group: Group, counts: Sequence[int]) -> Floats:
    """Return the channel from all truths of a group to (block, class), with `counts` people per block."""
    response = group.response
    assert response is not None  # noqa: S101  (for the type checker: checked before)
    truths = [dict(zip(group.names, codes, strict=True)) for codes in np.ndindex(*group.sizes)]
    gamma, width = float(response.gamma), response.classes
    P = np.zeros((len(truths), len(counts) * width))
    for number, (kind, own, classes) in enumerate(_all_blocks(group)):
        for row, truth in enumerate(truths):
            codes = [truth[name] for name in own]
            sizes = [group.sizes[group.names.index(name)] for name in own]
            if kind == "differences":
                codes, sizes = [code ^ codes[0] for code in codes[1:]], sizes[1:]
            chances = np.full(classes, 1.0)
            chances[np.ravel_multi_index(codes, sizes)] = gamma
            place = number * width
            P[row, place : place + classes] = chances / (gamma + classes - 1) * counts[number] / sum(counts)
    return P


def record_vectors(frame: Any, policy: Policy) -> Floats:
    """Return one array per record over the whole table of truths, in the order of the schema.

    If reports cannot distinguish some truths, sums over such truths are still right.
    """
    vectors: list[Floats] = []
    inverses: dict[int, Floats] = {}
    known: dict[tuple[object, ...], Floats] = {}
    by = policy.stratum_variable
    for row in frame.to_dict("records"):
        same = known.get(tuple(row.values()))
        if same is not None:
            vectors.append(same)
            continue
        vector: Floats = np.ones(())
        order: list[str] = []
        for group in policy.groups_of(row[by]) if by else policy.groups:
            if id(group.channel) not in inverses:
                inverses[id(group.channel)] = _invert_group(group, frame, policy)
            inverse = inverses[id(group.channel)]
            codes = [policy.observed[name].code(row[name]) for name in group.reports]
            report = np.ravel_multi_index(codes, group.report_sizes)
            vector = np.multiply.outer(vector, inverse[report].reshape(group.sizes))
            order += group.names
        vectors.append(vector.transpose([order.index(name) for name in policy.schema]))
        known[tuple(row.values())] = vectors[-1]
    return np.array(vectors).reshape(len(vectors), *policy.schema.shape(tuple(policy.schema)))


def _invert_group(group: Group, frame: Any, policy: Policy) -> Floats:
    dealt = frame[group.reports[0]].tolist()
    counts = [dealt.count(label) for label in policy.observed[group.reports[0]].categories]
    if not isinstance(group.channel, Channel):
        return invert_matrix(_dealt_channel(group, counts))
    if group.channel.sampled_channel is None:
        return invert_channel(group.channel)
    P = np.array([[float(p) for p in row] for row in group.channel.rows]).reshape(
        group.channel.truths, len(counts), -1
    )
    seen = np.array(counts) / max(sum(counts), 1)
    return invert_matrix((P * (seen / P[0].sum(axis=1))[:, None]).reshape(group.channel.truths, -1))


def invert_channel(channel: Channel) -> Floats:
    """Return the inverse of a channel by weighted least squares, as far as it exists."""
    P = np.array([[float(p) for p in row] for row in channel.rows])
    return invert_matrix(P)


def invert_matrix(P: Floats) -> Floats:
    """Return W⁻¹Pᵀ(PW⁻¹Pᵀ)⁺ at uniform truths, by eigenvectors."""
    W = np.diag(1 / np.where(P.any(axis=0), P.mean(axis=0), 1.0))
    return np.asarray(W @ P.T @ np.linalg.pinv(P @ W @ P.T, rcond=1e-11, hermitian=True))
