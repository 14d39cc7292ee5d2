"""Ma (2006), Fig. 3.3: the odds ratio of two independent variables, from clear and from disguised records."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import ESTIMATE, MUTED, NAIVE, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting
from masquerade_experiments.ma_2006.averages import mean_of
from masquerade_experiments.ma_2006.given import number, whole

SETTING = {"n": 10_000, "p": 0.4}
NAMES = ("x1", "x2")
CHI_SQUARE_95 = 3.841458820694124  # one degree of freedom
FEWEST = 20  # least number of runs for which quartiles are compared
WIDEST = 6.0  # larger odds ratios are drawn at the edge


def settings(quick: bool) -> Sequence[Setting]:  # noqa: ARG001, FBT001  (the contract of experiments)
    """Return the one setting of the figure."""
    return [SETTING]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return both odds ratios of one sample, and whether each test rejects independence."""
    generator = np.random.default_rng(seed)
    clear = pd.DataFrame({name: generator.integers(1, 3, whole(setting, "n")) for name in NAMES})
    policy = policy_of(number(setting, "p"))
    query = mq.Query(by=NAMES)
    (truth,) = mq.tally(clear, schema=policy).answer([query])
    (table,) = mq.tally(mq.simulate(clear, policy, seed=generator), policy).answer([query])
    return [
        {
            "clear": mq.evaluate.odds_ratio(truth).value,
            "estimated": mq.evaluate.odds_ratio(table).value,
            "clear_test": ordinary_test(truth) > CHI_SQUARE_95,
            "ordinary_test": ordinary_test(table) > CHI_SQUARE_95,
            "corrected_test": corrected_test(table) > CHI_SQUARE_95,
        }
    ]


@cache
def policy_of(p: float) -> mq.Policy:
    """Return the disguise of both variables."""
    channel = mq.channels.binary(p)
    return mq.Policy.build({name: [1, 2] for name in NAMES}, dict.fromkeys(NAMES, channel))


def ordinary_test(table: mq.CountTable) -> float:
    """Return Pearson's statistic, which treats estimated counts as clear counts."""
    counts = table.values
    return float(table.total * cross(table) ** 2 / (counts.sum(axis=0).prod() * counts.sum(axis=1).prod()))


def corrected_test(table: mq.CountTable) -> float:
    """Return (n11·n22 − n12·n21)² over its variance, by the table's own covariance (delta method)."""
    (a, b), (c, d) = table.values.tolist()
    return cross(table) ** 2 / float(table.covariance.quadratic(np.array([[d, -c], [-b, a]])))


def cross(table: mq.CountTable) -> float:
    """Return n11·n22 − n12·n21, 0 for independent variables."""
    (a, b), (c, d) = table.values.tolist()
    return float(a * d - b * c)


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check that the estimate varies more, and that the ordinary test rejects too often."""
    ordinary, corrected = mean_of(frame["ordinary_test"] * 1.0), mean_of(frame["corrected_test"] * 1.0)
    by_clear = mean_of(frame["clear_test"] * 1.0)
    return [
        *wider(frame),
        Comparison(
            "Runs in which the ordinary 5% test calls the variables dependent",
            0.5,
            ordinary.value,
            ordinary.stderr,
            rule="above",
            kind="claim as read",
            read_as="“With high probability”, read as: in more than half of the runs.",
        ),
        Comparison(
            "The same from clear records",
            None,
            by_clear.value,
            by_clear.stderr,
            why="The test promises 0.05; the paper does not show it.",
        ),
        Comparison(
            "The same with the error of the estimated counts taken into account",
            None,
            corrected.value,
            corrected.stderr,
            why="The test promises 0.05; the paper does not show it.",
        ),
    ]


def wider(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Compare the two quartile ranges, with a standard error over resampled runs; empty for few runs."""
    if len(frame) < FEWEST:
        return []
    pairs = frame[["estimated", "clear"]].to_numpy()
    generator = np.random.default_rng(0)
    drawn = pairs[generator.integers(len(pairs), size=(200, len(pairs)))]
    ratios = quartile_range(drawn[..., 0]) / quartile_range(drawn[..., 1])
    return [
        Comparison(
            "Spread of the estimated odds ratio over that of the clear one (quartiles)",
            1.0,
            float(quartile_range(pairs[:, 0]) / quartile_range(pairs[:, 1])),
            float(ratios.std(ddof=1)),
            rule="above",
            kind="claim as read",
            read_as="“More widely spread”, read as: a larger range between the quartiles.",
        )
    ]


def quartile_range(values: np.ndarray) -> np.ndarray:
    """Return the range of the middle half along the last axis."""
    low, high = np.quantile(values, (0.25, 0.75), axis=-1)
    return np.asarray(high - low)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw both histograms on the same scale."""
    figure = canvas(8.0, 3.4)
    pairs = zip(
        figure.subplots(1, 2, sharex=True),
        (("clear", "From clear records", NAIVE), ("estimated", "From disguised records, p = 0.4", ESTIMATE)),
        strict=True,
    )
    for axes, (column, title, colour) in pairs:
        values = np.clip(frame[column].to_numpy(), 0, WIDEST)
        axes.hist(values, bins=np.linspace(0, WIDEST, 61).tolist(), color=colour)
        axes.axvline(1, color=MUTED, lw=0.9, ls="--")
        axes.set(xlabel="sample odds ratio", ylabel="runs", xlim=(0, WIDEST))
        axes.set_title(title, loc="left")
        open_frame(axes)
    outside = int(((frame["estimated"] > WIDEST) | (frame["estimated"] < 0)).sum())
    axes.text(
        0.98, 0.95, f"{outside} of {len(frame)} runs beyond", transform=axes.transAxes, ha="right", va="top"
    )
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return quartiles of the odds ratios, and the rejection rates of the tests."""
    quartiles = {
        column: frame[column].quantile([0.05, 0.25, 0.5, 0.75, 0.95]).round(3)
        for column in ("clear", "estimated")
    }
    return pd.DataFrame(quartiles).rename_axis("quantile").reset_index()


EXPERIMENT = Experiment(
    id="ma-2006-fig-3.3",
    paper="Ma (2006)",
    item="Figure 3.3",
    title="Independence is lost more easily than dependence",
    shows=(
        "10,000 records of two independent binary variables are disguised with p = 0.4. The odds ratio from "
        "estimated counts scatters far more widely around 1 than that from clear records, so a test that "
        "takes estimated counts for counted ones calls the variables dependent. With the covariance of the "
        "estimated counts a test keeps its level."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    printed_runs=2_000,
    quick_runs=100,
    declared=(
        "The distributions of the two variables are not printed: both values are equally likely.",
        "The test that the text has in mind is not named: Pearson's, at the 5% level.",
    ),
    table=table,
)
