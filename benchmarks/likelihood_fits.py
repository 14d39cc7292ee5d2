"""Maximum likelihood where channels are nearly singular: Gaussian noise of two bins on 20, 30,000 records.

120 random truths (scattered, smooth, with gaps) for each way of treating the ends; every fit is proven to
be within 1e-6 of the top of the log-likelihood. Then links as structure learning asks for them: 2,000 tables
of 20,000 records, a fifth of them dependent, all fitted, or only those that BIC might add.

    python -m benchmarks.likelihood_fits [--json FILE]
"""

import time

import numpy as np
from benchmarks.timing import best_of, json_option, keep, rows, show
from scipy.special import ndtr

import masquerade as mq
from masquerade.core.axes import contract
from masquerade.core.covariance import IndependentCovariance
from masquerade.core.errors import NotConverged
from masquerade.core.evidence import TableReduction
from masquerade.core.links.fits import fit_links
from masquerade.estimate.em import maximum_likelihood
from masquerade.estimate.evidence import ReportEvidence
from masquerade.estimate.reports import Reports

BINS, SD, RECORDS, PROBLEMS = 20, 2, 30_000, 120
LINKS = 2_000


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


def links():
    """Return the evidence and places of tables over up to two parents, a new one and a child."""
    rng = np.random.default_rng(0)
    evidences, places = [], []
    for i in range(LINKS):
        sizes = tuple(rng.integers(2, 5, rng.integers(2, 5)).tolist())
        given, ends = sizes[:-2], sizes[-2:]
        theta = np.einsum("oj,jz,jx->jzx", *(rng.dirichlet(np.ones(K), J) for J, K in pairs(given, ends)))
        if i % 5 == 0:
            theta = 0.8 * theta + 0.2 * rng.dirichlet(np.ones(theta.size)).reshape(theta.shape)
        P = tuple(np.array(mq.channels.symmetric(K, "1/10").matrix, dtype=float) for K in sizes)
        q = contract(theta.reshape(sizes), P)
        observed = rng.multinomial(20_000, q.ravel() / q.sum()).reshape(sizes).astype(float)
        reports = Reports(observed, P, sizes, TableReduction.none(len(sizes)))
        evidences.append(ReportEvidence.of([reports], observed, IndependentCovariance(observed)))
        places.append(tuple(range(len(sizes))))
    return evidences, places


def pairs(given, ends):
    """Return how many distributions over how many categories make up an independent table."""
    J = int(np.prod(given))
    return [(1, J), (J, ends[0]), (J, ends[1])]


def link_rows():
    """Time fits of all links, and of those that might gain by BIC."""
    evidences, places = links()
    df = fit_links(evidences, places, least=np.full(LINKS, np.inf)).df  # compiles, too
    best = best_of(
        [
            ("masquerade", lambda: fit_links(evidences, places, least=np.log(20_000) * df)),
            ("masquerade, all links fitted", lambda: fit_links(evidences, places)),
        ],
        3,
    )
    show(f"{LINKS:,} links of 20,000 records, p = 0.1", rows(best))
    return rows(best)


def main():
    path = json_option(__doc__)
    results = link_rows()
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
