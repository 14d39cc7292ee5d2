"""How often variables that are independent look linked: the p-values of links, over 5,000 tests.

Skewed and many categories, categories that nobody has, configurations of the parents that do not occur,
behind symmetric masks; clear and disguised parents. At .05 a share of .05 is to be rejected, within its error
and .01 where every cell expects five reports, and no setting more than .08. Then Bayesian scores: two binary
variables, one or both with a category of 1 %, 10,000 records: K2 is to link .02 of them at most, BDeu
.10.

    python -m benchmarks.link_null [--runs 500] [--tables 2000] [--json FILE] [--only tests|scores]
"""

import argparse
import json
import time
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

import masquerade as mq
from masquerade.core.covariance import IndependentCovariance
from masquerade.core.evidence import TableReduction
from masquerade.core.links.deviance_test import link_tests
from masquerade.core.links.marginals import marginal_gains
from masquerade.core.query import Query
from masquerade.disguising.seeded import simulate_codes
from masquerade.estimate.evidence import ReportEvidence
from masquerade.estimate.reports import Reports
from masquerade.learn.networks.scores import K2, bdeu
from masquerade.sources.records import Records

LEVEL = 0.05
FEW = 5.0
PAIR_RECORDS = 10_000
MOST_LINKED = {"k2": 0.02, "bdeu": 0.10}


def falling(size, ratio):
    shares = ratio ** np.arange(size)
    return shares / shares.sum()


@dataclass(frozen=True)
class Setting:
    """Shares of the categories of z and x, perhaps in each configuration of j, and who is disguised."""

    name: str
    z: np.ndarray
    x: np.ndarray
    p: dict
    n: int
    j: np.ndarray = None

    def codes(self, generator):
        """Return records in which x and z are independent given j."""
        if self.j is None:
            drawn = {"z": generator.choice(len(self.z), self.n, p=self.z)}
            drawn["x"] = generator.choice(len(self.x), self.n, p=self.x)
        else:
            j = generator.choice(len(self.j), self.n, p=self.j)
            drawn = {"j": j} | {
                end: (generator.random(self.n)[:, None] >= np.cumsum(shares, -1)[j][:, :-1]).sum(axis=1)
                for end, shares in (("z", self.z), ("x", self.x))
            }
        return {name: column.astype(np.uint8) for name, column in drawn.items()}

    @property
    def sizes(self):
        given = {} if self.j is None else {"j": len(self.j)}
        return given | {"z": self.z.shape[-1], "x": self.x.shape[-1]}

    def policy(self):
        schema = {name: list(range(size)) for name, size in self.sizes.items()}
        return mq.Policy.build(
            schema, {name: mq.channels.symmetric(self.sizes[name], p) for name, p in self.p.items()}
        )

    def fewest(self):
        """Return the smallest number of reports that a cell expects."""
        truth = (
            np.outer(self.z, self.x) if self.j is None else np.einsum("j,jz,jx->jzx", self.j, self.z, self.x)
        )
        for axis, (name, size) in enumerate(self.sizes.items()):
            p = float(self.p.get(name, 0))
            mask = np.full((size, size), p / (size - 1)) + (1 - p - p / (size - 1)) * np.eye(size)
            truth = np.moveaxis(np.tensordot(truth, mask, (axis, 0)), -1, axis)
        return self.n * truth.min()


def depending(rows, generator_seed, ratio):
    """Return shares of categories that differ between configurations."""
    generator = np.random.default_rng(generator_seed)
    return np.stack([generator.permutation(row) for row in [ratio] * rows])


ALL = {"j": "0.2", "z": "0.2", "x": "0.2"}
ENDS = {"z": "0.2", "x": "0.2"}
SETTINGS = (
    Setting("3 × 3, skewed", falling(3, 0.2), falling(3, 0.2), ENDS, 5000),
    Setting("5 × 5, shares ∝ .4^k", falling(5, 0.4), falling(5, 0.4), ENDS, 5000),
    Setting("10 × 10", falling(10, 0.8), falling(10, 0.8), ENDS, 5000),
    Setting("10 × 10, few records", falling(10, 0.8), falling(10, 0.8), {"z": "0.4", "x": "0.4"}, 700),
    Setting("4 × 4, two unseen", np.array([0.7, 0.3, 0, 0]), np.array([0.6, 0.4, 0, 0]), ENDS, 5000),
    Setting(
        "3 × 3 given 3, clear parent",
        depending(3, 1, [0.6, 0.3, 0.1]),
        depending(3, 2, [0.5, 0.4, 0.1]),
        ENDS,
        5000,
        np.array([0.5, 0.3, 0.2]),
    ),
    Setting(
        "3 × 3 given 3, all disguised",
        depending(3, 1, [0.6, 0.3, 0.1]),
        depending(3, 2, [0.5, 0.4, 0.1]),
        ALL,
        5000,
        np.array([0.5, 0.3, 0.2]),
    ),
    Setting(
        "2 × 2 given 4, one does not occur",
        depending(4, 3, [0.7, 0.3]),
        depending(4, 4, [0.6, 0.4]),
        ALL,
        5000,
        np.array([0.4, 0.4, 0.2, 0.0]),
    ),
    Setting(
        "3 × 3 given 3, unseen categories",
        np.array([[0.7, 0.3, 0.0]] * 3),
        np.array([[0.6, 0.4, 0.0]] * 3),
        ALL,
        5000,
        np.array([0.6, 0.4, 0.0]),
    ),
    Setting(
        "4 × 3 given 2, skewed, all disguised",
        np.stack([falling(4, 0.3)] * 2),
        np.stack([falling(3, 0.3)] * 2),
        ALL,
        5000,
        np.array([0.7, 0.3]),
    ),
)


def rejected(setting, runs, seed=1):
    """Return the p-values of so many tests."""
    generator = np.random.default_rng([seed, SETTINGS.index(setting)])
    policy, by = setting.policy(), tuple(setting.sizes)
    tables = []
    for _ in range(runs):
        source = Records(simulate_codes(setting.codes(generator), policy, generator), policy)
        tables += source.answer([Query(by=by)])
    found = link_tests(tables, [tuple(range(len(by)))] * runs, partial(np.random.default_rng, 0))
    return np.array([test.p_value for test in found])


def falsely_linked(p, shares, tables, seed=2):
    """Return the share of independent pairs that each score links."""
    generator = np.random.default_rng([seed, int(1000 * float(p)), int(1000 * shares[0])])
    mask = np.array(mq.channels.symmetric(2, p).matrix, dtype=float)
    first, second = (np.array([1 - share, share]) @ mask for share in shares)
    drawn = generator.multinomial(PAIR_RECORDS, np.outer(first, second).ravel(), size=tables)
    evidence = []
    for counts in drawn.reshape(-1, 2, 2).astype(float):
        reports = Reports(counts, (mask, mask), (2, 2), TableReduction.none(2))
        evidence.append(ReportEvidence.of([reports], counts, IndependentCovariance(counts)))
    places = [(0, 1)] * tables
    return {
        name: float(np.mean(marginal_gains(evidence, places, score.prior) > 0))
        for name, score in (("k2", K2), ("bdeu", bdeu()))
    }


def score_rows(tables):
    """Return how often Bayesian scores link what is independent."""
    found = []
    for p, shares in product(("0.1", "0.2", "0.3"), ((0.01, 0.01), (0.5, 0.01))):
        for name, share in falsely_linked(p, shares, tables).items():
            most = MOST_LINKED[name]
            row = {
                "setting": f"{name}, 2 × 2, categories of {shares[0]:g} and {shares[1]:g}, p = {p}",
                "tables": tables,
                "linked": share,
                "reached": share <= most,
            }
            found.append(row)
            print(f"{row['setting']:<55}{share:>10.4f}{'' if row['reached'] else '  NOT REACHED'}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=500)
    parser.add_argument("--tables", type=int, default=2000)
    parser.add_argument("--only", choices=("tests", "scores"))
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    kept = json.loads(arguments.json.read_text()) if arguments.json and arguments.json.exists() else []
    results = [row for row in kept if arguments.only == "scores" and "rejected" in row]
    if arguments.only != "tests":
        results += score_rows(arguments.tables)
    else:
        results += [row for row in kept if "linked" in row]
    if arguments.only == "scores":
        keep(arguments.json, results)
        return
    print(f"{'setting':<40}{'fewest reports':>15}{'rejected':>10}{'±':>7}{'seconds':>9}")
    for setting in SETTINGS:
        start = time.perf_counter()
        share = float(np.mean(rejected(setting, arguments.runs) <= LEVEL))
        error = float(np.sqrt(LEVEL * (1 - LEVEL) / arguments.runs))
        most = LEVEL + 0.01 + 2 * error if setting.fewest() >= FEW else 0.08
        row = {
            "setting": setting.name,
            "fewest_reports": round(float(setting.fewest()), 1),
            "rejected": share,
            "error": round(error, 4),
            "reached": share <= min(most, 0.08),
            "seconds": round(time.perf_counter() - start, 1),
        }
        results.append(row)
        print(
            f"{row['setting']:<40}{row['fewest_reports']:>15}{share:>10.3f}{error:>7.3f}{row['seconds']:>9}"
            f"{'' if row['reached'] else '  NOT REACHED'}",
            flush=True,
        )
        keep(arguments.json, results)


if __name__ == "__main__":
    main()
