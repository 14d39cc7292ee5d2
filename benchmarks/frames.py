"""Disguise and tally frames of 2 million × 6: beside the drawing itself, one pass over codes, and pandas.

    python -m benchmarks.frames [--json FILE]

References, in turns with ours: for categories the drawing of the same codes plus one copy of those the frame
holds; for text pandas' own ``astype("category")`` of the same text; for a tally of categories NumPy's pass
that renumbers the frame's codes (``np.take``), as must be done to categories in any order. Codes are of one
byte, but of four in Polars' Categorical: its lines say beside that what they are to codes of one byte.
Ratios are by the clock; those of the processor's seconds stand beside them.
"""

import math
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from benchmarks.timing import json_option, keep

import masquerade as mq
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import disguise_codes, fresh_draws

ROWS, REPEATS = 2_000_000, 9
SIZES = (3, 5, 5, 8, 12, 20)
LABELS = {f"v{place}": [f"category {k}" for k in range(size)] for place, size in enumerate(SIZES)}
BYTES = "codes of a byte"
LIMITS = {"disguise categories": 2.0, "disguise text": 1.3, "tally categories": 1.2}


def policy():
    """Return a policy that keeps a value with probability 0.6."""
    channel = {"kind": "symmetric", "p": "0.4"}
    variables = {name: {"categories": labels, "channel": channel} for name, labels in LABELS.items()}
    return mq.Policy.from_dict({"masquerade": 1, "variables": variables})


def frames(codes):
    """Return the same records in every kind of frame: of categories, and of text."""
    categories = pd.DataFrame(
        {name: pd.Categorical.from_codes(codes[name], labels) for name, labels in LABELS.items()}
    )
    table = pa.table(
        {
            name: pa.DictionaryArray.from_arrays(pa.array(codes[name]), pa.array(labels))
            for name, labels in LABELS.items()
        }
    )
    text = pa.table({name: table[name].cast(pa.string()) for name in LABELS})
    polars = pl.from_arrow(text)
    coded = {
        "pandas category": categories,
        "polars Categorical": polars.cast(pl.Categorical),
        "polars Enum": pl.DataFrame([polars[name].cast(pl.Enum(labels)) for name, labels in LABELS.items()]),
        "arrow dictionary": table,
    }
    plain = {
        "pandas str": categories.astype("str"),
        "pandas object": categories.astype("str").astype(object),
        "polars String": polars,
        "arrow string": text,
    }
    return coded, plain


def codes_of(frames):
    """Return the codes that every frame of categories holds, as it holds them."""
    return {
        "pandas category": [frames["pandas category"][name].array.codes for name in LABELS],
        "polars Categorical": [
            frames["polars Categorical"][name].to_physical().to_numpy() for name in LABELS
        ],
        "polars Enum": [frames["polars Enum"][name].to_physical().to_numpy() for name in LABELS],
        "arrow dictionary": [frames["arrow dictionary"][name].chunk(0).indices.to_numpy() for name in LABELS],
    }


def references(codes, rule, coded, plain):
    """Return what is compared with, by name."""
    every = np.arange(256, dtype=np.uint8)

    def drawing(held):
        def run():
            reports = disguise_codes(codes, rule, fresh_draws(Keystream()))
            return reports, [own.copy() for own in held]

        return run

    def renumbering(held):
        return lambda: [np.take(every, own) for own in held]

    def as_categories(frame):
        return lambda: [frame[name].astype("category") for name in LABELS]

    own = codes_of(coded)
    one_byte = {BYTES: list(codes.values())}
    return (
        {f"drawing, {name}": drawing(held) for name, held in (own | one_byte).items()}
        | {f"pass, {name}": renumbering(held) for name, held in (own | one_byte).items()}
        | {f"astype, {name}": as_categories(plain[name]) for name in plain if "pandas" in name}
    )


def least(runs, repeats):
    """Return the least seconds of each by the clock and of the processor, in turns."""
    best = dict.fromkeys(runs, (math.inf, math.inf))
    for _ in range(repeats):
        for name, run in runs.items():
            clock, processor = time.perf_counter(), time.process_time()
            run()
            spent = time.perf_counter() - clock, time.process_time() - processor
            best[name] = tuple(map(min, best[name], spent))
    return best


def main():
    kept = json_option(__doc__)
    generator = np.random.default_rng(1)
    codes = {name: generator.integers(0, len(own), ROWS).astype(np.uint8) for name, own in LABELS.items()}
    rule = policy()
    coded, plain = frames(codes)
    disguised = {
        f"disguise {name}": lambda frame=frame: mq.disguise(frame, rule)
        for name, frame in (coded | plain).items()
    }
    tallied = {
        f"tally {name}": lambda frame=frame: mq.tally(frame, schema=rule) for name, frame in coded.items()
    }
    best = least(references(codes, rule, coded, plain) | disguised | tallied, REPEATS)

    def row(kind, name, reference, narrow=None):
        clock, processor = (ours / theirs for ours, theirs in zip(best[name], best[reference], strict=True))
        found = {
            "name": name,
            "seconds": best[name][0],
            "reference": reference,
            "reference_seconds": best[reference][0],
            "ratio": clock,
            "ratio_of_processor_time": processor,
            "limit": LIMITS[kind],
        }
        return found | (
            {} if narrow is None else {"ratio_to_codes_of_a_byte": best[name][0] / best[narrow][0]}
        )

    results = [
        row(f"{what} categories", f"{what} {name}", f"{reference}, {name}", f"{reference}, {BYTES}")
        for what, reference in (("disguise", "drawing"), ("tally", "pass"))
        for name in coded
    ]
    for name in plain:
        text = name if name.startswith("pandas") else "pandas str"
        results.append(row("disguise text", f"disguise {name}", f"astype, {text}"))
    for line in results:
        missed = "" if line["ratio"] <= line["limit"] else "  LIMIT MISSED"
        narrow = line.get("ratio_to_codes_of_a_byte")
        more = "" if narrow is None else f" ({narrow:.2f}× for codes of a byte)"
        print(
            f"{line['name']:<28}{line['seconds']:8.4f} s{line['ratio']:6.2f}×, of the processor "
            f"{line['ratio_of_processor_time']:.2f}×, {line['reference']}{more}{missed}",
            flush=True,
        )
    keep(kept, {"rows": ROWS, "columns": len(LABELS), "results": results})


if __name__ == "__main__":
    main()
