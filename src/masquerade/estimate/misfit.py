"""Can any truth at all explain the observed table? A test of the policy and of the respondents."""

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
    """How badly the likeliest truth explains the observed table.

    A small `p_value` flags records disguised under another policy, or respondents who did not follow it.
    It is conservative (a bound): a large one does not show that all is well. `reliable` is False when more
    than a fifth of the cells expect fewer than 5 records.
    """

    statistic: float
    degrees: int
    p_value: float
    reliable: bool

    def summary(self) -> str:
        """Return the test in a line, and what it says."""
        doubt = "" if self.reliable else " (rough: many cells expect fewer than 5 records)"
        found = f"Misfit: G² = {self.statistic:.2f}, df = {self.degrees}, p = {p_text(self.p_value)}{doubt}"
        if self.p_value >= DOUBTFUL:
            return f"{found}\nNothing speaks against this policy (which does not prove it)."
        return f"{found}\nThese reports are unusual for this policy, or no truth explains them."


def misfit(observed: Floats, channels: Sequence[Floats | None], samples: int = 1) -> Misfit:
    """Test whether the observed counts can come from any truth through the channels (None: not disguised).

    Formula: G² = 2(ℓ(Ñ/n) − ℓ at the maximum-likelihood truth), zero when the moment estimate has no
    negative cell; p-value ½P(χ²_{d−1} ≥ G²) + ½P(χ²_d ≥ G²), d = observable cells − 1 in every non-empty
    configuration of the axes that were not disguised, summed (those axes cannot misfit), less one for
    every further sample whose size was fixed beforehand.
    Reference: Perlman (1969) for the bound over all mixtures (chi-bar-square) of chi-squares that a truth
    on the boundary can give; Robertson, Wright & Dykstra (1988).
    Cost: one maximum-likelihood fit.
    Error: conservative, asymptotic in n. What the fit may lack (its gap, or
    rounding) is counted in favour of the policy.

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
        return Misfit(0.0, 0, 1.0, reliable=False)
    point = model.at(fit.counts)
    statistic = 2.0 * max(0.0, point.deviance - max(fit.gap, ROUNDING * model.n))
    expected = contract(fit.counts, model.channels)
    # Empty configurations and impossible reports expect exactly nothing; a possible cell may, too.
    small = configurations * cells - int(np.count_nonzero(expected >= SMALL))
    reliable = small <= SMALL_SHARE * configurations * cells
    # With one category everywhere the truth has no freedom: a plain chi-square instead of the mixture.
    mixture = any(P.shape[0] > 1 for _, P in disguised)
    return Misfit(statistic, degrees, _tail(statistic, degrees, mixture=mixture), reliable)


def _tail(statistic: float, degrees: int, *, mixture: bool) -> float:
    from scipy.special import chdtrc  # noqa: PLC0415  (scipy is slow to import)

    if statistic <= 0 or degrees == 0:
        return 1.0
    full = float(chdtrc(degrees, statistic))
    if not mixture:
        return full
    lower = float(chdtrc(degrees - 1, statistic)) if degrees > 1 else 0.0
    return (full + lower) / 2
