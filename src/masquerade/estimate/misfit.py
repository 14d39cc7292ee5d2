"""Goodness of fit: a test of whether any true counts can explain the observed reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from masquerade.core.axes import Floats, contract
from masquerade.core.util.display import Printed, p_text
from masquerade.estimate.em import ROUNDING, maximum_likelihood
from masquerade.estimate.likelihood import likelihood

SMALL = 5.0  # expected counts below this make the chi-square approximation doubtful
SMALL_SHARE = 0.2
DOUBTFUL = 0.05


@dataclass(frozen=True, slots=True, repr=False)
class Misfit(Printed):
    """Test of whether any true counts explain the observed reports (goodness of fit).

    A small `p_value` flags records disguised under a different policy, or respondents who did not follow it.
    The test is conservative: a large p-value does not prove the policy right. `reliable` is False if more
    than a fifth of the cells expect fewer than 5 records. If `is_mixture`, the p-value is the mean of the
    tails of χ² with `degrees` − 1 and with `degrees` degrees of freedom.
    """

    statistic: float
    degrees: int
    p_value: float
    reliable: bool
    is_mixture: bool = True

    @property
    def df_text(self) -> str:
        """Return the degrees of freedom of the p-value, one number or two."""
        return (
            f"{self.degrees - 1} and {self.degrees}"
            if self.is_mixture and self.degrees
            else f"{self.degrees}"
        )

    def summary(self) -> str:
        """Return the test in one line, and its meaning."""
        doubt = "" if self.reliable else " (rough: many cells expect fewer than 5 records)"
        mean = "mean p" if " " in self.df_text else "p"
        line = f"Misfit: G² = {self.statistic:.2f}, df {self.df_text}, {mean} = {p_text(self.p_value)}{doubt}"
        if self.p_value >= DOUBTFUL:
            return f"{line}\nNo evidence against this policy (which does not prove it)."
        return f"{line}\nThese reports are unusual for this policy, or no truth explains them."


def misfit(observed: Floats, channels: Sequence[Floats | None], samples: int = 1) -> Misfit:
    """Test whether the observed counts can result from any truth through the channels.

    Parameters
    ----------
    observed : array
        Counts of reports.
    channels : sequence of array or None
        Channel of each axis; None for an axis that was not disguised.
    samples : int, default 1
        Number of samples whose sizes were fixed in advance.

    Returns
    -------
    Misfit
        Statistic, degrees of freedom and p-value.

    Notes
    -----
    Formula: G² = 2(ℓ(Ñ/n) − ℓ at the maximum likelihood truth), zero if the moment estimate has no negative
    cell; p-value ½P(χ²_{d−1} ≥ G²) + ½P(χ²_d ≥ G²), where d is the number of observable cells − 1, summed
    over the non-empty configurations of the clear axes (which cannot misfit), minus one per further sample of
    fixed size.
    Reference: Perlman (1969) for the bound over all mixtures of chi-squares (chi-bar-square) that a truth on
    the boundary can give; Robertson, Wright & Dykstra (1988).
    Cost: one maximum likelihood fit.
    Error: conservative, asymptotic in n. The possible error of the fit (its gap, or rounding) is counted in
    favour of the policy.

    Examples
    --------
    >>> P = np.array([[0.7, 0.3], [0.3, 0.7]])
    >>> misfit(np.array([100.0, 900.0]), [P]).p_value < 1e-6
    True
    """
    model = likelihood(observed, channels)
    fit = maximum_likelihood(model.observed, model.channels)
    disguised = [(axis, P) for axis, P in enumerate(model.channels) if P is not None]
    totals = model.observed.sum(axis=tuple(axis for axis, _ in disguised))
    configurations = int(np.count_nonzero(totals))
    cells = prod(int(np.count_nonzero(P.any(axis=0))) for _, P in disguised)
    degrees = max(configurations * (cells - 1) - (samples - 1), 0)
    if model.n == 0:
        return Misfit(0.0, 0, 1.0, reliable=False, is_mixture=False)
    point = model.at(fit.counts)
    statistic = 2.0 * max(0.0, point.deviance - max(fit.gap, ROUNDING * model.n))
    expected = contract(fit.counts, model.channels)
    # empty configurations and impossible reports have expectation 0, as may some possible cells
    small = configurations * cells - int(np.count_nonzero(expected >= SMALL))
    reliable = small <= SMALL_SHARE * configurations * cells
    # if each disguised variable has one category, the truth has no freedom: chi-square, not the mixture
    mixture = any(P.shape[0] > 1 for _, P in disguised)
    return Misfit(statistic, degrees, _tail(statistic, degrees, mixture=mixture), reliable, mixture)


def _tail(statistic: float, degrees: int, *, mixture: bool) -> float:
    from scipy.special import chdtrc  # noqa: PLC0415  (scipy is slow to import)

    if statistic <= 0 or degrees == 0:
        return 1.0
    full = float(chdtrc(degrees, statistic))
    if not mixture:
        return full
    lower = float(chdtrc(degrees - 1, statistic)) if degrees > 1 else 0.0
    return (full + lower) / 2
