"""Plans against what happens: errors of 200 random plans, power in 15 settings, speed.

python -m benchmarks.plans [--replicates 10000] [--runs 4000] [--json FILE]
"""

import argparse
import time
from pathlib import Path

import numpy as np
from benchmarks.timing import keep
from scipy import stats

import masquerade as mq
from masquerade.plan.power import associated_table, pair_of_axes, people_needed, symmetric_matrix

PLANS = 200
BATCH = 500  # runs at once
RARE = np.array([0.03, 0.97])
EVEN = np.array([0.5, 0.5])
THREE = np.array([0.2, 0.3, 0.5])
FOUR = np.array([0.4, 0.3, 0.2, 0.1])
# margins, γ of both channels, φ, rule; those with rare categories may be further off
SETTINGS = (
    (EVEN, EVEN, 4.0, 4.0, 0.1, "test"),
    (EVEN, EVEN, 7 / 3, 7 / 3, 0.2, "test"),
    (EVEN, EVEN, 7 / 3, 7 / 3, 0.2, "bic"),
    (EVEN, EVEN, 9.0, 4.0, 0.05, "test"),
    (np.array([0.3, 0.7]), np.array([0.4, 0.6]), 4.0, 4.0, 0.15, "test"),
    (THREE, FOUR, 6.0, 6.0, 0.15, "test"),
    (THREE, FOUR, 6.0, 6.0, 0.15, "bic"),
    (THREE, EVEN, 3.0, 5.0, 0.2, "test"),
    (FOUR, FOUR, 10.0, 10.0, 0.1, "test"),
    (RARE, EVEN, 19.0, 4.0, 0.1, "test"),
    (RARE, THREE, 19.0, 9.0, 0.15, "test"),
    (RARE, RARE, 19.0, 19.0, 0.2, "test"),
    (FOUR, EVEN, 8.0, 3.0, 0.12, "test"),
    (np.array([0.25, 0.75]), THREE, 5.0, 8.0, 0.18, "bic"),
    (np.array([0.2, 0.8]), np.array([0.2, 0.8]), 12.0, 12.0, 0.1, "test"),
)


def realised(place, replicates):
    """Return the design of a random plan and the ratio of realised to planned standard error."""
    rng = np.random.default_rng([2026, place])
    schema = mq.Schema(
        {f"x{i}": list(range(size)) for i, size in enumerate(rng.integers(2, 6, rng.integers(1, 4)))}
    )
    prior = {name: rng.dirichlet(np.full(len(schema[name]), 3.0)).tolist() for name in schema}
    asked = "singles" if len(schema) == 1 else "pairs"
    n = int(rng.integers(500, 20_000))
    made = mq.plan(
        schema,
        privacy=float(rng.uniform(0.5, 4)),
        n=n,
        queries=asked,
        prior=prior,
        per=("record", "variable")[place % 2],
    )
    item = made.errors[int(rng.integers(len(made.errors)))]
    if made.design.startswith("dealt blocks"):
        return made.design, dealt_errors(made, item.table, n, replicates, rng) / item.stderr(n)
    law, estimate, truth = reports_of(made, item.table)
    drawn = rng.multinomial(n, law / law.sum(), size=replicates)
    errors = drawn / n @ estimate - truth
    return made.design, float(np.sqrt((errors**2).mean()) / item.stderr(n))


def dealt_errors(made, table, n, replicates, rng):
    """Return the realised standard error where blocks are dealt: each run is estimated by its own map."""
    group = made.policy.group(table[0])
    sampled = group.channel.sampled_channel(tuple(sorted(group.names.index(name) for name in table)))
    truth = np.ones(1)
    for name in table:
        truth = np.kron(truth, made.task.shares[name])
    names = np.unique(sampled.sample)
    total, done = 0.0, 0
    while done < replicates:
        runs = min(BATCH, replicates - done)
        sizes = rng.multinomial(n, sampled.shares, size=runs)
        drawn = np.zeros((runs, len(sampled.sample)))
        for sample in names:
            own = np.flatnonzero(sampled.sample == sample)
            law = truth @ sampled.chances[:, own]
            if 0 <= sample < sizes.shape[1] and law.sum() > 0:
                drawn[:, own] = rng.multinomial(sizes[:, sample], law / law.sum())
        # the map of `unbiased_map` for each run: W⁻¹Aᵀ(AW⁻¹Aᵀ)⁻¹, at even truths
        shares = np.column_stack([sizes / n, np.zeros(runs)])[:, sampled.sample]
        used = sampled.chances[None, :, :] * shares[:, None, :]
        weight = used.mean(axis=1, keepdims=True)
        scaled = np.divide(used, weight, out=np.zeros_like(used), where=weight > 0)
        right = np.einsum("rkm,rm->rk", scaled, drawn)[:, :, None]
        found = np.linalg.solve(scaled @ used.transpose(0, 2, 1), right)[:, :, 0] / n
        total += float(((found - truth) ** 2).mean(axis=1).sum())
        done += runs
    return float(np.sqrt(total / replicates))


def reports_of(made, table):
    """Return the law of the reports about a table, the map that estimates it, and the truth."""
    policy, shares = made.policy, made.task.shares
    law, estimate, truth = np.ones(1), np.ones((1, 1)), np.ones(1)
    groups = {policy.group(name).names: policy.group(name) for name in table}
    for names, group in groups.items():
        own = [name for name in names if name in table]
        channel = group.channel
        if len(own) < len(names):
            channel = channel.marginal(group.sizes, group.report_sizes, [names.index(name) for name in own])
        theta = np.ones(1)
        for name in own:
            theta = np.kron(theta, shares[name])
        law, truth = np.kron(law, theta @ channel.matrix), np.kron(truth, theta)
        estimate = np.kron(estimate, channel.inverse)
    return law, estimate, truth


def found_share(setting, runs, place):
    """Return the people planned for a power of 0.8, and the share of runs that find the association."""
    first, second, gamma, other, phi, rule = setting
    sides = symmetric_matrix(len(first), gamma), symmetric_matrix(len(second), other)
    truth = associated_table(first, second, phi)
    n = people_needed(pair_of_axes(*sides), truth, rule=rule)
    law = truth.ravel() @ np.kron(*sides)
    drawn = np.random.default_rng([7, place]).multinomial(n, law / law.sum(), size=runs)
    tables = drawn.reshape(runs, len(first), len(second)).astype(float)
    expected = tables.sum(2)[:, :, None] * tables.sum(1)[:, None, :] / n
    ratio = np.divide(tables, expected, out=np.ones_like(tables), where=tables > 0)
    deviance = 2 * (tables * np.log(ratio)).sum((1, 2))
    freedom = (len(first) - 1) * (len(second) - 1)
    threshold = freedom * np.log(n) if rule == "bic" else stats.chi2.isf(0.05, freedom)
    return n, float(np.mean(deviance > threshold))


def clock(work):
    """Return what work gives, and its seconds of processor time."""
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--replicates", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=4000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = [realised(place, options.replicates) for place in range(PLANS)]
    ratios = np.array([ratio for _, ratio in rows])
    designs = {name: sum(1 for design, _ in rows if design == name) for name, _ in rows}
    print(f"realised/planned error of {PLANS} plans: {ratios.min():.4f} to {ratios.max():.4f}; {designs}")
    powers = []
    for place, setting in enumerate(SETTINGS):
        n, share = found_share(setting, options.runs, place)
        rare = bool(min(setting[0].min(), setting[1].min()) < 0.05)
        powers.append({"people": n, "found": share, "rule": setting[5], "phi": setting[4], "rare": rare})
        print(
            f"power planned 0.80, found {share:.3f} with {n:,} people{' (rare)' if rare else ''}", flush=True
        )
    questions = mq.Schema({f"q{i}": ["yes", "no"] for i in range(30)})
    made, seconds = clock(lambda: mq.plan(questions, privacy=2, n=100_000))
    _, curve = clock(made.curve)
    _, optimum = clock(lambda: mq.channels.optimal_design(10, epsilon=1, queries="cumulative"))
    print(f"a plan for 30 questions {seconds:.2f} s, its curve {curve:.2f} s; 10 categories {optimum:.2f} s")
    if options.json:
        result = {
            "plans": {"count": PLANS, "least": ratios.min(), "most": ratios.max(), "designs": designs},
            "powers": powers,
            "speed": {"plan_30": seconds, "curve_30": curve, "optimum_10": optimum},
        }
        keep(options.json, result)


if __name__ == "__main__":
    main()
