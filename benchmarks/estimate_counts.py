"""Estimate tables from reports: a large one with standard errors, and a single variable with EM.

(c) values and standard errors of a 390,625-cell table (8 variables, 5 categories), against one pass of
    `tensordot` per axis (values alone);
(d) 50 categories from a million reports, standard errors and the maximum-likelihood table included, against
    multi-freq-ldpy (matrix inversion, and its iterative Bayesian update) and pure-ldp.

    python -m benchmarks.estimate_counts [--json FILE]
"""

import math

import numpy as np
from benchmarks.timing import best_of, json_option, keep, rows, show
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_IBU, GRR_Aggregator_MI
from pure_ldp.frequency_oracles.direct_encoding import DEServer

import masquerade as mq
from masquerade.core.linear_covariance import CovariancePart, LinearCovariance
from masquerade.disguising.seeded import simulate_codes
from masquerade.sources.query_plan import QueryLayout
from masquerade.sources.records import Records

REPORTS, CATEGORIES, EPSILON = 1_000_000, 50, 2


def large_table():
    """Time values and standard errors of 5^8 cells."""
    names = [f"v{i}" for i in range(8)]
    channel = mq.channels.symmetric(5, "0.4")
    policy = mq.Policy.build({name: list("abcde") for name in names}, dict.fromkeys(names, channel))
    observed = np.random.default_rng(0).integers(0, 50, (5,) * 8).astype(float)
    n = int(observed.sum())

    def ours():
        plan = QueryLayout(policy.groups, policy.schema).plan(mq.Query(by=names))
        values = plan.maps.apply(observed)
        covariance = LinearCovariance((CovariancePart(observed, plan.maps),), values, values, n)
        return values, np.sqrt(np.maximum(covariance.diagonal(), 0))

    def tensordot():
        values = observed
        for _ in names:
            values = np.tensordot(values, channel.inverse, (0, 0))
        return values

    np.testing.assert_allclose(ours()[0], tensordot())
    best = best_of([("masquerade", ours), ("tensordot per axis, values only", tensordot)], 30)
    return rows(best)


def one_variable():
    """Time the estimate of one variable; half the categories are empty, so the maximum is at the boundary."""
    policy = mq.Policy.build(
        {"v": list(range(CATEGORIES))}, {"v": mq.channels.for_epsilon(CATEGORIES, EPSILON)}
    )
    generator = np.random.default_rng(3)
    truth = generator.integers(0, CATEGORIES // 2, REPORTS).astype(np.uint8)
    reports = simulate_codes({"v": truth}, policy, generator)
    found = {}

    def ours():
        (table,) = Records(reports, policy).answer([mq.Query(by="v")])
        table.stderr()
        found["ours"] = table.nonnegative("mle").values / REPORTS

    def inversion():
        found["inversion"] = GRR_Aggregator_MI(reports["v"], CATEGORIES, float(EPSILON))

    def bayesian_update():
        found["update"] = GRR_Aggregator_IBU(reports["v"], CATEGORIES, float(EPSILON))

    def pure_ldp():
        oracle = DEServer(EPSILON, CATEGORIES, index_mapper=lambda code: code)
        for report in reports["v"].tolist():
            oracle.aggregate(report)
        found["pure"] = np.array([oracle.estimate(k, suppress_warnings=True) for k in range(CATEGORIES)])

    contenders = [
        ("masquerade", ours),
        ("multi-freq-ldpy, matrix inversion (no errors, no EM)", inversion),
        ("multi-freq-ldpy, iterative Bayesian update (no errors)", bayesian_update),
        ("pure-ldp (no errors, no EM)", pure_ldp),
    ]
    ours()
    best = best_of(contenders, 5)
    np.testing.assert_allclose(found["ours"], found["update"], atol=1e-4)
    assert math.isclose(found["pure"].sum(), REPORTS, rel_tol=1e-6)
    return rows(best)


def main():
    target = json_option(__doc__)
    results = {"large_table": large_table(), "one_variable": one_variable()}
    show("values and standard errors of 390,625 cells", results["large_table"])
    show(f"\n{CATEGORIES} categories from {REPORTS:,} reports", results["one_variable"])
    keep(target, results)


if __name__ == "__main__":
    main()
