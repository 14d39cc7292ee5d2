"""What frequency mining and the mix cost, next to the primitive operations that they cannot do without.

Run: python -m benchmarks.frequency [--votes N] [--rows N] [--json FILE]

A bound is the number of multiplications, decodings, additions and signatures that a step must make times what
one of them takes in the same run. Ratios are of processor time, summed over cores and processes, which a busy
machine distorts less; limits are for the clock, and one that is missed is flagged. An estimate is what was
expected before there was anything to measure: it stands beside the time and limits nothing.
"""

from __future__ import annotations

import argparse
import resource
import secrets
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from benchmarks.timing import keep

import masquerade as mq
from masquerade.crypto.keys import SigningKey, verify_signature
from masquerade.crypto.proof_batches import find_rejected
from masquerade.crypto.proofs import BallotKeys, mask
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency_mining.ballots import (
    POINT,
    Booth,
    PublicKeys,
    Setting,
    keys_claim,
    make_keys,
    public_keys,
    spans_of,
    sum_of_keys,
)
from masquerade.protocols.frequency_mining.messages import FrequencyTerms
from masquerade.protocols.mixnet.messages import MixBoard, MixTerms
from masquerade.protocols.mixnet.roles import Leader, MixMiner, Respondent, opened_batch
from masquerade.protocols.people.questions import Question

TARGET = 100_000
CORES = 2
BATCH = 25_000  # proofs in one sum
MIXED = 8.0  # seconds that a leader was estimated to take for 10,000 records
POLICY = mq.Policy.from_dict({"masquerade": 1, "variables": {"A": {"categories": ["yes", "no"]}}})
TERMS = FrequencyTerms("benchmark", POLICY, {f"u{i}": SigningKey().public for i in range(3)}, 3)
QUESTION = Question((), (("A", 0),))
SPANS = spans_of((QUESTION,), TERMS.sizes)
SETTING = Setting(b"session", b"invitation", b"roster")


class Took(NamedTuple):
    """Seconds of one call: by the clock, and of all processors together."""

    clock: float
    cpu: float

    def times(self, factor):
        """Return the same for another number of calls."""
        return Took(self.clock * factor, self.cpu * factor)


def processor_seconds():
    """Return what this process and those that it has waited for have used."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def took(run, repeats=3, calls=1):
    """Return the best time of one call."""
    best = Took(float("inf"), float("inf"))
    for _ in range(repeats):
        clock, cpu = time.perf_counter(), processor_seconds()
        for _ in range(calls):
            run()
        best = Took(min(best.clock, time.perf_counter() - clock), min(best.cpu, processor_seconds() - cpu))
    return best.times(1 / calls)


def once(run):
    """Return what a call returns and what it took."""
    results = []
    time_taken = took(lambda: results.append(run()), repeats=1)
    return results[0], time_taken


def primitives():
    """Return the processor seconds of the operations that everything is made of."""
    secret, other = secp256k1.random_secret(), secp256k1.random_secret()
    point = secp256k1.multiply_generator(other)
    number, encoding = secret.reveal(), point.encode()
    many = [secp256k1.decode(encoding) for _ in range(20_000)]
    identity = SigningKey()
    signature = identity.sign("benchmark", encoding)
    return {
        "multiply": took(lambda: secp256k1.multiply(point, secret), 5, 400).cpu,
        "multiply the generator": took(lambda: secp256k1.multiply_generator(secret), 5, 400).cpu,
        "multiply in public": took(lambda: secp256k1.multiply_public(point, number), 5, 400).cpu,
        "decode": took(lambda: secp256k1.decode(encoding), 5, 2000).cpu,
        "add in a long sum": took(lambda: secp256k1.sum_points(many), 5).cpu / len(many),
        "verify a signature": took(
            lambda: verify_signature(identity.public, signature, "benchmark", encoding), 5, 400
        ).cpu,
    }


def additions(full, short=0):
    """Return the additions for a sum of points times scalars of 256 and of 128 bits, by the best window.

    Every point is added into a bucket in every window, and every bucket twice.
    """
    return min((256 * full + 128 * short) / w + 256 / w * 2**w for w in range(4, 16))


def pairs_of(numbers):
    """Return secret keys of stored numbers."""
    return [BallotKeys(secp256k1.secret(x), secp256k1.secret(y)) for x, y in numbers]


def cast_many(task):
    """Cast the votes of some users in a process of its own."""
    first, numbers, total = task
    X, Y = secp256k1.decode(total[:POINT]), secp256k1.decode(total[POINT:])
    votes = []
    for place, pair in enumerate(pairs_of(numbers), start=first):
        name = f"v{place}"
        booth = Booth(SPANS, PublicKeys((X,), (Y,)), {name: public_keys([pair])}, SETTING)
        keys = booth.keys[name]
        votes.append(
            (name, keys.X[0].encode() + keys.Y[0].encode(), booth.cast(name, [pair], [place % 3 == 0]))
        )
    return votes


def election(votes):
    """Return a booth with many one-bit votes, made on both cores."""
    numbers = [(1 + secrets.randbelow(2**250), 1 + secrets.randbelow(2**250)) for _ in range(votes)]
    x, y = (sum(column) for column in zip(*numbers, strict=True))
    total = public_keys(pairs_of([(x, y)]))
    encoded = total.X[0].encode() + total.Y[0].encode()
    step = 500
    tasks = [(at, numbers[at : at + step], encoded) for at in range(0, votes, step)]
    with ProcessPoolExecutor(CORES) as pool:
        cast = [vote for part in pool.map(cast_many, tasks) for vote in part]
    keys = {
        name: PublicKeys((secp256k1.decode(pair[:POINT]),), (secp256k1.decode(pair[POINT:]),))
        for name, pair, _ in cast
    }
    booth = Booth(SPANS, total, keys, SETTING)
    return booth, [(name, vote) for name, _, vote in cast]


def clients(prices, results):
    """Measure one user."""
    pair = BallotKeys.fresh(secp256k1)
    own = public_keys([pair])
    total = sum_of_keys([own, public_keys([BallotKeys.fresh(secp256k1)])])
    booth = Booth(SPANS, total, {"u0": own}, SETTING)

    def without_proof():
        for point in mask(1, pair, total.X[0], total.Y[0]):
            point.encode()

    mul, gen = prices["multiply"], prices["multiply the generator"]
    results.append(row("one-bit vote, no proof", took(without_proof, 5, 200), 2 * mul, 0.0002))
    proved = took(lambda: booth.cast("u0", [pair], [1]), 5, 100)
    # vote: 2; honest h: 1 and one of G; both branches: 1 and one of G each; the simulated one: 2 more
    results.append(row("one-bit vote with proof", proved, 7 * mul + 3 * gen, 0.001))
    posting = took(lambda: make_keys(1, SETTING, "u0"), 5, 100)
    results.append(row("a pair of keys with proofs of possession", posting, 4 * gen, None))


def miners(prices, results, votes):
    """Measure the miner; figures are for 100,000 votes, scaled if fewer were made."""
    booth, cast = election(votes)
    scale = TARGET / votes
    payloads = [vote for _, vote in cast]
    assert booth.frequencies(payloads) == [len(range(0, votes, 3))]
    decode, add = prices["decode"], prices["add in a long sum"]
    summed = took(lambda: booth.frequencies(payloads), 3).times(scale)
    results.append(row("sum of 100,000 votes, both cores", summed, 2 * TARGET * (decode + add), 1.0))
    bad, batched = once(lambda: booth.invalid(cast))
    assert bad == []
    # decoded: vote, commitments, and in another process the keys; added with short weights: six commitments,
    # with full ones: two keys and two points of the vote
    bound = TARGET * 10 * decode + TARGET / BATCH * additions(4 * BATCH, 6 * BATCH) * add
    results.append(row("100,000 proofs batched, both cores", batched.times(scale), bound, 12.0))


def rosters(prices, results, users=500, counts=20):
    """Measure what every user checks; figures are for the most that this mode allows."""
    posts = [(f"u{i}", make_keys(counts, SETTING, f"u{i}")[1]) for i in range(users)]
    bad, checking = once(
        lambda: find_rejected(
            posts, partial(keys_claim, counts=counts, setting=SETTING), workers=1, each=counts
        )
    )
    assert bad == []
    pairs = users * counts
    scale = 50_000 / pairs
    bound = 4 * pairs * prices["decode"] + additions(2 * pairs, 2 * pairs) * prices["add in a long sum"]
    results.append(row("a roster of 50,000 pairs, one core", checking.times(scale), scale * bound, None))


def mixes(prices, results, n):
    """Measure the mix of n records of one piece with two leaders, each on one core."""
    names = ["miner", "leader 0", "leader 1", *[f"r{i:06}" for i in range(n)]]
    keys = {name: SigningKey() for name in names}
    public = {name: key.public for name, key in keys.items()}
    leaders = {name: public[name] for name in names[1:3]}
    terms = MixTerms("s", public["miner"], leaders, {name: public[name] for name in names[3:]})
    miner = MixMiner(keys["miner"], terms)
    first, second = (Leader(name, keys[name], terms) for name in leaders)
    board = miner.key_board([miner.share(), first.share(), second.share()])
    first.take_key(board)
    second.take_key(board)
    people = [Respondent(name, keys[name], terms) for name in names[3:]]
    batch = miner.batch([person.submit(board, person.name.encode()) for person in people])
    mul, gen = prices["multiply"], prices["multiply the generator"]
    decode, add = prices["decode"], prices["add in a long sum"]
    _, reading = once(lambda: opened_batch(terms, first.key, batch))
    one, shuffling = once(lambda: first.shuffle(batch, MixBoard(()).encode()))
    two = second.shuffle(batch, MixBoard((one,)).encode())
    shuffles = miner.shuffle_board([one, two])
    ours, checking = once(lambda: first.endorse(batch, shuffles))
    signed = miner.endorsement_board([ours, second.endorse(batch, shuffles)])
    part, opening = once(lambda: first.open(signed))
    found = miner.collect(batch, shuffles, [part, second.open(signed)])
    assert found.records == tuple(name.encode() for name in names[3:])
    # of G: re-encryption, permutation, chain, its proof; one each of K, H, H_i, link and half an output
    bounds = (
        n * (prices["verify a signature"] + 3 * decode) + additions(n, n) * add,
        n * (4 * gen + 6 * mul),
        5 * n * decode + (3 * additions(n) + additions(4 * n, n)) * add,
        n * 2 * mul,
    )
    shuffling = Took(shuffling.clock - reading.clock, shuffling.cpu - reading.cpu)
    steps = {
        f"a leader checks {n:,} submissions": reading,
        f"a leader shuffles {n:,} records and proves it": shuffling,
        f"a leader checks another shuffle of {n:,}": checking,
        f"a leader decrypts {n:,} records in part": opening,
    }
    for (name, step), bound in zip(steps.items(), bounds, strict=True):
        results.append(row(name, step, bound, None))
    whole = Took(*[sum(column) for column in zip(*steps.values(), strict=True)])
    results.append(
        row(f"a leader in all, {n:,} records", whole, sum(bounds), None, estimate=MIXED * n / 10_000)
    )


def row(name, taken, bound, limit, estimate=None):
    """Return one result."""
    ratio = taken.cpu / bound
    return {
        "name": name,
        "clock": taken.clock,
        "cpu": taken.cpu,
        "bound": bound,
        "ratio": ratio,
        "limit": limit,
        "missed": limit is not None and taken.clock > limit,
        "estimate": estimate,
    }


def shown(item):
    """Return one result as a line."""
    limit = "" if item["limit"] is None else f"{item['limit']:g}"
    estimate = "" if item["estimate"] is None else f"   estimated: {item['estimate']:g}"
    return (
        f"{item['name']:<46}{item['clock']:>11.5f}{limit:>9}{item['cpu']:>11.5f}{item['bound']:>11.5f}"
        f"{item['ratio']:>7.2f}×{estimate}{'   LIMIT MISSED' if item['missed'] else ''}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--votes", type=int, default=TARGET)
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    prices = primitives()
    for name, price in prices.items():
        print(f"{name:<48}{1e6 * price:>10.2f} µs")
    results = []
    clients(prices, results)
    rosters(prices, results)
    mixes(prices, results, options.rows)
    miners(prices, results, options.votes)
    print(f"\n{'seconds':<46}{'clock':>11}{'limit':>9}{'processor':>11}{'bound':>11}{'ratio':>8}")
    for item in results:
        print(shown(item))
    missed = [item["name"] for item in results if item["missed"]]
    print(f"\nlimits missed: {'; '.join(missed) or 'none'}")
    keep(options.json, {"votes": options.votes, "primitives": prices, "results": results})


if __name__ == "__main__":
    main()
