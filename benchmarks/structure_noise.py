"""Extra and missing links of public networks under noise: the likelihood of the reports against δ̄ and clear.

K2 with the true order, at most three parents, BIC; every variable behind a symmetric channel that changes an
answer with probability p. Every run of one network, level, number of records and seed is one line of the
result and is not run again: stop it and go on whenever you like.

    python -m benchmarks.structure_noise [--networks sachs,alarm] [--levels 0.1,0.2] [--records 20000]
                                         [--seeds 5] [--json FILE]

To be reached: of 20,000 records at most one link more is missing, on average, than in the first study of this
method (`FIRST_STUDY`, one to three seeds), and no run has more than three extra links above that of its clear
records.
"""

import argparse
import gzip
import json
import time
from importlib.resources import files
from itertools import product
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.core.tally import Cached
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.networks.graph import ancestral_order, differences
from masquerade.learn.networks.network_files import parse_bif
from masquerade.learn.networks.scores import DesignEffect, Likelihood
from masquerade.learn.networks.structure_search import structure
from masquerade.sources.records import Records

NETWORKS = ("sachs", "insurance", "alarm", "child", "survey")
LEVELS = ("0", "0.05", "0.1", "0.2", "0.3")
RECORDS = (20_000, 100_000)
SEEDS = 5
PARENTS = 3
KEPT = Path(__file__).parent / "results" / "structure_noise.json"
FIRST_STUDY = {  # links that were missing, seed by seed, of 20,000 records
    ("sachs", "0.2"): (1,),
    ("sachs", "0.3"): (5, 5, 4),
    ("insurance", "0.1"): (11, 12),
    ("insurance", "0.2"): (20, 19),
    ("alarm", "0.1"): (7, 7),
    ("alarm", "0.2"): (15, 15),
    ("alarm", "0.3"): (22, 21),
    ("child", "0.1"): (0,),
    ("child", "0.2"): (4,),
    ("child", "0.3"): (7,),
}
MORE_MISSING, MORE_EXTRA = 1, 3


def public_network(name):
    """Return a network that pgmpy brings along."""
    packed = files("pgmpy").joinpath("utils", "example_models", f"{name}.bif.gz").read_bytes()
    return parse_bif(gzip.decompress(packed).decode())


def policy_at(schema, p):
    """Return the policy in which every variable is changed with probability p."""
    if float(p) == 0:
        return mq.Policy.clear(schema)
    return mq.Policy.build(
        schema,
        {name: mq.channels.symmetric(len(schema[name]), p) for name in schema if len(schema[name]) > 1},
    )


def run(name, p, n, seed):
    """Return extra and missing links of every rule, and the seconds that each took."""
    network = public_network(name)
    order = ancestral_order(network.structure)
    generator = np.random.default_rng([seed, n, int(1000 * float(p)), NETWORKS.index(name)])
    codes = network.sample_codes(n, np.random.default_rng([seed, n]))
    policy = policy_at(network.schema, p)
    reports = codes if float(p) == 0 else simulate_codes(codes, policy, generator)
    found = {
        "network": name,
        "links": sum(map(len, network.structure.values())),
        "p": p,
        "n": n,
        "seed": seed,
    }
    rules = {"likelihood": Likelihood(), "design effect": DesignEffect()}
    for label, rule in rules.items():
        start = time.perf_counter()
        source = Cached(Records(reports, policy))
        learned = structure(source, order, max_parents=PARENTS, correction=rule)
        extra, missing = differences(learned.structure, network.structure)
        seconds = round(time.perf_counter() - start, 3)
        found[label] = {"extra": extra, "missing": missing, "seconds": seconds}
    return found


def key(row):
    return row["network"], row["p"], row["n"], row["seed"]


def kept_rows(path):
    """Return the runs of an earlier call."""
    return json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else []


def summary(rows):
    """Return means over seeds, with those of the clear records of the same network and number beside."""
    found = []
    for name, n, p in sorted({(row["network"], row["n"], row["p"]) for row in rows}):
        some = [row for row in rows if key(row)[:3] == (name, p, n)]
        clear = [row for row in rows if key(row)[:3] == (name, "0", n)]
        line = {"network": name, "links": some[0]["links"], "n": n, "p": p, "seeds": len(some)}
        for label in ("design effect", "likelihood"):
            for what in ("extra", "missing"):
                line[f"{label}, {what}"] = round(float(np.mean([row[label][what] for row in some])), 2)
        for what in ("extra", "missing"):
            means = [row["likelihood"][what] for row in clear]
            line[f"clear, {what}"] = round(float(np.mean(means)), 2) if means else None
        line["most extra"] = max(row["likelihood"]["extra"] for row in some)
        found.append(line)
    return found


def missing_links(rows):
    """Return (network, p, mean missing, most allowed, verdict) for every line of the first study.

    Few seeds on either side: a mean that is over by less than two standard errors of the difference is
    ``within chance``.
    """
    found = []
    for (name, p), first in FIRST_STUDY.items():
        missing = [row["likelihood"]["missing"] for row in rows if key(row)[:3] == (name, p, RECORDS[0])]
        if not missing:
            continue
        mean, most = float(np.mean(missing)), float(np.mean(first)) + MORE_MISSING
        error = float(np.std(missing, ddof=1)) * (1 / len(missing) + 1 / len(first)) ** 0.5
        verdict = "reached" if mean <= most else "within chance" if mean <= most + 2 * error else "MISSED"
        found.append((name, p, mean, most, verdict))
    return found


def extra_links(rows):
    """Return the runs with too many extra links, beside those of the clear records of the same seed."""
    clear = {(row["network"], row["n"], row["seed"]): row for row in rows if row["p"] == "0"}
    return [
        key(row)
        for row in rows
        if row["likelihood"]["extra"]
        > clear[row["network"], row["n"], row["seed"]]["likelihood"]["extra"] + MORE_EXTRA
    ]


def show(lines):
    print(
        f"{'network':<12}{'n':>8}{'p':>6}{'seeds':>7}{'δ̄ extra/missing':>20}{'likelihood':>14}{'clear':>14}"
    )
    for line in lines:
        pairs = [
            "–" if line[f"{rule}, extra"] is None else f"{line[f'{rule}, extra']}/{line[f'{rule}, missing']}"
            for rule in ("design effect", "likelihood", "clear")
        ]
        head = f"{line['network']:<12}{line['n']:>8,}{line['p']:>6}{line['seeds']:>7}"
        print(f"{head}{pairs[0]:>19}{pairs[1]:>14}{pairs[2]:>14}")


def listed(text, kind=str):
    return [kind(part) for part in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", type=listed, default=NETWORKS)
    parser.add_argument("--levels", type=listed, default=LEVELS)
    parser.add_argument("--records", type=lambda text: listed(text, int), default=RECORDS)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--json", type=Path, default=KEPT)
    arguments = parser.parse_args()
    rows = kept_rows(arguments.json)
    done = {key(row) for row in rows}
    wanted = product(range(arguments.seeds), arguments.records, arguments.levels, arguments.networks)
    for seed, n, p, name in wanted:
        if (name, p, n, seed) in done:
            continue
        rows.append(run(name, p, n, seed))
        print(json.dumps(rows[-1]), flush=True)
        kept = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.exists() else {}
        kept |= {"runs": sorted(rows, key=key), "summary": summary(rows)}  # others' rows stay
        text = json.dumps(kept, indent=1)
        arguments.json.write_text(text + "\n", encoding="utf-8")
    show(summary(rows))
    for name, p, mean, most, verdict in missing_links(rows):
        print(f"{name}, p = {p}, {RECORDS[0]:,} records: {mean:.1f} missing, at most {most:.1f}: {verdict}")
    print(f"runs with more than {MORE_EXTRA} extra links above those of clear records: {extra_links(rows)}")


if __name__ == "__main__":
    main()
