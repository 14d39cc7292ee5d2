"""Disguised records of a made-up health survey in Parquet: ten text columns, 288,000 possible rows.

Drawn from a network of ten variables, so that there is a structure to find.
"""

import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import masquerade as mq

BLOCK = 1_000_000
SIZES = {
    "sex": 2,
    "age": 5,
    "region": 5,
    "education": 5,
    "work": 4,
    "insured": 3,
    "smoker": 3,
    "exercise": 4,
    "illness": 2,
    "visits": 4,
}
PARENTS = {
    "sex": (),
    "age": (),
    "region": (),
    "education": ("age",),
    "work": ("sex", "education"),
    "insured": ("work",),
    "smoker": ("sex", "education"),
    "exercise": ("age", "smoker"),
    "illness": ("age", "smoker"),
    "visits": ("illness", "insured"),
}
NAMES = tuple(SIZES)
CLEAR = ("sex", "age", "region")
POLICY = mq.Policy.build(
    {name: [f"{name} {code}" for code in range(size)] for name, size in SIZES.items()},
    {name: mq.channels.symmetric(size, "0.2") for name, size in SIZES.items() if name not in CLEAR},
)
SCHEMA = pa.schema([(name, pa.string()) for name in NAMES], {"masquerade.policy": POLICY.id})


def tables():
    """Return cumulative probabilities of every variable given its parents; parents with power."""
    generator = np.random.default_rng(7)
    found = {}
    for name, parents in PARENTS.items():
        configurations = int(np.prod([SIZES[parent] for parent in parents], dtype=int))
        found[name] = generator.dirichlet(np.full(SIZES[name], 1.5), configurations).cumsum(axis=1)
    return found


def drawn(records, chances, generator):
    """Return true records as columns with a dictionary."""
    codes = {}
    for name, parents in PARENTS.items():
        at = np.zeros(records, dtype=np.int32)
        for parent in parents:
            at = at * SIZES[parent] + codes[parent]
        luck = generator.random(records, dtype=np.float32)
        codes[name] = np.zeros(records, dtype=np.int8)
        for below in chances[name].T[:-1].astype(np.float32):
            codes[name] += luck > below[at]
    return pa.table(
        {
            name: pa.DictionaryArray.from_arrays(pa.array(column), list(POLICY.schema[name].categories))
            for name, column in codes.items()
        }
    )


def write_parts(folder, records, parts, say=lambda _path: None):
    """Write disguised records as `parts` files, two at a time; return their paths."""
    chances = tables()
    paths = [Path(folder) / f"part-{part:02d}.parquet" for part in range(parts)]

    def write(part):
        left = records * (part + 1) // parts - records * part // parts
        generator = np.random.default_rng([8, part])
        with pq.ParquetWriter(paths[part], SCHEMA) as writer:
            while left:
                block = min(left, BLOCK)
                writer.write_table(mq.disguise(drawn(block, chances, generator), POLICY).cast(SCHEMA))
                left -= block
        say(paths[part])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, range(parts)))
    return paths


if __name__ == "__main__":  # try the speed of it: python -m benchmarks.large_data
    with tempfile.TemporaryDirectory() as trial:
        start = time.perf_counter()
        size = sum(path.stat().st_size for path in write_parts(trial, 4 * BLOCK, 2))
        print(f"{(time.perf_counter() - start) / 4:.2f} s and {size / 4 / BLOCK:.2f} bytes a million, a row")
