"""Devices that take part as processes, and many simulated ones over HTTP: memory, processor time, rates.

A collector runs in a process of its own. First `--devices` processes of `mq.people.report`, so many at once,
each with a record of its own; then the reports of `--reports` simulated devices, drawn by the devices' own
code and sent by one load process over several connections. Every report is then looked for in the store, and
estimates are compared with the truth. Read memory and processor seconds: wall time is of a machine that
others use as well.

    python -m benchmarks.gather [--devices N] [--at-once N] [--reports N] [--json FILE]
"""

import argparse
import json
import platform
import secrets
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.survey import collector, statuses

import masquerade as mq
from masquerade.survey.collector.export import table_of
from masquerade.survey.collector.store import SurveyStore
from masquerade.survey.device.participation import Record, report_id
from masquerade.survey.device.publication import terms_text
from masquerade.survey.device.terms import DeviceTerms

DEVICE = """
import json, resource, sys
from masquerade import people
people.report(sys.argv[1], json.loads(sys.argv[2]), record=sys.argv[3], patience=600,
              limit="gamma=50", clear=("age",))
most = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
used = resource.getrusage(resource.RUSAGE_SELF)
heavy = sorted({"numpy", "numba", "pandas"} & set(sys.modules))
print(json.dumps({"kb": int(most), "seconds": used.ru_utime + used.ru_stime, "heavy": heavy}))
"""


def person(terms: DeviceTerms) -> dict[str, object]:
    """Return somebody's row: three of ten take pills, all else is even."""
    row = {one.name: secrets.choice(one.labels) for one in terms.questions}
    return row | {"pills": "yes" if secrets.randbelow(10) < 3 else "no"}


def command_size(terms: Path, folder: Path, row: dict[str, object], *more: str) -> int:
    """Return the most memory that `masquerade gather take-part` takes, in kB."""
    (folder / "row.json").write_text(json.dumps(row))
    watched = (
        "import sys\nfrom masquerade.cli import main\nsys.argv[0] = 'masquerade'\n"
        "try:\n    main()\nfinally:\n"
        "    print(next(l.split()[1] for l in open('/proc/self/status') if l.startswith('VmHWM')))\n"
    )
    command = [sys.executable, "-c", watched, "gather", "take-part", str(terms), "--row",
               str(folder / "row.json"), "--record", str(folder / "command.record"), "--limit", "gamma=50",
               "--clear", "age", *more]  # fmt: skip
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)  # noqa: S603


def invited_size() -> int:
    """Return the most memory that the command takes with an invitation, in kB."""
    with tempfile.TemporaryDirectory() as place:
        folder, file = Path(place), Path(place) / "terms.json"
        with collector(folder / "work", invited=True) as (survey, _):
            file.write_text(terms_text(survey))
            with SurveyStore(folder / "work" / "collected") as store:
                (code,) = store.invite(1)
            return command_size(file, folder, person(DeviceTerms.load(file)), "--invitation", code)


def measured(devices: int, at_once: int, reports: int) -> dict:
    """Return what devices took and what came of their reports."""
    with tempfile.TemporaryDirectory() as place, collector(Path(place) / "work") as (survey, address):
        folder, file = Path(place), Path(place) / "terms.json"
        file.write_text(terms_text(survey))
        terms = DeviceTerms.load(file)
        people = [person(terms) for _ in range(devices + 1 + reports)]

        def taken_part(i: int) -> dict:
            command = [
                sys.executable,
                "-c",
                DEVICE,
                str(file),
                json.dumps(people[i]),
                str(folder / f"{i}.record"),
            ]
            return json.loads(subprocess.run(command, check=True, capture_output=True).stdout)  # noqa: S603

        began = time.perf_counter()
        with ThreadPoolExecutor(at_once) as pool:
            told = list(pool.map(taken_part, range(devices)))
        wall = time.perf_counter() - began
        command = command_size(file, folder, people[devices])
        drawn = Counter(Record.load(folder / f"{i}.record").reports for i in range(devices))
        drawn[Record.load(folder / "command.record").reports] += 1
        with SurveyStore(folder / "work" / "collected") as store:
            kept = Counter(codes for _, _, codes in store.reports())

        began = time.process_time()
        rows = [terms.mechanism.draw(terms.codes(row)) for row in people[devices + 1 :]]
        drawing = time.process_time() - began
        bodies = [
            json.dumps({"policy": terms.policy, "id": report_id(secrets.token_bytes(10)), "mode": 0,
                        "reports": list(row), "token": None}).encode().ljust(terms.size)
            for row in rows
        ]  # fmt: skip
        began = time.perf_counter()
        replies = statuses(address, bodies, 16)
        loaded = time.perf_counter() - began
        with SurveyStore(folder / "work" / "collected") as store:
            number = store.counts()["reports"]
            source = mq.tally(table_of(store.count_reports()[survey.policy.id], survey.policy), survey.policy)
        [table] = source.answer([mq.Query(by="pills")])
        truth = sum(row["pills"] == "yes" for row in people)
        off = (float(table.values[0]) - truth) / float(table.stderr("given_records")[0])
    return {
        "devices": {
            "processes": devices,
            "at_once": at_once,
            "most_kb": max(one["kb"] for one in told),
            "median_processor_seconds": round(sorted(one["seconds"] for one in told)[devices // 2], 3),
            "heavy_modules": sorted({name for one in told for name in one["heavy"]}),
            "kept_as_drawn": kept == drawn,
            "seconds": round(wall, 1),
            "command_kb": command,
            "invited_command_kb": invited_size(),
        },
        "simulated": {
            "reports": reports,
            "draws_a_processor_second": round(reports / drawing),
            "requests_a_second": round(reports / loaded),
            "replies": {str(status): times for status, times in replies.items()},
        },
        "kept": number,
        "standard_errors_from_the_truth": round(off, 3),
    }


def main() -> None:
    """Measure, print and keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--devices", type=int, default=200)
    parser.add_argument("--at-once", type=int, default=20)
    parser.add_argument("--reports", type=int, default=10_000)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    results = {"when": datetime.now(UTC).isoformat(timespec="seconds"), "python": platform.python_version()}
    results |= measured(given.devices, given.at_once, given.reports)
    print(json.dumps(results, indent=2))
    if given.json:
        given.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
