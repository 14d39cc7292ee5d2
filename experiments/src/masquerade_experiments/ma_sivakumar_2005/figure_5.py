"""Fig. 5: distance of the parameters of C, D and F from the clear records' parameters, by sample size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from masquerade.report import MUTED, SERIES, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_sivakumar_2005.accuracy import distances, predicted
from masquerade_experiments.ma_sivakumar_2005.distance import PROJECTED, Expected
from masquerade_experiments.ma_sivakumar_2005.figure_4 import GOOD, WITHOUT
from masquerade_experiments.ma_sivakumar_2005.figure_4 import RECORDS as GOOD_RECORDS
from masquerade_experiments.ma_sivakumar_2005.runs import Measured, number, over_runs, with_errors
from masquerade_experiments.ma_sivakumar_2005.seven_nodes import ARROWS, PLACES, SHOWN
from masquerade_experiments.summary import means

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

LEVELS = (0.1, 0.2, 0.3, 0.4)
FEWEST = 2500
DOUBLINGS = (1, 2, 3, 4, 5, 6, 7, 8)
QUICK_DOUBLINGS = (1, 2, 3, 4)
FEWEST_SIZES = 3
ID = "ma-sivakumar-2005-fig-5"


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the levels of randomization, each with the number of times that 2,500 records are doubled."""
    return [{"p": p, "doublings": (QUICK_DOUBLINGS if quick else DOUBLINGS)[-1]} for p in LEVELS]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return the distances of one data set, disguised once, and of its first records at smaller sizes."""
    doublings = range(1, int(number(setting, "doublings")) + 1)
    return distances(number(setting, "p"), [FEWEST * 2**k for k in doublings], seed)


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Compare the slopes with −1, and the claim of the text for very many records."""
    return with_errors([*slopes(frame), *many_records(frame)])


def slopes(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Compare the log-log slope of the mean distance with −1, wherever nothing was clipped."""
    for node in SHOWN:
        for p in LEVELS:
            rows = unclipped(frame[(frame["node"] == node) & (frame["p"] == p)])
            if rows["n"].nunique() < FEWEST_SIZES:
                continue
            found = slope(rows, relative_spread(node, p))
            yield Comparison(
                f"node {node}, p = {p}: power of n that the mean distance follows, "
                f"{rows['n'].min():,} to {rows['n'].max():,} records",
                -1.0,
                found.value,
                found.stderr,
                kind="printed formula",
            )


def unclipped(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of sizes above twice the largest size at which a table row was clipped in any run.

    Just above that size, rows are unclipped only by chance, which would bias the distances.
    """
    spoilt = rows.loc[rows["clipped_rows"] > 0, "n"]
    return rows if spoilt.empty else rows[rows["n"] > 2 * spoilt.max()]


def relative_spread(node: str, p: float) -> float:
    """Return the coefficient of variation of the distance by Theorem 2, which is the same at every size."""
    theory = predicted(node, p, FEWEST)
    return theory.deviation / theory.mean


def slope(rows: pd.DataFrame, spread: float) -> Measured:
    """Return the least-squares slope of log mean distance on log n, and its standard error.

    Formula: Σ c_i log m_i, c the least-squares weights; variance (spread²/R) Σ c_i c_j r_ij over R runs,
    r_ij = min(n_i, n_j)/max(n_i, n_j): the correlation of squared errors where one set of records is part of
    the other.
    """
    means = rows.groupby("n")["ckl"].mean()
    sizes = means.index.to_numpy(dtype=float)
    centred = np.log(sizes) - np.log(sizes).mean()
    weights = centred / (centred @ centred)
    shared = np.minimum.outer(sizes, sizes) / np.maximum.outer(sizes, sizes)
    variance = spread**2 / rows["run"].nunique() * (weights @ shared @ weights)
    return Measured(float(weights @ np.log(means.to_numpy())), float(np.sqrt(variance)))


def many_records(frame: pd.DataFrame) -> Iterator[Comparison]:
    """Compare the largest size at p = 0.4 with 10,000 records at p = 0.3, and with itself without a miner."""
    most, hardest = FEWEST * 2 ** DOUBLINGS[-1], LEVELS[-1]

    def mean(rows: pd.DataFrame, p: float, n: int, column: str = "ckl") -> float:
        return float(rows.loc[(rows["p"] == p) & (rows["n"] == n), column].mean())

    if most not in set(frame["n"]):
        return
    for node in SHOWN:
        chosen = frame[frame["node"] == node]
        gap = over_runs(chosen, lambda rows: mean(rows, hardest, most) - mean(rows, GOOD, GOOD_RECORDS))
        yield Comparison(
            f"node {node}: mean distance with {most:,} records at p = {hardest} less that with "
            f"{GOOD_RECORDS:,} at p = {GOOD}, which the text calls accurate",
            0.0,
            gap.value,
            gap.stderr,
            rule="below",
            kind="claim as read",
            read_as="“Both good privacy and good accuracy” with many records, read as: a smaller distance.",
            why=scattered(predicted(node, hardest, most), predicted(node, GOOD, GOOD_RECORDS)),
            check=f"masquerade reproduce {ID} --runs 1000",
        )
        parties = over_runs(
            chosen,
            lambda rows: mean(rows, hardest, most, "ckl_without_miner") / mean(rows, hardest, most),
        )
        yield Comparison(
            f"node {node}: mean distance with {most:,} records at p = {hardest} without a miner over that "
            "with one (less is disguised)",
            1.0,
            parties.value,
            parties.stderr,
            rule="below",
            kind="claim as read",
            read_as=WITHOUT,
        )


def scattered(many: Expected, few: Expected) -> str:
    """Describe the expected difference of two mean distances, and the number of runs that would detect it."""
    apart, deviation = few.mean - many.mean, float(np.hypot(many.deviation, few.deviation))
    return (
        f"Theorem 2 expects {many.mean:.4f} for {few.mean:.4f}, and one run scatters by {deviation:.3f}: "
        f"it takes about {(4 * deviation / apart) ** 2:,.0f} runs to tell these apart."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw one panel per node, with logarithmic axes, on which 1/n is a straight line."""
    figure = canvas(9.0, 4.2)
    panels = figure.subplots(1, len(SHOWN), sharey=True)
    for axes, node in zip(panels, SHOWN, strict=True):
        for colour, p in zip(SERIES, LEVELS, strict=False):
            by_size = frame[(frame["node"] == node) & (frame["p"] == p)].groupby("n")
            mean, deviation = by_size["ckl"].mean(), by_size["ckl"].std()
            axes.plot(mean.index, mean, color=colour, marker="o", markersize=3.5, label=f"p = {p}")
            axes.fill_between(mean.index, mean, mean + deviation, color=colour, alpha=0.15, linewidth=0)
            axes.plot(mean.index, [predicted(node, p, int(n)).mean for n in mean.index], ":", color=MUTED)
            parties = by_size["ckl_without_miner"].mean()
            if parties.any():  # a local node is learnt exactly: zero has no position on a logarithmic axis
                axes.plot(parties.index, parties, "--", color=colour, linewidth=1)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("records")
        axes.set_title(f"node {node}", fontsize=10)
        open_frame(axes)
        axes.tick_params(which="minor", length=0)
    panels[0].plot([], [], "--", color=MUTED, linewidth=1, label="without a miner (Model I)")
    panels[0].plot([], [], ":", color=MUTED, label="1/n, by Theorem 2")
    panels[0].set_ylabel("CKL distance (nats)")
    figure.suptitle(
        "Distance from the parameters of the clear records, with a miner and without", fontsize=11
    )
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
    return figure


SHOWS = (
    "The distance between the parameters of disguised and of clear records falls as one over the number of "
    "records wherever no negative estimate had to be projected: more records allow more privacy at the same "
    "accuracy. Where rows are projected (few records, large p) the distance levels off instead. Without a "
    "miner C and D are learnt better still, and F, a local node, exactly."
)
CHOSEN = (
    "As the text has it, the sizes of one run are beginnings of one data set of 640,000 records; every run "
    "draws its own. The quick version stops at 40,000."
)
COMPARED = (
    "The values of the figure are lost. Compared is the power of n that the mean distance follows, over the "
    "sizes beyond twice the largest with a projected row; its standard error allows for the shared records."
)

EXPERIMENT = Experiment(
    id=ID,
    paper="Ma & Sivakumar (2005)",
    item="Figure 5",
    title="Accuracy of parameters against the number of records",
    shows=SHOWS,
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    printed_runs=10,
    quick_runs=4,
    declared=(ARROWS, PLACES, CHOSEN, COMPARED),
    corrected=(PROJECTED,),
    table=lambda frame: means(frame.drop(columns="doublings"), ("p", "n")),
)
