"""How the cost of a structure grows: with rows, variables, categories, parents and parties.

Records of a made-up network, every variable changed with probability 0.1, in memory. Each line varies one
thing and holds the others; seconds are the least of some turns, processor seconds beside them, since on a
busy machine only those tell. `--picture` draws the kept figures for docs/howto/large-data.md.

    python -m benchmarks.growth [--json FILE] [--picture FILE]
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from benchmarks.large import machine
from benchmarks.timing import keep

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.disguising.seeded import simulate_codes
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.pooled import PooledTally, pooling_party
from masquerade.sources.records import Records

CHANGE = "0.1"
LIMIT = 30.0  # seconds of hill climbing over 100 variables and 100,000 records
LINES = {
    "rows": (10_000, 100_000, 1_000_000, 10_000_000),
    "variables": (10, 25, 50, 100, 200, 400),
    "categories": (2, 10, 30, 100, 300, 1000),
    "parents": (1, 2, 3, 4, 5, 6),
    "parties": (3, 6, 12, 24),
}
HELD = {
    "rows": "K2, 10 variables of 3 categories, 3 parents",
    "variables": "hill climbing, 100,000 records, 3 categories, 3 parents",
    "categories": "K2, 10 variables, 100,000 records, 3 parents",
    "parents": "K2, 20 variables of 2 categories that each have as many parents, 100,000 records",
    "parties": "K2, 6 variables of 3 categories, 10,000 records in all, pooled by masked sums",
}


def made(variables, records, categories, parents=1, seed=1):
    """Return a policy and report codes of a network in which every variable follows some before it."""
    generator = np.random.default_rng(seed)
    names = [f"v{i:03d}" for i in range(variables)]
    kind = np.min_scalar_type(categories - 1)
    codes = {}
    for i, name in enumerate(names):
        follows = generator.choice(i, min(parents, i), replace=False) if i else []
        chance = generator.integers(0, categories, records)
        told = sum((codes[names[j]].astype(np.int64) * (1 + k) for k, j in enumerate(follows)), 0)
        codes[name] = np.where(generator.random(records) < 0.6, told % categories, chance).astype(kind)
    policy = mq.Policy.build(
        {name: list(range(categories)) for name in names},
        {name: mq.channels.symmetric(categories, CHANGE) for name in names},
    )
    return policy, simulate_codes(codes, policy, seed)


def in_memory(policy, codes, *, climb=False, parents=3):
    order = None if climb else list(policy.schema)
    return lambda: mq.learn.structure(Records(codes, policy), order, max_parents=parents)


def pooled(policy, codes, parties):
    """Return a search over parties that each hold a part of the records and send masked sums."""
    identities = {f"party {i}": SigningKey() for i in range(parties)}
    public = {name: key.public for name, key in identities.items()}
    own = {
        name: Records({column: values[i::parties] for column, values in codes.items()}, policy)
        for i, name in enumerate(identities)
    }

    def run():
        roles = {name: pooling_party(name, own[name], identities[name], public) for name in identities}
        transport = LocalTransport({name: role.receive for name, role in roles.items()})
        source = PooledTally(MaskedSum(tuple(roles), transport, policy), policy)
        return mq.learn.structure(source, list(policy.schema), max_parents=2)

    return run


def search(line, size):
    """Return what is timed at one size of one line."""
    if line == "rows":
        return in_memory(*made(10, size, 3))
    if line == "variables":
        return in_memory(*made(size, 100_000, 3), climb=True)
    if line == "categories":
        return in_memory(*made(10, 100_000, size))
    if line == "parents":
        return in_memory(*made(20, 100_000, 2, parents=size), parents=size)
    return pooled(*made(6, 10_000, 3), parties=size)


def measured(line, size):
    """Return the least seconds of a search, and of the processor."""
    run = search(line, size)
    best, processor, turns = np.inf, np.inf, 0
    while turns < 3 and (turns == 0 or best < 5):
        start, used = time.perf_counter(), time.process_time()
        found = run()
        best = min(best, time.perf_counter() - start)
        processor = min(processor, time.process_time() - used)
        turns += 1
    print(
        f"{line} {size:,}: {best:.3f} s ({processor:.3f} of the processor), {len(found.links)} links",
        flush=True,
    )
    return {"size": size, "seconds": best, "processor": processor, "links": len(found.links)}


def draw(kept, path):
    """Draw one small picture for every line."""
    import matplotlib as mpl  # noqa: PLC0415

    mpl.use("svg")
    mpl.rcParams |= {"svg.hashsalt": "growth", "svg.fonttype": "path"}
    from matplotlib import pyplot as plt  # noqa: PLC0415

    figure, axes = plt.subplots(1, len(LINES), figsize=(13, 3), sharey=True, layout="constrained")
    for place, (axis, (line, rows)) in enumerate(zip(axes, kept["lines"].items(), strict=True)):
        axis.plot([row["size"] for row in rows], [row["processor"] for row in rows], "o-", color="#1f5f8b")
        axis.set(xscale="log", yscale="log", xlabel=line)
        axis.set_ylabel("processor seconds" if place == 0 else "")
        axis.grid(alpha=0.3)
    figure.savefig(path, metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    given = parser.parse_args()
    in_memory(*made(4, 1000, 2), climb=True)()  # compiles
    lines = {line: [measured(line, size) for size in sizes] for line, sizes in LINES.items()}
    kept = {"machine": machine(), "held": HELD, "lines": lines, "limit_of_100_variables": LIMIT}
    keep(given.json, kept)
    if given.picture:
        draw(kept, given.picture)
    print(json.dumps(kept["machine"]))


if __name__ == "__main__":
    main()
