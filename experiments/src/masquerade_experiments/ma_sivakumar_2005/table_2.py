"""Table 2: parameters learnt from records disguised by the policy of Table 1."""

from __future__ import annotations

from masquerade_experiments.experiment import Experiment
from masquerade_experiments.ma_sivakumar_2005 import parameters

# mean and, in brackets, standard deviation × 100 over five runs; the last value of a node is not printed
PRINTED = {
    "A": "0.70(0.70)",
    "S": "0.50(0.00)",
    "T": "0.10(0.50) 0.90(0.77)",
    "L": "0.30(0.49) 0.71(0.57) 0.39(0.64) 0.14(0.55)",
    "B": "0.80(0.77) 0.16(0.41) 0.094(0.71) 0.49(0.73)",
    "E": "0.25(2.0) 0.81(0.90) 0.14(2.7) 0.51(1.2) 0.31(2.6) 0.41(2.34)",
    "X": "0.20(0.80) 0.60(1.1)",
    "D": "0.69(2.2) 0.65(1.3) 0.11(3.3) 0.38(0.77) 0.79(1.7) 0.39(5.65)",
    "C": "0.90(2.0) 0.38(1.6) 0.61(2.6) 0.25(2.1)",
    "F": "0.24(0.73) 0.91(1.1)",
    "G": "0.20(0.30) 0.40(0.29)",
}
SLIP_E = (
    "The deviation printed for P(E=1 | T=1, L=1) is 0.20; the dissertation's Table 5.2 has 2.0 for its "
    "complement, whose deviation is the same, and we take that."
)

EXPERIMENT = Experiment(
    id="ma-sivakumar-2005-table-2",
    paper="Ma & Sivakumar (2005)",
    item="Table 2",
    title="Parameters of a network, from disguised records",
    shows=parameters.SHOWS,
    settings=parameters.settings,
    measure=parameters.measure,
    compare=lambda frame: list(parameters.comparisons(frame, parameters.printed(PRINTED))),
    draw=lambda frame: parameters.differences(frame, parameters.printed(PRINTED)),
    printed_runs=parameters.PAPER_RUNS,
    quick_runs=2,
    declared=(parameters.ARROWS, parameters.PLACES, parameters.ORDER, parameters.OWN_RECORDS),
    corrected=(parameters.GAMMA, parameters.SPREAD, SLIP_E),
    table=lambda frame: parameters.beside(frame, parameters.printed(PRINTED)),
)
