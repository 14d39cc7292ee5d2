"""Durable submissions a second of a survey's collector, beside a bare FastAPI + SQLite insert.

Both servers run in processes of their own on this machine, one after the other, several times in one run;
every reply comes after its row is on the disk (`synchronous = FULL`). The bare one checks nothing and commits
each row alone. Read the ratio: seconds are of a machine that others use as well.

    python -m benchmarks.survey [--number N] [--clients N] [--rounds N] [--json FILE]
"""

import argparse
import json
import platform
import secrets
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import httpx
import uvicorn
import yaml
from fastapi import FastAPI, Request, Response

from masquerade.services.survey.example import body_of, write_example
from masquerade.survey import Survey

MOST_TIMES = 1.5  # what a submission may take, in those of the bare server


def bare(file: str, port: int) -> None:
    """Serve the least that keeps a body: one insert, one commit, one sync."""
    app = FastAPI()
    store = sqlite3.connect(file, check_same_thread=False, isolation_level=None)
    store.execute("PRAGMA journal_mode = WAL")
    store.execute("PRAGMA synchronous = FULL")
    store.execute("CREATE TABLE IF NOT EXISTS reports (id INTEGER PRIMARY KEY, body BLOB)")
    guard = threading.Lock()

    def insert(body: bytes) -> None:
        with guard:
            store.execute("INSERT INTO reports (body) VALUES (?)", (body,))

    @app.post("/v1/reports")
    async def reports(request: Request) -> Response:
        body = await request.body()
        from starlette.concurrency import run_in_threadpool  # noqa: PLC0415

        await run_in_threadpool(insert, body)
        return Response(status_code=200)

    uvicorn.run(app, port=port, log_level="error", access_log=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def rate(command: list[str], port: int, bodies: list[bytes], clients: int) -> float:
    """Return submissions a second, of a server that is started for it."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        address = f"http://127.0.0.1:{port}"
        while process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port)):
                    break
            except OSError:
                time.sleep(0.05)

        def send(some: list[bytes]) -> None:
            with httpx.Client(base_url=address, trust_env=False, timeout=120) as http:
                for body in some:
                    assert http.post("/v1/reports", content=body).status_code == 200

        parts = [bodies[i::clients] for i in range(clients)]
        with ThreadPoolExecutor(clients) as pool:
            list(pool.map(send, [part[:5] for part in parts]))  # everything is loaded
            began = time.perf_counter()
            list(pool.map(send, [part[5:] for part in parts]))
        return (len(bodies) - 5 * clients) / (time.perf_counter() - began)
    finally:
        process.terminate()
        process.wait()


def measured(number: int, clients: int, rounds: int) -> dict:
    """Return both rates of every round, and their ratio."""
    rows = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as place:
            folder, port = Path(place) / "work", free_port()
            write_example(folder, f"http://127.0.0.1:{port}")
            settings = yaml.safe_load((folder / "collector.yaml").read_text())
            (folder / "collector.yaml").write_text(
                yaml.safe_dump(settings | {"limits": {"per_minute": 10**9}})
            )
            survey = Survey.load(folder / "survey.yaml")
            bodies = [body_of(survey, (0, 1, 1, secrets.randbelow(3))) for _ in range(number)]
            python = [sys.executable, "-m"]
            file = str(folder / "collector.yaml")
            ours = rate([*python, "masquerade", "survey", "serve", file], port, bodies, clients)
            port = free_port()
            own = [*python, "benchmarks.survey", "--bare", f"{place}/bare.sqlite", "--port", str(port)]
            theirs = rate(own, port, bodies, clients)
            found = {"collector": round(ours, 1), "bare": round(theirs, 1)}
            rows.append(found | {"times": round(theirs / ours, 3)})
            print(rows[-1], file=sys.stderr, flush=True)
    return {
        "what": "durable submissions a second: a survey's collector, a bare FastAPI + SQLite insert",
        "number": number,
        "clients": clients,
        "rounds": rows,
        "median_times": statistics.median(row["times"] for row in rows),
        "most_times": MOST_TIMES,
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "day": datetime.now(UTC).date().isoformat(),
    }


def main() -> None:
    """Measure, and print or keep what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--number", type=int, default=1500)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.bare:
        bare(given.bare, given.port)
        return
    text = json.dumps(measured(given.number, given.clients, given.rounds), indent=1) + "\n"
    if given.json is None:
        print(text, end="")
    else:
        given.json.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
