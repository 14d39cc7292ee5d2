"""Operations that two versions of the library can both do, timed in processor seconds on request.

`benchmarks.against` runs this file once for every checkout, with that checkout's `src` and its `benchmarks`
on the path: what differs between versions (names of modules) is in the `benchmarks` that each brings along.
An operation is a generator: it prepares, then yields a function for every figure, which is called often.
"""

import contextlib
import io
import json
import os
import resource
import subprocess
import sys
import tempfile
from functools import cache, partial
from importlib import import_module
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

import masquerade as mq

NAMES = [f"v{i}" for i in range(10)]
SHORTEST = 0.05  # seconds that are worth measuring
CHANNEL = {"categories": ["a", "b", "c", "d"], "channel": {"kind": "symmetric", "p": "0.3"}}
POLICY = mq.Policy.from_dict({"masquerade": 1, "variables": dict.fromkeys(NAMES, CHANNEL)})


@cache
def frame(rows):
    """Return records that depend on one another."""
    generator = np.random.default_rng(1)
    hidden = generator.integers(0, 4, rows)
    codes = {
        name: np.where(generator.random(rows) < 0.5, hidden, generator.integers(0, 4, rows)) for name in NAMES
    }
    return pd.DataFrame({name: pd.Categorical.from_codes(own, list("abcd")) for name, own in codes.items()})


@cache
def disguised(rows):
    """Return the same records, disguised by fixed draws."""
    return mq.simulate(frame(rows), POLICY, seed=1)


@cache
def source(rows):
    """Return a source that has been asked before."""
    made = mq.tally(disguised(rows), POLICY)
    for _ in range(3):
        made.answer([mq.Query(by=name) for name in NAMES])
    return made


def tables(size, *, fresh):
    """Return the tables of some sets of variables, with standard errors."""
    asked = mq.tally(disguised(500_000), POLICY) if fresh else source(500_000)
    queries = [mq.Query(by=names) for names in list(combinations(NAMES, size))[:20]]
    return [table.stderr() for table in asked.answer(queries)]


def counting():
    """Tables of one, two and three variables of a source in memory."""
    for size in (1, 2, 3):
        yield f"{size}-way tables, new source", partial(tables, size, fresh=True)
        yield f"{size}-way tables, known source", partial(tables, size, fresh=False)


def single_questions():
    """Questions one at a time."""
    known = mq.tally(disguised(20_000), POLICY)
    queries = [mq.Query(by=pair) for pair in combinations(NAMES, 2)]
    yield "45 questions one at a time", lambda: [known.answer([query])[0].stderr() for query in queries]


def estimates():
    """Read a table: nonnegative counts, intervals, covariances."""
    (table,) = source(500_000).answer([mq.Query(by=NAMES[:3])])
    few = mq.tally(disguised(20_000), POLICY)
    for method in ("mle", "clip", "simplex"):
        yield (
            f"nonnegative {method}, 64 cells",
            lambda method=method: few.answer([mq.Query(by=NAMES[:3])])[0].nonnegative(method),
        )
    yield "intervals, 64 cells", table.conf_int
    yield "dense covariance, 64 cells", lambda: [table.covariance.dense() for _ in range(20)]


def disguising():
    """Disguise records in memory and in a file."""
    clear = frame(300_000)
    yield "disguise a frame", lambda: mq.disguise(clear, POLICY)
    folder = Path(tempfile.mkdtemp())
    clear.astype(str).to_csv(folder / "clear.csv", index=False)
    numbers = iter(range(1000))
    yield (
        "disguise a CSV file",
        lambda: mq.disguise_file(folder / "clear.csv", folder / f"{next(numbers)}.csv", POLICY),
    )


def learning():
    """Every learner, of records that nobody has counted yet."""
    seen = disguised(100_000)
    learners = {
        "naive Bayes": lambda tally: mq.learn.naive_bayes(tally, "v0"),
        "tree of depth 5": lambda tally: mq.learn.decision_tree(tally, "v0", max_depth=5),
        "itemsets and rules": lambda tally: mq.learn.association_rules(tally, 0.15, 0.3, max_len=2),
        "K2": lambda tally: mq.learn.structure(tally, order=NAMES, max_parents=3),
        "parameters": lambda tally: mq.learn.bayesian_network(
            tally, {name: NAMES[max(i - 2, 0) : i] for i, name in enumerate(NAMES)}
        ),
        "linear classifier": lambda tally: mq.learn.linear_classifier(tally, "v0", NAMES[1:4], "squares"),
    }
    for name, learn in learners.items():
        yield name, lambda learn=learn: learn(mq.tally(seen, POLICY))


def alarm():
    """K2 on a network of 37 nodes."""
    benchmark = import_module("benchmarks.structure_alarm")
    network = benchmark.alarm()
    order, clear = benchmark.sampled(network)
    schema = mq.Schema({name: list(network.variable(name).labels()) for name in order})
    policy = mq.Policy.build(
        schema, {name: mq.channels.symmetric(len(schema[name]), "0.1") for name in schema}
    )
    seen = mq.simulate(clear, policy, seed=1)
    yield "K2 on ALARM", lambda: mq.learn.structure(mq.tally(seen, policy), order=order, max_parents=4)


def engines():
    """Files that an engine scans."""
    folder = Path(tempfile.mkdtemp())
    seen = disguised(300_000).astype(str)
    seen.to_parquet(folder / "seen.parquet")
    seen.to_csv(folder / "seen.csv", index=False)
    queries = [mq.Query(by=names) for names in list(combinations(NAMES, 3))[:20]]
    for kind in ("parquet", "csv"):
        path = folder / f"seen.{kind}"
        yield (
            f"tables of a {kind} file by DuckDB",
            lambda path=path: mq.tally(path, POLICY, engine="duckdb").answer(queries),
        )
        yield f"tables of a {kind} file in memory", lambda path=path: mq.tally(path, POLICY).answer(queries)
    overhead = import_module("benchmarks.engine_overhead")
    small = overhead.write_parts(folder, 10_000, parts=1)

    def ask():
        made = mq.tally(small, overhead.POLICY, engine="duckdb")
        return [made.answer([mq.Query(by=pair)])[0].stderr() for pair in overhead.PAIRS]

    yield "45 questions to DuckDB one at a time", ask


def quiet(run):
    """Run something that prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return run()


def aggregation():
    """Run rounds of secure aggregation: all roles together, the server, one device."""
    benchmark = import_module("benchmarks.aggregation")
    benchmark.primitives = lambda *_: dict.fromkeys(
        (
            "sign",
            "verify a signature",
            "make a pair of keys",
            "agree on a key",
            "deal a seed",
            "open a seed",
            "expand a mask",
        ),
        1.0,
    )
    for server in ("semi-honest", "malicious"):
        rounds = []

        def one_round(server=server, rounds=rounds):
            rounds.append(benchmark.measure(300, server))

        yield f"secure aggregation, {server}, 300 users", one_round
        yield f"- of which the server, {server}", lambda rounds=rounds: figure(rounds, "server, seconds")
        yield (
            f"- of which one device alone, {server}",
            lambda rounds=rounds: figure(rounds, "device, milli", 1e-3),
        )


def figure(rounds, name, unit=1.0):
    """Return what the last round found."""
    return unit * next(row["cost"] for row in rounds[-1]["results"] if row["name"].startswith(name))


def frequency():
    """Votes, their proofs, and the mix."""
    benchmark = import_module("benchmarks.frequency")
    prices = dict.fromkeys(
        (
            "multiply",
            "multiply the generator",
            "multiply in public",
            "decode",
            "add in a long sum",
            "verify a signature",
        ),
        1.0,
    )
    rows = []
    yield "frequency mining: a user", lambda: (rows.clear(), benchmark.clients(prices, rows))
    booth, cast = benchmark.election(400)
    payloads = [vote for _, vote in cast]
    yield "frequency mining: sum of votes", lambda: [booth.frequencies(payloads) for _ in range(20)]
    yield "frequency mining: proofs, batched", lambda: booth.invalid(cast)
    yield "frequency mining: a roster", lambda: benchmark.rosters(prices, rows, users=50, counts=10)
    yield "mix of 100 records", lambda: benchmark.mixes(prices, rows, 100)


def parties():
    """Let parties link, multiply, pool and send records to a miner."""
    benchmark = import_module("benchmarks.parties")
    benchmark.ROWS, benchmark.KEYS, benchmark.FEW = 200_000, 3_000, 30

    def figures(part):
        return lambda: sum(row["cpu_seconds"] for row in quiet(lambda: list(part())))

    yield "linking of two parties", figures(lambda: benchmark.linking(2))
    yield "linking of three parties", figures(lambda: benchmark.linking(3))
    yield "scalar products with a helper", figures(benchmark.scalar_products)
    yield "scalar products of two parties", figures(benchmark.paillier)
    yield "pseudonyms by a shared secret", figures(benchmark.keyed)
    yield "pooled tables", figures(benchmark.pooling)
    yield "a miner joins and counts", figures(lambda: benchmark.mining(100_000))


def threshold():
    """k-anonymity by an oblivious pseudo-random function."""
    benchmark = import_module("benchmarks.threshold")
    benchmark.EVALUATIONS = 1000
    ledger = getattr(benchmark, "EvaluationLedger", None) or benchmark.SqliteLedger
    server = benchmark.RandomnessServer(os.urandom(32), ledger(Path(tempfile.mkdtemp()) / "ledger"))
    epochs = iter(range(10**6))

    def notice():
        terms = benchmark.Terms(f"epoch {next(epochs)}", 10, benchmark.QUASI, benchmark.SENSITIVE)
        return benchmark.Notice.decode(server.open(terms.encode()))

    layout = benchmark.Layout.of(notice())
    generator = np.random.default_rng(1)
    reports = benchmark.fabricated(layout, np.full(2000, 10), generator).tobytes()
    yield "opening of 20,000 reports", lambda: benchmark.open_reports(layout, reports)
    yield (
        "an evaluation by the server",
        lambda: 1e-6 * quiet(lambda: benchmark.evaluation(server, notice()))["cpu_microseconds"],
    )
    yield (
        "a client's request",
        lambda: 1e-3 * quiet(lambda: benchmark.client(server, notice()))["request_ms"],
    )
    yield "a client's report", lambda: 1e-3 * quiet(lambda: benchmark.client(server, notice()))["report_ms"]


def anonymity():
    """k-anonymity by suppression."""
    table = import_module("benchmarks.anonymity").people(5000)
    yield "k-anonymity of 5000 rows", lambda: mq.anonymity.anonymize(table, list(table), 10)
    yield "k-anonymity checked", lambda: mq.anonymity.check(table, list(table))


def starting():
    """How long a new process takes."""
    for name, arguments in {
        "import masquerade": ["-c", "import masquerade"],
        "masquerade --help": ["-m", "masquerade", "--help"],
    }.items():
        command = [sys.executable, *arguments]
        yield (
            name,
            lambda command=command: subprocess.run(command, stdout=subprocess.DEVNULL, check=False),  # noqa: S603
        )


OPERATIONS = {
    made.__name__: made
    for made in (
        counting,
        single_questions,
        estimates,
        disguising,
        learning,
        alarm,
        engines,
        aggregation,
        frequency,
        parties,
        threshold,
        anonymity,
        starting,
    )
}


def processor_seconds():
    """Return what this process and those that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def seconds_of(run):
    """Return the seconds that a function says it took, or else those that one call takes."""
    start, calls = processor_seconds(), 0
    while calls == 0 or processor_seconds() - start < SHORTEST:
        calls += 1
        said = run()
        if isinstance(said, float):
            return said
    return (processor_seconds() - start) / calls


def serve():
    """Read names of operations, then answer every line with the seconds of one call of every figure."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    prepared = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in prepared:
            prepared = {name: list(OPERATIONS[name]())}
        answers.write(json.dumps([[title, seconds_of(run)] for title, run in prepared[name]]) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve()
