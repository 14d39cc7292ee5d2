"""Optimised unary encoding: a yes/no bit for every category, for variables too large for one channel.

A category becomes a yes/no variable, as an item of a basket does; the bits of a person are disguised one by
one. Counts of the categories, their errors and everything that asks for one category at a time work as for
any policy. What a policy cannot know is that exactly one bit is set: its own γ over a record is that of
arbitrary baskets, and `unary_gamma` is that of one category.
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
    """Return the policy of the bits ``name=category``: true is kept with 1/2, false with γ/(γ+1).

    Disguise records whose bits say which category holds (exactly one is true).
    Formula: with q = 1/(γ+1) the variance of a rare category's count is 4γn/(γ−1)², near the least possible
    for many categories; a person reports K bits.
    Reference: Wang, Blocki, Li & Jha (2017).

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
    """Return γ of the bits of one category: two of them differ between any two truths.

    Formula: P(bits | l)/P(bits | l') has only the factors of l and l', at most p(1−q)/((1−p)q) together.

    >>> town = mq.Variable("town", ["Ulm", "Trier", "Jena"])
    >>> mq.channels.unary_gamma(mq.channels.unary_encoding(town, gamma=3))
    Fraction(3, 1)
    """
    bits = [policy.group(name).matrix_channel for name in policy.schema]
    if len(bits) < 2 or any((bit.truths, bit.reports) != (2, 2) for bit in bits):
        raise ChannelError("this policy is no unary encoding: it has variables other than yes and no.")
    return max(_most(bit, 0, 1) for bit in bits) * max(_most(bit, 1, 0) for bit in bits)


def _most(bit: Channel, first: int, second: int) -> Fraction:
    """Return the largest P(report | first)/P(report | second)."""
    rows = bit.rows
    return max(rows[first][report] / rows[second][report] for report in range(2))
