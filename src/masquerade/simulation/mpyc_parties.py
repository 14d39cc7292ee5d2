"""MPC without a dealer: three or more MPyC processes on this machine learn one structure.

Each process reads the columns of one owner from standard input and prints the opened result. MPyC processes
exchange pickles, so this is for one machine only. Sessions between organisations use a dealer.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from masquerade.core.errors import InputError, RoundAborted
from masquerade.learn.networks.score_tables import ScoreTables
from masquerade.protocols.mpc.engine import Cost, run_alone
from masquerade.protocols.mpc.family_counts import HiddenColumns
from masquerade.protocols.mpc.mpyc_engine import LEAST_PARTIES, MpycEngine
from masquerade.protocols.mpc.structure import Search, parents

HOST: Final = "127.0.0.1"


class OpenedStructure(NamedTuple):
    """The opened parents, the cost over all parties, and the seconds after the parties had connected."""

    parents: dict[str, list[str]]
    cost: Cost
    seconds: float


def learn_structure(
    codes: Mapping[str, NDArray[Any]],
    sizes: Mapping[str, int],
    owners: Mapping[str, Sequence[str]],
    order: Sequence[str],
    *,
    max_parents: int,
    score: str,
    hide_order: bool,
) -> OpenedStructure:
    """Run K2 over columns of several owners, one process of MPyC for each.

    Parameters
    ----------
    codes : mapping of str to array
        All columns, as codes. Each process gets those of its owner only.
    sizes : mapping of str to int
        Number of categories of each variable.
    owners : mapping of str to sequence of str
        The variables of each owner. There must be at least three owners.
    order : sequence of str
        All variables, parents before children.
    max_parents : int
        Largest number of parents of a variable.
    score : str
        Name of the score.
    hide_order : bool
        Open only the parents at the end.

    Returns
    -------
    OpenedStructure
        The structure that every party learns, with its cost.

    Raises
    ------
    InputError
        If there are fewer than three owners, or MPyC is not installed.
    RoundAborted
        If a process ends without a result.
    """
    if len(owners) < LEAST_PARTIES:
        raise InputError(f"MPC without a dealer needs {LEAST_PARTIES} owners. Got {len(owners)} instead.")
    if find_spec("mpyc") is None:
        raise InputError("This engine needs MPyC, which is not installed: pip install 'masquerade[mpyc]'")
    task = {
        "owners": {owner: list(names) for owner, names in owners.items()},
        "sizes": dict(sizes),
        "order": list(order),
        "max_parents": max_parents,
        "score": score,
        "hide_order": hide_order,
        "n": len(next(iter(codes.values()))),
    }
    columns = [{name: np.asarray(codes[name]).tolist() for name in names} for names in owners.values()]
    replies = _run_parties([json.dumps({**task, "columns": part}).encode() for part in columns])
    if any(reply["parents"] != replies[0]["parents"] for reply in replies):
        raise RoundAborted("The parties of MPyC opened different structures.", spent=False)
    cost = Cost(
        rounds=max(reply["rounds"] for reply in replies), sent=sum(reply["sent"] for reply in replies)
    )
    return OpenedStructure(replies[0]["parents"], cost, round(max(reply["seconds"] for reply in replies), 3))


def _run_parties(tasks: Sequence[bytes]) -> list[dict[str, Any]]:
    """Run one process per task, with the task on standard input, and return their replies."""
    addresses = [word for port in _free_ports(len(tasks)) for word in ("-P", f"{HOST}:{port}")]
    command = [sys.executable, "-m", __spec__.name, *addresses]
    with ExitStack() as stack:
        processes = []
        for place in range(len(tasks)):
            process = subprocess.Popen(  # noqa: S603  (this module)
                [*command, f"-I{place}"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        for process, task in zip(processes, tasks, strict=True):
            assert process.stdin is not None  # noqa: S101  (opened as a pipe)
            process.stdin.write(task)
            process.stdin.close()
        printed = [process.stdout.read() for process in processes if process.stdout is not None]
        for process in processes:
            if process.stdout is not None:
                process.stdout.close()
    try:
        return [json.loads(text.decode().strip().splitlines()[-1]) for text in printed]
    except (IndexError, ValueError):
        raise RoundAborted("A party of MPyC ended without a result.", spent=False) from None


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind((HOST, 0))
        return [int(one.getsockname()[1]) for one in sockets]


def _main() -> None:
    """Run one party: read a task, compute with the others, print the opened result."""
    task = json.loads(sys.stdin.buffer.read())
    from mpyc.runtime import mpc  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: PLC0415  (reads the arguments of the process)

    mpc.run(mpc.start())
    engine = MpycEngine(mpc, tuple(task["owners"]))
    holder = {name: owner for owner, names in task["owners"].items() for name in names}
    local = {name: np.asarray(column, dtype=np.int64) for name, column in task["columns"].items()}
    columns = HiddenColumns(task["sizes"], holder, local, task["n"])
    search = Search.in_order(task["order"], task["max_parents"], hide_order=task["hide_order"])
    start = time.perf_counter()
    opened = run_alone(parents(engine, columns, search, ScoreTables.of(task["score"], task["n"])))
    seconds = time.perf_counter() - start
    reply = {
        "parents": {name: list(names) for name, names in opened.items()},
        "rounds": engine.cost.rounds,
        "sent": engine.cost.sent,
        "seconds": seconds,
    }
    mpc.run(mpc.shutdown())
    print(json.dumps(reply))  # noqa: T201  (the reply to the process that started this one)


if __name__ == "__main__":
    _main()
