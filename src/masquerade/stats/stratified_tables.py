"""The Mantel–Haenszel odds ratio: two groups compared within strata."""

from __future__ import annotations

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.distributions import chi_square_tail, two_sided_quantile
from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.core.table import CountTable
from masquerade.core.tally import Tally
from masquerade.core.util.display import p_text
from masquerade.stats._tables import (
    Names,
    Where,
    category_of,
    names_of,
    null_variance,
    reference_of,
    squared_error,
    z_of,
)
from masquerade.stats.estimates import Estimates
from masquerade.stats.missing_values import MissingOrAll, table_of_answers
from masquerade.stats.percentages import given_text


def mantel_haenszel(
    data: Tally | CountTable,
    outcome: str,
    group: str,
    given: Names,
    *,
    category: Category | None = None,
    reference: Category | None = None,
    where: Where = None,
    missing: MissingOrAll = "answered",
    level: float = 0.95,
) -> Estimates:
    """Estimate the common odds ratio of two groups over all strata.

    Parameters
    ----------
    data : Tally or CountTable
        Source of counts, or a table that contains all variables named here.
    outcome : str
        Variable whose odds are compared.
    group : str
        Variable with two categories: the groups.
    given : str or sequence of str
        Variables that define the strata.
    category : category, optional
        Category of the outcome that is counted. May be omitted for yes/no outcomes: then it is "yes".
    reference : category, optional
        Group that the other is compared with. By default the first category of `group`.
    where : mapping of str to category, optional
        Count only the records with these categories, for example ``{"region": "north"}``.
    missing : {"answered", "category"}, default "answered"
        Count only people who answered all variables named here, or count missing answers as categories.
    level : float, default 0.95
        Confidence level of the intervals.

    Returns
    -------
    Estimates
        One row. A note reports the test of equal odds ratios in all strata.

    Raises
    ------
    InputError
        If there are no strata, not exactly two groups, or no records according to the estimates.
    QueryRefused
        If the source refuses the counts.

    Notes
    -----
    Formula: Σ a_k d_k/T_k over Σ b_k c_k/T_k of the 2 × 2 tables of the strata, with its error by the delta
    method on the logarithm. The p-value tests Σ(a_k − r_k s_k/T_k) = 0, where r_k = a_k + b_k and
    s_k = a_k + c_k (Cochran 1954). The test of equal odds ratios is the deviance of the log-linear model
    without the three-way interaction.
    Reference: Mantel & Haenszel (1959).

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> print(mq.stats.mantel_haenszel(source, "sleep", "pills", "exams", category="bad", reference="no"))
    Mantel–Haenszel odds ratio of sleep = bad by pills given exams, n = 600
       pills odds ratio stderr  lower  upper      z p_value
    yes : no     6.0510 1.3490 3.9090 9.3669 7.4730 <0.0001
    (95% intervals; p-values against odds ratio = 1)
    Are the odds ratios of all strata the same? Deviance 0.00, df 1, p 0.978.
    """
    strata = names_of(given)
    table, absent = table_of_answers(data, (*strata, group, outcome), where, missing, "mantel_haenszel()")
    exposure, answer = table.axes[-2:]
    code, base = category_of(answer, category), reference_of(exposure, reference)
    if not strata or len(exposure) != 2:
        raise InputError(
            "mantel_haenszel() compares two groups within categories of `given`; "
            f"{exposure.name!r} has {len(exposure)} categories."
        )
    cells = table.values.reshape(-1, *table.values.shape[-2:])
    picked = np.stack(
        [
            _cell_mask(cells.shape[1:], row, code, same=same)
            for row in (1 - base, base)
            for same in (True, False)
        ]
    )  # a, b: the group, in the category and outside it; c, d: the same for the reference group
    a, b, c, d = np.einsum("pij,kij->pk", picked, cells)
    total = a + b + c + d
    used = total > 0
    if not used.any():
        raise InputError("The estimated number of records is not positive in any stratum.")
    T = np.where(used, total, 1.0)
    above, below = (float((x * y / T)[used].sum()) for x, y in ((a, d), (b, c)))
    by_cell = {
        "above": np.stack([d / T - a * d / T**2, -a * d / T**2, -a * d / T**2, a / T - a * d / T**2]),
        "below": np.stack([-b * c / T**2, c / T - b * c / T**2, b / T - b * c / T**2, -b * c / T**2]),
    }
    r, s = a + b, a + c
    middle = r * s / T**2
    null = np.stack([1 - s / T - r / T + middle, middle - s / T, middle - r / T, middle])

    def weights(parts: Floats) -> Floats:
        return np.asarray(np.einsum("pk,pij->kij", parts * used, picked)).reshape(table.values.shape)

    gap = float((a - r * s / T)[used].sum())
    variance = null_variance(table, weights(null), gap)
    value = stderr = float("nan")
    lower, upper = 0.0, float("inf")
    notes = list(absent)
    if not used.all():
        notes.append(f"{int((~used).sum())} strata have no records according to the estimates.")
    if above > 0 and below > 0:
        error = np.sqrt(squared_error(table, weights(by_cell["above"] / above - by_cell["below"] / below)))
        value = above / below
        stderr = value * error
        lower, upper = value * np.exp(np.array([-1, 1]) * two_sided_quantile(level) * error)
    else:
        notes.append("The counts are too noisy for a common odds ratio: a sum of products is not positive.")
    if len(answer) == 2 and len(cells) > 1:
        pairs = [(*strata, exposure.name), (*strata, answer.name), (exposure.name, answer.name)]
        fits = [table.fit(model) for model in (pairs, [table.names])]
        statistic, df = max(fits[0].deviance - fits[1].deviance, 0.0), len(cells) - 1
        tail = p_text(chi_square_tail(statistic, df))
        notes.append(
            f"Are the odds ratios of all strata the same? Deviance {statistic:.2f}, df {df}, p {tail}."
        )
    return Estimates(
        f"Mantel–Haenszel odds ratio of {answer.name} = {answer.categories[code]} by {exposure.name} given "
        f"{', '.join(strata)}" + given_text(where),
        "odds ratio",
        (exposure.name,),
        ((f"{exposure.categories[1 - base]} : {exposure.categories[base]}",),),
        np.array([value]),
        np.array([stderr]),
        np.array([lower]),
        np.array([upper]),
        table.n,
        level,
        1.0,
        np.array([z_of(gap, variance)]),
        notes=tuple(notes),
    )


def _cell_mask(shape: tuple[int, ...], row: int, code: int, *, same: bool) -> Floats:
    """Return a 0/1 mask of one row: the cell of `code`, or all other cells of the row."""
    result = np.zeros(shape)
    result[row] = 0.0 if same else 1.0
    result[row, code] = 1.0 if same else 0.0
    return result
