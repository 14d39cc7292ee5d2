"""Maximum likelihood where channels are nearly singular: Gaussian noise of two bins on 20, 30,000 records.

120 random truths (scattered, smooth, with gaps) for each way of treating the ends; every fit is proven to
be within 1e-6 of the top of the log-likelihood.

    python -m benchmarks.likelihood_fits [--json FILE]
"""

import time

import numpy as np
from benchmarks.timing import json_option, keep
from scipy.special import ndtr

import masquerade as mq
from masquerade.core.errors import NotConverged
from masquerade.estimate.em import maximum_likelihood

BINS, SD, RECORDS, PROBLEMS = 20, 2, 30_000, 120


def channels():
    """Return the same noise with open ends, folded into the outermost bins, and cut off."""
    x = np.arange(BINS)
    opened = np.array(mq.channels.additive(list(range(BINS + 1)), "gaussian", SD).matrix, dtype=float)
    edges = np.concatenate([[-np.inf], x[1:] - 0.5, [np.inf]])
    folded = np.diff(ndtr((edges - x[:, None]) / SD), axis=1)
    cut = np.exp(-0.5 * ((x[:, None] - x) / SD) ** 2)
    return {"open ends": opened, "folded": folded, "cut off": cut / cut.sum(axis=1, keepdims=True)}


def truths():
    """Return 120 distributions over the bins."""
    x = np.arange(BINS)
    for seed in range(PROBLEMS):
        rng = np.random.default_rng(seed)
        if seed % 3 == 0:
            theta = rng.dirichlet(np.full(BINS, [0.1, 0.3, 1.0, 5.0][seed % 4]))
        elif seed % 3 == 1:
            places, widths = rng.uniform(3, 16, 2), rng.uniform(0.5, 5, 2)
            theta = np.exp(-0.5 * ((x[:, None] - places) / widths) ** 2) @ [1.0, 0.5]
        else:
            theta = 1.0 * (rng.random(BINS) < 0.4)
            theta[rng.integers(BINS)] += 1
        yield rng, theta / theta.sum()


def main():
    path = json_option(__doc__)
    results = []
    for name, P in channels().items():
        seconds, proven = [], 0
        for rng, theta in truths():
            q = theta @ P
            observed = rng.multinomial(RECORDS, q / q.sum()).astype(float)
            begin = time.perf_counter()
            try:
                proven += maximum_likelihood(observed, [P]).gap < 1e-6
            except NotConverged as failed:
                print(failed)
            seconds.append(time.perf_counter() - begin)
        median, most = float(np.median(seconds)), max(seconds)
        print(
            f"{name}: condition {np.linalg.cond(P):.1e}, {proven} of {PROBLEMS} proven, "
            f"median {median:.4f} s, slowest {most:.4f} s"
        )
        results.append({"name": f"likelihood fit, {name}", "seconds": median, "proven": proven})
    keep(path, results)


if __name__ == "__main__":
    main()
