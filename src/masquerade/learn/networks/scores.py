"""Scores of a family (a child and its parents), and corrections for noise in the counts.

Counts estimated from disguised records vary more than counts of clear records, and every score mistakes that
extra variation for dependence. `Likelihood` scores the reports themselves instead, given their channels.
`DesignEffect`, and `Constant` and `Eta` of Ma (2006), score estimated counts, and penalise links for the
noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import log

import numpy as np

from masquerade.core.axes import Floats
from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.links.marginals import marginal_gains
from masquerade.learn.networks._candidates import Candidates, LaidOut
from masquerade.learn.networks._design_effect import design_effects

__all__ = [
    "AIC",
    "BIC",
    "K2",
    "LIKELIHOOD",
    "Constant",
    "Correction",
    "DesignEffect",
    "Dirichlet",
    "Eta",
    "Likelihood",
    "Penalised",
    "Score",
    "Uncorrected",
    "bdeu",
]

ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Penalised:
    """Log-likelihood minus a penalty per free parameter, which may depend on the number of records."""

    name: str
    price: Callable[[float], float]


@dataclass(frozen=True, slots=True)
class Dirichlet:
    """Log marginal likelihood under Dirichlet priors; `prior` maps the number of cells to a pseudo-count."""

    name: str
    prior: Callable[[int], float]


Score = Penalised | Dirichlet

LIKELIHOOD = Penalised("likelihood", lambda _: 0.0)
BIC = Penalised("bic", lambda n: log(n) / 2)
AIC = Penalised("aic", lambda _: 1.0)
K2 = Dirichlet("k2", lambda _: 1.0)


def bdeu(equivalent: float = 1.0) -> Dirichlet:
    """Return the BDeu score: a prior worth `equivalent` records, spread evenly over the family's cells."""
    if not equivalent > 0:
        raise InputError(f"The equivalent sample size must be positive. Got {equivalent} instead.")
    return Dirichlet(f"bdeu({equivalent:g})", lambda cells: equivalent / cells)


SCORES: dict[str, Score] = {"bic": BIC, "aic": AIC, "k2": K2, "bdeu": bdeu()}


def score_called(score: Score | str) -> Score:
    """Return a score by its name."""
    if isinstance(score, (Penalised, Dirichlet)):
        return score
    if score not in SCORES:
        raise InputError(f"There is no score {score!r}.{did_you_mean(score, SCORES)}")
    return SCORES[score]


def family_score(counts: Floats, score: Score, n: float) -> Floats:
    """Return the score of families from counts (…, parent configurations, categories of the child).

    Formula: Σ_jk N_jk log(N_jk/N_j) − price(n)·J(K−1), or with pseudo-counts α_jk, α_j = Σ_k α_jk: Σ_j
    [lnΓ(α_j) − lnΓ(α_j+N_j) + Σ_k (lnΓ(α_jk+N_jk) − lnΓ(α_jk))]. Counts may be fractional, not negative.
    Reference: Schwarz (1978); Akaike (1974); Cooper & Herskovits (1992); Heckerman et al. (1995).
    Cost: one logarithm (or lnΓ) per cell.
    """
    configurations, categories = counts.shape[-2:]
    margin = counts.sum(axis=-1)
    if isinstance(score, Penalised):
        fit = x_log_x(counts).sum(axis=(-2, -1)) - x_log_x(margin).sum(axis=-1)
        return np.asarray(fit - score.price(n) * configurations * (categories - 1))
    from scipy.special import gammaln  # noqa: PLC0415  (slow to load, and not needed by all scores)

    alpha = score.prior(configurations * categories)
    cells = gammaln(counts + alpha).sum(axis=(-2, -1)) - gammaln(margin + categories * alpha).sum(axis=-1)
    constant = gammaln(categories * alpha) - categories * gammaln(alpha)
    return np.asarray(cells + configurations * constant)


def x_log_x(x: Floats) -> Floats:
    """Return x·log x, 0 at 0."""
    return np.asarray(x * np.log(np.where(x > 0, x, 1.0)))


@dataclass(frozen=True, slots=True)
class Uncorrected:
    """Treat estimated counts as clear counts, which adds links that are only noise.

    Base of the rules that score estimated counts and correct gains for their noise.

    >>> source = mq.tally(mq.data.students())
    >>> mq.learn.structure(source, correction=mq.learn.Uncorrected()).links
    [('exams', 'year'), ('exams', 'pills'), ('pills', 'sleep')]
    """

    def factors(self, links: Candidates) -> Floats:
        """Return the assumed inflation of the likelihood ratio by noise, for links of one shape."""
        return np.ones(len(links))

    def threshold(self, old: Floats) -> Floats:
        """Return the value that a gain must exceed, given the scores without the links."""
        return np.zeros_like(old)

    def bounds(self, links: Candidates, score: Score) -> Floats:
        """Return upper bounds of the gains of links, infinite where no cheap bound is known.

        Parameters
        ----------
        links : Candidates
            Candidate links.
        score : Score
            The score.

        Returns
        -------
        ndarray
            One bound per link.
        """
        del score
        return np.full(len(links), np.inf)

    def gains(self, links: Candidates, score: Score, floor: Floats) -> Floats:
        """Return the gain in score of each link. A link with a positive gain may be added.

        Parameters
        ----------
        links : Candidates
            Candidate links.
        score : Score
            The score.
        floor : ndarray
            Gain that each link must exceed to be of interest. For a link that cannot exceed it, any number
            between the gain and the floor may be returned instead of the gain.

        Returns
        -------
        ndarray
            One gain per link.
        """
        del floor
        found = np.empty(len(links))
        for members, group in links.by_shape():
            found[members] = self.divided_gains(group, score, self.factors(group))
        return found

    def divided_gains(self, links: Candidates, score: Score, factors: Floats) -> Floats:
        """Return the gains of links of one shape from their counts divided by factors.

        Parameters
        ----------
        links : Candidates
            Links of one shape.
        score : Score
            The score.
        factors : ndarray
            Assumed inflation δ by noise of each link.

        Returns
        -------
        ndarray
            One gain per link.

        Notes
        -----
        Formula: δ·[F(N_with/δ) − F(N_without/δ)], minus the threshold. For BIC that is ΔLL − δ·(log n)/2·df,
        positive exactly if ΔLL/δ > (log n)/2·df. A Bayesian score uses the counts N/δ, and the leading factor
        returns the gains of all links to the scale of the log-likelihood.
        Reference: Rao & Scott (1984) for δ; Ma (2006) §5.5.2 for the constant and the threshold.
        Cost: two family scores.
        """
        scaled = links.counts / factors[:, None, None, None]
        m, configurations, values, categories = scaled.shape
        old = family_score(scaled.sum(axis=2), score, links.n)
        new = family_score(scaled.reshape(m, configurations * values, categories), score, links.n)
        return np.asarray(factors * (new - old) - self.threshold(old))

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "uncorrected"}


@dataclass(frozen=True, slots=True)
class Constant(Uncorrected):
    """Rule of Ma (2006) for BIC: the penalty times a constant C* for all links.

    Parameters
    ----------
    value : float
        The constant, above 0.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.learn.structure(source, correction=mq.learn.Constant(4)).links
    [('exams', 'pills'), ('pills', 'sleep')]
    """

    value: float

    def __post_init__(self) -> None:
        if not self.value > 0:
            raise InputError(f"The constant C* must be positive. Got {self.value} instead.")

    def factors(self, links: Candidates) -> Floats:
        """Return the constant."""
        return np.full(len(links), float(self.value))

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "constant", "value": self.value}


@dataclass(frozen=True, slots=True)
class Eta(Uncorrected):
    """Rule of Ma (2006) for Bayesian scores: a link must raise the log score S by more than (1 − η)·|S|.

    The papers print η·P_new > P_old, which is meaningful for logarithms only in this form.

    Parameters
    ----------
    value : float
        The threshold η, above 0 and at most 1.

    Examples
    --------
    >>> source = mq.tally(mq.data.students())
    >>> mq.learn.structure(source, score="k2", correction=mq.learn.Eta(0.99)).links
    [('exams', 'pills'), ('pills', 'sleep')]
    """

    value: float

    def __post_init__(self) -> None:
        if not 0 < self.value <= 1:
            raise InputError(f"The threshold η must be in (0, 1]. Got {self.value} instead.")

    def threshold(self, old: Floats) -> Floats:
        """Return (1 − η)·|old|."""
        return np.asarray((1 - self.value) * np.abs(old))

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "eta", "value": self.value}


@dataclass(frozen=True, slots=True)
class DesignEffect(Uncorrected):
    """Correct every link by its own design effect, computed from the covariance of its table.

    There is nothing to tune, and false links are avoided. However, a rare category inflates the effect of its
    whole table, so that links between frequent categories are missed.

    >>> source = mq.tally(mq.data.students())
    >>> mq.learn.structure(source, correction=mq.learn.DesignEffect()).links
    [('exams', 'year'), ('exams', 'pills'), ('pills', 'sleep')]
    """

    def factors(self, links: Candidates) -> Floats:
        """Return the design effects."""
        return design_effects(links)

    def bounds(self, links: Candidates, score: Score) -> Floats:
        """Return the gains at a design effect of 1, the smallest; infinite for Bayesian scores.

        Parameters
        ----------
        links : Candidates
            Candidate links.
        score : Score
            The score.

        Returns
        -------
        ndarray
            One bound per link.
        """
        found = np.full(len(links), np.inf)
        if isinstance(score, Penalised):
            for members, group in links.by_shape():
                found[members] = self.divided_gains(group, score, np.ones(len(group)))
        return found

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "design_effect"}


@dataclass(frozen=True, slots=True)
class Likelihood:
    """Score the reports themselves, by their likelihood given their channels. There is nothing to tune.

    Formula: a link X ← Z given J gains D/2 − price(n)·df, D = 2[ℓ(best table) − ℓ(best table with X ⟂ Z | J)]
    of the reports, df = J(K_z − 1)(K_x − 1). Without disguise this is exactly the ordinary score. For
    weighted records n is their effective number (Σw)²/Σw². The gain of a Bayesian score is the increase of
    the marginal likelihood of the reports, less the information that the disguise removed (see
    `core.links.marginals`); evidence without reports is scored by its design effect instead.
    Reference: Haberman (1974) for tables that are observed indirectly; Cheeseman & Stutz (1996).
    Cost: two fits per link, stopped early if the link cannot gain.

    >>> source = mq.tally(mq.data.students())
    >>> mq.learn.structure(source, correction=mq.learn.Likelihood()).links
    [('exams', 'year'), ('exams', 'pills'), ('pills', 'sleep')]
    """

    def bounds(self, links: Candidates, score: Score) -> Floats:
        """Return upper bounds of the gains of links.

        Parameters
        ----------
        links : Candidates
            Candidate links.
        score : Score
            The score.

        Returns
        -------
        ndarray
            One bound per link; infinite for Bayesian scores.
        """
        if isinstance(score, Dirichlet):
            return np.full(len(links), np.inf)
        return self.penalised_gains(links, score, np.full(len(links), np.inf))

    def gains(self, links: Candidates, score: Score, floor: Floats) -> Floats:
        """Return the gain in score of each link. A link with a positive gain may be added.

        Parameters
        ----------
        links : Candidates
            Candidate links.
        score : Score
            The score.
        floor : ndarray
            Gain that each link must exceed to be of interest. For a link that cannot exceed it, any number
            between the gain and the floor may be returned instead of the gain.

        Returns
        -------
        ndarray
            One gain per link.
        """
        if isinstance(score, Dirichlet):
            return self._marginal(links, score)
        return self.penalised_gains(links, score, floor)

    def to_dict(self) -> dict[str, object]:
        """Return the rule as plain values."""
        return {"kind": "likelihood"}

    def _marginal(self, links: Candidates, score: Dirichlet) -> Floats:
        found = marginal_gains([table.evidence for table in links.tables], links.places, score.prior)
        unknown = np.flatnonzero(np.isnan(found)).tolist()
        if unknown:  # evidence from values and covariance only has no marginal likelihood
            found[unknown] = DesignEffect().gains(links[unknown], score, np.zeros(len(unknown)))
        return found

    def penalised_gains(self, links: Candidates | LaidOut, score: Penalised, floor: Floats) -> Floats:
        """Return the gain in a penalised score of each link.

        Parameters
        ----------
        links : Candidates or LaidOut
            Candidate links.
        score : Penalised
            The score.
        floor : ndarray
            Gains that links must exceed to be of interest, as in `gains`.

        Returns
        -------
        ndarray
            One gain per link, or a bound that is not above `floor`.
        """
        price = score.price(links.effective) * links.df
        return np.asarray(links.statistics(2 * (floor + price)) / 2 - price)


Correction = Uncorrected | Constant | Eta | DesignEffect | Likelihood

_PLAIN: dict[str, type[Uncorrected | DesignEffect | Likelihood]] = {
    "likelihood": Likelihood,
    "design-effect": DesignEffect,
    "none": Uncorrected,
}
_WITH_NUMBER: dict[str, type[Constant | Eta]] = {"constant": Constant, "eta": Eta}


def correction_called(rule: Correction | str, option: str = "correction") -> Correction:
    """Return a correction by its name. `option` is the name of the option in error messages.

    >>> correction_called("constant:4")
    Constant(value=4.0)
    """
    if isinstance(rule, (Uncorrected, Likelihood)):
        return rule
    name, _, value = rule.partition(":") if isinstance(rule, str) else ("", "", "")
    if not value and name in _PLAIN:
        return _PLAIN[name]()
    try:
        kind, number = _WITH_NUMBER[name], float(value)
    except (KeyError, ValueError):
        raise InputError(
            f"{option} {rule!r}: must be one of likelihood, design-effect, none, constant:C and eta:E, "
            "such as constant:4."
        ) from None
    return kind(number)
