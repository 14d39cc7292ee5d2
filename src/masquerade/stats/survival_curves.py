"""Survival from counts: Kaplan–Meier curves, log-rank tests and grouped proportional hazards.

Everything is computed from the table time × event × groups, so any source of counts can be used: clear,
disguised, pooled or joined records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.bins import bin_edges
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.plots.drawing import new_axes
from masquerade.core.plots.palette import SERIES, STYLES
from masquerade.core.schema import Category, Variable
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import Shown, p_text
from masquerade.core.util.formatting import category_text
from masquerade.stats._tables import Names, Where, category_of, names_of, schema_of, scores_of, z_of
from masquerade.stats.estimates import Estimates, TestResult
from masquerade.stats.hypotheses import wald
from masquerade.stats.life_table import LifeCounts, Ties, divide, fit_hazards, kaplan_meier
from masquerade.stats.missing_values import MissingOrAll, table_of_answers
from masquerade.stats.percentages import given_text

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_CELLS = 20_000


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Survival(Shown):
    """Survival curves by group, with a log-rank test and hazard ratios.

    Attributes
    ----------
    title : str
        Title of the curves.
    time : Variable
        Times, up to the last time with enough people at risk.
    groups : tuple of str
        Names of the variables that define the groups.
    labels : tuple of tuple
        Categories of each group.
    at_risk, events : array of shape (times, groups)
        Estimated numbers of people at risk at the start of each time, and of events in it.
    values, stderr, lower, upper : array of shape (times, groups)
        Share that survives each time, its standard error and the limits of its interval.
    n : int
        Number of records.
    level : float
        Confidence level of the intervals.
    notes : tuple of str
        Remarks on the result.

    Examples
    --------
    >>> import pandas as pd
    >>> weeks = pd.DataFrame({"week": [1, 2, 2, 3, 3, 3] * 10, "relapse": ["yes", "yes", "no"] * 20})
    >>> curve = mq.stats.survival(mq.tally(weeks), "week", "relapse")
    >>> curve.values[:, 0].round(3).tolist()
    [0.833, 0.667, 0.222]
    """

    result_name: ClassVar[str] = "Survival"
    percent: ClassVar[tuple[str, ...]] = ("survival", "stderr", "lower", "upper")
    title: str
    time: Variable
    groups: tuple[str, ...]
    labels: tuple[tuple[Category, ...], ...]
    at_risk: Floats
    events: Floats
    values: Floats
    stderr: Floats
    lower: Floats
    upper: Floats
    n: int
    level: float
    notes: tuple[str, ...]
    counts: LifeCounts

    @property
    def heading(self) -> str:
        """Return the title and the number of records."""
        return f"{self.title}, n = {self.n:,}"

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return the level, the log-rank test, the hazard ratios and the notes."""
        lines = [f"({self.level:.0%} intervals)"]
        if len(self.labels) > 1:
            test, ratios = self.logrank(), self.hazard_ratio()
            lines.append(
                f"Log-rank test: chi2 {test.statistic:.4g}, df {test.df:g}, p {p_text(test.p_value)}."
            )
            lines += [
                f"Hazard ratio of {_text(row)}: {value:.3g} ({low:.3g} to {high:.3g})."
                for row, value, low, high in zip(
                    ratios.labels, ratios.values, ratios.lower, ratios.upper, strict=True
                )
            ]
        return (*lines, *self.notes)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas frame with one row per group and time."""
        import pandas as pd  # noqa: PLC0415

        rows = list(product(range(len(self.labels)), range(len(self.time))))
        columns: dict[str, list[object]] = {
            name: [self.labels[g][place] for g, _ in rows] for place, name in enumerate(self.groups)
        }
        columns[self.time.name] = [self.time.categories[k] for _, k in rows]
        numbers = {
            "at_risk": self.at_risk,
            "events": self.events,
            "survival": self.values,
            "stderr": self.stderr,
            "lower": self.lower,
            "upper": self.upper,
        }
        for name, values in numbers.items():
            columns[name if name not in columns else f"{name}_"] = [values[k, g] for g, k in rows]
        return pd.DataFrame(columns)

    def to_dict(self) -> dict[str, Any]:
        """Return the curves as plain JSON values, with the log-rank test and the hazard ratios of groups."""
        values = Shown.to_dict(self)
        if len(self.labels) > 1:
            values |= {"logrank": self.logrank().to_dict(), "hazard_ratio": self.hazard_ratio().to_dict()}
        return values

    def logrank(self) -> TestResult:
        """Test whether all groups have the same survival, within strata.

        Returns
        -------
        TestResult
            χ² statistic with (groups − 1) degrees of freedom, and its p-value.

        Raises
        ------
        InputError
            If there is only one group.

        Notes
        -----
        Formula: U_g = Σ_k d_kg − Y_kg·D_k/Y_k. The covariance of U is hypergeometric for clear records;
        otherwise it follows from the covariance of the counts by the delta method.
        Reference: Mantel (1966); Peto & Peto (1972).

        Examples
        --------
        >>> source = mq.tally(mq.data.students())
        >>> mq.stats.survival(source, "year", "pills", by="exams").logrank().df
        1
        """
        self._check_groups()
        life = self.counts.life
        groups = life.events.shape[2]
        total, events = life.at_risk.sum(axis=2), life.events.sum(axis=2)
        share = divide(life.at_risk, total[..., None])
        rate = divide(events, total)
        gaps = (life.events - share * events[..., None]).sum(axis=(0, 1))[1:]
        if self.counts.is_plain:
            # the people with an event are drawn without replacement from those at risk
            spread = events * divide(total - events, np.maximum(total - 1, 1.0))
            spread = np.where(total > 1, spread, 0.0)
            covariance = np.einsum("ks,ksg,gh->gh", spread, share, np.eye(groups)) - np.einsum(
                "ks,ksg,ksh->gh", spread, share, share
            )
            covariance = covariance[1:, 1:]
        else:
            unit = np.eye(groups)
            weights = np.stack(
                [
                    self.counts.gradient(
                        unit[g] - share[..., g : g + 1],
                        -unit[g] * rate[..., None] + (share[..., g] * rate)[..., None],
                    )
                    for g in range(1, groups)
                ]
            )
            covariance = self.counts.table.covariance.between(weights, weights)
        statistic, df = wald(gaps, covariance)
        return TestResult(
            f"Equal {self.title[0].lower()}{self.title[1:]}",
            statistic,
            df,
            chi_square_tail(statistic, df),
            self.n,
            "chi2",
            ("Log-rank test.",),
        )

    def hazard_ratio(self, ties: Ties = "grouped") -> Estimates:
        """Estimate the hazard of each group over the hazard of the first group.

        Parameters
        ----------
        ties : {"grouped", "breslow"}, default "grouped"
            "grouped" fits h_kg = 1 − exp(−exp(α_k + β_g)), the proportional hazards model of times that are
            known up to their interval. "breslow" is Cox's partial likelihood with ties by Breslow.

        Returns
        -------
        Estimates
            One row per group except the first, with p-values against 1.

        Raises
        ------
        InputError
            If there is only one group, or `ties` is unknown.

        Notes
        -----
        Formula: both scores are linear in the counts, ΨᵀN̂ = 0, so they are unbiased under any channel. The
        covariance is J⁻¹ΨᵀΣΨJ⁻ᵀ; for clear records it is the inverse information. Every stratum has its own
        α.
        Reference: Prentice & Gloeckler (1978); Breslow (1974).

        Examples
        --------
        >>> source = mq.tally(mq.data.students())
        >>> mq.stats.survival(source, "year", "pills", by="exams").hazard_ratio().params.round(2).tolist()
        [2.11]
        """
        self._check_groups()
        if ties not in {"grouped", "breslow"}:
            raise InputError(f"'ties' must be 'grouped' or 'breslow'. Got {ties!r} instead.")
        fit = fit_hazards(self.counts, ties)
        z = two_sided_quantile(self.level)
        ratio = np.exp(fit.values)
        statistics = [z_of(float(v), float(s) ** 2) for v, s in zip(fit.values, fit.stderr, strict=True)]
        notes = [
            f"Compared with {_text(self.labels[0])}.",
            "Hazards of intervals, grouped." if ties == "grouped" else "Cox's partial likelihood (Breslow).",
            *fit.notes,
        ]
        return Estimates(
            f"Hazard ratios: {self.title[0].lower()}{self.title[1:]}",
            "hazard_ratio",
            self.groups,
            self.labels[1:],
            ratio,
            ratio * fit.stderr,
            np.exp(fit.values - z * fit.stderr),
            np.exp(fit.values + z * fit.stderr),
            self.n,
            self.level,
            1.0,
            np.array(statistics),
            notes=tuple(notes),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the curves with their intervals, and the numbers at risk below."""
        axes = ax if ax is not None else new_axes(7.0, 4.6)
        ends = _positions(self.time)
        start = min(0.0, ends[0]) if ends[0] >= 0 else ends[0]
        x = np.concatenate([[start], ends])
        for g, row in enumerate(self.labels):
            colour = SERIES[g % len(SERIES)]
            name = _text(row) or "all records"
            steps = [np.concatenate([[1.0], part[:, g]]) for part in (self.values, self.lower, self.upper)]
            axes.step(
                x, 100 * steps[0], where="post", color=colour, label=name, linestyle=STYLES[g % len(STYLES)]
            )
            axes.fill_between(
                x, 100 * steps[1], 100 * steps[2], step="post", color=colour, alpha=0.18, linewidth=0
            )
        axes.set_ylim(0, 101)
        axes.set_ylabel(f"survival in percent, {self.level:.0%} intervals")
        axes.set_title(self.heading)
        if len(self.labels) > 1:
            axes.legend(loc="lower left", frameon=False)
        shown = np.unique(np.linspace(0, len(ends) - 1, min(len(ends), 6)).astype(int))
        axes.set_xticks(ends[shown])
        lines = ["\n".join(f"{self.at_risk[k, g]:,.0f}" for g in range(len(self.labels))) for k in shown]
        names = [category_text(self.time.categories[k]) for k in shown]
        axes.set_xticklabels([f"{name}\n{line}" for name, line in zip(names, lines, strict=True)])
        axes.set_xlabel(f"{self.time.name}; below: number at risk by group, in the order of the legend")
        return axes

    def _check_groups(self) -> None:
        if len(self.labels) < 2:
            raise InputError("Name the groups to compare with 'by'.")


def survival(
    data: Tally | CountTable,
    time: str,
    event: str,
    by: Names = (),
    *,
    given: Names = (),
    category: Category | None = None,
    where: Where = None,
    missing: MissingOrAll = "answered",
    level: float = 0.95,
) -> Survival:
    """Estimate survival curves, with a log-rank test and hazard ratios between groups.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    time : str
        Time of the event or of censoring: numbers, bins, or categories in order.
    event : str
        Variable with a category for an event; the other categories are censored at the end of their time.
    by : str or sequence of str, optional
        Variables that define the groups. Without it, one curve of all records.
    given : str or sequence of str, optional
        Strata: groups are compared within these variables, and each stratum has its own baseline hazard.
    category : category, optional
        Category of an event. May be omitted for yes/no variables: then it is "yes".
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Survival
        Curves by group; `logrank()` and `hazard_ratio()` compare the groups.

    Raises
    ------
    InputError
        If the times are not in order, a variable is unknown, or too few people are at risk.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: log S_m = Σ_{k≤m} log(1 − d_k/Y_k) with events d and people at risk Y, both sums of estimated
    counts. The variance is gᵀΣg, g the gradient and Σ the covariance of the counts, disguise included; for
    clear records it is Greenwood's. Intervals are computed on the scale of log(−log S). Negative hazards,
    which noise can cause, are shown as 0. Follow-up ends before the first time at which the number of people
    at risk in some group is less than 5 standard errors of the disguise.
    Reference: Kaplan & Meier (1958); Greenwood (1926); Kalbfleisch & Prentice (2002), chapter 1.
    Cost: one table; O(times² · groups) products with its covariance.

    Examples
    --------
    >>> import pandas as pd
    >>> weeks = pd.DataFrame({"week": [1, 2, 2, 3, 3, 3] * 10, "relapse": ["yes", "yes", "no"] * 20})
    >>> print(mq.stats.survival(mq.tally(weeks), "week", "relapse"))
    Survival of relapse along week, n = 60
    week at_risk events survival stderr lower upper
       1   60.00  10.00    83.3%   4.8% 71.2% 90.7%
       2   50.00  10.00    66.7%   6.1% 53.2% 77.0%
       3   30.00  20.00    22.2%   6.1% 11.7% 34.9%
    (95% intervals)
    """
    groups, layers = names_of(by), names_of(given)
    names = (time, event, *layers, *groups)
    if len(set(names)) < len(names):
        raise InputError("Time, event, strata and groups of a survival curve must be different variables.")
    _check_order(schema_of(data)[time])  # before anything is counted
    answers = table_of_answers(data, names, where, missing, "A survival curve")
    table, notes = answers.table, list(answers.notes)
    if table.values.size > MOST_CELLS:
        raise InputError(
            f"The table of {' × '.join(names)} has {table.values.size:,} cells; at most {MOST_CELLS:,} are "
            "possible. Group the times."
        )
    code = category_of(table.axes[1], category)
    counts = LifeCounts(table, code, len(layers))
    if not counts.horizon:
        raise InputError(
            f"So few people are at risk at {time} = {category_text(table.axes[0].categories[0])} that the "
            "disguise hides them. Use fewer groups."
        )
    if counts.horizon < len(table.axes[0]):
        times = list(map(category_text, table.axes[0].categories))
        last, later = times[counts.horizon - 1], times[counts.horizon :]
        notes.append(
            f"Follow-up ends after {time} = {last}: later, some group has fewer people at risk than 5 "
            f"standard errors of the disguise. To use them, merge {', '.join([last, *later])} into one time."
        )
    curves = kaplan_meier(counts, level)
    if curves.negative:
        notes.append(f"{curves.negative} estimated hazards are negative, shown as 0.")
    by_text = f" by {', '.join(groups)}" if groups else ""
    within = f" given {', '.join(layers)}" if layers else ""
    return Survival(
        f"Survival of {event} along {time}{by_text}{within}{given_text(where)}",
        Variable(time, table.axes[0].categories[: counts.horizon]),
        groups,
        tuple(product(*(axis.categories for axis in table.axes[2 + len(layers) :]))),
        counts.life.at_risk.sum(axis=1),
        counts.life.events.sum(axis=1),
        curves.values,
        curves.stderr,
        curves.lower,
        curves.upper,
        table.n,
        level,
        tuple(notes),
        counts,
    )


def _positions(time: Variable) -> Floats:
    """Return the position of each time in a plot: its number, the end of its bin, or its rank from 1."""
    bins = bin_edges(time)
    if bins is not None:
        ends = bins[1].copy()
        ends[np.isinf(ends)] = bins[0][np.isinf(ends)]
        return ends
    try:
        return scores_of(time, None)[0]
    except InputError:
        return np.arange(1.0, len(time) + 1)


def _check_order(time: Variable) -> None:
    if np.any(np.diff(_positions(time)) < 0):
        raise InputError(f"The times in {time.name!r} must rise in the order of its categories.")


def _text(labels: Sequence[Category]) -> str:
    return ", ".join(map(category_text, labels))
