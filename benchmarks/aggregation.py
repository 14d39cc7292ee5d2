"""Secure aggregation: what a round costs a user and the server, and how both grow with the number of users.

Run: python -m benchmarks.aggregation [--json FILE]

Every user is an object of its own and every message passes as bytes. Users run in one process and share the
verification of signatures and one end of each key agreement, so a device's own time is measured apart, on
one user that shares nothing. Times are processor seconds. A bound is the number of signatures, agreements,
shares and masks that a role must make, check or open, times what one of them takes in the same run; that of
bytes is the most that a user of these parameters can send or receive.
"""

import os
import time

import numpy as np
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.crypto import shamir
from masquerade.crypto.keys import AgreementKey, SigningKey, verify_signature
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation import masks
from masquerade.protocols.secure_aggregation.agreement import Parameters, QuestionBatch
from masquerade.protocols.secure_aggregation.message_sizes import most_traffic
from masquerade.protocols.secure_aggregation.messages import Delivery, Work
from masquerade.simulation.aggregation import Aggregation

COUNTS = 1000
ROUNDS = ((1_000, "semi-honest"), (1_000, "malicious"), (3_000, "malicious"), (10_000, "malicious"))
LARGEST = ROUNDS[-1]  # 10% collude, 5% drop out: the round that the limits are for
LIMITS = {"server, seconds in all": 30, "bytes sent by a user": 16_000, "bytes received by a user": 24_000}


class Timed:
    """A user that shares nothing with others, and how long it took."""

    def __init__(self, user):
        self.user, self.seconds = user, 0.0
        user.work = Work()

    def receive(self, message):
        start = time.process_time()
        try:
            return self.user.receive(message)
        finally:
            self.seconds += time.process_time() - start


def cost_of(run, calls=200):
    """Return the processor seconds of one call, best of five."""
    best = float("inf")
    for _ in range(5):
        start = time.process_time()
        for _ in range(calls):
            run()
        best = min(best, time.process_time() - start)
    return best / calls


def primitives(parameters, width):
    """Return the processor seconds of the operations that everything is made of."""
    identity, one, two, seed = SigningKey(), AgreementKey(), AgreementKey(), os.urandom(shamir.SEED_SIZE)
    signature, key = identity.sign("benchmark", seed), os.urandom(32)
    k, t = parameters.neighbours, parameters.threshold
    shares = dict(enumerate(map(shamir.decode_share, shamir.deal(seed, t, range(1, k + 1))), start=1))
    return {
        "sign": cost_of(lambda: identity.sign("benchmark", seed)),
        "verify a signature": cost_of(
            lambda: verify_signature(identity.public, signature, "benchmark", seed)
        ),
        "make a pair of keys": cost_of(AgreementKey),
        "agree on a key": cost_of(lambda: one.agree(two.public, "benchmark")),
        "deal a seed": cost_of(lambda: shamir.deal(seed, t, range(1, k + 1)), 20),
        "open a seed": cost_of(lambda: shamir.open_seed(shares, t)),
        "expand a mask": cost_of(lambda: masks.mask(key, COUNTS, width)),
    }


def bounds(parameters, prices, dropped):
    """Return the seconds that server and device cannot do without."""
    n, k = parameters.users, parameters.neighbours
    staying = n - dropped
    verify, agree, mask = (prices[name] for name in ("verify a signature", "agree on a key", "expand a mask"))
    seeds_opened = n * prices["open a seed"]
    drawing = 0 if parameters.complete else parameters.committee
    # who drops out has advertised and dealt; who stays also votes and unmasks, and witnesses sign the list
    server = verify * (2 * n + 2 * staying + parameters.quorum + 2 * drawing) + 2 * n * agree
    server += seeds_opened + staying * mask
    server += dropped * (prices["make a pair of keys"] + k * staying / n * (agree + mask))
    device = 4 * prices["sign"] + 2 * prices["make a pair of keys"] + 2 * prices["deal a seed"]
    device += verify * (k + drawing + parameters.quorum) + 2 * k * agree + (k + 1) * mask
    return server, device


def measure(users, server):
    """Run one round of a thousand counts in which one user in twenty leaves after having sent shares."""
    generator = np.random.default_rng(users)
    codes = {"cell": generator.integers(0, COUNTS, users)}
    policy = mq.Policy.clear(mq.Schema({"cell": list(range(COUNTS))}))
    people = Aggregation(codes, policy, Parameters.of(users, server=server))
    leaving = generator.choice(users, users // 20, replace=False).tolist()
    people.leaving = dict.fromkeys(leaving, Delivery)
    staying = np.setdiff1d(np.arange(users), leaving)
    alone = Timed(people.users[staying[0]])
    people.users[staying[0]] = alone
    batch = QuestionBatch((Question(("cell",)),), people.terms.sizes)
    outcome = people.ask(batch)
    assert np.array_equal(outcome.counts, np.bincount(codes["cell"][staying], minlength=COUNTS))
    meter, parameters = people.meter, people.terms.parameters
    prices = primitives(parameters, people.terms.width)
    server_bound, device_bound = bounds(parameters, prices, len(leaving))
    most = most_traffic(parameters, batch)
    found = {
        "server, seconds in all": (meter.roles["server"], server_bound),
        "device, milliseconds": (1e3 * alone.seconds, 1e3 * device_bound),
        "bytes sent by a user": (int(meter.sent.max()), most.sent),
        "bytes received by a user": (int(meter.received.max()), most.received),
    }
    return {
        "users": users,
        "server": server,
        "neighbours": parameters.neighbours,
        "threshold": parameters.threshold,
        "users_seconds": float(meter.seconds.sum()),
        "mean_sent": float(meter.sent[staying].mean()),
        "mean_received": float(meter.received[staying].mean()),
        "primitives": prices,
        "results": [
            {
                "name": name,
                "cost": value,
                "bound": bound,
                "ratio": value / bound,
                "limit": LIMITS.get(name) if (users, server) == LARGEST else None,
            }
            for name, (value, bound) in found.items()
        ],
    }


def main():
    target = json_option(__doc__)
    rounds = []
    for users, server in ROUNDS:
        found = measure(users, server)
        rounds.append(found)
        print(
            f"\n{users:,} users, {COUNTS:,} counts, {server} server, "
            f"{found['neighbours']} neighbours, {found['threshold']} open; all users together: "
            f"{found['users_seconds']:.1f} s"
        )
        print(f"{'':<28}{'cost':>12}{'bound':>12}{'ratio':>9}{'limit':>10}")
        for row in found["results"]:
            limit = "" if row["limit"] is None else f"{row['limit']:,}"
            print(
                f"{row['name']:<28}{row['cost']:>12,.1f}{row['bound']:>12,.1f}{row['ratio']:>8.2f}×{limit:>10}"
            )
    small, large = rounds[1], rounds[-1]
    device = [
        next(r for r in one["results"] if r["name"].startswith("device"))["cost"] for one in (small, large)
    ]
    print(
        f"\nten times the users: device {device[1] / device[0]:.2f}×, "
        f"neighbours {large['neighbours'] / small['neighbours']:.2f}×"
    )
    keep(target, rounds)


if __name__ == "__main__":
    main()
