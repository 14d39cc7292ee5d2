"""A tree of ten yes/no questions, one ε a person: its links found from dealt blocks, and from a split of ε.

Trees are random, edges correlate .5. Blocks deal two questions, or differences among three, and report the
class with the whole ε; the split gives every question a tenth of it. Both are read by the same learners: the
tree of Chow & Liu (most mutual information, from tables without negative counts), and K2 with the true order,
at most one parent, BIC by the likelihood of the reports. Wrong are links of the truth that were not found.
Every run of one ε, number of people and seed is one line of the result and is not run again.

    python -m benchmarks.plan_tree [--epsilons 1] [--records 10000,100000] [--seeds 10] [--json FILE]
"""

import argparse
import json
from itertools import combinations, product
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.structure_search import structure
from masquerade.sources.records import Records

NODES = 10
CORRELATION = 0.5
EPSILONS = ("1",)
RECORDS = (10_000, 100_000)
SEEDS = 10
KEPT = Path(__file__).parent / "results" / "plan_tree.json"
NAMES = [f"q{i}" for i in range(NODES)]
# the best share of cells blocks for all pair tables, by the variance of their parities at even truths
CELLS = {"1": (2, "0.6"), "2": (3, "0.9"), "4": (4, "1")}


def random_tree(n, generator):
    """Return the parents of every node, and records of the tree."""
    parents = [None, *(int(generator.integers(0, node)) for node in range(1, NODES))]
    codes = [generator.integers(0, 2, size=n)]
    for parent in parents[1:]:
        flipped = generator.random(n) < (1 - CORRELATION) / 2
        codes.append(codes[parent] ^ flipped)
    columns = {name: column.astype(np.uint8) for name, column in zip(NAMES, codes, strict=True)}
    return {frozenset((NAMES[i], NAMES[p])) for i, p in enumerate(parents) if p is not None}, columns


def policies(epsilon):
    """Return the policy of blocks and that of a split, both of this ε a person."""
    variables = {name: {"categories": ["no", "yes"]} for name in NAMES}
    k, cells = CELLS[epsilon]
    entry = {"variables": NAMES, "k": k, "cells": cells, "epsilon": epsilon, "order": 2}
    blocks = mq.Policy.from_dict({"masquerade": 1, "variables": variables, "blocks": [entry]})
    each = mq.channels.for_epsilon(2, str(float(epsilon) / NODES))
    split = mq.Policy.build({name: ["no", "yes"] for name in NAMES}, dict.fromkeys(NAMES, each))
    for policy in (blocks, split):
        assert abs(np.log(float(mq.privacy(policy).record_gamma)) - float(epsilon)) < 1e-6
    return {"blocks": blocks, "split": split}


def chow_liu(source):
    """Return the links of the tree of most mutual information."""
    pairs = list(combinations(NAMES, 2))
    tables = source.answer([mq.Query(by=pair) for pair in pairs])
    strengths = []
    for pair, table in zip(pairs, tables, strict=True):
        shares = table.nonnegative("clip").values
        shares = shares / shares.sum()
        apart = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
        present = shares > 0
        strengths.append((-float(np.sum(shares[present] * np.log(shares[present] / apart[present]))), pair))
    home, found = {name: name for name in NAMES}, set()
    for _, (one, other) in sorted(strengths):
        if home[one] != home[other]:
            found.add(frozenset((one, other)))
            joined = home[other]
            home = {name: home[one] if place == joined else place for name, place in home.items()}
    return found


def k2(source):
    """Return the links that K2 finds with the order of the tree."""
    learned = structure(source, NAMES, max_parents=1).structure
    return {frozenset((child, parent)) for child, parents in learned.items() for parent in parents}


def run(epsilon, n, seed):
    """Return how many links each design misses, by each learner."""
    generator = np.random.default_rng([seed, n, int(10 * float(epsilon))])
    links, records = random_tree(n, generator)
    found = {"epsilon": epsilon, "n": n, "seed": seed}
    for name, policy in policies(epsilon).items():
        source = mq.Cached(Records(simulate_codes(records, policy, generator), policy))
        found[name] = {label: len(links - learn(source)) for label, learn in LEARNERS.items()}
    return found


LEARNERS = {"chow-liu": chow_liu, "k2": k2}


def key(row):
    return row["epsilon"], row["n"], row["seed"]


def summary(rows):
    """Return means over seeds."""
    lines = []
    for epsilon, n in sorted({key(row)[:2] for row in rows}):
        some = [row for row in rows if key(row)[:2] == (epsilon, n)]
        line = {"epsilon": epsilon, "n": n, "seeds": len(some), "links": NODES - 1}
        for design, learner in product(("blocks", "split"), LEARNERS):
            line[f"{design}, {learner}"] = round(float(np.mean([row[design][learner] for row in some])), 2)
        lines.append(line)
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--epsilons", type=lambda text: text.split(","), default=EPSILONS)
    parser.add_argument("--records", type=lambda text: [int(n) for n in text.split(",")], default=RECORDS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path, default=KEPT)
    arguments = parser.parse_args()
    kept = arguments.json
    rows = json.loads(kept.read_text(encoding="utf-8"))["runs"] if kept.exists() else []
    done = {key(row) for row in rows}
    for seed, n, epsilon in product(range(arguments.seeds), arguments.records, arguments.epsilons):
        if (epsilon, n, seed) not in done:
            rows.append(run(epsilon, n, seed))
            text = json.dumps({"runs": sorted(rows, key=key), "summary": summary(rows)}, indent=1)
            kept.write_text(text + "\n", encoding="utf-8")
    for line in summary(rows):
        print(json.dumps(line))


if __name__ == "__main__":
    main()
