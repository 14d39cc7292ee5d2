"""Sizes at which a job once took far longer than its neighbours: processor seconds before and after.

    python -m benchmarks.cliffs [--only NAME ...] [--before CHECKOUT] [--json FILE]

trees      10 features of 5 categories, 100,000 disguised records, every split taken, by depth
trees, n   the same at depth 6, by records
itemsets   dense baskets (most items in most of 3,196 baskets, as in chess) at 50% support, by items
anonymize  the table of `anonymity.py`, k = 10, by rows
draft      `policy init --per-answer` beside `disguise` of the same CSV of ten columns, by rows
wide       2,000 records by columns: draft, disguise, release folder with its audit, one estimate, as commands
limit      `policy init --epsilon 20` (one limit for the whole record), by columns

Each point is a process of its own, stopped after PATIENCE processor seconds; functions are compiled before.
With `--before`, another checkout runs the same points, in turns with this one. A point keeps what came out
(nodes, sets, cells hidden) so that both can be compared. Exponents are slopes of log seconds on log x (of
trees on nodes, of itemsets on sets). `--json` replaces the curves that ran and keeps the others.
"""

import argparse
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
from benchmarks.timing import keep

HERE = Path(__file__).resolve().parents[1]
PATIENCE = 150
GAMMA = "1e40"
CURVES = {
    "trees": ("depth", (3, 4, 5, 6, 7, 8)),
    "trees, n": ("records", (10_000, 50_000, 200_000, 500_000)),
    "itemsets": ("items", (20, 26, 32, 37)),
    "anonymize": ("rows", (10_000, 30_000, 100_000, 300_000, 1_000_000)),
    "draft": ("rows", (100_000, 300_000, 1_000_000)),
    "wide": ("columns", (100, 300, 1000, 3000)),
    "limit": ("columns", (10, 30, 100, 300, 1000)),
}
REGRESSED = {"trees": "nodes", "itemsets": "sets"}  # what seconds are regressed on, if not on x


def tree_records(rows):
    """Return disguised records: ten features of five categories that depend on the target, weakly."""
    import masquerade as mq  # noqa: PLC0415  (the checkout that is measured)
    from masquerade.disguising.seeded import simulate_codes  # noqa: PLC0415

    draw = np.random.default_rng(0)
    target = draw.integers(0, 3, rows)
    codes = {
        f"x{i}": np.where(draw.random(rows) < 0.4, target % 5, draw.integers(0, 5, rows)) for i in range(10)
    }
    codes = {name: column.astype(np.uint8) for name, column in (codes | {"y": target}).items()}
    sizes = dict.fromkeys(codes, 5) | {"y": 3}
    policy = mq.Policy.build(
        {name: list(range(size)) for name, size in sizes.items()},
        {name: mq.channels.symmetric(size, "0.1") for name, size in sizes.items()},
    )
    return simulate_codes(codes, policy, 1), policy


def grow_tree(rows, depth):
    """Return the seconds of a tree without tests of splits, and its nodes."""
    from masquerade.learn.classifiers.tree import decision_tree  # noqa: PLC0415
    from masquerade.sources.records import Records  # noqa: PLC0415

    warnings.simplefilter("ignore")  # branches of few records are what is timed
    codes, policy = tree_records(rows)
    small, same = tree_records(1000)
    decision_tree(Records(small, same), "y", max_depth=5, significance=None)
    start = time.process_time()
    tree = decision_tree(Records(codes, policy), "y", max_depth=depth, significance=None)
    return {"seconds": time.process_time() - start, "nodes": len(tree.nodes)}


def mine_dense(items):
    """Return the seconds for disguised and for clear baskets, the least of three, and the sets reported."""
    import masquerade as mq  # noqa: PLC0415
    from masquerade.disguising.seeded import simulate_codes  # noqa: PLC0415
    from masquerade.frames.baskets import basket_policy  # noqa: PLC0415
    from masquerade.learn.rules.itemsets import frequent_itemsets  # noqa: PLC0415
    from masquerade.sources.records import Records  # noqa: PLC0415

    draw = np.random.default_rng(1)
    kind = draw.integers(0, 4, 3196)
    share = np.clip(draw.beta(6, 1.2, (items, 4)), 0.02, 0.995)
    codes = {f"i{i}": (draw.random(3196) < share[i][kind]).astype(np.uint8) for i in range(items)}
    clear = mq.Policy.clear(mq.Schema(dict.fromkeys(codes, (False, True))))
    masked = basket_policy(list(codes), mq.channels.binary("0.1"))
    found = {}
    for name, policy in (("seconds", masked), ("seconds_clear", clear)):
        reports = simulate_codes(codes, policy, 7)
        frequent_itemsets(Records(reports, policy), 0.9)
        times = []
        for _ in range(3):
            start = time.process_time()
            sets = frequent_itemsets(Records(reports, policy), 0.5)
            times.append(time.process_time() - start)
        found |= {name: min(times), name.replace("seconds", "sets"): len(sets)}
    return found


def hide(rows):
    """Return the seconds of a k-anonymous table, and its cells hidden."""
    from benchmarks.anonymity import people  # noqa: PLC0415

    import masquerade as mq  # noqa: PLC0415

    table = people(rows)
    mq.anonymity.anonymize(table[:2000], list(table), 10)
    start = time.process_time()
    hidden = mq.anonymity.anonymize(table, list(table), 10).utility.suppressed_cells
    return {"seconds": time.process_time() - start, "cells_hidden": hidden}


def write_csv(path, rows, columns):
    """Write clear records of two to five categories."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow import csv  # noqa: PLC0415

    draw = np.random.default_rng(0)
    table = {}
    for place in range(columns):
        labels = pa.array([f"c{code}" for code in range(2 + place % 4)])
        table[f"v{place}"] = labels.take(pa.array(draw.integers(0, len(labels), rows)))
    csv.write_csv(pa.table(table), path)


def time_command(folder, line):
    """Return the processor seconds and the peak memory in MB of one command."""
    program = [sys.executable, "-m", "masquerade", *line.split()]
    process = subprocess.Popen(  # noqa: S603
        program, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    complaint = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode == -signal.SIGKILL and used.ru_utime + used.ru_stime > PATIENCE - 1:
        os.kill(os.getpid(), signal.SIGKILL)  # a command has the limit of its point: the point is stopped
    if process.returncode:
        raise SystemExit(f"{line}: {complaint}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def draft(rows):
    """Return the seconds of a draft, and of disguising the same file."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603  (a child inherits the peak memory of its parent)
            [sys.executable, "-m", "benchmarks.cliffs", "--write", folder, str(rows), "10"], check=True
        )
        init = "policy init clear.csv --per-answer --epsilon 1 --out p.yaml --overwrite"
        time_command(folder, init)
        seconds = min(time_command(folder, init)[0] for _ in range(2))
        line = f"disguise clear.csv --policy p.yaml --out d.csv --overwrite --accept-gamma {GAMMA}"
        return {"seconds": seconds, "seconds_disguise": min(time_command(folder, line)[0] for _ in range(2))}


def wide(columns):
    """Return the seconds and megabytes of the commands from a draft to an estimate."""
    lines = {
        "draft": "policy init clear.csv --per-answer --epsilon 0.005 --out p.yaml",
        "disguise": f"disguise clear.csv --policy p.yaml --out d.csv --accept-gamma {GAMMA}",
        "release": f"release make d.csv --policy p.yaml --out release --accept-gamma {GAMMA}",
        "estimate": "estimate release/data.parquet --by v1,v2",
    }
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "benchmarks.cliffs", "--write", folder, "2000", str(columns)], check=True
        )
        used = {name: time_command(folder, line) for name, line in lines.items()}
    found = {f"seconds_{name}": seconds for name, (seconds, _) in used.items()}
    found |= {f"mb_{name}": round(megabytes) for name, (_, megabytes) in used.items()}
    return found | {"seconds": sum(seconds for seconds, _ in used.values())}


def limit(columns):
    """Return the seconds of a draft that spends one limit on a whole record."""
    with tempfile.TemporaryDirectory() as folder:
        write_csv(Path(folder) / "clear.csv", 2000, columns)
        return {"seconds": time_command(folder, "policy init clear.csv --epsilon 20 --out p.yaml")[0]}


POINTS = {
    "trees": lambda depth: grow_tree(100_000, depth),
    "trees, n": lambda rows: grow_tree(rows, 6),
    "itemsets": mine_dense,
    "anonymize": hide,
    "draft": draft,
    "wide": wide,
    "limit": limit,
}


def measure(name, x, root):
    """Return the figures of one point of a checkout; None if it was stopped."""
    paths = [str(root / "src"), str(HERE)]
    environment = {key: text for key, text in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", "benchmarks.cliffs", "--point", name, str(x)],
        cwd=HERE,
        env=environment | {"PYTHONPATH": os.pathsep.join(paths)},
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (PATIENCE, PATIENCE)),  # noqa: PLW1509
    )
    text, _ = process.communicate()
    if process.returncode == -signal.SIGKILL:
        return None
    if process.returncode:
        raise SystemExit(f"{name}, {x}: failed")
    return json.loads(text.splitlines()[-1])


def exponent_of(points, side, on):
    """Return the slope of log seconds on log x over the points that came to their end, None for one point."""
    done = [point for point in points if point.get(side)]
    if len(done) < 2:
        return None
    xs = [point[side].get(on, point["x"]) for point in done]
    return float(np.polyfit(np.log(xs), np.log([point[side]["seconds"] for point in done]), 1)[0])


def measure_curve(name, before, wanted, kept):
    """Return the points of a curve, those that were kept among them, and its exponents."""
    of, xs = CURVES[name]
    points, stopped = {point["x"]: point for point in kept}, set()
    sides = {"before": before, "after": HERE} if before else {"after": HERE}
    for x in xs:
        if wanted and x not in wanted:
            continue
        point = {"x": x}
        for side, root in sides.items():
            if side in stopped:
                continue
            point[side] = measure(name, x, root)
            if point[side] is None:
                stopped.add(side)  # larger ones take longer
        points[x] = point
        print(name, point, flush=True)
    points = [points[x] for x in xs if x in points]
    on = REGRESSED.get(name, of)
    exponents = {side: exponent_of(points, side, on) for side in ("before", "after")}
    return {"of": of, "regressed_on": on, "patience": PATIENCE, "points": points, "exponents": exponents}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*", choices=CURVES, default=list(CURVES))
    parser.add_argument("--before", type=Path, help="another checkout")
    parser.add_argument("--x", type=int, nargs="*", help="only these points; others are kept as they are")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--point", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--write", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.point:
        name, x = options.point
        print(json.dumps(POINTS[name](int(x))))
        return
    if options.write:
        folder, rows, columns = options.write
        write_csv(Path(folder) / "clear.csv", int(rows), int(columns))
        return
    kept = {}
    if options.json and options.json.exists():
        kept = json.loads(options.json.read_text(encoding="utf-8"))
    for name in options.only:
        known = kept.get(name, {}).get("points", ()) if options.x else ()
        measured = measure_curve(name, options.before, options.x, known)
        kept[name] = measured | {"load": f"{os.getloadavg()[2]:.0f}"}
        print(name, kept[name]["exponents"], flush=True)
        if options.json:
            keep(options.json, {curve: kept[curve] for curve in CURVES if curve in kept})


if __name__ == "__main__":
    main()
