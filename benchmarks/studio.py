"""The analyst's page: a slider of one among 30 variables; a file of ten million rows, from draft to network.

Both through `masquerade studio` as it is started, over HTTP. First the words of a slider, asked again and
again: milliseconds of the processor that the server takes for an answer, and milliseconds until it is
there. Then a file of `--rows` rows: a policy is drafted, the records are disguised, counted, and a network is
learnt; the most memory that the server and its process that works ever had together. Seconds are of a machine
that others use as well.

    python -m benchmarks.studio [--rows N] [--json FILE]
"""

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlencode

import httpx
import numpy as np
from benchmarks.timing import keep

LONG = 3600.0
ASKED = 200
VARIABLES = 30
BATCH = 1_000_000
MOST_MILLISECONDS = 50
MOST_BYTES = 10**9


class Page:
    """The studio in a folder, and a client that was let in."""

    def __init__(self, folder):
        command = [sys.executable, "-m", "masquerade", "studio", "project", "--no-browser"]
        self.process = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)  # noqa: S603
        line = ""
        while "open.html" not in line:
            line = self.process.stderr.readline()
            if not line:
                raise RuntimeError("the studio ended")
        opens = Path(re.search(r"open (\S+open\.html)", line)[1]).read_text(encoding="utf-8")
        self.base, token = re.search(r'url=(http[^"]*/)enter#([\w-]+)', opens).groups()
        origin = self.base.split("/", 3)
        self.client = httpx.Client(timeout=LONG, headers={"origin": "/".join(origin[:3])}, trust_env=False)
        self.client.post(f"{self.base}enter", content=token).raise_for_status()

    def get(self, place):
        """Return a page when nothing on it is being worked on."""
        while True:
            text = self.client.get(self.base + place).raise_for_status().text
            if "data-job" not in text:
                if 'role="alert"' in text:
                    raise RuntimeError(re.search(r'role="alert"><p>([^<]*)', text)[1])
                return text
            time.sleep(0.2)

    def post(self, place, **fields):
        """Send a form, and return the page that it leads to."""
        body = urlencode(fields, doseq=True)
        answer = self.client.post(self.base + place, content=body)
        if answer.status_code != httpx.codes.SEE_OTHER:
            raise RuntimeError(answer.text)
        return self.get(answer.headers["location"])

    def processor_seconds(self):
        """Return the seconds of the processor that the server has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_bytes(self):
        """Return the most memory that the server and its processes ever had, added up."""
        listed = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        children = [pid for file in listed for pid in file.read_text(encoding="ascii").split()]
        texts = [Path(f"/proc/{pid}/status").read_text() for pid in [self.process.pid, *children]]
        return sum(1024 * int(text.split("VmHWM:")[1].split()[0]) for text in texts)

    def close(self):
        """End the studio."""
        self.client.close()
        self.process.terminate()
        self.process.wait(LONG)
        self.process.stderr.close()


def slider(folder):
    """Return what the words of a slider take, in a policy of many variables."""
    page = Page(folder)
    try:
        for number in range(VARIABLES):
            page.post("policy", do="add", name=f"v{number}", categories="a, b, c, d")
        waited = []
        page.get("policy/live?name=v7&stop=3")
        before = page.processor_seconds()
        for number in range(ASKED):
            began = time.perf_counter()
            page.get(f"policy/live?name=v{number % VARIABLES}&stop={number % 29}")
            waited.append(1000 * (time.perf_counter() - began))
        taken = 1000 * (page.processor_seconds() - before) / ASKED
    finally:
        page.close()
    return {
        "variables": VARIABLES,
        "asked": ASKED,
        "milliseconds of the processor": round(taken, 2),
        "median milliseconds": round(statistics.median(waited), 2),
        "most milliseconds": round(max(waited), 2),
    }


def write_people(path, rows):
    """Write made-up people, a million at a time."""
    draw = np.random.default_rng(20261117)
    with path.open("wb") as file:
        file.write(b"region,age,smoker,ill\n")
        lines = np.array(
            [f"{r},{a},{s},{i}\n" for r in "nesw" for a in ("young", "old") for s in "yn" for i in "yn"]
        )
        for start in range(0, rows, BATCH):
            chosen = draw.integers(len(lines), size=min(BATCH, rows - start))
            file.write("".join(lines[chosen]).encode())


def large(folder, rows):
    """Return what a large file takes, from a draft to a network."""
    write_people(folder / "people.csv", rows)
    page, seconds = Page(folder), {}
    try:
        for name, act in (
            ("draft", lambda: page.post("data", do="draft", data=str(folder / "people.csv"))),
            ("release", lambda: page.post("release", shuffle="1", ending="parquet")),
            ("estimate", lambda: page.get("estimate?do=count&by=smoker&by=ill")),
            ("network", lambda: page.get("learn?do=structure")),
            ("again", lambda: page.get("estimate?do=count&by=smoker&by=ill")),
        ):
            began = time.perf_counter()
            text = act()
            seconds[name] = round(time.perf_counter() - began, 2)
            if name == "estimate" and f'value="{rows}" data-at="0.n"' not in text:
                raise RuntimeError("the page does not count every record")
        return {
            "rows": rows,
            "bytes of the file": (folder / "people.csv").stat().st_size,
            "most bytes of memory": page.most_bytes(),
            "seconds": seconds,
        }
    finally:
        page.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    results = {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": [round(value, 1) for value in os.getloadavg()],
        "most milliseconds": MOST_MILLISECONDS,
        "most bytes": MOST_BYTES,
    }
    for name, run in (("slider", slider), ("large", lambda folder: large(folder, options.rows))):
        with tempfile.TemporaryDirectory() as made:
            results[name] = run(Path(made))
        print(name, results[name], flush=True)
    keep(options.json, results)


if __name__ == "__main__":
    main()
