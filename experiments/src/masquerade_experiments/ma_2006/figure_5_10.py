"""Fig. 5.10: structures by the BIC/MDL score, with the paper's penalty C* and with our correction."""

from __future__ import annotations

from collections.abc import Sequence

import masquerade as mq
from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import structures
from masquerade_experiments.ma_2006.networks import DECLARED

SCORE = "bic"
RULES: structures.Rules = {
    "C* = 1": lambda _: mq.learn.Constant(1),
    "C* = 4": lambda _: mq.learn.Constant(4),
    "C* = 8": lambda _: mq.learn.Constant(8),
    structures.OURS: structures.ours,
}

SHOWS = (
    "Noise in the estimated counts looks like dependence, so the plain BIC score adds links that are not "
    "there, more of them as p grows. The paper's constant C* before the penalty must grow with p, and no one "
    "value serves all links; the design effect is the C* of each link, computed from the counts. It is wrong "
    "less often, now and then at the price of a weak link that the noise hides."
)
SLIP = "The penalty of the BIC score is printed as N/2 for every parameter; it must be (log N)/2."


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return the wrong links and distances of one data set, disguised once."""
    return structures.measure(setting, seed, SCORE, RULES)


EXPERIMENT = Experiment(
    id="ma-2006-fig-5.10",
    paper="Ma (2006)",
    item="Figure 5.10",
    title="Structures by the BIC/MDL score, and the extra links that noise adds",
    shows=SHOWS,
    settings=structures.settings,
    measure=measure,
    compare=lambda frame: structures.comparisons(frame, RULES),
    draw=lambda frame: structures.draw(
        frame, RULES, "Structure learning with the BIC/MDL score, 10,000 records"
    ),
    quick_runs=4,
    declared=(DECLARED, structures.CHOSEN, structures.TURNED),
    corrected=(SLIP,),
)
