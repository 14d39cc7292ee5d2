"""An experiment that differs from its paper, and says why; slow after some runs if it is told to be."""

import os
import time
from pathlib import Path

from tests.experiments.toys.watching import TRACES, mean_value, note, points, traces

from masquerade_experiments.experiment import Experiment

AT_ONCE = 4


def measure(setting, seed):
    note("odd")
    if "TOY_SLEEP" in os.environ and traces(Path(os.environ[TRACES])) > AT_ONCE:
        time.sleep(float(os.environ["TOY_SLEEP"]))
    return [{"value": setting["q"] + (seed % 1000) / 1e6}]


EXPERIMENT = Experiment(
    id="toy-odd",
    paper="Odd (2002)",
    item="Table 1.1",
    title="Odd numbers",
    shows="One is odd.",
    settings=lambda _quick: [{"q": 1}],
    measure=measure,
    compare=lambda frame: mean_value(frame, 3.0, why="The paper counts from three."),
    draw=points,
    printed_runs=24,
    quick_runs=24,
)
