"""An experiment whose third run at q = 2 fails."""

from tests.experiments.toys.watching import mean_value, note, points

from masquerade_experiments.experiment import Experiment
from masquerade_experiments.tasks import seed_of

FATAL = seed_of("toy-failing", {"q": 2}, 2)


def measure(setting, seed):
    note("failing")
    if seed == FATAL:
        raise ZeroDivisionError("no luck\nat all")
    return [{"value": float(setting["q"])}]


EXPERIMENT = Experiment(
    id="toy-failing",
    paper="Toy & Toy (2001)",
    item="Figure 2",
    title="An accident",
    shows="Nothing.",
    settings=lambda _quick: [{"q": 1}, {"q": 2}, {"q": 3}],
    measure=measure,
    compare=lambda frame: mean_value(frame, 2.0),
    draw=points,
    printed_runs=5,
    quick_runs=5,
)
