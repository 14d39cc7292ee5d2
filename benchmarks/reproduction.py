"""What `masquerade reproduce all` found: every verdict, and what does not match with its reason and command.

The experiments are run by the command itself, with the papers' numbers of runs, or with more in folders of
their own where these do not decide; this reads what it wrote, and keeps what a reader asks for.

    masquerade reproduce all --out FOLDER
    masquerade reproduce ma-sivakumar-2005-fig-4 --runs 200 --out MORE
    python -m benchmarks.reproduction FOLDER [MORE ...] [--json FILE]
"""

import argparse
import json
from collections import Counter
from operator import itemgetter
from pathlib import Path

import pandas as pd
from benchmarks.timing import keep

from masquerade_experiments.catalogue import ENTRIES

MATCHES = "matches"
ITEMSETS = ("ma-2006-fig-7.4", "ma-2006-fig-7.5")


def experiment(values):
    """Return what is kept of one experiment."""
    judged = [it for it in values["comparisons"] if it["paper"] is not None]
    return {
        **{name: values[name] for name in ("id", "verdict", "settings", "runs", "seconds")},
        "values": {
            origin: dict(Counter(it["verdict"] for it in judged if it["origin"] == origin))
            for origin in ("paper", "theory")
        },
        "open": [it for it in judged if it["verdict"] != MATCHES],
    }


def itemsets(folder, identity):
    """Return false positives and negatives in percent of the frequent itemsets, by p and kind of search."""
    frame = pd.read_csv(folder / identity / "data.csv")
    wrong = ["false_positive", "false_negative"]
    means = (100 * frame.groupby(["p", "search"])[wrong].mean()).round(2).reset_index()
    return {"id": identity, "percent": means.to_dict("records")}


def main():
    """Read a folder, and print or keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = []
    for entry in ENTRIES:
        written = [it for folder in given.folders if (it := folder / entry.id / "comparison.json").exists()]
        values = [json.loads(it.read_text(encoding="utf-8")) for it in written]
        found.append(experiment(max(values, key=itemgetter("runs"))))
    for verdict, number in Counter(it["verdict"] for it in found).items():
        print(f"{number:>3} {verdict}")
    for it in found:
        for one in it["open"]:
            print(f"{it['id']}: {one['verdict']}: {one['what']}. {one['why']} {one['check']}")
    wrong = [itemsets(given.folders[0], identity) for identity in ITEMSETS]
    keep(given.json, {"experiments": found, "wrong itemsets": wrong})


if __name__ == "__main__":
    main()
