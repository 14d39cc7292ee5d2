"""Optimised unary encoding: one yes/no bit per category, for variables too large for one channel.

Each category becomes a yes/no variable, like an item of a basket. The bits of a person are disguised
independently. Counts of categories, their errors and all queries about a single category work as for any
policy. The policy does not state that exactly one bit is set, so its γ of a record allows for all
combinations of bits. `unary_gamma` is the smaller γ between two categories.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from masquerade.channels.basic import binary
from masquerade.channels.channel import Channel
from masquerade.channels.policy.policy import Policy
from masquerade.channels.privacy_level import gamma_of
from masquerade.channels.rationals import Rational
from masquerade.core.errors import ChannelError
from masquerade.core.schema import Schema, Variable


def unary_encoding(
    variable: Variable,
    gamma: Rational | None = None,
    *,
    epsilon: Rational | None = None,
    breach: Sequence[Rational] | None = None,
) -> Policy:
    """Return the policy of the bits ``name=category``: true is kept with probability 1/2, false with γ/(γ+1).

    Disguise records of bits in which only the bit of the person's category is true.

    Parameters
    ----------
    variable : Variable
        The variable to encode, with at least two categories.
    gamma, epsilon, breach : optional
        Privacy level of a record: γ, or ε = ln γ, or two beliefs (ρ1, ρ2). Give one of them.

    Returns
    -------
    Policy
        One yes/no variable per category.

    Notes
    -----
    Formula: with q = 1/(γ+1) the variance of a rare category's count is 4γn/(γ−1)², near the least possible
    for many categories. A person reports K bits, one per category.
    Reference: Wang, Blocki, Li & Jha (2017).

    Examples
    --------
    >>> town = mq.Variable("town", ["Ulm", "Trier", "Jena"])
    >>> policy = mq.channels.unary_encoding(town, gamma=3)
    >>> list(policy.schema)
    ['town=Ulm', 'town=Trier', 'town=Jena']
    """
    bound = gamma_of(gamma, epsilon, breach)
    if len(variable) < 2:
        raise ChannelError("A unary encoding needs at least 2 categories.")
    names = [f"{variable.name}={label}" for label in variable.categories]
    schema = Schema(dict.fromkeys(names, (True, False)))
    channel = binary(Fraction(1, 2), 1 / (bound + 1))
    return Policy.build(schema, dict.fromkeys(names, channel))


def unary_gamma(policy: Policy) -> Fraction:
    """Return γ of a unary encoding of records that have exactly one category.

    Formula: in P(bits | l)/P(bits | l') only the bits l and l' have different truths. Their factors multiply
    to at most p(1−q)/((1−p)q).

    >>> town = mq.Variable("town", ["Ulm", "Trier", "Jena"])
    >>> mq.channels.unary_gamma(mq.channels.unary_encoding(town, gamma=3))
    Fraction(3, 1)
    """
    bits = [policy.group(name).matrix_channel for name in policy.schema]
    if len(bits) < 2 or any((bit.truths, bit.reports) != (2, 2) for bit in bits):
        raise ChannelError("this policy is not a unary encoding: some variables are not yes/no bits.")
    return max(_most(bit, 0, 1) for bit in bits) * max(_most(bit, 1, 0) for bit in bits)


def _most(bit: Channel, first: int, second: int) -> Fraction:
    """Return the largest P(report | first)/P(report | second)."""
    rows = bit.rows
    return max(rows[first][report] / rows[second][report] for report in range(2))
