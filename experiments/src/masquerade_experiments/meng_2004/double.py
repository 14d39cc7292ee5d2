"""Double projection by two Gaussian matrices, as in Tables 7 and 8: common code of both tables."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

import masquerade as mq
from masquerade_experiments.experiment import Comparison, Row, Setting
from masquerade_experiments.meng_2004 import asia, presentation

if TYPE_CHECKING:
    import pandas as pd

P, K = 1, 1
ROUNDED = 0.005  # rounding error of printed numbers
# standard deviation of the mean of two squared errors over their variance: 1 for normal errors, 1.1 in 150
# simulated runs. The standard deviation of the actual runs is not used: a wrong variance would widen it.
SPREAD = 1.2
CHECK = "masquerade reproduce meng-2004-table-7 meng-2004-table-8"
PAIRS = (("E", "L"), ("D", "B"))  # one variable of each party, both in one family
SHOWS = (
    "Two parties project their columns by two random Gaussian matrices, several times, and a third party "
    "averages the inner products. What one party can count alone stays exact; where columns of both are "
    "needed (E and D), errors are large, and as large as the theoretical variance says."
)
DIMENSIONS = (
    f"The paper does not say how many dimensions were left. Ours are p = {P} and k = {K}, the fewest there "
    "are: the mean error at 25 trials, about 0.19, is then nearest to the 0.2225 of the printed Table 7 "
    "(p = k = 2 gives 0.13)."
)
CLIPPED = "Estimates below 0 are shown as 0 and those above 1 as 1, as in the paper."
OWN_SAMPLES = "The paper shows one sample of 2,000 and one series of trials; we draw new ones in every run."


def settings(trials: int) -> Sequence[Setting]:
    """Return the single setting of a table."""
    return ({"samples": asia.SAMPLES, "trials": trials, "p": P, "k": K},)


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Draw records, learn from doubly projected columns, and compare two inner products with theory."""
    figures = {name: int(str(value)) for name, value in setting.items()}
    frame = asia.network().sample(figures["samples"], seed)
    schema = asia.network().schema
    source = mq.simulate_projection(
        frame,
        asia.OWNERS,
        seed,
        schema=schema,
        dimensions=(figures["p"], figures["k"]),
        trials=figures["trials"],
    )
    clear = mq.tally(frame, schema=schema)
    with warnings.catch_warnings():
        # configurations whose estimated number of records is not positive are part of the result
        warnings.simplefilter("ignore", UserWarning)
        rows = asia.rows(source, clear)
    ratio = surprise(source, clear, figures)
    return [
        {**row, "clipped": min(max(float(str(row["estimate"])), 0.0), 1.0), "surprise": ratio} for row in rows
    ]


def surprise(source: mq.Tally, clear: mq.Tally, figures: Mapping[str, int]) -> float:
    """Return (estimate − x·y)² over the theoretical variance, as a mean over two inner products.

    The expectation of this mean is 1. The variance is [ab + c² + (ab + 3c²)/p]/k + (ab + c²)/p divided by the
    number of trials, with c = x·y and a = b = n.
    """
    signs = np.array([[1.0, -1.0], [-1.0, 1.0]])
    queries = [mq.Query(by=pair) for pair in PAIRS]
    p, k, n = figures["p"], figures["k"], figures["samples"]
    ratios = []
    for estimate, truth in zip(source.answer(queries), clear.answer(queries), strict=True):
        c = float((truth.values * signs).sum())
        variance = (n**2 + c**2 + (n**2 + 3 * c**2) / p) / k + (n**2 + c**2) / p
        ratios.append((float((estimate.values * signs).sum()) - c) ** 2 / (variance / figures["trials"]))
    return float(np.mean(ratios))


def mean_error(frame: pd.DataFrame, column: str) -> pd.Series[float]:
    """Return, for every run, the mean absolute error of the parameters that need both parties."""
    crossing = frame[frame["node"].isin(asia.CROSS)]
    return (crossing[column] - crossing["true"]).abs().groupby(crossing["run"]).mean()


def compare(
    frame: pd.DataFrame, table: Mapping[str, str], why: str = "", *, is_fitted: bool = False
) -> Sequence[Comparison]:
    """Compare parameters and the size of errors with the paper, and the noise with theory.

    If `is_fitted`, the size of the errors is shown but not judged, because the dimensions were chosen by it.
    """
    paper = asia.printed(table)
    found = presentation.over_runs(frame, paper, "clipped")
    cross = found[found["node"].isin(asia.CROSS)]
    printed_error = float((cross["paper"] - cross["true"]).abs().mean())
    errors, exact = mean_error(frame, "clipped"), mean_error(frame, "clear")
    surprises = frame.groupby("run")["surprise"].first()
    alone = frame[~frame["node"].isin(asia.CROSS)]
    runs = len(errors)
    local = Comparison(
        "largest difference from the clear records among nodes that one party counts alone",
        0.0,
        float((alone["estimate"] - alone["clear"]).abs().max()),
        rule="at most",
        kind="claim as read",
        read_as="Only products of both parties' columns are disturbed (§4.2), read as: the others are exact.",
    )
    if runs < 2:  # the error of a single run is unknown
        return [local]
    return [
        *by_parameter(found, runs, why),
        Comparison(
            "mean absolute error of the eight parameters of E and D"
            + (f" ({printed_error:.4f} in print: p and k were chosen by it)" if is_fitted else ""),
            None if is_fitted else printed_error,
            float(errors.mean()),
            stderr=float(errors.std(ddof=1)) / np.sqrt(runs),
            paper_stderr=float(errors.std(ddof=1)),
            reading=ROUNDED,
            why=why,
            check=CHECK if why else "",
        ),
        Comparison(
            "the same, from the clear records (ours must be larger)",
            float(exact.mean()),
            float(errors.mean()),
            stderr=float((errors - exact).std(ddof=1)) / np.sqrt(runs),
            rule="above",
            kind="claim as read",
            read_as="“Large estimation errors”, read as: larger than those of sampling alone.",
        ),
        Comparison(
            "squared error of an inner product over its theoretical variance",
            1.0,
            float(surprises.mean()),
            stderr=SPREAD / np.sqrt(runs),
            kind="printed formula",
        ),
        local,
    ]


def by_parameter(found: pd.DataFrame, runs: int, why: str) -> list[Comparison]:
    """Compare every printed parameter with our mean, each with its own error.

    Parameters that one party counts alone have the standard error of a sample of 2,000 records. Parameters of
    E and D have the standard deviation over our runs, since the printed table is one such run.
    """
    sampling = asia.sampling_errors()
    rows = []
    for row in found.to_dict("records"):
        crossing = row["node"] in asia.CROSS
        spread = float(row["deviation"]) if crossing else sampling[row["parameter"]]
        rows.append(
            Comparison(
                row["parameter"],
                row["paper"],
                row["mean"],
                stderr=spread / np.sqrt(runs),
                paper_stderr=spread,
                reading=ROUNDED,
                why=why,
                check=CHECK if why else "",
            )
        )
    return rows
