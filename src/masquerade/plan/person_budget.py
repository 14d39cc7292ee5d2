"""Divide the privacy limit of one person among variables, and compute the resulting errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from masquerade.channels.policy import Policy
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.record_gamma import describe_gamma
from masquerade.core.util.formatting import counted, gamma_words
from masquerade.plan.expected_errors import ExpectedError
from masquerade.plan.planner import plan, plan_at
from masquerade.plan.questions import Questions, title
from masquerade.plan.result import Plan

COMPARED = (DEFAULT_LIMIT, PrivacyLimit.parse({"epsilon": 5}), PrivacyLimit.parse({"epsilon": 8}))
WIDEST = 0.20  # half-width of an interval above which a table is called unusable
MOST_NAMED = 5
SHARES_AND_PAIRS = "singles, pairs"
WIDTHS = {1: "a share", 2: "a table of two variables", 3: "a table of three variables"}


@dataclass(frozen=True)
class LimitSpending:
    """The allocation of a person's limit, and the resulting errors.

    Parameters
    ----------
    made : Plan
        The plan at the limit.
    limit : PrivacyLimit
    others : tuple of (PrivacyLimit, Plan)
        The same task at other limits, for comparison.
    """

    made: Plan
    limit: PrivacyLimit
    others: tuple[tuple[PrivacyLimit, Plan], ...]

    @cached_property
    def parts(self) -> dict[str, Any]:
        """Return the channels in the form of a policy file: 'variables', 'joint' and 'blocks'."""
        return self.made.way.channels(self.made.epsilon)

    @cached_property
    def costs(self) -> dict[str, dict[int, float]]:
        """Return the largest half-width of a 95% interval of a share, by limit and number of variables."""
        plans = [(self.limit, self.made), *self.others]
        return {str(limit): _widest_errors(made) for limit, made in plans}

    @cached_property
    def unanswerable(self) -> list[str]:
        """Return the requested tables whose intervals are wider than ±20 points."""
        of_kind = {item.variance: item for item in self.made.errors}  # equal variances have equal margins
        wide = {variance: not item.margin(self.made.n) <= WIDEST for variance, item in of_kind.items()}
        return [title(item.table) for item in self.made.errors if wide[item.variance]]

    def lines(self) -> list[str]:
        """Describe the guarantee for one person and the errors, one sentence or row per line."""
        shown = [
            f"Limit for one person, over everything in their record: {gamma_words(self.limit.gamma)}.",
            describe_gamma(self.limit.gamma),
            f"Design: {self.made.design}.",
            *self.table_lines(),
        ]
        return [*shown, *self.warning_lines(), *(f"Cannot answer {what}." for what in self.made.cannot)]

    def warning_lines(self) -> list[str]:
        """Return a sentence about the tables that are not usable, if there are any."""
        if not self.unanswerable:
            return []
        named = ", ".join(self.unanswerable[:MOST_NAMED])
        more = len(self.unanswerable) - MOST_NAMED
        rest = f" and {more:,} more" if more > 0 else ""
        wide = f"wider than ±{100 * WIDEST:.0f} points"
        mend = "Count fewer variables or categories, count shares alone, or ask more people."
        return [f"NOT USABLE, {wide}: {named}{rest}. {mend}"]

    def table_lines(self) -> list[str]:
        """Return the errors at all limits side by side, one row per number of variables of a table."""
        widths = sorted({width for errors in self.costs.values() for width in errors})
        heads = [limit.partition(",")[0].partition(" (")[0] for limit in self.costs]
        first = max(len(WIDTHS.get(width, str(width))) for width in widths)
        people = counted(self.made.n, "person", "people")
        rows = [f"Errors with {people} (half-width of a 95% interval, points):"]
        rows += [" " * (first + 4) + "".join(f"{head:>12}" for head in heads)]
        for width in widths:
            label = WIDTHS.get(width, f"a table of {width} variables")
            cells = "".join(f"{'± ' + _points(errors[width]):>12}" for errors in self.costs.values())
            rows.append(f"  {label:<{first + 2}}{cells}")
        return rows


def spend_limit(
    variables: Policy,
    limit: PrivacyLimit = DEFAULT_LIMIT,
    *,
    n: int,
    queries: Questions = SHARES_AND_PAIRS,
    clear: Iterable[str] = (),
    together: Iterable[Sequence[str]] = (),
    compare: bool = True,
) -> LimitSpending:
    """Find the channels that spend one person's limit with the smallest error.

    Parameters
    ----------
    variables : Policy
        The variables and the rules for reading them. The channels of the policy are ignored.
    limit : PrivacyLimit, optional
        The most that a whole record may reveal.
    n : int
        Number of people.
    queries : str or sequence, optional
        The tables to count. By default shares and tables of two variables.
    clear : iterable of str, optional
        Variables that are not sensitive and are released in clear.
    together : iterable of sequences of str, optional
        Variables that are always reported together, such as a question and its follow-up.
    compare : bool, optional
        Whether to compute the errors at γ = 19, ε = 5 and ε = 8 too.

    Returns
    -------
    LimitSpending
    """
    left, units = tuple(clear), tuple(map(tuple, together))
    hidden = [name for name in variables.schema if name not in left]
    asked = "singles" if queries == SHARES_AND_PAIRS and len(hidden) < 2 else queries

    privacy = {key: value for key, value in limit.to_dict().items() if key != "delta"}
    made = plan(variables, privacy=privacy, queries=asked, n=n, clear=left, together=units)
    return compare_limits(made) if compare else LimitSpending(made, limit, ())


def compare_limits(made: Plan) -> LimitSpending:
    """Compare the errors of a plan with those at γ = 19, ε = 5 and ε = 8, for the same tables and people.

    Parameters
    ----------
    made : Plan
        A plan with a limit for a whole record.
    """
    assert made.limit is not None  # noqa: S101  (for the type checker: plans per variable have none)
    others = [limit for limit in COMPARED if limit.gamma != made.limit.gamma]
    return LimitSpending(made, made.limit, tuple((limit, plan_at(made, limit)) for limit in others))


def _widest_errors(made: Plan) -> dict[int, float]:
    widest: dict[int, ExpectedError] = {}
    for item in made.errors:
        width = len(item.table)
        if width not in widest or item.variance > widest[width].variance:
            widest[width] = item
    return {width: item.margin(made.n) for width, item in widest.items()}


def _points(margin: float) -> str:
    return f"{100 * margin:.1f}" if margin < 1 else "over 100"
