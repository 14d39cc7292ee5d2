"""Durable submissions a second of a survey's collector, beside a bare FastAPI + SQLite insert.

Both servers run in processes of their own on this machine, one after the other, several times in one run;
every reply comes after its row is on the disk (`synchronous = FULL`). The bare one checks nothing and commits
each row alone. Read the ratio: seconds are of a machine that others use as well.

Then made-up people whose answers are known: the page's own script draws their reports in Node, HTTP carries
them to a collector of its own process, and its estimates are compared with the truth. Then mutated bodies of
the right length, given to the service as its server gives them: each is refused or, where it is still a
report, kept.

    python -m benchmarks.survey [--number N] [--clients N] [--rounds N] [--people N] [--fuzzed N]
        [--json FILE]
"""

import argparse
import asyncio
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
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
import uvicorn
import yaml
from fastapi import FastAPI, Request, Response
from starlette.types import ASGIApp

import masquerade as mq
from masquerade.services.common.settings import load
from masquerade.survey import Survey
from masquerade.survey.collector.collector import SurveyCollector
from masquerade.survey.collector.example import body_of, write_example
from masquerade.survey.collector.export import table_of
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.collector.store import SurveyStore
from masquerade.survey.page.mechanism import mechanism
from masquerade.survey.page.page import body_size
from masquerade.survey.page.script_text import asset

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


@contextmanager
def serving(command: list[str], port: int) -> Iterator[str]:
    """Start a server and give its address once it listens; it ends with the block."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        while process.poll() is None:
            try:
                with socket.create_connection(("127.0.0.1", port)):
                    break
            except OSError:
                time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def rate(command: list[str], port: int, bodies: list[bytes], clients: int) -> float:
    """Return submissions a second, of a server that is started for it."""
    with serving(command, port) as address:

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


DRAW = """
import { readFileSync, writeFileSync } from "node:fs";
const folder = process.argv[1], read = (name) => JSON.parse(readFileSync(`${folder}/${name}`, "utf8"));
const m = await import(`file://${folder}/masquerade.mjs`), { mechanism, people } = read("people.json");
const reports = [];
for (const codes of people) reports.push(await m.disguise(mechanism, codes, m.freshWords));
writeFileSync(`${folder}/reports.json`, JSON.stringify(reports));
"""


@contextmanager
def collector(folder: Path, *, invited: bool = False) -> Iterator[tuple[Survey, str]]:
    """Serve the example from a process of its own; give the survey and its address."""
    port = free_port()
    write_example(folder, f"http://127.0.0.1:{port}", invited=invited)
    settings = yaml.safe_load((folder / "collector.yaml").read_text())
    (folder / "collector.yaml").write_text(yaml.safe_dump(settings | {"limits": {"per_minute": 10**9}}))
    command = [sys.executable, "-m", "masquerade", "survey", "serve", str(folder / "collector.yaml")]
    with serving(command, port) as address:
        yield Survey.load(folder / "survey.yaml"), address


def statuses(address: str, bodies: list[bytes], clients: int) -> Counter[int]:
    """Send bodies over so many connections; count the replies."""

    def send(some: list[bytes]) -> Counter[int]:
        with httpx.Client(base_url=address, trust_env=False, timeout=120) as http:
            return Counter(http.post("/v1/reports", content=body).status_code for body in some)

    with ThreadPoolExecutor(clients) as pool:
        return sum(pool.map(send, [bodies[i::clients] for i in range(clients)]), Counter())


def answered(people: int, clients: int) -> dict:
    """Let people answer whose truth is known; return how far estimates are from it, in standard errors."""
    with tempfile.TemporaryDirectory() as place, collector(Path(place) / "work") as (survey, address):
        folder = Path(place)
        policy = survey.policy
        truth = [{name: secrets.randbelow(len(policy.schema[name])) for name in policy.schema}
                 for _ in range(people)]  # fmt: skip
        for one in truth:
            one["pills"] = int(secrets.randbelow(10) >= 3)  # three of ten
            one["told"] = 1 if one["pills"] else one["told"]
        (folder / "masquerade.mjs").write_text(asset("masquerade.js"))
        (folder / "people.json").write_text(json.dumps({"mechanism": mechanism(policy), "people": truth}))
        subprocess.run(["node", "--input-type=module", "-e", DRAW, place], check=True)  # noqa: S603, S607
        reports = json.loads((folder / "reports.json").read_text())
        began = time.perf_counter()
        replies = statuses(address, [body_of(survey, tuple(row)) for row in reports], clients)
        seconds = time.perf_counter() - began
        with SurveyStore(folder / "work" / "collected") as store:
            source = mq.tally(table_of(store.count_reports()[policy.id], policy), policy)
            kept = store.counts()["reports"]
        away = {}
        for name in policy.disguised:
            [table] = source.answer([mq.Query(by=(name,))])
            real = Counter(one[name] for one in truth)
            errors = table.stderr("given_records")
            away |= {f"{name}={label}": round((float(table.values[i]) - real[i]) / float(errors[i]), 3)
                     for i, label in enumerate(policy.schema[name].categories)}  # fmt: skip
        return {"people": people, "replies": dict(replies), "kept": kept,
                "standard_errors_from_the_truth": away, "seconds": round(seconds, 1)}  # fmt: skip


def fuzzed(number: int, clients: int) -> dict:
    """Give mutated bodies to the service; return the replies, and how many reports were kept."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "work"
        write_example(folder, "http://127.0.0.1:1")
        settings = {
            **load(folder / "collector.yaml", SurveySettings).model_dump(),
            "limits": {"per_minute": 10**9},
        }
        behind = SurveyCollector(SurveySettings.model_validate(settings))
        app, size = behind.service().app, body_size(behind.survey)
        replies: Counter[int] = Counter()

        async def sent(turns: Iterator[int]) -> None:
            for _ in turns:
                body = _mutated(body_of(behind.survey, (0, 1, 1, secrets.randbelow(3))), size)
                replies[await _given(app, body)] += 1

        async def all_sent() -> None:
            turns = iter(range(number))
            await asyncio.gather(*(sent(turns) for _ in range(8 * clients)))

        asyncio.run(all_sent())
        kept = behind.store.counts()["reports"]
        behind.close()
        return {"bodies": number, "replies": dict(replies), "kept": kept}


async def _given(app: ASGIApp, body: bytes) -> int:
    """Return the status of the reply to a body."""
    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
             "scheme": "http",
             "path": "/v1/reports", "raw_path": b"/v1/reports", "query_string": b"", "root_path": "",
             "headers": [(b"content-length", str(len(body)).encode())], "client": ("127.0.0.1", 1),
             "server": ("127.0.0.1", 1)}  # fmt: skip
    found = []

    async def receive() -> dict:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: dict) -> None:
        if message["type"] == "http.response.start":
            found.append(message["status"])

    await app(scope, receive, send)
    return found[0]


def _mutated(body: bytes, size: int) -> bytes:
    """Change some bytes of a body: by chance, by letters that JSON has a use for, or by moving a part."""
    made = bytearray(body)
    end = len(body.rstrip())
    for _ in range(1 + secrets.randbelow(4)):
        at, kind = secrets.randbelow(end), secrets.randbelow(4)
        if kind == 0:
            made[at] = secrets.randbelow(256)
        elif kind == 1:
            made[at] = secrets.choice(b'0123456789-+eE.,:[]{}"\\truefalsn \n')
        elif kind == 2:
            del made[at : at + 1 + secrets.randbelow(8)]
        else:
            made[at:at] = made[secrets.randbelow(end) :][: 1 + secrets.randbelow(20)]
    return bytes(made[:size].ljust(size))


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
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--fuzzed", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--bare")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.bare:
        bare(given.bare, given.port)
        return
    found = {}
    for stage in (
        lambda: measured(given.number, given.clients, given.rounds),
        lambda: {"answered": answered(given.people, given.clients)},
        lambda: {"fuzzed": fuzzed(given.fuzzed, given.clients)},
    ):
        found |= stage()
        text = json.dumps(found, indent=1) + "\n"
        if given.json is not None:
            given.json.write_text(text, encoding="utf-8")
    if given.json is None:
        print(text, end="")


if __name__ == "__main__":
    main()
