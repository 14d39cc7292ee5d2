"""What protocols between parties cost, every message as bytes; a miner is alone in its process.

python -m benchmarks.parties [--json FILE]
"""

import multiprocessing as mp
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import fresh_draws
from masquerade.protocols.linkage.pseudonyms import keyed_pseudonyms
from masquerade.protocols.linkage.psi import Joiner, LinkingParty
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.vertical.disguised_cells import CellRequest, ClearCells, Site
from masquerade.protocols.vertical.paillier_products import KeyOwner, PaillierProducts
from masquerade.protocols.vertical.scalar_products import HelpedProducts, ProductHelper, ProductParty
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.parties.joined import JoiningMiner
from masquerade.sources.parties.pooled import PooledTally, pooling_party
from masquerade.sources.parties.products import RevealedVerticalCounts
from masquerade.sources.records import Records

ROWS, KEYS, FEW = 1_000_000, 100_000, 200
FEWER_MINED, MINED, COLUMNS = 1_000_000, 10_000_000, 5
SESSION = bytes(16)
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
    roles["helper"] = ProductHelper("helper", keys["helper"], public, n=ROWS, **shared)
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
    identity, public = identities(sets)
    roles = {
        name: LinkingParty(name, keys, roster=tuple(sets), identity=identity[name], peers=public)
        for name, keys in sets.items()
    }
    transport = Counted({name: role.receive for name, role in roles.items()})

    def run():
        assert Joiner(tuple(sets), transport, peers=public).link() == KEYS - (parties - 1) * KEYS // 10
        return transport.carried

    yield timed(f"linking {KEYS:,} keys of each of {parties} parties, every step signed", run)


def keyed():
    names = [f"person {k}" for k in range(ROWS)]

    def run():
        return keyed_pseudonyms(names, bytes(32), SESSION).nbytes

    yield timed(f"pseudonyms of {ROWS:,} keys by a shared secret", run)


def pooling():
    generator = np.random.default_rng(3)
    names = ("a", "b", "c")
    frames = [{name: generator.integers(0, 2, ROWS, dtype=np.uint8) for name in BINARY} for _ in names]
    keys, public = identities(names)
    policy = mq.Policy.clear(BINARY)
    roles = {
        name: pooling_party(name, Records(codes, policy), keys[name], public)
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


class Piped:
    """A transport to parties in another process."""

    def __init__(self, pipe):
        self.pipe, self.carried = pipe, 0

    def exchange(self, party, message):
        self.pipe.send_bytes(party.encode() + b"\n" + message)
        reply = self.pipe.recv_bytes()
        self.carried += len(message) + len(reply)
        return reply


def resident():
    """Return the most memory that this process itself has had, in megabytes (not what its parent had)."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmHWM:"))) / 1024


def mine(pipe, agreed):
    """Be a miner, alone in a process: join the parties' records part by part, count, tell what it took."""
    Records({"a": np.zeros(10, np.uint8)}, mq.Policy.clear(mq.Schema({"a": [0, 1]}))).answer(
        [mq.Query(by="a")]
    )
    transport, at_start = Piped(pipe), resident()
    with tempfile.TemporaryDirectory() as folder:
        start, worked = time.perf_counter(), time.process_time()
        source = JoiningMiner(agreed, SESSION).records(transport, folder)
        joined, join_peak = time.perf_counter() - start, resident()
        (table,) = source.answer([mq.Query(by=("x0", "y0", "z0"))])
        seconds, worked = time.perf_counter() - start, time.process_time() - worked
        assert abs(table.total - source.n) < 1
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    pipe.send_bytes(b"")
    pipe.send(
        {
            "seconds": seconds,
            "seconds_to_join": joined,
            "cpu_seconds": worked,
            "megabytes": transport.carried / 1e6,
            "megabytes_on_disk": size / 1e6,
            "peak_megabytes_at_start": at_start,
            "peak_megabytes_joining": join_peak,
            "peak_megabytes": resident(),
            "counted_in": type(source).__name__,
        }
    )


def mined_sites(rows):
    """Return three sites with the same records in different orders, and the ids of their policies."""
    generator = np.random.default_rng(4)
    tags = np.frombuffer(os.urandom(16 * rows), dtype=np.uint8).reshape(-1, 16)
    sites = {}
    for party in ("x", "y", "z"):
        channel = {"categories": [0, 1, 2, 3, 4], "channel": {"kind": "symmetric", "p": "0.3"}}
        names = [f"{party}{i}" for i in range(COLUMNS)]
        policy = mq.Policy.from_dict({"masquerade": 1, "variables": dict.fromkeys(names, channel)})
        codes = {name: generator.integers(0, 5, rows, dtype=np.uint8) for name in names}
        held = ClearCells(codes, tags[generator.permutation(rows)], fresh_draws(Keystream()))
        sites[party] = Site(party, policy, [held], SESSION)
    return sites, {party: site.policy.id for party, site in sites.items()}


def mining(rows):
    """Time a miner in a process of its own; its parties have drawn and sorted before the clock starts."""
    sites, agreed = mined_sites(rows)
    worked = time.process_time()
    for site in sites.values():
        site.receive(CellRequest(SESSION, "miner", (), 0, 1000).encode())
    preparing = time.process_time() - worked
    here, there = mp.get_context("spawn").Pipe()
    process = mp.get_context("spawn").Process(target=mine, args=(there, agreed))
    process.start()
    worked = time.process_time()
    while message := here.recv_bytes():
        party, _, request = message.partition(b"\n")
        here.send_bytes(sites[party.decode()].receive(request))
    serving, found = time.process_time() - worked, here.recv()
    process.join()
    name = f"Model II: send, join and count {rows:,} rows × {COLUMNS} columns × 3 parties"
    print(
        f"{name:<78}{found['seconds']:>8.2f} s{found['cpu_seconds']:>8.2f} s cpu{found['megabytes']:>9.1f} MB"
    )
    memory = [found[key] for key in ("peak_megabytes_at_start", "peak_megabytes_joining", "peak_megabytes")]
    print("  memory at start, joining, counting: " + ", ".join(f"{m:.0f} MB" for m in memory), flush=True)
    yield {
        "name": name,
        **found,
        "cpu_seconds_of_parties_to_draw_and_sort": preparing,
        "cpu_seconds_of_parties_to_send": serving,
    }


def main():
    path = json_option(__doc__)
    parts = (
        scalar_products,
        lambda: linking(2),
        lambda: mining(FEWER_MINED),
        lambda: mining(MINED),
        pooling,
        paillier,
        lambda: linking(3),
        keyed,
    )
    rows = [row for part in parts for row in part()]
    less, more = (row["peak_megabytes"] for row in rows if "peak_megabytes" in row)
    print(f"{MINED:,} rows took {more / less:.2f} times the memory of {FEWER_MINED:,}")
    keep(path, rows)


if __name__ == "__main__":
    main()
