"""What follows for a respondent from a policy: how sure of an answer what is sent can make anybody."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import count

from masquerade.channels.policy import Group, Policy


def surest(gamma: Fraction | float) -> dict[str, int]:
    """Return as `k` of `m` how sure somebody can be, at most, who was in two minds, 50 of 100, before.

    Formula: a report multiplies the odds of anything about an answer by γ at most, so that even odds become
    γ/(1 + γ). Rounded up to hundredths, or finer where only that says less than certain.
    Reference: Evfimievski, Gehrke, Srikant, PODS 2003 (amplification).

    >>> surest(Fraction(3)), surest(Fraction(500))
    ({'k': 75, 'm': 100}, {'k': 999, 'm': 1000})
    """
    if math.isinf(gamma):
        return {"k": 100, "m": 100}
    share = Fraction(gamma) / (1 + Fraction(gamma))
    m = next(m for m in (10**digits for digits in count(2)) if math.ceil(share * m) < m)
    return {"k": math.ceil(share * m), "m": m}


def surest_of(policy: Policy) -> dict[str, dict[str, int] | None]:
    """Return for each variable how sure what is sent for it can make anybody; nothing if that is itself."""
    found: dict[str, dict[str, int] | None] = {}
    for name in policy.schema:
        own = [gamma_of(group) for group in _groups(policy) if name in group.names]
        found[name] = None if None in own else surest(max(gamma for gamma in own if gamma is not None))
    return found


def surest_of_all(policy: Policy) -> dict[str, int]:
    """Return how sure everything that is disguised can make anybody together, of whatever it is about.

    The answers of one person may hang together in any way: the γ of what is drawn apart multiply.
    """
    products = []
    for label in policy.strata or (None,):
        own = [gamma_of(group) for group in policy.groups_of(label)]
        products.append(math.prod(gamma for gamma in own if gamma is not None))
    return surest(max(products))


def gamma_of(group: Group) -> Fraction | float | None:
    """Return the γ of a group of variables that are disguised together; nothing if they are not disguised."""
    if group.response is not None:
        return group.response.gamma
    return group.matrix_channel.gamma if group.disguised else None


def _groups(policy: Policy) -> list[Group]:
    return [group for label in policy.strata or (None,) for group in policy.groups_of(label)]
