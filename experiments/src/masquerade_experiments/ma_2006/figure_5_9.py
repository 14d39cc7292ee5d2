"""Fig. 5.9: structures by the Bayesian score, with the paper's threshold η and with our correction."""

from __future__ import annotations

from collections.abc import Sequence

import masquerade as mq
from masquerade.learn.networks.scores import Correction
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import structures
from masquerade_experiments.ma_2006.networks import DECLARED

SCORE = "k2"


def varied(p: float) -> Correction:
    """Return the paper's threshold that depends on p."""
    if p <= 0.15:
        return mq.learn.Eta(0.99)
    return mq.learn.Eta(0.98 if p <= 0.25 else 0.97)


RULES: structures.Rules = {
    "η = 1": lambda _: mq.learn.Eta(1.0),
    "η = 0.99": lambda _: mq.learn.Eta(0.99),
    "η by p": varied,
    structures.OURS: structures.ours,
}

SHOWS = (
    "Noise in the estimated counts looks like dependence, so the plain Bayesian score adds links that are "
    "not there, more of them as p grows. The paper's threshold η holds some back and has to be tuned to p; "
    "dividing each link's counts by its own design effect needs no tuning and is wrong less often, now and "
    "then at the price of a weak link that the noise hides."
)
PRIOR = "The prior of the Bayesian score is not given: we take one record for every cell (the K2 score)."
SLIPS = (
    "The inner denominator of the printed Bayesian score, Γ(α_ij), must be Γ(α_ijk).",
    "The rule η·P_new > P_old makes sense only as log P_new − log P_old > (1 − η)·|log P_old|.",
)


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return the wrong links and distances of one data set, disguised once."""
    return structures.measure(setting, seed, SCORE, RULES)


EXPERIMENT = Experiment(
    id="ma-2006-fig-5.9",
    paper="Ma (2006)",
    item="Figure 5.9",
    title="Structures by the Bayesian score, and the extra links that noise adds",
    shows=SHOWS,
    settings=structures.settings,
    measure=measure,
    compare=lambda frame: structures.comparisons(frame, RULES),
    draw=lambda frame: structures.draw(
        frame, RULES, "Structure learning with the Bayesian score, 10,000 records"
    ),
    quick_runs=4,
    declared=(DECLARED, structures.CHOSEN, PRIOR, structures.TURNED),
    corrected=SLIPS,
)
