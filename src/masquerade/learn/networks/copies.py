"""Variables that the reports cannot distinguish: equal in truth, up to the names of their categories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import comb, sqrt

import numpy as np

from masquerade.core.distributions import two_sided_quantile
from masquerade.core.schema import Schema
from masquerade.core.table import CountTable

FALSE_ALARMS = 1e-3  # probability that a structure names any pair that differs by `MOST_DIFFERENT` or more
MOST_DIFFERENT = 0.1  # disagreement of two variables, relative to independent variables with the same shares
CONTRADICTED = 0.01  # probability that equal variables are not named


def is_copy(table: CountTable, alarms: float) -> bool:
    """Return True if the reports are consistent with two equal variables, and rule out a large difference.

    Parameters
    ----------
    table : CountTable
        Counts over two variables with the same number of categories.
    alarms : float
        Probability of True for variables whose disagreement is at least `MOST_DIFFERENT` times the
        disagreement of independent variables.

    Returns
    -------
    bool
        True if the categories match one to one, the number of records in which they disagree is not
        significantly above 0, and is significantly below the limit.

    Notes
    -----
    Formula: D is the number of records whose categories do not match, E = n − Σ_k N_k· N_·π(k) / n its value
    for independent variables. The conditions are D ≤ z s, with s the standard error from the disguise
    alone, and (0.1 E − D) ≥ z' s', with s' the standard error of D. Agreement on a frequent category alone
    never suffices, because E is small then.
    """
    counts = table.values
    match = counts.argmax(axis=1)
    if len(set(match.tolist())) < len(match):
        return False
    apart = np.ones(counts.shape)
    apart[np.arange(len(match)), match] = 0.0
    total = float(counts.sum())
    if total <= 0:
        return False
    differ = float((apart * counts).sum())
    by_chance = total - float(counts.sum(axis=1) @ counts.sum(axis=0)[match]) / total
    limit = MOST_DIFFERENT * by_chance
    if limit <= 0:
        return False
    noise = sqrt(max(table.covariance.quadratic(apart, "given_records"), 0.0))
    spread = sqrt(max(table.covariance.quadratic(apart, "population"), noise**2 + limit))
    is_equal = differ <= two_sided_quantile(1 - 2 * CONTRADICTED) * noise + 1e-9 * total
    return is_equal and limit - differ >= two_sided_quantile(1 - 2 * alarms) * spread


def find_copies(
    schema: Schema, links: Iterable[tuple[str, str]], tables: Mapping[str, CountTable]
) -> tuple[tuple[str, ...], ...]:
    """Return groups of linked variables that the reports cannot distinguish.

    Parameters
    ----------
    schema : Schema
        All variables. `FALSE_ALARMS` is divided by the number of their pairs, from which links were chosen.
    links : iterable of (str, str)
        Links of a structure, as (parent, child).
    tables : mapping of str to CountTable
        For every child, counts over it and its parents.

    Returns
    -------
    tuple of tuple of str
        Groups, each in the order of the schema. The probability that any of them contains a pair that
        `is_copy` should not name is at most `FALSE_ALARMS`.
    """
    sizes = Counter(len(schema[name]) for name in schema)
    pairs = sum(comb(count, 2) for size, count in sizes.items() if size > 1)
    groups: dict[str, frozenset[str]] = {name: frozenset([name]) for name in schema}
    for parent, child in links:
        if len(schema[parent]) != len(schema[child]) or len(schema[child]) < 2:
            continue
        if is_copy(tables[child].marginal((parent, child)), FALSE_ALARMS / pairs):
            both = groups[parent] | groups[child]
            groups |= dict.fromkeys(both, both)
    distinct = dict.fromkeys(groups[name] for name in schema if len(groups[name]) > 1)
    return tuple(tuple(name for name in schema if name in group) for group in distinct)


def describe_copies(groups: Sequence[Sequence[str]]) -> list[str]:
    """Return a note on variables that the reports cannot distinguish; empty if there are none."""
    if not groups:
        return []
    text = "; ".join(" = ".join(group) for group in groups)
    note = f"the reports cannot distinguish {text}: links of one may be links of the other"
    return [f"{note} (chance of a wrong pair here: at most {FALSE_ALARMS:g})"]
