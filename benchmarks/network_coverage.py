"""Coverage and error of network parameters and queries under the joint likelihood of disguised reports.

Four networks of binary variables, every variable behind a symmetric channel that changes an answer with
probability p, 20,000 records. Each run draws reports, maximises their likelihood over all tables and asks
three queries. All runs are fitted together by enumeration of the 64 to 256 combinations, which shares no code
with the library. The first `LIBRARY_RUNS` are fitted by the library too, and the largest difference is kept.
Kept for each network and level: the share of 95% intervals that contain the truth, for every table entry and
query, and the mean squared error of tables estimated family by family, and of one Fisher step from them, over
that of the maximum.

    python -m benchmarks.network_coverage [--runs 2000] [--networks chain,tree] [--json FILE]

To be reached: coverage from .93 to .97, over the entries of a network and over its queries, and estimates and
errors of the library that differ from these by at most `SAME`.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np

import masquerade as mq
from masquerade.core.intervals import logit_interval
from masquerade.core.likelihood_rows import ReportFactor, ReportFactors
from masquerade.learn.networks.joint_fit import fit_tables, table_errors
from masquerade.learn.networks.joint_likelihood import JointLikelihood
from masquerade.learn.networks.network import BayesianNetwork, ConditionalTable

NETWORKS = {
    "naive bayes": {"c": (), "x1": ("c",), "x2": ("c",), "x3": ("c",), "x4": ("c",), "x5": ("c",)},
    "chain": {"a": (), **{b: (a,) for a, b in zip("abcdef", "bcdefg", strict=True)}},
    "tree": {"a": (), "b": ("a",), "c": ("a",), "d": ("b",), "e": ("b",), "f": ("c",), "g": ("c",)},
    "two parents": {
        "a": (),
        "b": (),
        "c": ("a", "b"),
        "d": ("b",),
        "e": ("c", "d"),
        "f": ("c",),
        "g": ("e", "f"),
        "h": ("e",),
    },
}
LEVELS = ("0.1", "0.2", "0.3")
RECORDS = 20_000
RUNS = 2_000
LIBRARY_RUNS = 20
TOGETHER = 100  # runs fitted in one batch
MOST_STEPS = 100
FARTHEST_LOGIT = 13.8155  # chances stay 1e-6 from 0 and 1, as in the library
ROUNDING = 1e-8  # of a likelihood
SMALL_STEP = 1e-6  # in logits: the last step of a run
SAME = 0.05  # of a standard error
FARTHEST = 0.01  # start of the fit, as in the library
COVERAGE = (0.93, 0.97)
KEPT = Path(__file__).parent / "results" / "network_coverage.json"


class Study:
    """One network at one level of noise: exact chances of all reports."""

    def __init__(self, name, p):
        self.name, self.p, self.structure = name, p, NETWORKS[name]
        generator = np.random.default_rng([7, list(NETWORKS).index(name)])
        self.names = list(self.structure)
        self.truth = {}
        for node, parents in self.structure.items():
            first = generator.uniform(0.15, 0.85, (2,) * len(parents))
            self.truth[node] = np.stack([first, 1 - first], axis=-1)
        size = len(self.names)
        self.cells = np.indices((2,) * size).reshape(size, -1)
        self.channel = np.ones((1, 1))
        for _ in self.names:
            self.channel = np.kron(self.channel, mq.channels.symmetric(2, p).matrix)
        self.schema = mq.Schema({node: [0, 1] for node in self.names})
        self.known = mq.learn.known_network(self.schema, self.structure, self.truth)
        first, middle, last = self.names[0], self.names[size // 2], self.names[-1]
        self.queries = [(first, {last: 1}), (last, {first: 1}), (middle, {first: 1, last: 0})]
        self.answers = [self.known.query(target, dict(given))[0] for target, given in self.queries]
        self.sizes = dict.fromkeys(self.names, 2)
        matrix = np.asarray(mq.channels.symmetric(2, p).matrix, dtype=float)
        self.factors = tuple(
            ReportFactor((node,), np.ascontiguousarray(matrix.T), np.asarray(codes, dtype=np.intp))
            for node, codes in zip(self.names, self.cells, strict=True)
        )

    def family_index(self, node):
        """Return the cell of a node's table for every combination of all variables."""
        axes = [self.names.index(other) for other in (*self.structure[node], node)]
        return np.ravel_multi_index(self.cells[axes], (2,) * len(axes))

    def joint(self, tables):
        """Return P(combination), for one set of tables or for many (runs first)."""
        parts = [
            tables[node].reshape(*tables[node].shape[: -(1 + len(parents))], -1)[..., self.family_index(node)]
            for node, parents in self.structure.items()
        ]
        return np.prod(parts, axis=0)

    def draw(self, run):
        """Return the number of records of every combination of reports."""
        generator = np.random.default_rng([run, int(100 * float(self.p)), list(NETWORKS).index(self.name)])
        chances = self.joint(self.truth) @ self.channel
        return generator.multinomial(RECORDS, chances / chances.sum())

    def families(self, counts):
        """Return tables estimated family by family: the inverted counts, clipped to chances."""
        estimated = counts @ np.linalg.inv(self.channel)
        found = {}
        for node, parents in self.structure.items():
            cells = np.bincount(self.family_index(node), estimated, 2 ** (1 + len(parents)))
            cells = cells.reshape((2,) * (1 + len(parents)))
            found[node] = cells / cells.sum(axis=-1, keepdims=True)
        return found

    def fit(self, counts, start):
        """Return the network that maximises the likelihood, as `bayesian_network` builds it."""
        seen = counts > 0
        factors = tuple(ReportFactor(one.names, one.chances, one.report[seen]) for one in self.factors)
        reports = ReportFactors(factors, counts[seen].astype(float))
        clipped = {node: np.clip(table, FARTHEST, None) for node, table in start.items()}
        clipped = {node: table / table.sum(axis=-1, keepdims=True) for node, table in clipped.items()}
        fit = fit_tables(JointLikelihood([reports], self.structure, self.sizes), clipped)
        errors = table_errors(fit)
        tables = tuple(
            ConditionalTable(
                self.schema[node],
                tuple(self.schema[parent] for parent in parents),
                fit.tables[node],
                errors[node],
                np.ones((2,) * len(parents), dtype=bool),
            )
            for node, parents in self.structure.items()
        )
        return BayesianNetwork(tables, joint=fit)

    def parameters(self):
        """Return indicators (parameters, combinations) of "row of a table" and of "row and category 0"."""
        rows, zeros = [], []
        for node, parents in self.structure.items():
            places = [self.names.index(parent) for parent in parents]
            row = (
                np.ravel_multi_index(self.cells[places], (2,) * len(parents))
                if parents
                else 0 * self.cells[0]
            )
            for number in range(2 ** len(parents)):
                rows.append(row == number)
                zeros.append((row == number) & (self.cells[self.names.index(node)] == 0))
        return np.array(rows, dtype=float), np.array(zeros, dtype=float)

    def maximise(self, counts, start):
        """Return chances (runs, parameters), their covariances, and chances after one Fisher step.

        Formula: logits ← logits + (Σ n s s')⁻¹ Σ n s, halved until the likelihood rises. Where no half does,
        the diagonal of the matrix grows (Levenberg, 1944). Logits stay within `FARTHEST_LOGIT`.
        """
        rows, zeros = self.parameters()
        logits = np.log(start / (1 - start))
        value, score, gram = self._moments(counts, logits, rows, zeros)
        damping = np.zeros(len(counts))
        first, left = None, np.arange(len(counts))  # runs that are not at their maximum yet
        for _ in range(MOST_STEPS):
            held = (np.abs(logits[left]) >= FARTHEST_LOGIT) & (logits[left] * score[left] > 0)
            step = self._step(gram[left], score[left], damping[left], held)
            size = np.ones(len(left))
            for _ in range(12):
                trial = np.clip(logits[left] + size[:, None] * step, -FARTHEST_LOGIT, FARTHEST_LOGIT)
                after = self._value(counts[left], trial, rows, zeros)
                bad = after < value[left] - ROUNDING
                if not bad.any():
                    break
                size[bad] /= 2
            damping[left] = np.where(bad, np.maximum(10 * damping[left], 1e-4), damping[left] / 10)
            moved = np.where(bad[:, None], 0.0, trial - logits[left])
            logits[left] += moved
            value[left], score[left], gram[left] = self._moments(counts[left], logits[left], rows, zeros)
            first = logits.copy() if first is None else first
            left = left[(bad & (damping[left] < 1e8)) | (np.abs(moved).max(axis=1) > SMALL_STEP)]
            if not len(left):
                break
        return 1 / (1 + np.exp(-logits)), np.linalg.inv(gram), 1 / (1 + np.exp(-first))

    @staticmethod
    def _step(gram, score, damping, held):
        """Return damped Fisher steps, of at most 3 in each logit, and of 0 in logits that are held."""
        scale = np.sqrt(np.maximum(np.diagonal(gram, axis1=1, axis2=2), 1e-12))
        scaled = gram / scale[:, :, None] / scale[:, None]
        scaled = np.where(held[:, :, None] | held[:, None], 0.0, scaled) + held[:, None] * np.eye(
            held.shape[1]
        )
        scaled = scaled + (damping[:, None, None] + 1e-10) * np.eye(scale.shape[1])
        step = np.linalg.solve(scaled, np.where(held, 0.0, score / scale)[..., None])[..., 0] / scale
        return np.clip(step, -3, 3)

    def _joint(self, logits, rows, zeros):
        chances = 1 / (1 + np.exp(-logits))
        logs = np.log(chances) @ zeros + np.log1p(-chances) @ (rows - zeros)
        return np.exp(logs), chances

    def _value(self, counts, logits, rows, zeros):
        return (counts * np.log(self._joint(logits, rows, zeros)[0] @ self.channel)).sum(axis=1)

    def _moments(self, counts, logits, rows, zeros):
        joint, chances = self._joint(logits, rows, zeros)
        reports = joint @ self.channel
        slopes = zeros[None] - chances[..., None] * rows[None]
        scores = (slopes * joint[:, None]) @ self.channel / reports[:, None]
        weighted = scores * counts[:, None]
        return (
            (counts * np.log(reports)).sum(axis=1),
            weighted.sum(axis=-1),
            weighted @ scores.transpose(0, 2, 1),
        )

    def ask(self, chances, covariance, query):
        """Return P(target = 0 | evidence) of every run and its standard error, by the delta method."""
        rows, zeros = self.parameters()
        joint, _ = self._joint(np.log(chances / (1 - chances)), rows, zeros)
        target, given = query
        inside = np.all([self.cells[self.names.index(name)] == code for name, code in given.items()], axis=0)
        both = inside & (self.cells[self.names.index(target)] == 0)
        slopes = zeros[None] - chances[..., None] * rows[None]
        total = joint @ inside
        share = joint @ both / total
        gradient = (
            (slopes * joint[:, None]) @ both - share[:, None] * ((slopes * joint[:, None]) @ inside)
        ) / (total[:, None])
        return share, np.sqrt(np.einsum("rp,rpq,rq->r", gradient, covariance, gradient))


def entries(tables, structure):
    """Return P(node = 0 | parents) of all tables as one row."""
    return np.concatenate([np.asarray(tables[node])[..., 0].ravel() for node in structure])


def compare(study, draws, starts, fitted, answers):
    """Return the largest difference between the library's first runs and these, in standard errors."""
    largest = 0.0
    chances, errors = fitted
    for number in range(min(LIBRARY_RUNS, len(draws))):
        network = study.fit(draws[number], starts[number])
        values = entries({table.child.name: table.probabilities for table in network.tables}, study.structure)
        spread = entries({table.child.name: table.stderr for table in network.tables}, study.structure)
        own = [network.query(target, dict(given)) for target, given in study.queries]
        values = np.append(values, [one.probabilities[0] for one in own])
        spread = np.append(spread, [one.stderr[0] for one in own])
        wanted = np.append(chances[number], [answer[0][number] for answer in answers])
        scale = np.append(errors[number], [answer[1][number] for answer in answers])
        largest = max(largest, np.max(np.abs(values - wanted) / scale), np.max(np.abs(spread / scale - 1)))
    return float(largest)


def run(name, p, runs):
    """Return coverage and mean squared errors of one network at one level."""
    begin = time.perf_counter()
    study = Study(name, p)
    truth = entries(study.truth, study.structure)
    draws = np.array([study.draw(number) for number in range(runs)])
    starts = [study.families(counts) for counts in draws]
    separate = np.clip([entries(start, study.structure) for start in starts], 0, 1)
    parts = [
        study.maximise(
            draws[at : at + TOGETHER], np.clip(separate[at : at + TOGETHER], FARTHEST, 1 - FARTHEST)
        )
        for at in range(0, runs, TOGETHER)
    ]
    chances, covariance, first = (np.concatenate([part[i] for part in parts]) for i in range(3))
    spread = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2)) * chances * (1 - chances)
    lower, upper = logit_interval(chances, spread, 0.95)
    share = np.mean((lower <= truth) & (truth <= upper), axis=0)
    answers = [
        [
            np.concatenate(values)
            for values in zip(
                *(
                    study.ask(chances[at : at + TOGETHER], covariance[at : at + TOGETHER], query)
                    for at in range(0, runs, TOGETHER)
                ),
                strict=True,
            )
        ]
        for query in study.queries
    ]
    queries = []
    for (values, errors), true in zip(answers, study.answers, strict=True):
        low, high = logit_interval(values, errors, 0.95)
        queries.append(float(np.mean((low <= true) & (true <= high))))

    def squared(values):
        return ((values - truth) ** 2).mean(axis=0)

    by_family, one_step = squared(separate) / squared(chances), squared(first) / squared(chances)
    return {
        "network": name,
        "p": p,
        "n": RECORDS,
        "runs": runs,
        "entries": len(truth),
        "coverage of entries": round(float(share.mean()), 4),
        "lowest": round(float(share.min()), 4),
        "highest": round(float(share.max()), 4),
        "coverage of queries": round(float(np.mean(queries)), 4),
        "each query": [round(one, 4) for one in queries],
        "stated error over spread": round(float(np.median(spread.mean(axis=0) / chances.std(axis=0))), 4),
        "error family by family": round(float(np.exp(np.log(by_family).mean())), 4),
        "worst of them": round(float(by_family.max()), 4),
        "error of one step": round(float(np.exp(np.log(one_step).mean())), 4),
        "library differs by": round(compare(study, draws, starts, (chances, spread), answers), 4),
        "seconds": round(time.perf_counter() - begin, 1),
    }


def verdict(row):
    """Return True if a row reaches its goals."""
    low, high = COVERAGE
    both = (row["coverage of entries"], row["coverage of queries"])
    return all(low <= one <= high for one in both) and row["library differs by"] <= SAME


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(NETWORKS))
    parser.add_argument("--levels", type=lambda text: text.split(","), default=LEVELS)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path, default=KEPT)
    arguments = parser.parse_args()
    rows = json.loads(arguments.json.read_text(encoding="utf-8")) if arguments.json.exists() else []
    done = {(row["network"], row["p"], row["runs"]) for row in rows}
    for name in arguments.networks:
        for p in arguments.levels:
            if (name, p, arguments.runs) in done:
                continue
            rows.append(run(name, p, arguments.runs))
            print(json.dumps(rows[-1]), "reached" if verdict(rows[-1]) else "MISSED", flush=True)
            arguments.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
