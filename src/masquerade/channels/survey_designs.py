"""Designs that ask one yes/no question indirectly, and what more truths tell of those who do not play along.

Categories are in the order (yes, no). Somebody who does not follow the instructions is another truth; a
random group that a person is dealt into is a column of the report, and so are several answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb, prod

from masquerade.channels.basic import binary
from masquerade.channels.channel import Channel, check_cost, from_rows, from_weights
from masquerade.channels.rationals import Rational, probability, shown
from masquerade.core.errors import ChannelError
from masquerade.core.schema import Category, Variable

Pair = Sequence[Rational]
Answers = dict[tuple[int, ...], Fraction]  # chances of codes of the answers
YES_NO: tuple[Category, ...] = ("yes", "no")
MOST_ITEMS = 30


def warner(p: Rational) -> Channel:
    """Return Warner's (1965) design: with probability p "are you A?", otherwise "are you not A?".

    >>> mq.channels.warner(0.7).row(0)
    {0: Fraction(7, 10), 1: Fraction(3, 10)}
    """
    return binary(1 - probability(p, "p"))


def unrelated_question(p: Rational, prevalence: Rational) -> Channel:
    """Return the unrelated-question design: with probability p the sensitive question, else a harmless one.

    `prevalence` is the known share of "yes" to the harmless question.
    Reference: Greenberg, Abul-Ela, Simmons & Horvitz (1969).

    >>> mq.channels.unrelated_question(0.7, 0.5).gamma
    Fraction(17, 3)
    """
    asked, share = probability(p, "p"), probability(prevalence, "prevalence")
    lucky = (1 - asked) * share
    return from_rows([{0: asked + lucky, 1: 1 - asked - lucky}, {0: lucky, 1: 1 - lucky}], 2)


def forced_response(p_yes: Rational, p_no: Rational) -> Channel:
    """Return the forced-response design: "yes" on demand with p_yes, "no" with p_no, else the truth.

    Reference: Boruch (1971).

    >>> channel = mq.channels.forced_response("1/6", "1/6")
    >>> channel.row(0), channel.gamma
    ({0: Fraction(5, 6), 1: Fraction(1, 6)}, Fraction(5, 1))
    """
    yes, no = probability(p_yes, "p_yes"), probability(p_no, "p_no")
    truth = 1 - probability(yes + no, "p_yes + p_no")
    return from_rows([{0: truth + yes, 1: no}, {0: yes, 1: truth + no}], 2)


def kuk(p1: Rational, p2: Rational, cards: int = 1) -> Channel:
    """Return Kuk's (1990) design: "yes" draws from a deck with share p1 of red cards, "no" with share p2.

    The report is the number of red cards among `cards` drawn (with replacement).

    >>> mq.channels.kuk(0.8, 0.2, cards=2).labels
    (0, 1, 2)
    """
    if isinstance(cards, bool) or not isinstance(cards, int) or cards < 1:
        raise ChannelError(f"The 'cards' parameter must be a whole number from 1. Got {cards!r} instead.")
    rows = []
    for share in (probability(p1, "p1"), probability(p2, "p2")):
        check_cost(cards + 1, cards * share.denominator.bit_length())
        red, other = share.numerator, share.denominator - share.numerator
        rows.append(
            [comb(cards, drawn) * red**drawn * other ** (cards - drawn) for drawn in range(cards + 1)]
        )
    return from_weights(rows, tuple(range(cards + 1)))


def mangat(p: Rational) -> Channel:
    """Return Mangat's (1994) design: a "yes" is said as it is, a "no" with probability p, else "yes" too.

    >>> mq.channels.mangat(0.75).row(1)
    {0: Fraction(1, 4), 1: Fraction(3, 4)}
    """
    kept = probability(p, "p")
    return from_rows([{0: Fraction(1)}, {0: 1 - kept, 1: kept}], 2)


def triangular(p: Rational) -> Channel:
    """Return the triangular design: a circle is drawn by who says no to both questions, else a triangle.

    `p` is the known share of "yes" to the harmless question. γ is infinite: a circle excludes "yes".
    Reference: Yu, Tian & Tang (2008).

    >>> channel = mq.channels.triangular(0.25)
    >>> channel.labels, channel.gamma
    (('triangle', 'circle'), inf)
    """
    share = probability(p, "p")
    return from_rows([{0: Fraction(1)}, {0: share, 1: 1 - share}], 2, ("triangle", "circle"))


def crosswise(p: Rational, anchor: Rational | None = None) -> Channel:
    """Return the crosswise design: "are your answers to both questions the same?".

    `p` is the known share of "yes" to the harmless question (a birthday in some months). With an `anchor`,
    the same is asked about something that nobody does, with that share of "yes" to its harmless question:
    truths are then (yes, no, inattentive), who answer both at random; reports have the columns answer and
    anchor.
    Reference: Yu, Tian & Tang (2008); Atsusaka & Stevenson (2021) for the anchor.

    >>> mq.channels.crosswise(0.25).gamma
    Fraction(3, 1)
    >>> [column.name for column in mq.channels.crosswise(0.15, anchor=0.15).columns]
    ['answer', 'anchor']
    """
    share, said = probability(p, "p"), ("same", "different")
    if anchor is None:
        return from_rows([{0: share, 1: 1 - share}, {0: 1 - share, 1: share}], 2, said)
    same = 1 - probability(anchor, "anchor")
    rows: list[Answers] = [
        {(i, j): a * b for i, a in enumerate((first, 1 - first)) for j, b in enumerate((second, 1 - second))}
        for first, second in ((share, same), (1 - share, same), (Fraction(1, 2), Fraction(1, 2)))
    ]
    return _in_columns(rows, [Variable("answer", said), Variable("anchor", said)])


def cheater_detection(p_yes: Pair, p_no: Pair = (0, 0), share: Rational = "1/2") -> Channel:
    """Return the cheater detection design: two groups with different chances of a forced "yes".

    Truths are (yes, no, cheat): who cheats says "no" whatever the instruction is. `p_yes` and `p_no` are the
    chances of being told to say yes or no, in both groups (with `p_no` it is the symmetric design); `share`
    is that of the first group. Reports have the columns group and answer.
    Reference: Clark & Desharnais (1998); Ostapczuk, Moshagen, Zhao & Musch (2009) for the symmetric one.

    >>> channel = mq.channels.cheater_detection([0.2, 0.8])
    >>> [column.name for column in channel.columns], channel.reports
    (['group', 'answer'], 4)
    """
    yes, no = _pair(p_yes, "p_yes"), _pair(p_no, "p_no")
    for a, b in zip(yes, no, strict=True):
        probability(a + b, "p_yes + p_no")

    def answers(truth: int, group: int) -> Answers:
        said = (1 - no[group], yes[group], Fraction(0))[truth]
        return {(0,): said, (1,): 1 - said}

    return _in_groups(3, answers, [Variable("answer", YES_NO)], (1, 2), share)


def stochastic_lie_detector(p: Pair, share: Rational = "1/2") -> Channel:
    """Return the stochastic lie detector: those who would say no answer by chance, others may lie.

    Truths are (yes, no, lying yes). A "no" is said as it is with the probability `p` of the group, else "yes"
    is said; who lies says "no". The prevalence is that of yes and lying yes together. Reports have the
    columns group and answer.
    Reference: Moshagen, Musch & Erdfelder (2012).

    >>> channel = mq.channels.stochastic_lie_detector([0.9, 0.6])
    >>> [(column.name, column.categories) for column in channel.columns]
    [('group', (1, 2)), ('answer', ('yes', 'no'))]
    """
    kept = _pair(p, "p")

    def answers(truth: int, group: int) -> Answers:
        said = (Fraction(1), 1 - kept[group], Fraction(0))[truth]
        return {(0,): said, (1,): 1 - said}

    return _in_groups(3, answers, [Variable("answer", YES_NO)], (1, 2), share)


def unrelated_unknown(p: Pair, share: Rational = "1/2") -> Channel:
    """Return the unrelated-question design for a harmless question whose prevalence nobody knows.

    Truths are combinations of two variables, the sensitive and the harmless answer. `p` are the chances of
    the sensitive question in both groups (0 in the second: it only answers the harmless one). Reports have
    the columns group and answer. Both variables can be counted, not their combinations.
    Reference: Greenberg, Abul-Ela, Simmons & Horvitz (1969).

    >>> mq.channels.unrelated_unknown([0.7, 0]).truths
    4
    """
    asked = _pair(p, "p")

    def answers(truth: int, group: int) -> Answers:
        said = asked[group] * (truth < 2) + (1 - asked[group]) * (truth % 2 == 0)
        return {(0,): said, (1,): 1 - said}

    return _in_groups(4, answers, [Variable("answer", YES_NO)], (1, 2), share)


def list_experiment(
    items: int, share: Rational = "1/2", groups: Sequence[Category] = ("control", "treated")
) -> Channel:
    """Return the item count technique: how many of some statements hold, with a sensitive one in one group.

    Truths are combinations of two variables: how many of `items` harmless statements hold (0 to items), and
    the sensitive answer. `share` is that of the control group, the first of `groups`. Reports have the
    columns group and answer. γ is infinite: in the treated group "none" and "all" disclose the sensitive
    answer.
    Reference: Miller (1984); Blair & Imai (2012), whose test of "no design effect" is the misfit test here.

    >>> channel = mq.channels.list_experiment(4)
    >>> [(column.name, column.categories) for column in channel.columns]
    [('group', ('control', 'treated')), ('answer', (0, 1, 2, 3, 4, 5))]
    """
    most = _items(items, "items")

    def answers(truth: int, group: int) -> Answers:
        held, sensitive = truth // 2, truth % 2 == 0
        return {(held + (group and sensitive),): Fraction(1)}

    counts = Variable("answer", tuple(range(most + 2)))
    return _in_groups(2 * (most + 1), answers, [counts], groups, share)


def double_list(
    first: int, second: int, share: Rational = "1/2", groups: Sequence[Category] = ("first", "second")
) -> Channel:
    """Return the double list experiment: everybody counts two lists, the sensitive statement is in one.

    Truths are combinations of three variables: how many statements of either list hold, and the sensitive
    answer, which people of the first of `groups` find in the first list. Reports have the columns group,
    first and second.
    Reference: Droitcour et al. (1991); Glynn (2013).

    >>> channel = mq.channels.double_list(3, 3)
    >>> [column.name for column in channel.columns], channel.truths
    (['group', 'first', 'second'], 32)
    """
    sizes = (_items(first, "first") + 1, _items(second, "second") + 1)

    def answers(truth: int, group: int) -> Answers:
        (one, two), sensitive = divmod(truth // 2, sizes[1]), truth % 2 == 0
        return {(one + (sensitive and group == 0), two + (sensitive and group == 1)): Fraction(1)}

    columns = [Variable("first", tuple(range(sizes[0] + 1))), Variable("second", tuple(range(sizes[1] + 1)))]
    return _in_groups(2 * prod(sizes), answers, columns, groups, share)


def self_protective_no(items: Sequence[Channel]) -> Channel:
    """Return several items of a design where some people say "no" to all, whatever the instruction is.

    Truths are combinations of the items' own and of one more variable, (follows, protective). `items` are the
    channels of the items, "no" being the last report of each; reports have a column for each. More truths
    than reports: tables need a log-linear model of them, such as independence of the last variable.
    Reference: Böckenholt & van der Heijden (2007); Cruyff, van den Hout, van der Heijden & Böckenholt (2007).

    >>> items = [mq.channels.forced_response("1/6", "1/6")] * 2
    >>> channel = mq.channels.self_protective_no(items)
    >>> channel.truths, channel.reports
    (8, 4)
    """
    if len(items) < 2:
        raise ChannelError("Of one item nothing tells a self-protective 'no': give at least two.")
    reports = prod(item.reports for item in items)
    check_cost(8 * reports * prod(item.truths for item in items))
    nothing = tuple(item.reports - 1 for item in items)
    rows: list[Answers] = []
    for truth in product(*(range(item.truths) for item in items)):
        parts = [item.row(code).items() for item, code in zip(items, truth, strict=True)]
        follows = {
            tuple(code for code, _ in combination): prod((x for _, x in combination), start=Fraction(1))
            for combination in product(*parts)
        }
        rows += [follows, {nothing: Fraction(1)}]
    columns = [
        Variable(f"item{place}", item.labels or (YES_NO if item.reports == 2 else tuple(range(item.reports))))
        for place, item in enumerate(items, start=1)
    ]
    return _in_columns(rows, columns)


def panel(channel: Channel) -> Channel:
    """Return what two waves of a panel report whose people were disguised under one memo.

    Truths and reports are combinations of the answers of both waves. Who answers the same again gives the
    same report again, who answers otherwise gives a fresh one. γ is infinite: reports that differ disclose
    *that* the answer changed; each wave alone keeps the γ of the channel.

    Formula: P(m, m' | l, l') = P[l, m]·P[l', m'] if l ≠ l', else P[l, m] where m = m'.

    >>> waves = mq.channels.panel(mq.channels.binary("0.25"))
    >>> waves.row(0)
    {0: Fraction(3, 4), 3: Fraction(1, 4)}
    """
    check_cost(8 * channel.truths**2 * channel.reports**2)
    each = [channel.row(truth) for truth in range(channel.truths)]
    rows: list[Answers] = []
    for before, after in product(range(channel.truths), repeat=2):
        if before == after:
            rows.append({(report, report): chance for report, chance in each[before].items()})
        else:
            rows.append({(m, k): a * b for m, a in each[before].items() for k, b in each[after].items()})
    labels = channel.labels or tuple(range(channel.reports))
    if channel.truths == channel.reports and channel.labels is None:
        size = channel.reports
        return from_rows([{m * size + k: x for (m, k), x in row.items()} for row in rows], size**2)
    return _in_columns(rows, [Variable("before", labels), Variable("after", labels)])


def _in_columns(rows: Sequence[Answers], columns: Sequence[Variable]) -> Channel:
    """Return the channel whose reports are combinations of the codes of several columns."""
    sizes = [len(column) for column in columns]
    strides = [prod(sizes[place + 1 :]) for place in range(len(sizes))]
    flat = [
        {sum(s * c for s, c in zip(strides, codes, strict=True)): x for codes, x in row.items()}
        for row in rows
    ]
    return replace(from_rows(flat, prod(sizes)), columns=tuple(columns))


def _in_groups(
    truths: int,
    answers: Callable[[int, int], Answers],
    columns: Sequence[Variable],
    groups: Sequence[Category],
    share: Rational,
) -> Channel:
    """Return the channel of two groups that people are dealt into whatever their truth is."""
    first = probability(share, "share")
    if not 0 < first < 1 or len(groups) != 2:
        raise ChannelError("Both groups need people: the 'share' of the first is above 0 and below 1.")
    chances = (first, 1 - first)
    rows = [
        {
            (group, *codes): chance * said
            for group, chance in enumerate(chances)
            for codes, said in answers(truth, group).items()
        }
        for truth in range(truths)
    ]
    return _in_columns(rows, [Variable("group", tuple(groups)), *columns])


def _pair(values: Pair, name: str) -> tuple[Fraction, Fraction]:
    if isinstance(values, (str, bytes)) or len(values) != 2:
        raise ChannelError(
            f"{name!r} are two probabilities, one for each group. Got {shown(values)} instead."
        )
    return probability(values[0], name), probability(values[1], name)


def _items(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ITEMS:
        raise ChannelError(f"{name!r} is a whole number from 1 to {MOST_ITEMS}. Got {shown(value)} instead.")
    return value
