"""Regression: the likelihood of reports, or the corrected score where only tables are known."""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.stats.regression.fit import linear as linear
    from masquerade.stats.regression.fit import logistic as logistic
    from masquerade.stats.regression.fit import multinomial as multinomial
    from masquerade.stats.regression.fit import poisson as poisson
    from masquerade.stats.regression.fit import proportional_odds as proportional_odds
    from masquerade.stats.regression.results import Regression as Regression

__getattr__, __dir__, __all__ = lazy_exports(__name__)
