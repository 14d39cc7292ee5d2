"""Output of `masquerade stats regress` in addition to coefficients: tests, comparisons, effects, shares."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from masquerade.core.util.display import Shown, p_text

if TYPE_CHECKING:
    from masquerade.stats.regression.results import Regression


def view_of(result: Regression, show: str, level: float) -> Shown:
    """Return the effects, the shares, or the coefficients of the other components of a regression."""
    if show == "effects":
        return result.marginal_effects(level)
    if show == "nuisance":
        return result.nuisance_terms(level)
    from masquerade.stats.regression.outcome_shares import share_rows  # noqa: PLC0415  (loads numpy)

    has_categories = result.fit is not None and bool(share_rows(result.fit))
    return result.outcome_shares(level) if has_categories else result.shares(level)


def add_tests(result: Regression, tests: Sequence[str], others: Sequence[Regression]) -> Regression:
    """Return a regression with notes on tests of variables and on comparisons with other regressions."""
    comparisons = (_compare_note(result, other) for other in others)
    notes = [*(_test_note(result, text) for text in tests), *comparisons]
    return replace(result, notes=(*result.notes, *notes))


def _test_note(result: Regression, text: str) -> str:
    """Return the likelihood-ratio test of the variables named in a text, in one line."""
    names = [name.strip() for name in text.split(",")]
    test = result.lr_test(*names)
    p = p_text(test.p_value)
    name, df = "LR", f"{test.df:g}"
    if test.df2 is not None:
        name, df = "F", f"{test.df:g} and {test.df2:.1f}"
    return f"No effect of {', '.join(names)}: {name} {test.statistic:.2f}, df {df}, p {p}."


def _compare_note(result: Regression, other: Regression) -> str:
    """Return the test of a regression against `other`, with the AIC and BIC of `other`, in one line."""
    row = result.compare(other).iloc[1]
    test = f"LR {row['chi2']:.2f}, df {row['df']:g}, p {p_text(row['p_value'])}; " if row["df"] else ""
    return f"Against {other.formula}: {test}AIC {row['aic']:.1f}, BIC {row['bic']:.1f}."
