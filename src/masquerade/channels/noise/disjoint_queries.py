"""Queries that count nobody twice: together they cost one table of noise."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.core.query import Query


def are_disjoint(first: Query, second: Query) -> bool:
    """Return True if no record is counted by both queries, by their conditions alone."""
    conditions = dict(first.where)
    return any(name in conditions and conditions[name] != label for name, label in second.where)


def group_disjoint(queries: Sequence[Query]) -> list[list[Query]]:
    """Return groups of queries in which nobody is counted twice. Each group costs one table."""
    groups: list[list[Query]] = []
    for query in queries:
        for group in groups:
            if all(are_disjoint(query, other) for other in group):
                group.append(query)
                break
        else:
            groups.append([query])
    return groups
