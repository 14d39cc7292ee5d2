"""Extra and missing links when a structure is learnt from disguised records: every constant C* against δ̄.

The network of Fig. 5.3 of Ma's dissertation: six binary nodes, A, B, C at one site and D, E, F at the other,
order A … F, at most three parents, BIC. Its arrows and probabilities are lost in the text that we have, so
both are declared here: the probabilities are those of the nodes of the same names in Fig. 3 of Ma &
Sivakumar (2005), a seventh node G summed out, and the arrows those that their sizes allow and that give D
its parents at the other site: A → B, A → C, B → D ← C, D → E → F.

    python -m benchmarks.extra_links [--runs 100] [--json FILE]
"""

import argparse
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

from masquerade.channels.policy import Policy
from masquerade.core.schema import Schema
from masquerade.core.tally import Cached
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.graph import differences
from masquerade.learn.networks.network import known_network
from masquerade.learn.networks.scores import Constant, DesignEffect
from masquerade.learn.networks.structure_search import structure
from masquerade.sources.records import Records

RECORDS = 10_000
LEVELS = ("0.1", "0.2", "0.3")
CONSTANTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
STRUCTURE = {"A": (), "B": ("A",), "C": ("A",), "D": ("B", "C"), "E": ("D",), "F": ("E",)}
# P(first value | parents); C's 0.5, 0.9, 0.7, 0.35 given (A, G) with P(G) = 0.3, 0.7
FIRST = {
    "A": 0.5,
    "B": [0.8, 0.2],
    "C": [0.3 * 0.5 + 0.7 * 0.9, 0.3 * 0.7 + 0.7 * 0.35],
    "D": [[0.95, 0.15], [0.75, 0.1]],
    "E": [0.8, 0.2],
    "F": [0.8, 0.2],
}


def network():
    schema = Schema({name: [1, 2] for name in STRUCTURE})
    first = {name: np.asarray(value) for name, value in FIRST.items()}
    return known_network(schema, STRUCTURE, {name: np.stack([p, 1 - p], -1) for name, p in first.items()})


def policy(p):
    variables = {name: {"categories": [1, 2], "channel": {"kind": "binary", "p": p}} for name in STRUCTURE}
    return Policy.from_dict({"masquerade": 1, "variables": variables})


def wrong_links(p, runs, rules, seed=1):
    """Return (runs, rules, extra and missing)."""
    net, used = network(), policy(p)
    generator = np.random.default_rng([seed, int(1000 * float(p))])
    wrong = np.zeros((runs, len(rules), 2))
    for run in range(runs):
        codes = simulate_codes(net.sample_codes(RECORDS, generator), used, generator)
        source = Cached(Records(codes, used))
        for i, rule in enumerate(rules):
            learned = structure(source, list(STRUCTURE), max_parents=3, correction=rule)
            wrong[run, i] = differences(learned.structure, STRUCTURE)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    rules = [*(Constant(c) for c in CONSTANTS), DesignEffect()]
    names = [*(f"C* = {c}" for c in CONSTANTS), "design effect"]
    results = []
    for p in LEVELS:
        wrong = wrong_links(p, arguments.runs, rules)
        mean, error = wrong.mean(axis=0), wrong.sum(axis=2).std(axis=0, ddof=1) / np.sqrt(arguments.runs)
        best = mean[:-1].sum(axis=1).min()
        head = f"{'extra':>8}{'missing':>9}{'total':>8}{'±':>7}{'over best':>11}"
        print(f"{f'p = {p}, {arguments.runs} runs':<24}{head}")
        for name, (extra, missing), e in zip(names, mean, error, strict=True):
            over = extra + missing - best
            print(f"{name:<24}{extra:>8.2f}{missing:>9.2f}{extra + missing:>8.2f}{e:>7.2f}{over:>+11.2f}")
            results.append({"p": p, "rule": name, "extra": extra, "missing": missing, "over_best": over})
        reached = mean[-1].sum() <= best + 0.5 and mean[-1, 0] <= 0.5
        print(
            f"at most half a link over the best constant, at most 0.5 extra: {'yes' if reached else 'NO'}\n"
        )
    keep(arguments.json, results)


if __name__ == "__main__":
    main()
