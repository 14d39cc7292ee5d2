"""Table 7: parameters of ASIA by double projection, 25 trials averaged."""

from __future__ import annotations

from masquerade_experiments.experiment import Experiment
from masquerade_experiments.meng_2004 import asia, double, presentation

PRINTED = {
    "A": "0.9 0.1",
    "T": "0.9 0.35 0.09 0.65",
    "S": "0.53 0.48",
    "L": "0.91 0.1 0.09 0.9",
    "E": "0.56 0 0.46 0.27 0.44 1 0.54 0.73",
    "X": "0.95 0.03 0.05 0.97",
    "B": "0.77 0.89 0.21 0.11",
    "D": "0.52 0.47 0.8 0.83 0.48 0.53 0.21 0.17",
}

EXPERIMENT = Experiment(
    id="meng-2004-table-7",
    paper="Meng et al. (2004)",
    item="Table 7",
    title="Parameters of ASIA by double projection, 25 trials",
    shows=double.SHOWS,
    settings=lambda _quick: double.settings(25),
    measure=double.measure,
    compare=lambda frame: double.compare(frame, PRINTED, is_fitted=True),
    draw=lambda frame: presentation.draw(
        frame, asia.printed(PRINTED), "clipped", "Double projection, 25 trials: E and D are uncertain"
    ),
    quick_runs=8,
    declared=(
        double.DIMENSIONS,
        asia.PARAMETERS_OF_TABLE_5,
        asia.PARTIES,
        double.CLIPPED,
        double.OWN_SAMPLES,
    ),
    corrected=(asia.ORDERS,),
    table=lambda frame: presentation.beside(frame, asia.printed(PRINTED), "clipped"),
)
