"""K2 on ALARM: 37 nodes, 20,000 disguised records, the true order, at most 4 parents, BIC of the reports.

Against pyAgrum's K2 with BIC on the clear records: its learner (which holds the records) built beforehand,
with one thread and with all, and from a frame of text to the structure. Ours starts from report codes it has
never tabulated, or from a frame of text, and returns strengths too.
At no noise both must find the same structure. pyAgrum's useK2 misreads an order of names, so it gets ids.
Ten times as many records: beyond counting them only the fits are left, whose number of cells stays.

The limit is pyAgrum with two threads. On a busy machine its threads wait for each other, and only processor
seconds tell: alone on two cores ours takes no longer by the clock than its processor seconds, and two threads
no less than half of those that one thread takes. So twice ours over one thread's is the ratio at most.

    python -m benchmarks.structure_alarm [--json FILE]
"""

import gzip
import math
import tempfile
import time
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
import pyagrum as gum
from benchmarks.large import machine
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.graph import differences
from masquerade.learn.networks.structure_search import structure
from masquerade.sources.records import Records

RECORDS = 20_000
PARENTS = 4
CHANGE = "0.1"
REPEATS = 9
LIMIT = 1.0  # times the seconds of pyAgrum with two threads
TIMES = 10  # as many records, to see what grows


def alarm():
    """Return the network that pgmpy brings along, as pyAgrum's."""
    packed = files("pgmpy").joinpath("utils", "example_models", "alarm.bif.gz").read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "alarm.bif"
        path.write_bytes(gzip.decompress(packed))
        return gum.loadBN(str(path))


def sampled(network, records=RECORDS):
    """Return the true order and records of labels."""
    gum.initRandom(1)
    generator = gum.BNDatabaseGenerator(network)
    generator.drawSamples(records)
    order = [network.variable(node).name() for node in network.topologicalOrder()]
    return order, generator.to_pandas()[order]


def learner(frame, network, order, threads):
    """Return pyAgrum's learner, ready to run."""
    made = gum.BNLearner(frame, network)
    made.useNoPrior()
    made.useScoreBIC()
    made.setMaxIndegree(PARENTS)
    made.useK2([made.idFromName(name) for name in order])
    made.setNumberOfThreads(threads)
    return made


def least_of(contenders, repeats):
    """Return the least seconds of each (name, function), by the clock and of the processor, in turns."""
    found = {name: {"seconds": math.inf, "cpu_seconds": math.inf} for name, _ in contenders}
    for _ in range(repeats):
        for name, run in contenders:
            start, worked = time.perf_counter(), time.process_time()
            run()
            spent = {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - worked}
            found[name] = {unit: min(found[name][unit], value) for unit, value in spent.items()}
    return found


class Answered:
    """A source that keeps the seconds that its answers took: the scan of the records."""

    def __init__(self, source):
        self.source, self.schema, self.guarantee, self.seconds = source, source.schema, source.guarantee, 0.0

    def check(self, queries):
        return self.source.check(queries)

    def answer(self, queries):
        start = time.perf_counter()
        found = self.source.answer(queries)
        self.seconds += time.perf_counter() - start
        return found


def coded(frame, labels):
    """Return the codes of records of labels."""
    return {
        name: pd.Categorical(frame[name], categories=own).codes.astype(np.uint8)
        for name, own in labels.items()
    }


def growth(reports, many, policy, order):
    """Time the scan and all the rest, for these records and for several times as many."""
    found = []
    for codes in (reports, many):
        scans, rests = [], []
        for _ in range(REPEATS):
            source = Answered(Records(codes, policy))
            start = time.perf_counter()
            learned = structure(source, order, max_parents=PARENTS)
            scans.append(source.seconds)
            rests.append(time.perf_counter() - start - source.seconds)
        n = len(next(iter(codes.values())))
        print(
            f"{n:,} records: scan {min(scans):.3f} s, fits and search {min(rests):.3f} s, "
            f"{len(learned.links)} links"
        )
        found.append({"name": f"masquerade, {n:,} records, scan", "seconds": min(scans)})
        found.append({"name": f"masquerade, {n:,} records, fits and search", "seconds": min(rests)})
    return found


def main():
    path = json_option(__doc__)
    load = machine()
    network = alarm()
    order, frame = sampled(network)
    labels = {name: list(network.variable(name).labels()) for name in order}
    codes = coded(frame, labels)
    schema = mq.Schema(labels)
    policy = mq.Policy.build(
        schema, {name: mq.channels.symmetric(len(schema[name]), CHANGE) for name in schema}
    )
    reports = simulate_codes(codes, policy, 1)
    disguised = pd.DataFrame({name: np.array(labels[name])[reports[name]] for name in order})
    one, every = (
        learner(frame, network, order, threads) for threads in (1, gum.getNumberOfLogicalProcessors())
    )
    dag = one.learnDAG()
    theirs = {
        name: tuple(one.nameFromId(node) for node in dag.parents(one.idFromName(name))) for name in order
    }
    ours = structure(Records(codes, policy.without_channels()), order, max_parents=PARENTS).structure
    assert {name: set(parents) for name, parents in ours.items()} == {
        name: set(parents) for name, parents in theirs.items()
    }
    best = least_of(
        [
            ("masquerade", lambda: structure(Records(reports, policy), order, max_parents=PARENTS)),
            (
                "masquerade, clear records",
                lambda: structure(Records(codes, policy.without_channels()), order, max_parents=PARENTS),
            ),
            ("pyAgrum, clear records, one thread", one.learnDAG),
            ("pyAgrum, clear records, all threads", every.learnDAG),
            (
                "masquerade, from a frame of text",
                lambda: structure(mq.tally(disguised, policy), order, max_parents=PARENTS),
            ),
            (
                "pyAgrum, from a frame of text, all threads",
                lambda: learner(frame, network, order, gum.getNumberOfLogicalProcessors()).learnDAG(),
            ),
        ],
        REPEATS,
    )
    for name, spent in best.items():
        print(f"{name:<50}{spent['seconds']:>10.4f} s{spent['cpu_seconds']:>10.4f} s of the processor")
    one_thread = best["pyAgrum, clear records, one thread"]["cpu_seconds"]
    bounds = {
        kind: 2 * best[name]["cpu_seconds"] / one_thread
        for kind, name in (("disguised", "masquerade"), ("clear", "masquerade, clear records"))
    }
    for kind, ratio in bounds.items():
        word = "reached" if ratio <= LIMIT else "MISSED"
        print(f"{kind}: at most {ratio:.2f}× pyAgrum with two threads: {word}")
    results = [{"name": name, **spent} for name, spent in best.items()]
    more = coded(sampled(network, TIMES * RECORDS)[1], labels)
    results += growth(reports, simulate_codes(more, policy, 1), policy, order)
    truth = {name: tuple(network.variable(node).name() for node in network.parents(name)) for name in order}
    for kind, found in (
        ("clear", ours),
        ("disguised", structure(Records(reports, policy), order, max_parents=PARENTS).structure),
    ):
        extra, missing = differences(found, truth)
        print(f"{kind}: {extra} extra and {missing} missing links of {network.sizeArcs()}")
    keep(path, {"machine": load, "limit": LIMIT, "ratio_at_most": bounds, "results": results})


if __name__ == "__main__":
    main()
