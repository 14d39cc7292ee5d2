"""Linking by key beside its own scalar multiplications, and beside openmined-psi in its own environment.

Two parties of 100,000 keys, who have nine tenths in common, link with every step signed; every message passes
as bytes. Four multiplications a key cannot be avoided: each side masks its own set and the other's. They are
timed alone, on the same machine and all its cores, before and after. What a party holds is measured in
processes of their own: it masks its set and another's of the same size, and takes its own back; replies that
it may be asked for again lie in its folder, as those of a party's service do.

python -m benchmarks.linking [--keys N] [--psi PYTHON] [--memory N ...] [--json FILE]

`--psi` names the Python of an environment that has openmined-psi; without it that line is left out.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from benchmarks.timing import keep

from masquerade.core.util.scratch import Scratch
from masquerade.crypto.batch_mac import Texts
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.point_sets import hash_to_points, mask_points
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.linkage.psi import Joiner, LinkingOffer, LinkingParty, MaskedPoints, ReturnedPoints
from masquerade.protocols.linkage.record_keys import KeyColumn
from masquerade.protocols.wire.session import LocalTransport

PEER = """
import json, sys, time
import private_set_intersection.python as psi
count = int(sys.argv[1])
ours = [f"person {k}" for k in range(count)]
theirs = [f"person {k + count // 10}" for k in range(count)]
start, worked = time.perf_counter(), time.process_time()
server, client = psi.server.CreateWithNewKey(True), psi.client.CreateWithNewKey(True)
setup = server.CreateSetupMessage(0.0, count, theirs, psi.DataStructure.RAW)
response = server.ProcessRequest(client.CreateRequest(ours))
found = client.GetIntersection(setup, response)
print(json.dumps({"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - worked,
                  "common": len(found)}))
"""


def timed(run):
    """Return seconds by the clock and of the processor."""
    start, worked = time.perf_counter(), time.process_time()
    run()
    return {"seconds": time.perf_counter() - start, "cpu_seconds": time.process_time() - worked}


def columns(count):
    """Return the keys of two parties, nine tenths of them common."""
    people = [f"person {k}" for k in range(count + count // 10)]
    return KeyColumn(pa.array(people[:count])), KeyColumn(pa.array(people[count // 10 :]))


def multiplications(count):
    """Time as many multiplications as two parties of so many keys need, two a key and side."""
    points = hash_to_points(Texts.of(f"{k}".encode() for k in range(count)), b"benchmark")
    secret = ristretto255.random_secret()
    return timed(lambda: [mask_points(points, secret) for _ in range(4)])


def linked(count):
    """Time two parties who link, with identities."""
    sets = dict(zip(("clinic", "registry"), columns(count), strict=True))
    identities = {name: SigningKey() for name in sets}
    public = {name: key.public for name, key in identities.items()}
    common = []

    def run():
        parties = {
            name: LinkingParty(name, keys, roster=tuple(sets), identity=identities[name], peers=public)
            for name, keys in sets.items()
        }
        transport = LocalTransport({name: party.receive for name, party in parties.items()})
        common.append(Joiner(tuple(sets), transport, peers=public).link())

    found = timed(run)
    assert common == [count - count // 10]
    return found


def peer(python, count):
    """Time openmined-psi on the same sets, in the environment of another Python."""
    command = [python, "-c", PEER, str(count)]
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603
    assert found.pop("common") == count - count // 10
    return found


def held(count):
    """Be a party, and print the memory that it took before and at most."""
    most = ["VmHWM", "VmRSS"]

    def memory():
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        found = dict(line.split(":", 1) for line in lines)
        return [int(found[name].split()[0]) / 1024 for name in most]

    session, roster = bytes(16), ("clinic", "registry")
    small = LinkingParty("clinic", KeyColumn(pa.array(["a"])), roster=roster)
    small.receive(LinkingOffer(session, roster, 10).encode())  # what is compiled once is there
    keys = KeyColumn(pa.array(np.arange(count)))
    _, start = memory()
    with tempfile.TemporaryDirectory() as folder:
        party = LinkingParty("clinic", keys, roster=roster, most=count, scratch=Scratch(Path(folder)))
        sent, given = Path(folder) / "own", Path(folder) / "other"  # a party holds no message of others
        own = MaskedPoints.decode(party.receive(LinkingOffer(session, roster, count).encode()))
        sent.write_bytes(ReturnedPoints(session, own.points).encode())
        del own
        other = hash_to_points(
            Texts(np.arange(count).view(np.uint8), np.arange(count + 1) * 8), b"another"
        ).tobytes()
        given.write_bytes(MaskedPoints(session, "registry", other).encode())
        del other
        party.receive(given.read_bytes())
        party.receive(sent.read_bytes())
    assert len(party.tags) == count
    print(json.dumps({"keys": count, "mib_at_start": round(start, 1), "most_mib": round(memory()[0], 1)}))


def main():
    """Measure alternately, and say how far linking is from its multiplications."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--psi")
    parser.add_argument("--memory", type=int, nargs="*", default=[100_000, 1_000_000])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--held", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.held is not None:
        held(given.held)
        return
    multiplications(100), linked(100)  # compiled before the clock starts
    rounds = [(multiplications(given.keys), linked(given.keys)) for _ in range(given.rounds)]
    least = {
        unit: [min(one[place][unit] for one in rounds) for place in (0, 1)]
        for unit in ("seconds", "cpu_seconds")
    }
    result = {
        "keys_of_each_of_two_parties": given.keys,
        "cores": os.cpu_count(),
        "multiplications": {unit: round(values[0], 2) for unit, values in least.items()},
        "linking": {unit: round(values[1], 2) for unit, values in least.items()},
        "ratio_by_the_clock": round(least["seconds"][1] / least["seconds"][0], 3),
        "ratio_of_processor_time": round(least["cpu_seconds"][1] / least["cpu_seconds"][0], 3),
    }
    if given.psi:
        result["openmined_psi"] = {key: round(it, 2) for key, it in peer(given.psi, given.keys).items()}
    print(result, flush=True)
    parties = []
    for count in given.memory:
        command = [sys.executable, "-m", "benchmarks.linking", "--held", str(count)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)  # noqa: S603
        parties.append(json.loads(done.stdout))
        print(parties[-1], flush=True)
    if len(parties) > 1:
        less, more = parties[0], parties[-1]
        grown = (more["most_mib"] - less["most_mib"]) * 2**20 / (more["keys"] - less["keys"])
        result["bytes_of_a_further_key"] = round(grown, 1)
    keep(given.json, {**result, "memory_of_a_party": parties})


if __name__ == "__main__":
    main()
