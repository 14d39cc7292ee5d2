"""Secure aggregation: what a round costs a user and the server, and how both grow with the number of users.

Every user is an object of its own and every message passes as bytes. Users run in one process and share the
verification of signatures and one end of each key agreement, so a device's own time is measured apart, on
one user that shares nothing. Times are processor seconds.

    python -m benchmarks.aggregation [--json FILE]
"""

import time

import numpy as np
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.protocols.aggregation.batch import Batch, Table
from masquerade.protocols.aggregation.messages import Kind
from masquerade.protocols.aggregation.parameters import Parameters
from masquerade.protocols.aggregation.population import Population
from masquerade.protocols.aggregation.work import Work

COUNTS = 1000
ROUNDS = ((1_000, "semi-honest"), (1_000, "malicious"), (3_000, "malicious"), (10_000, "malicious"))
TARGET = {"server_seconds": 30, "sent": 16_000, "received": 24_000}  # 10,000 users, 10% collude, 5% drop out


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


def measure(users, server):
    """Run one round of a thousand counts in which one user in twenty leaves after having sent shares."""
    generator = np.random.default_rng(users)
    codes = {"cell": generator.integers(0, COUNTS, users)}
    policy = mq.Policy.clear(mq.Schema({"cell": list(range(COUNTS))}))
    people = Population(codes, policy, Parameters.of(users, server=server))
    leaving = generator.choice(users, users // 20, replace=False).tolist()
    people.leaving = dict.fromkeys(leaving, Kind.DELIVERY)
    staying = np.setdiff1d(np.arange(users), leaving)
    alone = Timed(people.users[staying[0]])
    people.users[staying[0]] = alone
    outcome = people.ask(Batch((Table((0,)),), people.terms.sizes))
    assert np.array_equal(outcome.counts, np.bincount(codes["cell"][staying], minlength=COUNTS))
    cost, parameters = people.cost, people.terms.parameters
    return {
        "users": users,
        "server": server,
        "neighbours": parameters.neighbours,
        "threshold": parameters.threshold,
        "server_seconds": cost.server_seconds,
        "users_seconds": cost.user_seconds,
        "device_milliseconds": alone.seconds * 1e3,
        "sent": float(cost.sent[staying].mean()),
        "most_sent": int(cost.sent.max()),
        "received": float(cost.received[staying].mean()),
        "most_received": int(cost.received.max()),
    }


def main():
    target = json_option(__doc__)
    results = []
    head = f"{'users':>7} {'server':<12}{'k/t':>8}{'server s':>10}{'users s':>9}"
    print(f"{head}{'device ms':>11}{'sent':>8}{'received':>10}")
    for users, server in ROUNDS:
        row = measure(users, server)
        results.append(row)
        size = f"{row['neighbours']}/{row['threshold']}"
        print(
            f"{users:>7,} {server:<12}{size:>8}{row['server_seconds']:>10.2f}{row['users_seconds']:>9.1f}"
            f"{row['device_milliseconds']:>11.1f}{row['sent']:>8,.0f}{row['received']:>10,.0f}",
            flush=True,
        )
    largest = results[-1]
    missed = {name: largest[name] for name, bound in TARGET.items() if largest[name] >= bound}
    print(f"10,000 users, {COUNTS:,} counts: {'missed ' + str(missed) if missed else 'within the bounds'}")
    keep(target, results)


if __name__ == "__main__":
    main()
