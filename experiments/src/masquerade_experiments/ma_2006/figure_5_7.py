"""Fig. 5.7: the experiment of Ma & Sivakumar (2005), Fig. 4, printed again."""

from __future__ import annotations

from dataclasses import replace

from masquerade_experiments.ma_sivakumar_2005 import figure_4

FROM_THE_PAPER = (
    "The probabilities of Fig. 5.6 are lost in the text; for the same experiment, they are in Fig. 3 of "
    "Ma & Sivakumar (2005)."
)

EXPERIMENT = replace(
    figure_4.EXPERIMENT,
    id="ma-2006-fig-5.7",
    paper="Ma (2006)",
    item="Figure 5.7",
    declared=(FROM_THE_PAPER, *figure_4.EXPERIMENT.declared),
    repeats=figure_4.EXPERIMENT.id,
)
