"""Survey designs that ask a yes/no question indirectly, and extensions that detect noncompliance.

Categories are in the order (yes, no). Designs that detect noncompliance have a further truth, for respondents
who do not follow the instructions. If a design assigns respondents to random groups, the group is a column of
the report; if it asks for several answers, each answer is a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import comb, prod

from masquerade.channels.basic import binary
from masquerade.channels.channel import Channel, check_cost, from_rows, from_weights
from masquerade.channels.rationals import Rational, probability, quote_value
from masquerade.core.errors import ChannelError
from masquerade.core.schema import Category, Variable

Pair = Sequence[Rational]
Answers = dict[tuple[int, ...], Fraction]  # probability of each combination of answer codes
YES_NO: tuple[Category, ...] = ("yes", "no")
MOST_ITEMS = 30


def warner(p: Rational) -> Channel:
    """Return Warner's (1965) design: with probability p "are you A?", otherwise "are you not A?".

    >>> mq.channels.warner(0.7).row(0)
    {0: Fraction(7, 10), 1: Fraction(3, 10)}
    """
    return binary(1 - probability(p, "p"))


def unrelated_question(p: Rational, prevalence: Rational) -> Channel:
    """Return the unrelated-question design.

    The respondent answers the sensitive question with probability p, otherwise a harmless question.

    Parameters
    ----------
    p : number or str
        Probability of the sensitive question.
    prevalence : number or str
        Known share of "yes" to the harmless question.

    Returns
    -------
    Channel
        A channel over (yes, no).

    Notes
    -----
    Reference: Greenberg, Abul-Ela, Simmons & Horvitz (1969).

    Examples
    --------
    >>> mq.channels.unrelated_question(0.7, 0.5).gamma
    Fraction(17, 3)
    """
    asked, share = probability(p, "p"), probability(prevalence, "prevalence")
    lucky = (1 - asked) * share
    return from_rows([{0: asked + lucky, 1: 1 - asked - lucky}, {0: lucky, 1: 1 - lucky}], 2)


def forced_response(p_yes: Rational, p_no: Rational) -> Channel:
    """Return the forced-response design: "yes" or "no" by chance, otherwise the truth.

    Parameters
    ----------
    p_yes : number or str
        Probability of a forced "yes".
    p_no : number or str
        Probability of a forced "no".

    Returns
    -------
    Channel
        A channel over (yes, no).

    Notes
    -----
    Reference: Boruch (1971).

    Examples
    --------
    >>> channel = mq.channels.forced_response("1/6", "1/6")
    >>> channel.row(0), channel.gamma
    ({0: Fraction(5, 6), 1: Fraction(1, 6)}, Fraction(5, 1))
    """
    yes, no = probability(p_yes, "p_yes"), probability(p_no, "p_no")
    truth = 1 - probability(yes + no, "p_yes + p_no")
    return from_rows([{0: truth + yes, 1: no}, {0: yes, 1: truth + no}], 2)


def kuk(p1: Rational, p2: Rational, cards: int = 1) -> Channel:
    """Return Kuk's (1990) design: cards are drawn from a deck that depends on the answer.

    The report is the number of red cards among `cards` cards drawn with replacement.

    Parameters
    ----------
    p1 : number or str
        Share of red cards in the deck for "yes".
    p2 : number or str
        Share of red cards in the deck for "no".
    cards : int, optional
        Number of cards drawn.

    Returns
    -------
    Channel
        A channel from (yes, no) to the number of red cards.

    Examples
    --------
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
    """Return Mangat's (1994) design: a true "no" is reported as "yes" with probability 1 − p.

    A true "yes" is always reported as "yes".

    >>> mq.channels.mangat(0.75).row(1)
    {0: Fraction(1, 4), 1: Fraction(3, 4)}
    """
    kept = probability(p, "p")
    return from_rows([{0: Fraction(1)}, {0: 1 - kept, 1: kept}], 2)


def triangular(p: Rational) -> Channel:
    """Return the triangular design: a circle means "no" to both questions, a triangle anything else.

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

    Parameters
    ----------
    p : number or str
        Known share of "yes" to the harmless question, such as a birthday in certain months.
    anchor : number or str, optional
        Known share of "yes" to the harmless question of a second item, the anchor, which asks about something
        that nobody does. Truths are then (yes, no, inattentive), where inattentive respondents answer both
        items at random, and reports have the columns answer and anchor.

    Returns
    -------
    Channel
        A channel from (yes, no) to (same, different). With an `anchor`, truths and reports are as described
        for that parameter.

    Notes
    -----
    Reference: Yu, Tian & Tang (2008); Atsusaka & Stevenson (2021) for the anchor.

    Examples
    --------
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

    Truths are (yes, no, cheat): a cheater says "no" whatever the instruction. Reports have the columns group
    and answer.

    Parameters
    ----------
    p_yes : pair of numbers or str
        Probability of a forced "yes" in each group.
    p_no : pair of numbers or str, optional
        Probability of a forced "no" in each group. If it is above 0, this is the symmetric design.
    share : number or str, optional
        Share of people in the first group.

    Returns
    -------
    Channel
        A channel from (yes, no, cheat) to pairs of group and answer.

    Notes
    -----
    Reference: Clark & Desharnais (1998); Ostapczuk, Moshagen, Zhao & Musch (2009) for the symmetric design.

    Examples
    --------
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
    """Return the stochastic lie detector: a true "no" is randomized, and people may lie about a "yes".

    Truths are (yes, no, lying yes). A liar says "no". The prevalence is the share of yes and lying yes
    together. Reports have the columns group and answer.

    Parameters
    ----------
    p : pair of numbers or str
        Probability in each group that a "no" is reported unchanged; otherwise "yes" is reported.
    share : number or str, optional
        Share of people in the first group.

    Returns
    -------
    Channel
        A channel from (yes, no, lying yes) to pairs of group and answer.

    Notes
    -----
    Reference: Moshagen, Musch & Erdfelder (2012).

    Examples
    --------
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
    """Return the unrelated-question design for a harmless question of unknown prevalence.

    Truths are combinations of two variables, the sensitive and the harmless answer. Both can be counted, but
    not their combinations. Reports have the columns group and answer.

    Parameters
    ----------
    p : pair of numbers or str
        Probability of the sensitive question in each group. A group with probability 0 answers only the
        harmless question.
    share : number or str, optional
        Share of people in the first group.

    Returns
    -------
    Channel
        A channel from pairs of answers to pairs of group and answer.

    Notes
    -----
    Reference: Greenberg, Abul-Ela, Simmons & Horvitz (1969).

    Examples
    --------
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
    """Return the item count technique (list experiment).

    Respondents report how many statements hold. One group's list has a sensitive statement in addition.
    Truths are combinations of two variables: the number of harmless statements that hold, and the sensitive
    answer. Reports have the columns group and answer.

    Parameters
    ----------
    items : int
        Number of harmless statements.
    share : number or str, optional
        Share of people in the control group.
    groups : pair of labels, optional
        Names of the control group and the treated group.

    Returns
    -------
    Channel
        A channel from pairs of number and sensitive answer to pairs of group and number.

    Notes
    -----
    γ is infinite: in the treated group, the counts "none" and "all" disclose the sensitive answer.
    Reference: Miller (1984); Blair & Imai (2012), whose test of "no design effect" is the goodness-of-fit
    test here.

    Examples
    --------
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
    """Return the double list experiment: all respondents count two lists, one with the sensitive statement.

    Truths are combinations of three variables: the number of statements that hold in each list, and the
    sensitive answer. Reports have the columns group, first and second.

    Parameters
    ----------
    first, second : int
        Number of harmless statements in each list.
    share : number or str, optional
        Share of people in the first group.
    groups : pair of labels, optional
        Names of the groups. In the first group, the sensitive statement is in the first list.

    Returns
    -------
    Channel
        A channel from two numbers and the sensitive answer to the group and two numbers.

    Notes
    -----
    Reference: Droitcour et al. (1991); Glynn (2013).

    Examples
    --------
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
    """Return the joint channel of several items of a design, where some people answer "no" to all items.

    Truths are combinations of the items' truths and a further variable with the categories (follows,
    protective). `items` are the channels of the items; the last report of each is "no". Reports have one
    column per item. Since there are more truths than reports, tables need a log-linear model, such as
    independence of the last variable.
    Reference: Böckenholt & van der Heijden (2007); Cruyff, van den Hout, van der Heijden & Böckenholt (2007).

    >>> items = [mq.channels.forced_response("1/6", "1/6")] * 2
    >>> channel = mq.channels.self_protective_no(items)
    >>> channel.truths, channel.reports
    (8, 4)
    """
    if len(items) < 2:
        raise ChannelError("A self-protective 'no' cannot be detected from one item: give at least two.")
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
    """Return the channel of two waves of a panel that were disguised under one memo.

    Truths and reports are combinations of the answers in both waves. An unchanged answer repeats its report;
    a changed answer gets a fresh report. γ is infinite: two different reports disclose *that* the answer
    changed. Each wave alone has the γ of the channel.

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
    """Return the channel of two groups to which people are assigned at random, independently of the truth."""
    first = probability(share, "share")
    if not 0 < first < 1 or len(groups) != 2:
        raise ChannelError("There must be two groups, and the 'share' of the first must be between 0 and 1.")
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
            f"{name!r} must be two probabilities, one for each group. Got {quote_value(values)} instead."
        )
    return probability(values[0], name), probability(values[1], name)


def _items(value: int, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_ITEMS:
        raise ChannelError(
            f"{name!r} must be a whole number from 1 to {MOST_ITEMS}. Got {quote_value(value)} instead."
        )
    return value
