"""Learning on shares: structures between real processes over mutual TLS, and a step of k-means.

Two owners, a helper and whoever convenes are processes of their own, with their state on the disk; records
are linked by a shared key. The structure must be that of the joined records in clear. The step of k-means
runs in one process, all members one after the other, messages counted.

python -m benchmarks.hidden [--json FILE]
"""

import gzip
import os
import resource
import time
from importlib.resources import files

import numpy as np
from benchmarks.parties_network import held
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.learn.clusters import Lattice, distance_bits, lloyd_step, moved
from masquerade.learn.graph import ancestral_order
from masquerade.learn.network import parse_bif
from masquerade.protocols.hidden import Cost, Dealer, HelpedEngine, run
from masquerade.protocols.hidden.dealer import local_keys
from masquerade.protocols.hidden.k_means import clusters, step
from masquerade.services.parties.example import vertical
from masquerade.services.parties.session import Goal
from masquerade.simulation import hidden_structure
from masquerade.sources.records import Records

OWNERS = ("north", "south")
NETWORKS = {"asia": 10_000, "alarm": 10_000}
MAX_PARENTS, SEED = 3, 24
CLUSTERED, COLUMNS, CENTRES = 1_000_000, 4, 3
STUDIED = ("asia", "survey", "sachs", "child")
STUDIED_SCORES = ("k2", "bic", "bdeu")
TABLE, STEPS = (100_000, 8), 3


def order_of(network):
    """Return the variables, parents first."""
    return tuple(ancestral_order(network.structure))


def session(name, n):
    """Hold a session over a known network's records, and return what it took."""
    network = mq.data.network(name)
    order, names = order_of(network), tuple(network.schema)
    frame = network.sample(n, seed=SEED)
    owners = {owner: names[place::2] for place, owner in enumerate(OWNERS)}
    goal = Goal(model="structure", order=order, max_parents=MAX_PARENTS, score="k2")
    policy = mq.Policy.clear(network.schema)
    busy = os.getloadavg()[0]
    made = vertical(frame, policy, owners, "hidden-structure", goal, seed=SEED, linking="keyed")
    status, seconds, spent, memory = held(made)
    source = mq.tally(frame, schema=network.schema)
    clear = mq.learn.structure(source, order, max_parents=MAX_PARENTS, score="k2").structure
    found = status["model"]["parents"]
    return {
        "network": name,
        "nodes": len(names),
        "records": status["records"],
        "max_parents": MAX_PARENTS,
        "equal_to_clear": {x: set(given) for x, given in found.items()}
        == {x: set(given) for x, given in clear.items()},
        "seconds_of_the_session": status["seconds"],
        "seconds_of_the_command": round(seconds, 1),
        "cpu_seconds": {node: round(value, 1) for node, value in spent.items()},
        "most_mib": {node: round(value) for node, value in memory.items()},
        **status["model"]["computation"],
        "load_of_the_machine_before": round(busy, 1),
    }


def one_process(name, n):
    """Run the same search in one process, and return what it took without a network."""
    network = mq.data.network(name)
    names = tuple(network.schema)
    codes = network.sample_codes(n, SEED)
    owners = {owner: names[place::2] for place, owner in enumerate(OWNERS)}
    order = order_of(network)
    found = hidden_structure(codes, network.schema, owners, order, max_parents=MAX_PARENTS, score="k2")
    return {"network": name, "records": n, "seconds": found.seconds, "rounds": found.cost.rounds}


def brought(name):
    """Return a network that pgmpy brings along."""
    packed = files("pgmpy").joinpath("utils", "example_models", f"{name}.bif.gz").read_bytes()
    return parse_bif(gzip.decompress(packed).decode())


def studied(name, n):
    """Return whether each score's search on shares finds the parents of the search in clear."""
    network = brought(name)
    names = tuple(network.schema)
    codes = network.sample_codes(n, SEED)
    owners = {owner: names[place::2] for place, owner in enumerate(OWNERS)}
    source, order = Records(codes, mq.Policy.clear(network.schema)), order_of(network)
    equal = {}
    for score in STUDIED_SCORES:
        told = {"max_parents": 2, "score": score}
        found = hidden_structure(codes, network.schema, owners, order, **told).structure
        equal[score] = found == mq.learn.structure(source, order, **told).structure
    return {"network": name, "nodes": len(names), "records": n, "equal_to_clear": equal}


def k_means_step():
    """Assign a million records of two owners to their nearest centres, and return what that took."""
    generator = np.random.default_rng(SEED)
    middles = generator.normal(0, 4, (CENTRES, COLUMNS))
    numbers = middles[generator.integers(0, CENTRES, CLUSTERED)] + generator.normal(
        0, 1, (CLUSTERED, COLUMNS)
    )
    lattice = Lattice.of(numbers.min(axis=0), numbers.max(axis=0))
    whole = lattice.whole(numbers)
    holder = generator.integers(0, 2, whole.shape)
    centres = whole[:CENTRES].copy()
    bits = distance_bits(np.zeros(COLUMNS, dtype=np.int64), whole.max(axis=0), centres)
    keys = local_keys({owner: os.urandom(32) for owner in OWNERS})
    programs = {}
    for place, owner in enumerate(OWNERS):
        engine = HelpedEngine(owner, OWNERS, lambda *asked, owner=owner: keys(owner, *asked), CLUSTERED)
        programs[owner] = step(engine, np.where(holder == place, whole, 0), centres, bits)
    cost, busy = Cost(), os.getloadavg()[0]
    start, work = time.perf_counter(), time.process_time()
    found = run(programs, Dealer(OWNERS, keys), cost)
    seconds, spent = time.perf_counter() - start, time.process_time() - work
    sizes, sums = lloyd_step(whole, np.ones(len(whole)), centres)
    return {
        "records": CLUSTERED,
        "columns": COLUMNS,
        "centres": CENTRES,
        "equal_to_clear": bool(np.array_equal(found.sizes, sizes) and np.array_equal(found.sums, sums)),
        "seconds": round(seconds, 1),
        "cpu_seconds": round(spent, 1),
        "rounds": cost.rounds,
        "bytes_shown": cost.sent,
        "bytes_dealt": cost.dealt,
        "most_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "load_of_the_machine_before": round(busy, 1),
    }


def k_means_partitions():
    """Take Lloyd's steps over a table that lies with two owners in three ways, and compare every end."""
    generator = np.random.default_rng(SEED)
    middles = generator.normal(0, 3, (CENTRES, TABLE[1]))
    numbers = middles[generator.integers(0, CENTRES, TABLE[0])] + generator.normal(0, 1, TABLE)
    whole = Lattice.of(numbers.min(axis=0), numbers.max(axis=0)).whole(numbers)
    start = whole[:CENTRES].copy()
    bits = distance_bits(np.zeros(TABLE[1], dtype=np.int64), whole.max(axis=0), np.full(TABLE, 4096)[:1])
    centres = start
    for _ in range(STEPS):
        sizes, sums = lloyd_step(whole, np.ones(len(whole)), centres)
        centres = moved(centres, sizes, sums)
    rows, columns = np.indices(TABLE)
    holders = {"horizontal": rows % 2, "vertical": columns % 2, "any cells": generator.integers(0, 2, TABLE)}
    found = []
    for name, holder in holders.items():
        keys = local_keys({owner: os.urandom(32) for owner in OWNERS})
        programs = {}
        for place, owner in enumerate(OWNERS):
            engine = HelpedEngine(owner, OWNERS, lambda *asked, o=owner, k=keys: k(o, *asked), len(whole))
            own = np.where(holder == place, whole, 0)
            programs[owner] = clusters(engine, own, start, bits, moved=moved, most_steps=STEPS)
        begun = time.process_time()
        ended = run(programs, Dealer(OWNERS, keys))
        spent = round(time.process_time() - begun, 1)
        same = np.array_equal(ended.centres, centres) and np.array_equal(ended.sizes, sizes)
        found.append(
            {"partition": name, "steps": ended.steps, "equal_to_clear": bool(same), "cpu_seconds": spent}
        )
        print(found[-1], flush=True)
    return {"records": TABLE[0], "columns": TABLE[1], "centres": CENTRES, "partitions": found}


def main():
    """Measure a small and a large network over the network and beside it, and a step of k-means."""
    path = json_option(__doc__)
    found = {"sessions": [], "one_process": []}
    for name, n in NETWORKS.items():
        found["sessions"].append(session(name, n))
        print(found["sessions"][-1], flush=True)
        found["one_process"].append(one_process(name, n))
        print(found["one_process"][-1], flush=True)
    found["studied"] = [studied(name, n) for name in STUDIED for n in (1000, 10_000)]
    found["k_means_step"] = k_means_step()
    print(found["k_means_step"], flush=True)
    found["k_means_table"] = k_means_partitions()
    keep(path, found)


if __name__ == "__main__":
    main()
