"""An experiment that needs data which nobody has: it says so, or finds out while it runs."""

import os

from tests.experiments.toys.watching import mean_value, points

from masquerade.core.errors import DataMissing
from masquerade_experiments.experiment import Experiment


def measure(setting, seed):
    if os.environ.get("TOY_FED"):
        return [{"value": 1.0 + setting["q"] + (seed % 2)}]
    raise DataMissing("fodder", ["the barn: empty"], "Set MASQUERADE_DATA.")


EXPERIMENT = Experiment(
    id="toy-hungry",
    paper="Toy & Toy (2001)",
    item="Table 1",
    title="Fodder",
    shows="Horses eat.",
    settings=lambda _quick: [{"q": 1}],
    measure=measure,
    compare=lambda frame: mean_value(frame, None),
    draw=points,
    printed_runs=2,
    quick_runs=2,
)
