"""Decision trees: disguised records against scikit-learn's tree on clear ones, and how time grows.

(a) depth 8 on a million records of ten binary features, features and target disguised, standard errors of all
    leaf probabilities included, against `DecisionTreeClassifier(criterion="entropy")` on the clear records,
    which it gets as the float32 matrix it wants; both grow 256 leaves. The tree with significant splits
    only is timed beside them;
(b) time for twice the records (at most twice), where equal rows can be merged and where they cannot;
(c) time per node of depth 12 against depth 3, sixteen disguised columns (at most three times).

    python -m benchmarks.tree [--json FILE]
"""

import math
import time
import warnings

import numpy as np
from benchmarks.timing import best_of, json_option, keep, rows, show
from sklearn.tree import DecisionTreeClassifier

import masquerade as mq
from masquerade.core.errors import MasqueradeWarning
from masquerade.disguising.seeded import simulate_codes
from masquerade.learn.classifiers.tree import decision_tree
from masquerade.sources.records import Records

RECORDS, FEATURES, DEPTH, CHANGE = 1_000_000, 10, 8, "0.1"


def population(n, features, seed=0):
    """Return clear binary codes: a logit of all features, falling in weight, with two interactions."""
    generator = np.random.default_rng(seed)
    names = [f"x{i}" for i in range(features)]
    codes = {name: generator.integers(0, 2, n).astype(np.uint8) for name in names}
    z = sum((codes[name] - 0.5) / (i + 1) for i, name in enumerate(names))
    z += (codes["x0"] ^ codes["x5"]) - 0.5 + 0.7 * (codes["x2"] & codes["x7"])
    codes["y"] = (generator.random(n) < 1 / (1 + np.exp(-z))).astype(np.uint8)
    return codes


def policy_of(codes, change):
    """Return the policy that disguises every column alike."""
    return mq.Policy.build({name: [0, 1] for name in codes}, dict.fromkeys(codes, mq.channels.binary(change)))


def against_scikit_learn():
    """Time growing a tree of 256 leaves."""
    codes = population(RECORDS, FEATURES)
    policy = policy_of(codes, CHANGE)
    reports = simulate_codes(codes, policy, 1)
    names = [name for name in codes if name != "y"]
    matrix = np.column_stack([codes[name] for name in names]).astype(np.float32)
    found = {}

    def ours():  # a fresh source each time: merging equal rows is part of the work
        found["ours"] = decision_tree(Records(reports, policy), "y", max_depth=DEPTH, significance=None)

    def tested():
        found["tested"] = decision_tree(Records(reports, policy), "y", max_depth=DEPTH)

    def clear():
        source = Records(codes, policy.without_channels())
        found["clear"] = decision_tree(source, "y", max_depth=DEPTH, significance=None)

    def peer():
        found["peer"] = DecisionTreeClassifier(criterion="entropy", max_depth=DEPTH).fit(matrix, codes["y"])

    ours()
    tested()
    contenders = [
        ("masquerade", ours),
        ("masquerade, significant splits only", tested),
        ("masquerade, clear records", clear),
        ("scikit-learn, clear records", peer),
    ]
    best = best_of(contenders, 3)
    assert len(found["ours"].leaves) == found["peer"].get_n_leaves() == 2**DEPTH
    np.testing.assert_allclose(
        found["clear"].predict_proba(codes), found["peer"].predict_proba(matrix), atol=1e-9
    )
    test = population(200_000, FEATURES, seed=9)
    share = {
        "disguised, 256 leaves": np.mean(found["ours"].predict(test) == test["y"]),
        f"disguised, {len(found['tested'].leaves)} significant leaves": np.mean(
            found["tested"].predict(test) == test["y"]
        ),
        "scikit-learn, clear": found["peer"].score(
            np.column_stack([test[name] for name in names]).astype(np.float32), test["y"]
        ),
    }
    print("accuracy on fresh clear records:", {name: round(float(s), 4) for name, s in share.items()})
    return rows(best)


def seconds_per_tree(source, depth, repeats):
    """Return the best seconds, and the nodes, of a tree."""
    best, tree = math.inf, None
    for _ in range(repeats):
        start = time.perf_counter()
        tree = decision_tree(source(), "y", max_depth=depth, significance=None, min_records=0)
        best = min(best, time.perf_counter() - start)
    return best, len(tree.nodes)


def growth():
    """Return the factors for twice the records: few different rows, and too many to merge."""
    result = {}
    for name, sizes, features, levels in (
        ("merged", (RECORDS // 2, RECORDS), FEATURES, DEPTH),
        ("diverse", (100_000, 200_000), 15, 4),
    ):
        seconds = []
        for n in sizes:
            codes = population(n, features)
            policy = policy_of(codes, CHANGE)
            reports = simulate_codes(codes, policy, 1)

            def source(reports=reports, policy=policy):
                return Records(reports, policy)

            seconds.append(seconds_per_tree(source, levels, 5)[0])
        result[name] = {"records": sizes, "seconds": seconds, "ratio": seconds[1] / seconds[0]}
    return result


def depth():
    """Return seconds per node of shallow and deep trees over sixteen disguised columns.

    20,000 records: too diverse to merge equal rows, so every question is a pass over all of them.
    """
    codes = population(20_000, 15)
    policy = policy_of(codes, "0.02")
    reports = simulate_codes(codes, policy, 1)
    result = {}
    for levels, repeats in ((3, 5), (12, 1)):
        seconds, nodes = seconds_per_tree(lambda: Records(reports, policy), levels, repeats)
        result[levels] = {"seconds": seconds, "nodes": nodes, "per_node": seconds / nodes}
    return {"depths": result, "ratio": result[12]["per_node"] / result[3]["per_node"]}


def main():
    target = json_option(__doc__)
    warnings.simplefilter("ignore", MasqueradeWarning)  # deep branches of few records are what is timed
    results = {"speed": against_scikit_learn(), "growth": growth(), "depth": depth()}
    show(f"tree of depth {DEPTH}, {RECORDS:,} × {FEATURES} binary", results["speed"])
    print()
    for name, row in results["growth"].items():
        print(f"twice the records, {name}: {row['ratio']:.2f}× the time (at most 2)")
    for levels, row in results["depth"]["depths"].items():
        print(f"depth {levels}: {row['nodes']:,} nodes, {row['per_node'] * 1e6:,.0f} µs a node")
    print(f"a node of depth 12 takes {results['depth']['ratio']:.2f}× that of depth 3 (at most 3)")
    keep(target, results)
    assert all(row["ratio"] <= 2 for row in results["growth"].values())
    assert results["depth"]["ratio"] <= 3


if __name__ == "__main__":
    main()
