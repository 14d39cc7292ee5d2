"""The slow second implementation: one dense vector per record, Kronecker products and all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

import masquerade as mq


@dataclass(frozen=True)
class Expected:
    """Estimated counts and both covariances, cells in C order of the query's axes."""

    values: np.ndarray
    population: np.ndarray
    given_records: np.ndarray

    def __add__(self, other: Expected) -> Expected:
        return Expected(
            self.values + other.values,
            self.population + other.population,
            self.given_records + other.given_records,
        )


def undo(channel: mq.Channel) -> np.ndarray:
    """Return the inverse, weighted least squares for more reports than truths."""
    P = np.array([[float(p) for p in row] for row in channel.rows])
    W = np.diag(1 / P.mean(axis=0))
    return W @ P.T @ np.linalg.inv(P @ W @ P.T)


def record_vectors(frame: pd.DataFrame, policy: mq.Policy) -> np.ndarray:
    """Return one array per record over the whole truth table in schema order."""
    vectors = []
    inverses: dict[int, np.ndarray] = {}
    known: dict[tuple[object, ...], np.ndarray] = {}
    by = policy.stratum_variable
    for row in frame.to_dict("records"):
        same = known.get(tuple(row.values()))
        if same is not None:
            vectors.append(same)
            continue
        groups = policy.groups_of(row[by]) if by else policy.groups
        vector = np.ones(())
        order: list[str] = []
        for group in groups:
            inverse = inverses.setdefault(id(group.channel), undo(group.channel))
            codes = [policy.observed[name].code(row[name]) for name in group.names]
            report = np.ravel_multi_index(codes, group.report_sizes)
            vector = np.multiply.outer(vector, inverse[report].reshape(group.sizes))
            order += group.names
        vectors.append(vector.transpose([order.index(name) for name in policy.schema]))
        known[tuple(row.values())] = vectors[-1]
    return np.array(vectors)


def expected(vectors: np.ndarray, schema: mq.Schema, query: mq.Query) -> Expected:
    """Return what a source must answer about the disguised records that these vectors stand for."""
    records = len(vectors)
    names = list(schema)
    for name, label in query.where:
        vectors = np.take(vectors, schema[name].code(label), axis=1 + names.index(name))
        names.remove(name)
    for name in [name for name in names if name not in query.by]:
        vectors = vectors.sum(axis=1 + names.index(name))
        names.remove(name)
    cells = vectors.transpose([0, *(1 + names.index(name) for name in query.by)]).reshape(records, -1)
    values = cells.sum(axis=0)
    square = cells.T @ cells
    return Expected(values, square - np.outer(values, values) / records, square - np.diag(values))
