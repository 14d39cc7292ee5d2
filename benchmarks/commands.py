"""What a user waits for: the commands that read records, as processes of their own, cold and warm.

    python -m benchmarks.commands [--size SIZE ...] [--repeats 7] [--only NAME ...] [--json FILE]

Small is 20,000 records × 10 as CSV, wide 200,000 × 40 as CSV, large 5 million × 10 as Parquet. Cold: a run
with an empty folder for Numba's compiled code. Python's bytecode is written before, as pip does for what it
installs, whatever PYTHONDONTWRITEBYTECODE says. Warm: the median of the repeats, in turns, so that a busy
minute hits all. On a busy machine read the processor seconds (with its children), not those by the clock.
A ratio is to the pandas line of the same size in the same run. `--json` replaces the lines that ran and keeps
the others; a line states its repeats and the load of the machine.

Commands of services are not here (they wait), nor those that run a study (`simulate`, `reproduce`).
"""

import argparse
import compileall
import json
import multiprocessing
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import keep

import masquerade

SIZES = {  # rows, columns, format
    "small": (20_000, 10, "csv"),
    "wide": (200_000, 40, "csv"),
    "large": (5_000_000, 10, "parquet"),
}
LIMITS = {  # processor seconds over those of pandas, of small records
    "estimate": 1.5,
    "stats shares": 1.5,
    "learn naive-bayes": 1.5,
}
SECONDS = {"report": 3.0}  # processor seconds, of small records
SUITED = 1.3  # `estimate` over the faster of its two engines, at every size
PATIENCE = 300  # processor seconds after which a run is stopped
GAMMA = "1e40"  # the whole record of the wide size has γ = 3.3×10²⁸
PYTHON = {
    "pandas": "import pandas as pd; print(pd.read_{kind}('d.{kind}').groupby(['v1', 'v2']).size())",
    "polars": "import polars as pl; print(pl.scan_{kind}('d.{kind}').group_by('v1', 'v2').len().collect())",
    "duckdb": "import duckdb; duckdb.sql(\"select v1, v2, count(*) from 'd.{kind}' group by all\").show()",
    "pandas, read and write": "import pandas as pd; pd.read_{kind}('clear.{kind}').to_{kind}('again.{kind}')",
}
READ = "d.{kind} --policy p.yaml"
COMMANDS = {
    "--help": "--help",
    "privacy": "privacy p.yaml",
    "policy check": "policy check p.yaml",
    "policy init": "policy init clear.{kind}",
    "disguise": "disguise clear.{kind} --policy p.yaml --out {new}/out.{kind} --accept-gamma {gamma}",
    "estimate": f"estimate {READ} --by v1,v2",
    "estimate --engine memory": f"estimate {READ} --by v1,v2 --engine memory",
    "estimate --engine duckdb": f"estimate {READ} --by v1,v2 --engine duckdb",
    "stats shares": f"stats shares {READ} --of v3",
    "stats difference": f"stats difference {READ} --outcome v4 --category c1 --group v0",
    "stats independence": f"stats independence {READ} --of v1,v2",
    "stats associations": f"stats associations {READ} --of v1",
    "stats regress": f"stats regress {READ} --formula v4[c1]~v1+v2",
    "stats loglinear": f"stats loglinear {READ} --model v1*v2+v3",
    "learn naive-bayes": f"learn naive-bayes {READ} --target v1",
    "learn tree": f"learn tree {READ} --target v1",
    "learn linear": f"learn linear {READ} --target v4",
    "learn rules": f"learn rules {READ} --min-support 0.2",
    "learn structure": f"learn structure {READ}",
    "learn network": f"learn network {READ} --structure v1<-v2;v3<-v2",
    "predict": f"predict {READ} --model bayes.json --out {{new}}/predictions.{{kind}}",
    "report": f"report {READ} --out {{new}}/report.html",
    "enough": f"enough {READ} --out {{new}}/enough.csv",
    "release make": f"release make {READ} --out {{new}}/release --accept-gamma {{gamma}}",
    "anonymize": "anonymize clear.{kind} -k 10 --quasi v0,v1,v2 --out {new}/shown.{kind}",
}


def make_files(folder, rows, columns, kind):
    """Write clear records, a policy, disguised records and a model.

    Called in a process of its own: a process that is started inherits the peak memory of the one that starts
    it, so the benchmark itself must stay small.
    """
    import numpy as np  # noqa: PLC0415  (as above)
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv, parquet  # noqa: PLC0415

    rng = np.random.default_rng(1)
    kinds = rng.integers(0, 3, rows)
    sizes = [(2, 3, 4, 5)[place % 4] for place in range(columns)]
    clear = {}
    for place, k in enumerate(sizes):
        codes = np.where(rng.random(rows) < 0.5, kinds % k, rng.integers(0, k, rows))
        clear[f"v{place}"] = pa.array([f"c{code}" for code in range(k)]).take(pa.array(codes))
    table = pa.table(clear)
    if kind == "csv":
        csv.write_csv(table, folder / "clear.csv")
    else:
        parquet.write_table(table, folder / "clear.parquet")
    categories = [", ".join(f'"c{code}"' for code in range(k)) for k in sizes]
    (folder / "p.yaml").write_text(
        "masquerade: 1\nvariables:\n"
        + "".join(
            f"  v{place}: {{categories: [{labels}], channel: {{kind: symmetric, p: 0.3}}}}\n"
            for place, labels in enumerate(categories)
        )
    )
    for line in (
        f"disguise clear.{kind} --policy p.yaml --out d.{kind} --accept-gamma {GAMMA}",
        f"learn naive-bayes d.{kind} --policy p.yaml --target v1 --out bayes.json",
    ):
        program = [sys.executable, "-m", "masquerade", *line.split()]
        subprocess.run(program, cwd=folder, check=True, capture_output=True)  # noqa: S603


def run(name, folder, cache, kind):
    """Return the processor seconds, seconds by the clock and peak memory in MB of one process."""
    if name in PYTHON:
        return measure([sys.executable, "-c", PYTHON[name].replace("{kind}", kind)], folder, cache)
    with tempfile.TemporaryDirectory(dir=folder) as new:
        line = COMMANDS[name].format(new=new, kind=kind, gamma=GAMMA)
        return measure([sys.executable, "-m", "masquerade", *line.split()], folder, cache)


def measure(program, folder, cache):
    """Run a program; return processor seconds, seconds by the clock and peak MB, None if stopped."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    with tempfile.TemporaryFile() as complaint:
        process = subprocess.Popen(  # noqa: S603
            program,
            cwd=folder,
            stdout=subprocess.DEVNULL,
            stderr=complaint,
            env=environment | {"NUMBA_CACHE_DIR": str(cache)},
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE)),  # noqa: PLW1509
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode == -signal.SIGKILL:
            return None
        if process.returncode:
            complaint.seek(0)
            raise SystemExit(f"{' '.join(program)}: {complaint.read().decode()}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - start, used.ru_maxrss / 1024


def misses_of(size, lines):
    """Return the lines of a size above their limits, by name."""
    by_name = {line["name"]: line for line in lines}
    over = {line["name"]: f"stopped after {PATIENCE} s" for line in lines if "cpu_seconds" not in line}
    engines = [
        by_name.get(f"estimate --engine {name}", {}).get("cpu_seconds") for name in ("memory", "duckdb")
    ]
    auto = by_name.get("estimate", {}).get("cpu_seconds")
    if auto is not None and None not in engines and auto > SUITED * min(engines):
        over["estimate"] = f"{auto / min(engines):.2f}× the faster engine, limit {SUITED}×"
    if size != "small":
        return over
    over |= {
        name: f"{by_name[name]['ratio']:.2f}× pandas, limit {limit}×"
        for name, limit in LIMITS.items()
        if name in by_name and by_name[name].get("ratio", 0) > limit
    }
    return over | {
        name: f"{by_name[name]['cpu_seconds']:.2f} s, limit {limit:g} s"
        for name, limit in SECONDS.items()
        if name in by_name and by_name[name].get("cpu_seconds", 0) > limit
    }


def measure_size(size, names, repeats):
    """Return the lines of one size; the first run of each command, whose folder is empty, is the cold one."""
    rows, columns, kind = SIZES[size]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "data"
        folder.mkdir()
        compileall.compile_dir(Path(masquerade.__file__).parent, quiet=1)
        maker = multiprocessing.get_context("spawn").Process(
            target=make_files, args=(folder, rows, columns, kind)
        )
        maker.start()
        maker.join()
        if maker.exitcode:
            raise SystemExit(f"The files of size {size} could not be made.")
        (folder / f"d.{kind}.masquerade.json").unlink(missing_ok=True)
        caches = {name: Path(scratch) / f"cache-{place}" for place, name in enumerate(names)}
        cold = {name: run(name, folder, caches[name], kind) for name in names if name not in PYTHON}
        stopped = {name for name, used in cold.items() if used is None}
        times = {name: [] for name in names if name not in stopped}
        for _ in range(repeats):
            for name, runs in times.items():
                runs.append(run(name, folder, caches[name], kind))
    lines = [line_of(name, times.get(name, [None]), cold.get(name)) for name in names]
    pandas = next((line.get("cpu_seconds") for line in lines if line["name"] == "pandas"), None)
    for line in lines:
        if pandas and "cpu_seconds" in line:
            line["ratio"] = line["cpu_seconds"] / pandas
    return lines


def line_of(name, runs, cold):
    """Return the medians of the warm runs, and the cold one."""
    line = {"name": name}
    if None not in runs:
        middle = [statistics.median(values) for values in zip(*runs, strict=True)]
        line |= dict(zip(("cpu_seconds", "seconds", "peak_mb"), middle, strict=True))
    return line if cold is None else line | {"cold_cpu_seconds": cold[0]}


def show(size, lines):
    """Print the table of a size."""
    print(f"{size}: {SIZES[size][0]:,} × {SIZES[size][1]}, {SIZES[size][2]}")
    for line in lines:
        if "cpu_seconds" not in line:
            print(f"{line['name']:<26} stopped after {PATIENCE} s")
            continue
        print(
            f"{line['name']:<26}{line['cpu_seconds']:7.2f} s {line['seconds']:7.2f} s by the clock "
            f"{line['peak_mb']:6.0f} MB {line.get('ratio', float('nan')):6.2f}×"
            f"  cold {line.get('cold_cpu_seconds', float('nan')):.1f} s",
            flush=True,
        )


def main():
    """Measure every line and print and keep the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", nargs="*", choices=SIZES, default=list(SIZES))
    parser.add_argument("--repeats", type=int, default=7)
    names = [*PYTHON, *COMMANDS]
    parser.add_argument("--only", nargs="*", choices=names, default=names, help="names of lines")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    kept = {}
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
    for size in options.size:
        lines = measure_size(size, [name for name in names if name in options.only], options.repeats)
        show(size, lines)
        load = f"{os.getloadavg()[2]:.0f}"
        ran = {line["name"]: line | {"repeats": options.repeats, "load": load} for line in lines}
        ran = {line["name"]: line for line in kept.get(size, {}).get("lines", ())} | ran
        lines = [ran[name] for name in names if name in ran]
        misses = misses_of(size, lines)
        print(json.dumps(misses, indent=2))
        rows, columns, kind = SIZES[size]
        kept[size] = {
            "records": rows,
            "columns": columns,
            "format": kind,
            "lines": lines,
            "misses": misses,
        }
        if options.json:
            keep(options.json, {name: kept[name] for name in SIZES if name in kept})


if __name__ == "__main__":
    main()
