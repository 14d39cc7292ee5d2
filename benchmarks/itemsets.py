"""Frequent itemsets at 5 % support: from disguised baskets with standard errors, peers from clear ones.

The two data sets of Ma (2006) §7.1.4: nine mushroom variables as 23 items and eleven Adult variables as 30
items, each repeated 30 times; disguised item by item and in the groups of the dissertation. Where the files
are not at hand (folder in MASQUERADE_DATA), data of the same shape are generated. Peers: pyfim's apriori
(Borgelt's C) on lists, mlxtend's apriori, fpgrowth and hmine on a frame of true/false.

    python -m benchmarks.itemsets [--json FILE]
"""

import os
from pathlib import Path

import fim
import numpy as np
import pandas as pd
from benchmarks.timing import best_of, json_option, keep, rows, show
from mlxtend.frequent_patterns import apriori, fpgrowth, hmine

import masquerade as mq
from masquerade.disguising.seeded import simulate_codes
from masquerade.frames.baskets import basket_policy
from masquerade.learn.rules.itemsets import frequent_itemsets
from masquerade.sources.records import Records

DATA = Path(os.environ.get("MASQUERADE_DATA", "data")) / "uci"
TIMES, SUPPORT, REPEATS = 30, 0.05, 5
MUSHROOM = [0, 4, 6, 7, 8, 10, 18, 17, 2]  # 2, 2, 2, 2, 2, 2, 3, 4 and 4 categories
ADULT = (4, 3, 3, 3, 2, 3, 2, 3, 2, 3, 2)
LIMIT = 60  # seconds: a peer slower than this is timed once


def mushroom():
    """Return 8,124 records of nine variables."""
    path = DATA / "agaricus-lepiota.data"
    if not path.exists():
        return generated(8124, (2, 2, 2, 2, 2, 2, 3, 4, 4))
    return pd.read_csv(path, header=None)[MUSHROOM]


def adult():
    """Return 30,162 records of eleven variables, numbers cut and categories merged."""
    path = DATA / "adult.data"
    if not path.exists():
        return generated(30_162, ADULT)
    raw = pd.read_csv(path, header=None, skipinitialspace=True)
    raw = raw[~(raw == "?").any(axis=1)]
    work, married, job = raw[1], raw[5], raw[6]
    return pd.DataFrame(
        {
            "age": pd.cut(raw[0], [0, 25, 40, 55, 100], labels=False),
            "work": np.select([work == "Private", work.str.contains("gov")], ["private", "state"], "self"),
            "education": pd.cut(raw[4], [0, 8, 12, 20], labels=False),
            "marital": np.select(
                [married.str.startswith("Married"), married == "Never-married"], ["married", "never"], "was"
            ),
            "spouse": raw[7].isin(["Husband", "Wife"]),
            "job": np.select(
                [
                    job.isin(["Exec-managerial", "Prof-specialty", "Tech-support"]),
                    job.isin(["Adm-clerical", "Sales", "Protective-serv"]),
                ],
                ["expert", "clerk"],
                "hand",
            ),
            "white": raw[8] == "White",
            "capital": np.sign(raw[10] - raw[11]),
            "male": raw[9] == "Male",
            "hours": pd.cut(raw[12], [0, 35, 40, 200], labels=False),
            "income": raw[14],
        }
    )


def generated(n, sizes):
    """Return records whose variables hang on a hidden class, skewed as real ones are."""
    generator = np.random.default_rng(1)
    kind = generator.integers(0, 4, n)
    columns = {}
    for i, size in enumerate(sizes):
        steps = generator.dirichlet(np.full(size, 0.6), size=4).cumsum(axis=1)
        columns[f"v{i}"] = (generator.random(n)[:, None] > steps[kind]).sum(axis=1)
    return pd.DataFrame(columns)


def items_of(frame):
    """Return one true/false column per category, repeated."""
    once = {
        f"{name}={label}": (frame[name] == label).to_numpy()
        for name in frame
        for label in sorted(frame[name].unique())
    }
    return pd.DataFrame({name: np.tile(column, TIMES) for name, column in once.items()})


def groups_of(names):
    """Return four groups of three items and two of two; the others stay alone."""
    return [tuple(names[i : i + 3]) for i in range(0, 12, 3)] + [tuple(names[i : i + 2]) for i in (12, 14)]


def compare(frame):
    """Time ours and the peers on one data set."""
    items = items_of(frame)
    names = list(items)
    codes = {name: items[name].to_numpy().astype(np.uint8) for name in names}
    policies = {
        "masquerade": basket_policy(names, mq.channels.binary("0.1")),
        "masquerade, p = 0.2": basket_policy(names, mq.channels.binary("0.2")),
        "masquerade, joint groups, p = 0.2": basket_policy(
            names,
            mq.channels.binary("0.1"),
            groups_of(names),
            lambda cells: mq.channels.symmetric(cells, "0.2"),
        ),
        "masquerade, clear": mq.Policy.clear(mq.Schema(dict.fromkeys(names, (False, True)))),
    }
    found = {}

    def ours(name, reports):
        def run():  # a new source each time: packing the bits is part of the work
            found[name] = frequent_itemsets(Records(reports, policies[name]), SUPPORT)

        return run

    lists = [np.flatnonzero(row).tolist() for row in items.to_numpy()]

    def pyfim():
        found["pyfim"] = fim.apriori(lists, target="s", supp=100 * SUPPORT, zmin=1, report="a")

    def mlxtend(method):
        def run():
            found[method.__name__] = method(items, min_support=SUPPORT)

        return run

    contenders = [(name, ours(name, simulate_codes(codes, p, 7))) for name, p in policies.items()]
    contenders[0][1]()  # compile
    best = best_of([*contenders, ("pyfim apriori, clear", pyfim)], REPEATS)
    slow = [(f"mlxtend {m.__name__}, clear", mlxtend(m)) for m in (fpgrowth, hmine, apriori)]
    for contender in slow:
        once = best_of([contender], 1)
        best |= once if min(once.values()) > LIMIT / 20 else best_of([contender], 2)
    clear = found["masquerade, clear"]
    assert len(clear) == len(found["pyfim"]) == len(found["fpgrowth"])
    counts = {frozenset(names[i] for i in held): count for held, count in found["pyfim"]}
    assert counts == {
        frozenset(held): round(share * len(items))
        for held, share in zip(clear, clear.column("values"), strict=True)
    }
    print(
        f"{len(items):,} × {len(names)}: {len(clear):,} frequent itemsets; reported under noise: "
        + ", ".join(f"{len(found[name]):,}" for name in list(policies)[:3])
    )
    return rows(best)


def main():
    target = json_option(__doc__)
    results = {}
    kind = "" if DATA.exists() else ", generated"
    for name, frame in ((f"mushroom{kind}", mushroom()), (f"adult{kind}", adult())):
        results[name] = compare(frame)
        show(f"frequent itemsets, {name}, support ≥ {SUPPORT}", results[name])
    keep(target, results)


if __name__ == "__main__":
    main()
