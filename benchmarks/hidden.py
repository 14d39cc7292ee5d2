"""Learning on shares: structures between real processes over mutual TLS, and a step of k-means.

Two owners, a helper and whoever convenes are processes of their own, with their state on the disk; records
are linked by a shared key. The structure must be that of the joined records in clear. The step of k-means
runs in one process, all members one after the other, messages counted.

python -m benchmarks.hidden [--json FILE]
A part of it alone, the rest of FILE as it was: --only k_means_session
"""

import argparse
import gzip
import json
import os
import resource
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np
import pandas as pd
from benchmarks.parties_network import held
from benchmarks.timing import keep

import masquerade as mq
from masquerade.learn.clusters import lloyd_step
from masquerade.learn.networks.graph import ancestral_order
from masquerade.learn.networks.network_files import parse_bif
from masquerade.protocols.mpc import Cost, Dealer, HelpedEngine, run
from masquerade.protocols.mpc.dealer import local_keys
from masquerade.protocols.mpc.k_means import Lloyd, clusters
from masquerade.services.parties.example import DeploymentPlan, add_person_keys, split_columns, split_rows
from masquerade.services.parties.session import LearningGoal
from masquerade.simulation import hidden_structure
from masquerade.sources.records import Records

OWNERS = ("north", "south")
NETWORKS = {"asia": 10_000, "alarm": 10_000}
MAX_PARENTS, SEED = 3, 24
CLUSTERED, COLUMNS, CENTRES = 1_000_000, 4, 3
STUDIED = ("asia", "survey", "sachs", "child")
STUDIED_SCORES = ("k2", "bic", "bdeu")
TABLE, LEVELS, TABLE_STEPS = (100_000, 8), 256, 3


def order_of(network):
    """Return the variables, parents first."""
    return tuple(ancestral_order(network.structure))


def session(name, n):
    """Hold a session over a known network's records, and return what it took."""
    network = mq.data.network(name)
    order, names = order_of(network), tuple(network.schema)
    frame = network.sample(n, seed=SEED)
    owners = {owner: names[place::2] for place, owner in enumerate(OWNERS)}
    goal = LearningGoal(model="structure", order=order, max_parents=MAX_PARENTS, score="k2")
    policy = mq.Policy.clear(network.schema)
    busy = os.getloadavg()[0]
    made = split_columns(frame, policy, owners, "hidden-structure", goal, seed=SEED, linking="keyed")
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


def drawn_table(records, columns, levels):
    """Return whole numbers around some middles, and first centres among them."""
    generator = np.random.default_rng(SEED)
    middles = generator.uniform(0.2, 0.8, (CENTRES, columns))
    near = middles[generator.integers(0, CENTRES, records)] + generator.normal(0, 0.1, (records, columns))
    table = np.rint(near.clip(0, 1) * (levels - 1)).astype(np.int64)
    return table, table[:CENTRES].astype(float)


def found_by(owners, holder, table, plan):
    """Find clusters in one process; return them, what that cost, and its seconds and work."""
    keys = local_keys({owner: os.urandom(32) for owner in owners})
    programs = {}
    for place, owner in enumerate(owners):
        engine = HelpedEngine(owner, owners, lambda *asked, o=owner: keys(o, *asked), len(table))
        programs[owner] = clusters(engine, np.where(holder == place, table, 0), plan)
    cost, started, work = Cost(), time.perf_counter(), time.process_time()
    found = run(programs, Dealer(owners, keys), cost)
    return found, cost, time.perf_counter() - started, time.process_time() - work


def k_means_step():
    """Assign a million records of two owners to their nearest centres, and return what that took."""
    table, start = drawn_table(CLUSTERED, COLUMNS, LEVELS)
    holder = np.random.default_rng(SEED).integers(0, 2, table.shape)
    busy = os.getloadavg()[0]
    plan = Lloyd(CLUSTERED, CENTRES, (LEVELS - 1,) * COLUMNS, start, 10, 1)
    found, cost, seconds, spent = found_by(OWNERS, holder, table, plan)
    sizes, sums = lloyd_step(table, np.ones(len(table)), start)
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


def frame_of(table):
    """Return a table as records, and its schema."""
    names = [f"x{place}" for place in range(table.shape[1])]
    levels = tuple(range(int(table.max()) + 1))
    schema = mq.Schema([mq.Variable(name, levels) for name in names])
    return pd.DataFrame(table, columns=names), schema


def holders(shape):
    """Return the three ways in which cells lie with two owners."""
    rows, columns = np.indices(shape)
    anyhow = np.random.default_rng(SEED).integers(0, 2, shape)
    return {"horizontal": rows % 2, "vertical": columns % 2, "any cells": anyhow}


def k_means_partitions():
    """Compare with the clear learner a table that lies with two owners in three ways."""
    table, start = drawn_table(*TABLE, 4)
    frame, schema = frame_of(table)
    clear = mq.learn.k_means(mq.tally(frame, schema=schema), CENTRES, start=start)
    ways = [(name, holder, False) for name, holder in holders(TABLE).items()]
    ways.append(("any cells", holders(TABLE)["any cells"], True))
    found = []
    for name, holder, hide in ways:
        plan = Lloyd(TABLE[0], CENTRES, (3,) * TABLE[1], start, 10, found[0]["steps"] if hide else 100, hide)
        ended, cost, _, spent = found_by(OWNERS, holder, table, plan)
        same = np.allclose(ended.centres(), clear.centres, rtol=0, atol=1e-9)
        same &= np.array_equal(ended.sizes, np.rint(clear.shares * TABLE[0]))
        what = {"partition": name, "hidden_steps": hide, "steps": ended.steps, "equal_to_clear": bool(same)}
        found.append({**what, "rounds": cost.rounds, "cpu_seconds": round(spent, 1)})
        print(found[-1], flush=True)
    return {"records": TABLE[0], "columns": TABLE[1], "centres": CENTRES, "partitions": found}


def k_means_session(records=CLUSTERED):
    """Take one step between processes over mutual TLS, every person's cells with two owners by columns."""
    table, start = drawn_table(records, COLUMNS, LEVELS)
    frame, schema = frame_of(table)
    owners = {"north": schema.names[:2], "south": schema.names[2:]}
    goal = LearningGoal(model="k-means", k=CENTRES, names=schema.names, start=start.tolist())
    made = split_columns(
        frame, mq.Policy.clear(schema), owners, "hidden-k-means", goal, seed=1, linking="keyed"
    )
    busy = os.getloadavg()[0]
    status, seconds, spent, memory = held(replace(made, terms={"clusters": {"steps": 1}}))
    sizes, sums = lloyd_step(table, np.ones(len(table)), start)
    model = mq.learn.Clusters.from_dict(status["model"])
    same = np.allclose(model.centres, sums / sizes[:, None], rtol=0, atol=1e-9)
    return {
        "records": status["records"],
        "columns": COLUMNS,
        "centres": CENTRES,
        "equal_to_clear": bool(same and np.allclose(model.shares, sizes / records, rtol=0, atol=1e-12)),
        "seconds_of_the_session": status["seconds"],
        "seconds_of_the_command": round(seconds, 1),
        "cpu_seconds": {node: round(value, 1) for node, value in spent.items()},
        "most_mib": {node: round(value) for node, value in memory.items()},
        **status["model"]["computation"],
        "load_of_the_machine_before": round(busy, 1),
    }


def scattered_cells(frame, policy, holder, goal):
    """Return a plan in which every single cell lies with one of two owners, whichever others are beside it.

    Records of which an owner holds the same columns are in one file of that owner's.
    """
    keyed, names = add_person_keys(frame), np.array(frame.columns)
    parts = {}
    for place, owner in enumerate(OWNERS):
        held = holder == place
        patterns, which = np.unique(held, axis=0, return_inverse=True)
        parts[owner] = [
            keyed.loc[which.ravel() == at, ["person", *names[pattern]]].reset_index(drop=True)
            for at, pattern in enumerate(patterns)
            if pattern.any()
        ]
    return DeploymentPlan("hidden-k-means", parts, dict.fromkeys(OWNERS, policy), "person", goal, "keyed")


def k_means_table_sessions(steps=TABLE_STEPS):
    """Take some steps between processes over mutual TLS on a table held by two in three ways."""
    table, start = drawn_table(*TABLE, 4)
    frame, schema = frame_of(table)
    policy, names = mq.Policy.clear(schema), schema.names
    centres = start
    for _ in range(steps):
        sizes, sums = lloyd_step(table, np.ones(len(table)), centres)
        centres = sums / sizes[:, None]
    goal = LearningGoal(model="k-means", k=CENTRES, names=names, start=start.tolist())
    columns = {owner: names[place::2] for place, owner in enumerate(OWNERS)}
    ways = {
        "horizontal": split_rows(frame, policy, OWNERS, goal, seed=SEED),
        "vertical": split_columns(frame, policy, columns, "hidden-k-means", goal, seed=SEED, linking="keyed"),
        "any cells": scattered_cells(frame, policy, holders(TABLE)["any cells"], goal),
    }
    found = []
    terms = {"clusters": {"steps": steps}}
    for name, way in ways.items():
        made = replace(way, protocol="hidden-k-means", linking="keyed", terms=terms)
        busy = os.getloadavg()[0]
        status, _, spent, memory = held(made)
        model = mq.learn.Clusters.from_dict(status["model"])
        same = np.allclose(model.centres, centres, rtol=0, atol=1e-9)
        same &= np.array_equal(np.rint(model.shares * TABLE[0]), sizes)
        found.append(
            {
                "partition": name,
                "files_of_an_owner": len(made.frames[OWNERS[0]]),
                "records": status["records"],
                "equal_to_clear": bool(same),
                "seconds_of_the_session": status["seconds"],
                "cpu_seconds": {node: round(value, 1) for node, value in spent.items()},
                "most_mib": round(max(memory.values())),
                **status["model"]["computation"],
                "load_of_the_machine_before": round(busy, 1),
            }
        )
        print(found[-1], flush=True)
    return {"records": TABLE[0], "columns": TABLE[1], "centres": CENTRES, "partitions": found}


PARTS = {
    "sessions": lambda: [session(name, n) for name, n in NETWORKS.items()],
    "one_process": lambda: [one_process(name, n) for name, n in NETWORKS.items()],
    "studied": lambda: [studied(name, n) for name in STUDIED for n in (1000, 10_000)],
    "k_means_step": k_means_step,
    "k_means_table": k_means_partitions,
    "k_means_table_sessions": k_means_table_sessions,
    "k_means_session": k_means_session,
}


def main():
    """Measure a small and a large network over the network and beside it, and clusters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--only", choices=PARTS)
    given = parser.parse_args()
    found = json.loads(given.json.read_text("utf-8")) if given.json and given.only else {}
    for name in [given.only] if given.only else PARTS:
        found[name] = PARTS[name]()
        print({name: found[name]}, flush=True)
    keep(given.json, found)


if __name__ == "__main__":
    main()
