"""Disguise and tally frames of 2 million × 6: beside the drawing itself, one pass over codes, and pandas.

    python -m benchmarks.frames [--json FILE]

References, in turns with ours: for categories the drawing of the same codes plus one copy; for text pandas'
own ``astype("category")`` of the same text; for a tally of categories NumPy's pass that renumbers the codes
(``np.take``), as must be done to categories in any order.
"""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
from benchmarks.timing import best_of, json_option, keep

import masquerade as mq
from masquerade.crypto.symmetric import Keystream
from masquerade.disguising.report_draws import disguise_codes, fresh_draws

ROWS, REPEATS = 2_000_000, 9
SIZES = (3, 5, 5, 8, 12, 20)
LABELS = {f"v{place}": [f"category {k}" for k in range(size)] for place, size in enumerate(SIZES)}
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


def main():
    kept = json_option(__doc__)
    generator = np.random.default_rng(1)
    codes = {name: generator.integers(0, len(own), ROWS).astype(np.uint8) for name, own in LABELS.items()}
    rule = policy()
    coded, plain = frames(codes)
    every = np.arange(256, dtype=np.uint8)

    def draw():
        reports = disguise_codes(codes, rule, fresh_draws(Keystream()))
        return [own.copy() for own in reports.values()]

    def renumber():
        return [np.take(every, own) for own in codes.values()]

    def as_categories(frame):
        return lambda: [frame[name].astype("category") for name in LABELS]

    runs = [("drawing", draw), ("pass", renumber)]
    runs += [(f"{name}: astype", as_categories(plain[name])) for name in plain if "pandas" in name]
    runs += [
        (f"disguise {name}", lambda frame=frame: mq.disguise(frame, rule))
        for name, frame in (coded | plain).items()
    ]
    runs += [
        (f"tally {name}", lambda frame=frame: mq.tally(frame, schema=rule)) for name, frame in coded.items()
    ]
    best = best_of(runs, REPEATS)
    results = []
    for name in coded:
        results.append(("disguise categories", f"disguise {name}", "drawing"))
        results.append(("tally categories", f"tally {name}", "pass"))
    for name in plain:
        text = name if name.startswith("pandas") else "pandas str"
        results.append(("disguise text", f"disguise {name}", f"{text}: astype"))
    results = [
        {
            "name": name,
            "seconds": best[name],
            "reference": reference,
            "reference_seconds": best[reference],
            "ratio": best[name] / best[reference],
            "limit": LIMITS[kind],
        }
        for kind, name, reference in sorted(results)
    ]
    for row in results:
        missed = "" if row["ratio"] <= row["limit"] else "  LIMIT MISSED"
        print(f"{row['name']:<30}{row['seconds']:9.4f} s{row['ratio']:7.2f}× {row['reference']}{missed}")
    keep(kept, {"rows": ROWS, "columns": len(LABELS), "results": results})


if __name__ == "__main__":
    main()
