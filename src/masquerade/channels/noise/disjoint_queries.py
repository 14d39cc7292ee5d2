"""Groups of queries that count no record twice: together they cost one table of noise."""

from __future__ import annotations

from collections.abc import Sequence

from masquerade.core.query import Query


def are_disjoint(first: Query, second: Query) -> bool:
    """Return True if, by their conditions, two queries cannot count the same record."""
    conditions = dict(first.where)
    return any(name in conditions and conditions[name] != label for name, label in second.where)


def group_disjoint(queries: Sequence[Query]) -> list[list[Query]]:
    """Return the queries in groups that count no record twice; each group costs one table."""
    groups: list[list[Query]] = []
    for query in queries:
        for group in groups:
            if all(are_disjoint(query, other) for other in group):
                group.append(query)
                break
        else:
            groups.append([query])
    return groups
