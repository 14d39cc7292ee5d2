"""Fig. 5.8: the experiment of Ma & Sivakumar (2005), Fig. 5, printed again."""

from __future__ import annotations

from dataclasses import replace

from masquerade_experiments.ma_2006.figure_5_7 import FROM_THE_PAPER
from masquerade_experiments.ma_sivakumar_2005 import figure_5

EXPERIMENT = replace(
    figure_5.EXPERIMENT,
    id="ma-2006-fig-5.8",
    paper="Ma (2006)",
    item="Figure 5.8",
    declared=(FROM_THE_PAPER, *figure_5.EXPERIMENT.declared),
    repeats=figure_5.EXPERIMENT.id,
)
