"""Survey designs by their names: channels for a yes/no question, categories in the order (yes, no)."""

from __future__ import annotations

from fractions import Fraction
from math import comb

from masquerade.channels.basic import binary
from masquerade.channels.channel import Channel, from_rows
from masquerade.channels.rationals import Rational, probability
from masquerade.core.errors import ChannelError


def warner(p: Rational) -> Channel:
    """Return Warner's (1965) design: with probability p "are you A?", otherwise "are you not A?"."""
    return binary(1 - probability(p, "p"))


def unrelated_question(p: Rational, prevalence: Rational) -> Channel:
    """Return the unrelated-question design: with probability p the sensitive question, else a harmless one.

    `prevalence` is the known share of "yes" to the harmless question.
    Reference: Greenberg, Abul-Ela, Simmons & Horvitz (1969).
    """
    asked, share = probability(p, "p"), probability(prevalence, "prevalence")
    lucky = (1 - asked) * share
    return from_rows([{0: asked + lucky, 1: 1 - asked - lucky}, {0: lucky, 1: 1 - lucky}], 2)


def forced_response(p_yes: Rational, p_no: Rational) -> Channel:
    """Return the forced-response design: "yes" on demand with p_yes, "no" with p_no, else the truth.

    Reference: Boruch (1971).
    """
    yes, no = probability(p_yes, "p_yes"), probability(p_no, "p_no")
    truth = 1 - probability(yes + no, "p_yes + p_no")
    return from_rows([{0: truth + yes, 1: no}, {0: yes, 1: truth + no}], 2)


def crosswise(p: Rational) -> Channel:
    """Return the crosswise design: "are your answers to both questions the same?".

    `p` is the known share of "yes" to the harmless question (a birthday in some months).
    Reference: Yu, Tian & Tang (2008).
    """
    share = probability(p, "p")
    return from_rows([{0: share, 1: 1 - share}, {0: 1 - share, 1: share}], 2, ("same", "different"))


def kuk(p1: Rational, p2: Rational, cards: int = 1) -> Channel:
    """Return Kuk's (1990) design: "yes" draws from a deck with share p1 of red cards, "no" with share p2.

    The report is the number of red cards among `cards` drawn (with replacement).
    """
    if isinstance(cards, bool) or not isinstance(cards, int) or cards < 1:
        raise ChannelError(f"The 'cards' parameter must be a whole number from 1. Got {cards!r} instead.")
    rows = [
        {
            red: Fraction(comb(cards, red)) * share**red * (1 - share) ** (cards - red)
            for red in range(cards + 1)
        }
        for share in (probability(p1, "p1"), probability(p2, "p2"))
    ]
    return from_rows(rows, cards + 1, tuple(range(cards + 1)))
