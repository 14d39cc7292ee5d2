"""Speed of regressions by likelihood.

    python -m benchmarks.regression_speed [--json FILE]

1. One Newton step of a logistic regression of disguised answers, 100,000 records and 10 terms, against one
   least-squares solve of the same matrix: the median ratio of pairs measured one after the other.
2. A million records with 10 continuous covariates, from reports to the printed table with its
   likelihood-ratio tests and profile intervals.
3. A million records with 10 two-valued covariates: identical rows are merged first.
4. Six disguised categories, 100,000 records and 10 terms, 50 coefficients: the fit.
5. A random intercept of 30 groups, 1,200 records: the fit, and one profile interval.

All seconds are of the processor, so that other work on the machine counts little.
"""

import time

import numpy as np
import pandas as pd
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.stats.regression.likelihood import RegressionLikelihood
from masquerade.stats.regression.solver import maximise
from masquerade.stats.regression.truth_models import BinaryOutcome

STEP_RECORDS, RECORDS, TERMS, PAIRS = 100_000, 1_000_000, 10, 15
FORCED = mq.channels.forced_response("1/6", "1/6")


def seconds(function):
    """Return the result of a function and the seconds of the processor it took."""
    begin = time.process_time()
    result = function()
    return result, time.process_time() - begin


def disguise(p):
    """Return a tally of disguised answers whose truth is yes with the given chances."""
    draw = np.random.default_rng(1)
    policy = mq.Policy.build({"y": ["yes", "no"]}, {"y": FORCED})
    truth = pd.DataFrame({"y": np.where(draw.random(len(p)) < p, "yes", "no")})
    return mq.simulate(truth, policy, seed=1), policy


def time_step():
    """Return the median ratio of a Newton step to a least-squares solve."""
    draw = np.random.default_rng(0)
    X = np.column_stack([np.ones(STEP_RECORDS), draw.standard_normal((STEP_RECORDS, TERMS - 1))])
    beta = np.r_[-1.0, np.full(TERMS - 1, 0.2)]
    truth = draw.random(STEP_RECORDS) < 1 / (1 + np.exp(-X @ beta))
    answer = draw.random(STEP_RECORDS) < np.where(truth, 5 / 6, 1 / 6)
    chances = np.where(answer[:, None], [[5 / 6, 1 / 6]], [[1 / 6, 5 / 6]])
    likelihood = RegressionLikelihood(
        chances, BinaryOutcome(), (X,), (np.arange(TERMS),), np.ones(STEP_RECORDS)
    )
    y = answer.astype(float)
    ratios, steps, solves = [], [], []
    for _ in range(PAIRS):
        solution, fit = seconds(lambda: maximise(likelihood))
        _, solve = seconds(lambda: np.linalg.lstsq(X, y, rcond=None))
        steps.append(fit / (solution.steps + 1))  # and the derivatives at the start
        solves.append(solve)
        ratios.append(steps[-1] / solve)
    return {
        "name": f"one step, n = {STEP_RECORDS:,}, p = {TERMS}",
        "seconds": float(np.median(steps)),
        "least squares": float(np.median(solves)),
        "ratio": float(np.median(ratios)),
    }


def time_table(name, X):
    """Return the seconds from reports to the printed table."""
    n, p = X.shape
    reports, policy = disguise(1 / (1 + np.exp(1 - 0.2 * X.sum(axis=1))))
    clear = pd.DataFrame(X, columns=[f"x{i}" for i in range(p)])
    formula = "y ~ " + " + ".join(clear.columns)
    source, count = seconds(lambda: mq.tally(reports, policy))
    fit, fitted = seconds(lambda: mq.stats.logistic(source, formula, covariates=clear))
    _, table = seconds(fit.summary)
    return {
        "name": f"{n:,} records, {p} {name} covariates",
        "seconds": count + fitted + table,
        "tally": count,
        "fit": fitted,
        "tests and intervals": table,
    }


def time_categories():
    """Return the seconds of a multinomial regression of six disguised categories."""
    draw = np.random.default_rng(2)
    X = draw.standard_normal((STEP_RECORDS, TERMS - 1))
    eta = np.column_stack([np.zeros(STEP_RECORDS), X @ draw.normal(0, 0.3, (TERMS - 1, 5))])
    truth = np.argmax(eta + draw.gumbel(size=eta.shape), axis=1)
    policy = mq.Policy.build({"y": list(range(6))}, {"y": mq.channels.symmetric(6, "3/10")})
    source = mq.tally(mq.simulate(pd.DataFrame({"y": truth}), policy, seed=1), policy)
    clear = pd.DataFrame(X, columns=[f"x{i}" for i in range(TERMS - 1)])
    formula = "y ~ " + " + ".join(clear.columns)
    fit, fitted = seconds(lambda: mq.stats.multinomial(source, formula, covariates=clear))
    return {
        "name": f"six categories, n = {STEP_RECORDS:,}, {len(fit.terms)} coefficients",
        "seconds": fitted,
        "steps": fit.fit.solution.steps,
    }


def time_random_intercept():
    """Return the seconds of a fit with a random intercept, and of one profile interval."""
    draw = np.random.default_rng(6)
    group, z = np.arange(1200) % 30, draw.standard_normal(1200)
    reports, policy = disguise(1 / (1 + np.exp(0.5 - 0.5 * z - draw.standard_normal(30)[group])))
    clear = pd.DataFrame({"z": z, "group": group})
    source = mq.tally(reports, policy)
    formula = "y ~ z + (1 | group)"
    fit, fitted = seconds(lambda: mq.stats.logistic(source, formula, covariates=clear))
    _, interval = seconds(lambda: fit.profile("z"))
    return {"name": "random intercept, 30 groups", "seconds": fitted, "profile interval": interval}


def main():
    """Measure and keep the seconds."""
    path = json_option(__doc__)
    draw = np.random.default_rng(0)
    results = [
        time_step(),
        time_table("continuous", draw.standard_normal((RECORDS, TERMS))),
        time_table("two-valued", draw.integers(0, 2, (RECORDS, TERMS)).astype(float)),
        time_categories(),
        time_random_intercept(),
    ]
    for row in results:
        print(row)
    keep(path, results)


if __name__ == "__main__":
    main()
