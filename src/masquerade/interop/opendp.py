"""OpenDP's randomized response: its arguments for a disguised variable, and its channel as a policy.

``make_randomized_response(categories, prob)`` of OpenDP returns the truth with probability `prob`, and
otherwise one of the other categories with equal probability: k-ary randomized response. Its ε is
ln(prob·(k − 1)/(1 − prob)), which equals ln γ of this channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import inf, nextafter
from typing import Any

from masquerade.channels.basic import symmetric
from masquerade.channels.policy import Policy
from masquerade.channels.rationals import Rational, probability
from masquerade.core.errors import ChannelError, InputError
from masquerade.core.schema import Category


def to_opendp(policy: Policy, name: str) -> dict[str, Any]:
    """Return the arguments of OpenDP's ``make_randomized_response`` for a variable.

    Parameters
    ----------
    policy : Policy
        Policy that disguises the variable by k-ary randomized response.
    name : str
        The variable.

    Returns
    -------
    dict
        `categories` and `prob`. `prob` is a float, rounded towards 1/k: γ never increases.

    Raises
    ------
    ChannelError
        If the variable is disguised by a different channel.
    InputError
        If the variable is not disguised.

    Examples
    --------
    >>> mq.interop.to_opendp(mq.data.students_policy(), "pills")
    {'categories': ['yes', 'no'], 'prob': 0.75}
    """
    categories = policy.schema[name].categories
    own = [group for group in policy.groups if name in group.names and group.disguised]
    if not own:
        raise InputError(f"{name!r} is not disguised: there is nothing to convert.")
    [group] = own
    single = len(group.names) == 1 and group.response is None and policy.stratum_variable is None
    keep = _keep(group.matrix_channel.rows) if single and group.matrix_channel.labels is None else None
    if keep is None or not Fraction(1, len(categories)) <= keep < 1:
        raise ChannelError(
            f"{name!r} is not disguised by k-ary randomized response (`symmetric`, or `binary` with one p): "
            "OpenDP's make_randomized_response is a different channel."
        )
    rounded = float(keep)
    return {"categories": list(categories), "prob": rounded if rounded <= keep else nextafter(rounded, -inf)}


def from_opendp(name: str, categories: Sequence[Category], prob: Rational) -> Policy:
    """Return the policy of a variable disguised by OpenDP's ``make_randomized_response``.

    Parameters
    ----------
    name : str
        The variable.
    categories : sequence of category
        Its categories, at least two.
    prob : float, str or Fraction
        Probability of reporting the truth, between 1/k and 1.

    Returns
    -------
    Policy
        A policy of this variable.

    Raises
    ------
    ChannelError
        If `prob` is not between 1/k and 1.

    Examples
    --------
    >>> policy = mq.interop.from_opendp("pills", ["yes", "no"], "0.75")
    >>> policy.group("pills").channel.gamma
    Fraction(3, 1)
    """
    keep = probability(prob, "prob")
    if len(categories) < 2 or not Fraction(1, len(categories)) < keep < 1:
        raise ChannelError(
            "OpenDP's 'prob' must be between 1/k and 1, for k categories, at least 2: at 1/k nothing can be "
            "estimated, at 1 nothing is disguised."
        )
    return Policy.build({name: list(categories)}, {name: symmetric(len(categories), 1 - keep)})


def _keep(rows: Sequence[Sequence[Fraction]]) -> Fraction | None:
    """Return P(truth) if all other reports of a channel have the same probability, else None."""
    own = {row[place] for place, row in enumerate(rows) if place < len(row)}
    others = {chance for place, row in enumerate(rows) for at, chance in enumerate(row) if at != place}
    square = all(len(row) == len(rows) for row in rows)
    return own.pop() if square and len(own) == 1 and len(others) == 1 else None
