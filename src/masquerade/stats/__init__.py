"""Statistics from counts: percentages, effects, tests, regression.

Each function takes a source of counts or a table, and returns estimates with standard errors.
"""

from typing import TYPE_CHECKING

from masquerade.core.util.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from masquerade.stats.effects import change as change
    from masquerade.stats.effects import difference as difference
    from masquerade.stats.effects import odds_ratio as odds_ratio
    from masquerade.stats.effects import ratio as ratio
    from masquerade.stats.estimates import Estimates as Estimates
    from masquerade.stats.estimates import TestResult as TestResult
    from masquerade.stats.estimates import TestResults as TestResults
    from masquerade.stats.estimates import adjusted_p_values as adjusted_p_values
    from masquerade.stats.hierarchical import LogLinear as LogLinear
    from masquerade.stats.hierarchical import loglinear as loglinear
    from masquerade.stats.hypotheses import associations as associations
    from masquerade.stats.hypotheses import contrast as contrast
    from masquerade.stats.hypotheses import independence as independence
    from masquerade.stats.hypotheses import marginal_homogeneity as marginal_homogeneity
    from masquerade.stats.hypotheses import trend as trend
    from masquerade.stats.imputation import Imputations as Imputations
    from masquerade.stats.imputation import Pooled as Pooled
    from masquerade.stats.imputation import impute as impute
    from masquerade.stats.imputation import rubin as rubin
    from masquerade.stats.means import mean as mean
    from masquerade.stats.means import quantile as quantile
    from masquerade.stats.percentages import shares as shares
    from masquerade.stats.regression.fit import linear as linear
    from masquerade.stats.regression.fit import logistic as logistic
    from masquerade.stats.regression.fit import multinomial as multinomial
    from masquerade.stats.regression.fit import poisson as poisson
    from masquerade.stats.regression.fit import proportional_odds as proportional_odds
    from masquerade.stats.regression.results import Regression as Regression
    from masquerade.stats.stratified_tables import mantel_haenszel as mantel_haenszel
    from masquerade.stats.survival_curves import Survival as Survival
    from masquerade.stats.survival_curves import survival as survival

__getattr__, __dir__, __all__ = lazy_exports(__name__)
