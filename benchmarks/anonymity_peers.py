"""Other packages for k-anonymity: how many cells of a table they hide, and how long it takes.

It needs nothing of ours, so that it runs in any environment that has some of them; it prints JSON:

    python anonymity_peers.py TABLE.csv 2,5,10,50

Every package gets what suits it best: suppression as the only level of its hierarchies, and the limit of
deleted rows at which it hides least. A deleted row hides all its cells, a generalised cell is hidden too.
"""

import contextlib
import importlib
import io
import json
import sys
import time

import pandas as pd

LIMITS = (10, 20, 30, 50, 100)  # percent of the rows that may be deleted


def hidden_cells(shown, table, k):
    """Count the cells that are not shown as they were, after checking that the rest is k-anonymous."""
    names = list(table.columns)
    assert shown.groupby(names, dropna=False).size().min() >= k
    kept = sum(int((shown[name].astype(str).isin(set(table[name].astype(str)))).sum()) for name in names)
    return table.size - kept


def anonypy(table, k):
    """Mondrian, which generalises to ranges and lists of values."""
    module = importlib.import_module("anonypy")
    words = [name for name in table.columns if not pd.api.types.is_numeric_dtype(table[name])]
    typed = table.astype(dict.fromkeys(words, "category")).assign(_all="x")
    typed["_all"] = typed["_all"].astype("category")
    found = module.Preserver(typed, list(table.columns), "_all").anonymize_k_anonymity(k)
    rows = pd.DataFrame(found).map(lambda cell: cell[0] if isinstance(cell, list) else cell)
    return hidden_cells(rows.loc[rows.index.repeat(rows["count"]), list(table.columns)], table, k)


def anonymity_api(table, k):
    """Mondrian over numbers; words are numbered for it, since it splits by nothing else."""
    module = importlib.import_module("anonymity_api.anonymity")
    coded = table.apply(lambda own: own if own.dtype.kind == "i" else own.astype("category").cat.codes)
    shown = module.k_anonymity(coded.copy(), list(table.columns), k)
    return hidden_cells(shown[list(table.columns)], coded, k)


def anjana(table, k):
    """Columns and rows suppressed as a whole."""
    module = importlib.import_module("anjana.anonymity")
    stars = pd.Series(["*"] * len(table)).to_numpy()
    levels = {name: {0: table[name].to_numpy(), 1: stars} for name in table.columns}
    best = table.size
    for limit in LIMITS:
        with contextlib.redirect_stdout(io.StringIO()):
            shown = module.k_anonymity(table.copy(), [], list(table.columns), k, limit, levels)
        if len(shown):
            best = min(best, hidden_cells(shown[list(table.columns)], table, k))
    return best


def crowds(table, k):
    """Optimal lattice: columns and rows suppressed as a whole."""
    ola = importlib.import_module("crowds.kanonymity.ola")
    rule = importlib.import_module("crowds.kanonymity.generalizations").GenRule
    best = table.size
    for limit in LIMITS:
        done = ola.anonymize(table.copy(), {name: rule([]) for name in table.columns}, k=k, max_sup=limit)
        if done is not None and len(done[0]):
            best = min(best, hidden_cells(done[0][list(table.columns)].fillna("*"), table, k))
    return best


def python_anonymity(table, k):
    """Datafly: columns and rows suppressed as a whole."""
    module = importlib.import_module("anonymity.tools")
    levels = {name: {0: table[name].to_numpy(), 1: ["*"] * len(table)} for name in table.columns}
    best = table.size
    for limit in LIMITS:
        with contextlib.redirect_stdout(io.StringIO()):
            shown = module.data_fly(table.copy(), [], list(table.columns), k, limit, levels)
        if len(shown):
            best = min(best, hidden_cells(shown[list(table.columns)], table, k))
    return best


PEERS = {
    "anonypy": anonypy,
    "anonymity_api": anonymity_api,
    "anjana": anjana,
    "crowds": crowds,
    "python-anonymity": python_anonymity,
}


def measured(run, table, k):
    """Return cells and seconds of one package, or why there are none."""
    start = time.perf_counter()
    try:
        cells = run(table, k)
    except ImportError as error:
        return {"problem": f"not installed ({error.name})"}
    except Exception as error:  # noqa: BLE001  (whatever another package raises is told, not raised)
        return {"problem": f"{type(error).__name__}: {error}"[:160]}
    return {"cells": cells, "seconds": time.perf_counter() - start}


def main():
    table = pd.read_csv(sys.argv[1])
    wanted = [int(k) for k in sys.argv[2].split(",")]
    found = {name: {k: measured(run, table, k) for k in wanted} for name, run in PEERS.items()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
