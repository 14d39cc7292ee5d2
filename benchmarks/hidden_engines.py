"""One search on shares by several engines: owners and a helper, and three parties without one (MPyC, SPU).

K2 over asia's eight variables, at most two parents, the same program on every engine. The owners and the
helper run in one process, one after the other; MPyC's and SPU's parties are three processes of this machine.
Without MPyC (``masquerade[mpyc]``) it is left out, and so is SPU, which cannot share an environment with
NumPy 2, unless `MASQUERADE_SPU_PYTHON` names the Python of an environment that has it.

Bytes are what parties sent, the mean of three (with a helper: and what it dealt). Rounds follow one another:
each engine counts its own (`cost`), the most of any party; SPU's are the messages that a party waited for.
Seconds begin when the parties have met; `start` is how long that took. Seconds of the processor are those of
all processes, their start included.

python -m benchmarks.hidden_engines [--n N] [--json FILE]
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from benchmarks.spu_engine import SpuEngine
from benchmarks.timing import keep

import masquerade as mq
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.protocols.mpc import HiddenColumns, MpycEngine, Search, parents, run_alone
from masquerade.simulation import hidden_structure
from masquerade.sources.records import Records

PARTIES = ("north", "south", "registry")
MAX_PARENTS, SEED = 2, 24
NO_TWO = "of three parties no two collude; all follow the program; no helper"


def task(n):
    """Return records of asia's variables, their schema, an order, and who holds which of three."""
    network = mq.data.network("asia")
    names = tuple(network.schema)
    owners = {party: names[place::3] for place, party in enumerate(PARTIES)}
    return network.sample_codes(n, SEED), network.schema, tuple(network.structure), owners


def spent():
    """Return the seconds of the processor of this process and of those it started that have ended."""
    return sum(os.times()[:4])


def searched(engine, n):
    """Return what one party of an engine with a network of its own finds, and what it took."""
    codes, schema, order, owners = task(n)
    holder = {name: owner for owner, names in owners.items() for name in names}
    own = {name: np.asarray(codes[name]) for name in owners[engine.name]}
    columns = HiddenColumns({name: len(schema[name]) for name in schema}, holder, own, n)
    start = time.perf_counter()
    search = Search.in_order(order, MAX_PARENTS)
    found = run_alone(parents(engine, columns, search, ScoreTables.of("k2", n)))
    seconds = time.perf_counter() - start
    return {"parents": found, "seconds": seconds, "rounds": engine.cost.rounds, "bytes": engine.cost.sent}


def row(engine, told, start):
    """Return what three parties tell as one line of the table; they have to agree."""
    if any(one["parents"] != told[0]["parents"] for one in told):
        raise RuntimeError("The parties found different structures.")
    return {
        "engine": engine,
        "parents": told[0]["parents"],
        "seconds": round(max(one["seconds"] for one in told), 2),
        "start": round(start, 2),
        "bytes_sent_by_a_party": sum(one["bytes"] for one in told) // len(told),
        "rounds": max(one["rounds"] for one in told),
        "trust": NO_TWO,
    }


def party(n):
    """Be one of MPyC's parties, and print what was found and what it took."""
    begun = time.perf_counter()
    from mpyc.runtime import mpc  # noqa: PLC0415  (reads the arguments of the process, and need not be there)

    mpc.run(mpc.start())
    start = time.perf_counter() - begun
    found = searched(MpycEngine(mpc, PARTIES), n)
    mpc.run(mpc.shutdown())
    print(json.dumps({**found, "start": start}))


def free_ports(count):
    """Return ports that nobody listens at, as far as one can tell."""
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


def mpyc_parties(module, *arguments, seconds=3600):
    """Run a module as three parties of MPyC, and return what each printed last, read as JSON."""
    command = [sys.executable, "-m", module, *arguments]
    ports = free_ports(len(PARTIES))
    command += [word for port in ports for word in ("-P", f"127.0.0.1:{port}")]
    running = [
        subprocess.Popen([*command, f"-I{place}"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # noqa: S603
        for place in range(len(PARTIES))
    ]
    try:
        told = [process.communicate(timeout=seconds)[0] for process in running]
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return [json.loads(one.decode().strip().splitlines()[-1]) for one in told]


def spu_parties(names, work, python=None, seconds=3600):
    """Let three parties of SPU, processes of their own, do what a function does with an engine."""
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip(names, free_ports(len(names)), strict=True)}

    def one(name):
        with SpuEngine(name, addresses, python=python, seconds=seconds) as engine:
            return work(engine)

    with ThreadPoolExecutor(len(names)) as pool:
        return list(pool.map(one, names))


def by_mpyc(n):
    """Return what three processes of MPyC found, and what it took; None where MPyC is not installed."""
    if find_spec("mpyc") is None:
        return None
    told = mpyc_parties("benchmarks.hidden_engines", "--party", str(n))
    return row("MPyC, three processes", told, max(one["start"] for one in told))


def by_spu(n):
    """Return what SPU's processes found, and what it took; None where no environment is named that has it."""
    if "MASQUERADE_SPU_PYTHON" not in os.environ:
        return None
    begun = time.perf_counter()

    def work(engine):
        start = time.perf_counter() - begun
        return {**searched(engine, n), "start": start, "version": engine.version}

    told = spu_parties(PARTIES, work)
    name = f"SPU {told[0]['version']} (ABY3), three processes"
    return row(name, told, max(one["start"] for one in told))


def by_helper(n, owners=PARTIES):
    """Return what owners and a helper found in one process, and what it took."""
    codes, schema, order, held = task(n)
    found = hidden_structure(codes, schema, held, order, max_parents=MAX_PARENTS, score="k2")
    return {
        "engine": f"{len(owners)} owners and a helper, in one process",
        "parents": {name: list(given) for name, given in found.structure.items()},
        "seconds": found.seconds,
        "start": 0.0,
        "bytes_sent_by_a_party": (found.cost.sent + found.cost.dealt) // len(owners),
        "rounds": found.cost.rounds,
        "trust": "the helper colludes with nobody, two owners not with each other; all follow the program",
    }


def table(engines):
    """Return the lines that docs/howto/hidden-structure.md has of the engines."""
    yield "| engine | seconds | of the processor, all | rounds | a party sends | who is trusted |"
    yield "|---|---|---|---|---|---|"
    for one in engines:
        sent = one["bytes_sent_by_a_party"] / 1e6
        took = f"{one['seconds']:.1f} | {one['processor_seconds']:.1f} s"
        yield f"| {one['engine']} | {took} | {one['rounds']} | {sent:.1f} MB | {one['trust']} |"


def main():
    """Run all, compare with the search in clear, and show one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200)
    parser.add_argument("--party", type=int)
    parser.add_argument("--json", type=Path)
    given, _ = parser.parse_known_args()
    if given.party:
        party(given.party)
        return
    codes, schema, order, _ = task(given.n)
    source = Records(codes, mq.Policy.clear(schema))
    clear = mq.learn.structure(source, order, max_parents=MAX_PARENTS, score="k2").structure
    found = []
    for engine in (by_helper, by_mpyc, by_spu):
        before = spent()
        line = engine(given.n)
        if line is not None:
            line["processor_seconds"] = round(spent() - before, 2)
            told = line.pop("parents")
            line["equal_to_clear"] = {x: set(y) for x, y in told.items()} == {
                x: set(y) for x, y in clear.items()
            }
            found.append(line)
            print(line, flush=True)
    print(*table(found), sep="\n")
    busy = round(os.getloadavg()[0], 1)
    keep(
        given.json, {"nodes": len(schema), "records": given.n, "engines": found, "load_of_the_machine": busy}
    )


if __name__ == "__main__":
    main()
