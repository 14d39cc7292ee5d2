"""One search on shares by several engines: owners and a helper, and three parties without one (MPyC, SPU).

K2 over asia's eight variables, at most two parents. MPyC runs its parties as processes of this machine; the
owners and the helper run in one process, one after the other. Without MPyC (``masquerade[mpyc]``) it is left
out. SPU cannot share an environment with NumPy 2: where `MASQUERADE_SPU_PYTHON` names the Python of one that
has it, `benchmarks/spu_process.py` runs there, and is told the task through a pipe.

python -m benchmarks.hidden_engines [--n N] [--json FILE]
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from itertools import product
from math import prod
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

import masquerade as mq
from masquerade.learn.score_tables import ScoreTables
from masquerade.protocols.hidden import HiddenColumns, MpycEngine, Search, finished, parents
from masquerade.simulation import hidden_structure
from masquerade.sources.records import Records

PARTIES = ("north", "south", "registry")
MAX_PARENTS, SEED = 2, 24


def task(n):
    """Return records of asia's variables, their schema, an order, and who holds which of three."""
    network = mq.data.network("asia")
    names = tuple(network.schema)
    owners = {party: names[place::3] for place, party in enumerate(PARTIES)}
    return network.sample_codes(n, SEED), network.schema, tuple(network.structure), owners


def party(n):
    """Be one of MPyC's parties, and print what was found and what it took."""
    from mpyc.runtime import mpc  # noqa: PLC0415  (reads the arguments of the process, and need not be there)

    codes, schema, order, owners = task(n)
    mpc.run(mpc.start())
    engine = MpycEngine(mpc, PARTIES)
    holder = {name: owner for owner, names in owners.items() for name in names}
    own = {name: np.asarray(codes[name]) for name in owners[engine.name]}
    columns = HiddenColumns({name: len(schema[name]) for name in schema}, holder, own, n)
    start = time.perf_counter()
    search = Search.in_order(order, MAX_PARENTS)
    found = finished(parents(engine, columns, search, ScoreTables.of("k2", n)))
    seconds = time.perf_counter() - start
    sent = engine.sent
    mpc.run(mpc.shutdown())
    if engine.name == PARTIES[0]:
        print(json.dumps({"parents": found, "seconds": round(seconds, 2), "bytes_sent_by_a_party": sent}))


def free_port():
    """Return the first of a few ports that nobody listens at, as far as one can tell."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def by_mpyc(n, seconds=3600):
    """Return what three processes of MPyC found, and what it took; None where MPyC is not installed."""
    if find_spec("mpyc") is None:
        return None
    command = [
        sys.executable,
        "-m",
        "benchmarks.hidden_engines",
        "--party",
        str(n),
        "-M3",
        f"-B{free_port()}",
    ]
    running = [
        subprocess.Popen([*command, f"-I{place}"], stdout=target, stderr=subprocess.DEVNULL)  # noqa: S603
        for place, target in enumerate((subprocess.PIPE, subprocess.DEVNULL, subprocess.DEVNULL))
    ]
    try:
        told, _ = running[0].communicate(timeout=seconds)
    finally:
        for process in running:
            process.kill()
            process.wait()
    found = json.loads(told.decode().strip().splitlines()[-1])
    return {
        "engine": "MPyC, three parties",
        **found,
        "rounds": None,
        "trust": "of three parties no two collude; all follow the program; no helper",
    }


def by_spu(n, seconds=3600):
    """Return what SPU's process found, and what it took; None where no environment is named that has it."""
    python = os.environ.get("MASQUERADE_SPU_PYTHON")
    if not python:
        return None
    codes, schema, order, _ = task(n)
    score, search = ScoreTables.of("k2", n), Search.in_order(order, MAX_PARENTS)
    sizes = {name: len(schema[name]) for name in schema}
    kinds = set(sizes.values())
    several = {prod(some) for k in range(MAX_PARENTS + 1) for some in product(kinds, repeat=k)}
    shapes = product(several, kinds)
    told = {
        "n": n,
        "sizes": sizes,
        "codes": {name: np.asarray(codes[name]).tolist() for name in schema},
        "candidates": {name: list(others) for name, others in search.candidates.items()},
        "limit": MAX_PARENTS,
        "tables": {
            f"{shape[0]},{shape[1]}": {
                "cells": score.cells(*shape).tolist(),
                "margins": score.margins(*shape).tolist(),
                "constant": score.constant(*shape),
            }
            for shape in shapes
        },
    }
    command = [python, str(Path(__file__).with_name("spu_process.py"))]
    options = {"capture_output": True, "text": True, "timeout": seconds, "check": True}
    done = subprocess.run(command, input=json.dumps(told), **options)  # noqa: PLW1510, S603
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return {
        "engine": f"SPU {found.pop('version')}, three parties (ABY3), in one process",
        **found,
        "bytes_sent_by_a_party": None,
        "rounds": None,
        "trust": "of three parties no two collude; all follow the program; no helper",
    }


def by_helper(n, owners=PARTIES):
    """Return what owners and a helper found in one process, and what it took."""
    codes, schema, order, held = task(n)
    found = hidden_structure(codes, schema, held, order, max_parents=MAX_PARENTS, score="k2")
    return {
        "engine": f"{len(owners)} owners and a helper",
        "parents": {name: list(given) for name, given in found.structure.items()},
        "seconds": found.seconds,
        "bytes_sent_by_a_party": (found.cost.sent + found.cost.dealt) // len(owners),
        "rounds": found.cost.rounds,
        "trust": "the helper colludes with nobody, two owners not with each other; all follow the program",
    }


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
    for row in (by_helper(given.n), by_mpyc(given.n), by_spu(given.n)):
        if row is not None:
            told = row.pop("parents")
            row["equal_to_clear"] = {x: set(y) for x, y in told.items()} == {
                x: set(y) for x, y in clear.items()
            }
            found.append(row)
            print(row, flush=True)
    busy = round(os.getloadavg()[0], 1)
    keep(
        given.json, {"nodes": len(schema), "records": given.n, "engines": found, "load_of_the_machine": busy}
    )


if __name__ == "__main__":
    main()
