"""Synthetic records by MST or AIM of the package dpmm, which needs an environment of its own (old NumPy).

    python -m venv DPMM && DPMM/bin/pip install dpmm==0.1.9
    DPMM/bin/python benchmarks/noise_dpmm.py INPUT.npz OUTPUT.npz

`noise_peers.py` calls it. INPUT has `codes` (records × variables), `sizes`, and `options`: method, ε, δ, the
share of ρ, the seed and the number of processor seconds. Neighbours of dpmm differ by a record that is added
or removed; at half of its ρ, the noise of its tables is that of a substituted record.
"""

import json
import resource
import sys
import time

import numpy as np
import pandas as pd
from dpmm.models.aim import AIMGM
from dpmm.models.base.mechanisms import cdp_rho
from dpmm.models.mst import MSTGM
from numpy.random import RandomState

TIMES = 10  # synthetic records for tables, by the number of records


def epsilon_for(rho, delta):
    """Return the ε at which dpmm spends ρ."""
    low, high = 1e-3, 100.0
    for _ in range(60):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if cdp_rho(middle, delta) <= rho else (low, middle)
    return low


def main():
    """Fit a model, and write records for tables and records for a search."""
    given = np.load(sys.argv[1])
    options = json.loads(str(given["options"]))
    resource.setrlimit(resource.RLIMIT_CPU, (options["seconds"], options["seconds"] + 5))
    frame = pd.DataFrame(given["codes"], columns=[f"v{i}" for i in range(given["codes"].shape[1])])
    domain = {name: int(size) for name, size in zip(frame, given["sizes"], strict=True)}
    rho = options["share"] * cdp_rho(options["epsilon"], options["delta"])
    epsilon = epsilon_for(rho, options["delta"])
    maker = {"MST": MSTGM, "AIM": AIMGM}[options["method"]]
    model = maker(
        epsilon=epsilon,
        delta=options["delta"],
        domain=domain,
        random_state=RandomState(options["seed"]),
        n_jobs=1,
    )
    model.fit(frame)
    fitted = time.process_time()
    many, some = (model.generate(n_records=k * len(frame))[list(frame)] for k in (TIMES, 1))
    np.savez(sys.argv[2], many=many.to_numpy(), some=some.to_numpy(), epsilon=epsilon, seconds=fitted)


if __name__ == "__main__":
    main()
