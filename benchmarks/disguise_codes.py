"""Disguise 10 million codes of 5 categories (kept with 0.6, else another with 0.1 each) and time the peers.

Ours draws from AES-256-CTR with exactly rational probabilities; the peers use Mersenne twisters or PCG64.
Slow peers run on fewer records and are scaled up; the table says so.

    python benchmarks/disguise_codes.py [--json FILE]
"""

import argparse
import json
import math
import time
from pathlib import Path

import numba
import numpy as np
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
from pure_ldp.frequency_oracles.direct_encoding import DEClient

from masquerade.crypto.symmetric import Keystream
from masquerade.kernels.draw import draw, draw_table

RECORDS = 10_000_000
CATEGORIES = 5
EPSILON = math.log(6)  # keeps with 6/10, moves to each other with 1/10
REPEATS = 9


def weights():
    return np.ones((CATEGORIES, CATEGORIES), dtype=np.int64) + 5 * np.eye(CATEGORIES, dtype=np.int64)


def ours():
    table = draw_table(np.tile(np.arange(CATEGORIES), (CATEGORIES, 1)), weights(), CATEGORIES)
    source = Keystream()
    return lambda codes: draw(codes, table, source)


def ours_in_one_thread():
    table = draw_table(np.tile(np.arange(CATEGORIES), (CATEGORIES, 1)), weights(), CATEGORIES)
    return lambda codes: draw(
        codes, table, Keystream().__call__
    )  # a plain function is never shared by threads


def lean_numpy():
    """One small integer a record and one lookup, in cache-sized chunks: the leanest of five tried."""
    generator = np.random.Generator(np.random.PCG64())
    reports = np.concatenate([np.repeat(np.arange(CATEGORIES, dtype=np.uint8), row) for row in weights()])
    chunk = 1 << 16

    def disguise(codes):
        out = np.empty_like(codes)
        for start in range(0, codes.size, chunk):
            piece = codes[start : start + chunk]
            drawn = generator.integers(0, 10, piece.size, dtype=np.uint8)
            drawn += piece * np.uint8(10)
            reports.take(drawn, out=out[start : start + chunk], mode="clip")
        return out

    return disguise


def multi_freq_ldpy():
    @numba.njit
    def loop(codes, k, epsilon):
        out = np.empty_like(codes)
        for i in range(codes.size):
            out[i] = GRR_Client(np.int64(codes[i]), k, epsilon)
        return out

    return lambda codes: loop(codes, CATEGORIES, EPSILON)


def pure_ldp():
    client = DEClient(EPSILON, CATEGORIES, index_mapper=lambda code: code)
    return lambda codes: np.array([client.privatise(code) for code in codes.tolist()], dtype=np.uint8)


CONTENDERS = (
    ("masquerade", ours, RECORDS),
    ("masquerade, one thread", ours_in_one_thread, RECORDS),
    ("lean NumPy, PCG64", lean_numpy, RECORDS),
    ("multi-freq-ldpy, compiled loop", multi_freq_ldpy, RECORDS // 20),
    ("pure-ldp", pure_ldp, RECORDS // 50),
)


def seconds(disguise, codes):
    start = time.perf_counter()
    reports = disguise(codes)
    elapsed = time.perf_counter() - start
    kept = np.mean(reports == codes)
    assert abs(kept - 0.6) < 0.01, f"kept {kept}"
    return elapsed * RECORDS / codes.size


def measure():
    codes = np.random.default_rng(1).integers(0, CATEGORIES, RECORDS, dtype=np.uint8)
    prepared = [(name, make(), codes[:records]) for name, make, records in CONTENDERS]
    for _, disguise, piece in prepared:
        disguise(piece[:100_000])
    best = dict.fromkeys((name for name, _, _ in prepared), math.inf)
    for _ in range(REPEATS):  # side by side, so that a noisy minute hits everyone
        for name, disguise, piece in prepared:
            best[name] = min(best[name], seconds(disguise, piece))
    fastest = best["masquerade"]
    return [
        {"name": name, "seconds": best[name], "ratio": best[name] / fastest, "records_run": records}
        for name, _, records in CONTENDERS
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    results = measure()
    print(f"{'disguise 10M codes, K = 5':<34}{'s per 10M':>10}{'ratio':>9}")
    for row in results:
        scaled = "" if row["records_run"] == RECORDS else f"  (scaled from {row['records_run']:,} records)"
        print(f"{row['name']:<34}{row['seconds']:>10.4f}{row['ratio']:>8.1f}×{scaled}")
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
