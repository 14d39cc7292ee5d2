"""Cost of queries in tables: covered queries are free, and queries with disjoint conditions share a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from masquerade.channels.noise.disjoint_queries import group_disjoint
from masquerade.core.query import Query
from masquerade.core.schema import Schema

MOST_CELLS = 1 << 20  # cells of one table with noise
MOST_AXES = 10  # variables of one table, which has 2^variables contrasts


def tables_to_ask(
    queries: Iterable[Query],
    covered: Collection[frozenset[str]],
    answered: Collection[Query],
    schema: Schema,
) -> list[list[Query]]:
    """Return the tables that answer queries beyond the covered ones: groups of disjoint queries.

    A group whose queries name the same variables becomes the joint table of these variables. That costs the
    same, has the same noise in every cell, and answers more.

    Parameters
    ----------
    queries : iterable of Query
        Queries to answer.
    covered : collection of frozenset of str
        Variables of the answered tables without conditions.
    answered : collection of Query
        Answered queries with conditions, as `canonical_query` writes them.
    schema : Schema
        Order and categories of the variables.

    Returns
    -------
    list of list of Query
        One list for each table.
    """
    distinct = dict.fromkeys(canonical_query(query, schema) for query in queries)
    new = [
        query
        for query in distinct
        if query.names
        and query not in answered
        and not any(names.issuperset(query.names) for names in covered)
    ]
    plain = [frozenset(query.by) for query in new if not query.where]
    new = [
        query
        for query in new
        if not any(
            names.issuperset(query.names) and (query.where or names != set(query.by)) for names in plain
        )
    ]
    result: list[list[Query]] = []
    for group in group_disjoint(new):
        names = {frozenset(query.names) for query in group}
        joint = canonical_query(Query(by=group[0].names), schema)
        result.append([joint] if len(names) == 1 and is_small(joint, schema) else group)
    joints = {frozenset(group[0].by) for group in result if not group[0].where}
    return [
        group
        for group in result
        if group[0].where or not any(frozenset(group[0].by) < other for other in joints)
    ]


def is_small(query: Query, schema: Schema) -> bool:
    """Return True if the contrasts of the table of a query can be computed."""
    return len(query.names) <= MOST_AXES and prod(schema.shape(query.by)) <= MOST_CELLS


def canonical_query(query: Query, schema: Schema) -> Query:
    """Return a query with its variables in the order of the schema."""
    order = {name: place for place, name in enumerate(schema)}
    return Query(by=sorted(query.by, key=order.__getitem__), where=query.where)
