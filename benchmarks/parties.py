"""What protocols between parties cost, all roles in one process and every message as bytes.

python -m benchmarks.parties [--json FILE]
"""

import os
import time

import numpy as np
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.disguising.reports import fresh_draws
from masquerade.kernels.keystream import Keystream
from masquerade.protocols.linking.joiner import Joiner
from masquerade.protocols.linking.party import LinkingParty
from masquerade.protocols.pooling.masked import MaskedSum, PoolingParty
from masquerade.protocols.pooling.tally import PooledTally
from masquerade.protocols.products.helped import HelpedProducts
from masquerade.protocols.products.helper import Helper
from masquerade.protocols.products.party import ProductParty
from masquerade.protocols.products.tally import RevealedVerticalCounts
from masquerade.protocols.products.twoparty import KeyOwner, PaillierProducts
from masquerade.protocols.transport import LocalTransport
from masquerade.protocols.vertical.miner import Miner
from masquerade.protocols.vertical.site import Held, Site
from masquerade.sources.records import Records

ROWS, KEYS, FEW, MINED, COLUMNS = 1_000_000, 100_000, 200, 2_000_000, 5
BINARY = mq.Schema({name: [0, 1] for name in "abc"})


class Counted(LocalTransport):
    """A transport that counts the bytes it carries."""

    carried = 0

    def exchange(self, party, message):
        reply = super().exchange(party, message)
        self.carried += len(message) + len(reply)
        return reply


def identities(names):
    keys = {name: SigningKey() for name in names}
    return keys, {name: key.public for name, key in keys.items()}


def timed(name, run):
    """Return seconds by the clock and of the processor (all roles together), and what was carried."""
    start, worked = time.perf_counter(), time.process_time()
    carried = run()
    seconds, worked = time.perf_counter() - start, time.process_time() - worked
    print(f"{name:<78}{seconds:>8.2f} s{worked:>8.2f} s cpu{carried / 1e6:>9.1f} MB", flush=True)
    return {"name": name, "seconds": seconds, "cpu_seconds": worked, "megabytes": carried / 1e6}


def scalar_products():
    """Time tables over two and over three parties, from a session that has joined."""
    generator = np.random.default_rng(1)
    codes = {name: generator.integers(0, 2, ROWS, dtype=np.uint8) for name in BINARY}
    owners = {"x": ["a"], "y": ["b"], "z": ["c"]}
    keys, public = identities((*owners, "helper"))
    shared = {"schema": BINARY, "owners": owners}
    roles = {
        name: ProductParty(name, {v: codes[v] for v in own}, keys[name], public, helper="helper", **shared)
        for name, own in owners.items()
    }
    roles["helper"] = Helper("helper", keys["helper"], public, n=ROWS, **shared)
    transport = Counted({name: role.receive for name, role in roles.items()})
    source = RevealedVerticalCounts(HelpedProducts(owners, "helper", transport, BINARY, ROWS))

    def ask(names):
        before = transport.carried
        (table,) = source.answer([mq.Query(by=tuple(names))])
        assert table.values[(1,) * len(names)] == np.all([codes[name] for name in names], axis=0).sum()
        return transport.carried - before

    yield timed(f"scalar product, two columns of {ROWS:,} rows, helper", lambda: ask("ab"))
    yield timed(f"sum of products of three parties' columns of {ROWS:,} rows, helper", lambda: ask("abc"))


def paillier():
    """Time the first question (the column is encrypted) and the next one (it is there)."""
    generator = np.random.default_rng(2)
    codes = {name: generator.integers(0, 2, FEW, dtype=np.uint8) for name in BINARY}
    owners = {"x": ["a"], "y": ["b", "c"]}
    owner = KeyOwner("x", {"a": codes["a"]}, schema=BINARY, owners=owners)
    transport = Counted({"x": owner.receive})
    own = {name: codes[name] for name in "bc"}
    source = RevealedVerticalCounts(PaillierProducts("y", own, transport, schema=BINARY, owners=owners))

    def ask(names):
        before = transport.carried
        source.answer([mq.Query(by=tuple(names))])
        return transport.carried - before

    yield timed(f"scalar product, two columns of {FEW:,} rows, Paillier 3072 bits", lambda: ask("ab"))
    yield timed("the next one with the same encrypted column", lambda: ask("ac"))


def linking(parties):
    sets = {f"party {i}": [f"person {k + i * KEYS // 10}" for k in range(KEYS)] for i in range(parties)}
    roles = {name: LinkingParty(name, keys) for name, keys in sets.items()}
    transport = Counted({name: role.receive for name, role in roles.items()})

    def run():
        assert Joiner(tuple(sets), transport).link() == KEYS - (parties - 1) * KEYS // 10
        return transport.carried

    yield timed(f"linking {KEYS:,} keys of each of {parties} parties", run)


def pooling():
    generator = np.random.default_rng(3)
    names = ("a", "b", "c")
    frames = [{name: generator.integers(0, 2, ROWS, dtype=np.uint8) for name in BINARY} for _ in names]
    keys, public = identities(names)
    policy = mq.Policy.clear(BINARY)
    roles = {
        name: PoolingParty(name, Records(codes, policy), keys[name], public)
        for name, codes in zip(names, frames, strict=True)
    }
    transport = Counted({name: role.receive for name, role in roles.items()})
    source = PooledTally(MaskedSum(names, transport, policy), policy)
    queries = [mq.Query(by=("a", "b", "c")), *(mq.Query(by=name) for name in "abc")] * 25

    def run():
        before = transport.carried
        for query in queries:
            source.answer([query])
        return transport.carried - before

    yield timed(f"100 rounds of pooled tables, 3 parties of {ROWS:,} records", run)


def mining():
    generator = np.random.default_rng(4)
    tags = np.frombuffer(os.urandom(16 * MINED), dtype=np.uint8).reshape(-1, 16)
    session = bytes(16)
    sites = {}
    for party in ("x", "y", "z"):
        names = [f"{party}{i}" for i in range(COLUMNS)]
        policy = mq.Policy.from_dict(
            {
                "masquerade": 1,
                "variables": {
                    n: {"categories": [0, 1, 2, 3, 4], "channel": {"kind": "symmetric", "p": "0.3"}}
                    for n in names
                },
            }
        )
        order = generator.permutation(MINED)
        codes = {name: generator.integers(0, 5, MINED, dtype=np.uint8) for name in names}
        sites[party] = Site(party, policy, [Held(codes, tags[order], fresh_draws(Keystream()))], session)
    transport = Counted({party: site.receive for party, site in sites.items()})

    def run():
        source = Miner({party: site.policy.id for party, site in sites.items()}, session).records(transport)
        source.answer([mq.Query(by=("x0", "y0", "z0"))])
        return transport.carried

    yield timed(
        f"Model II: disguise, send, join and count {MINED:,} rows × {COLUMNS} columns × 3 parties", run
    )


def main():
    path = json_option(__doc__)
    parts = (scalar_products, pooling, mining, paillier, lambda: linking(2), lambda: linking(3))
    keep(path, [row for part in parts for row in part()])


if __name__ == "__main__":
    main()
