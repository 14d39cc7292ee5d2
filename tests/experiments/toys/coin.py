"""Coins thrown: the mean of n throws at several probabilities."""

import numpy as np
from tests.experiments.toys.watching import mean_value, note, points

from masquerade_experiments.experiment import Experiment


def measure(setting, seed):
    note(f"coin-{setting['p']}")
    random = np.random.default_rng(seed)
    return [{"side": side, "value": np.mean(random.random(200) < setting["p"])} for side in ("left", "right")]


EXPERIMENT = Experiment(
    id="toy-coin",
    paper="Toy & Toy (2001)",
    item="Figure 1",
    title="Heads & tails",
    shows="Coins fall on their heads as often as their probability says.",
    settings=lambda quick: [{"p": p} for p in ((0.25, 0.75) if quick else (0.1, 0.3, 0.5, 0.7, 0.9))],
    measure=measure,
    compare=lambda frame: mean_value(frame, 0.5),
    draw=points,
    printed_runs=30,
    quick_runs=4,
    declared=("The coins are made of <brass>.",),
    corrected=("The paper forgets that coins have two sides.",),
)
