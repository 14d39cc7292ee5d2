"""Ma (2006), Fig. 6.3: densities of the four iris features, reconstructed after grouping and disguise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import ESTIMATE, GRID, NAIVE, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting, Value
from masquerade_experiments.ma_2006 import iris
from masquerade_experiments.ma_2006.averages import calibration, first_run, mean_of, pooled_calibration
from masquerade_experiments.ma_2006.given import number

SETTING = {"p": 0.3}
NARROW = 0.1  # width of the bars in the histogram of the original data


def settings(quick: bool) -> Sequence[Setting]:  # noqa: ARG001, FBT001  (the contract of experiments)
    """Return the one setting of the figure."""
    return [SETTING]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Return one row for each group of each feature, and one for each bar of its histogram."""
    generator = np.random.default_rng(seed)
    grouped = iris.sample(generator)
    policy = grouped.policy(number(setting, "p"))
    source = mq.tally(mq.simulate(grouped.records, policy, seed=generator), policy)
    clear = mq.tally(grouped.records, schema=policy)
    queries = [mq.Query(by=(name,)) for name in iris.FEATURES]
    rows: list[Row] = []
    for name, table, truth in zip(iris.FEATURES, source.answer(queries), clear.answer(queries), strict=True):
        found = mq.learn.reconstructed_density(source, name, nonnegative="mle")
        checked = calibration(table, truth.values)
        columns = {
            "low": found.edges[:-1],
            "high": found.edges[1:],
            "density": found.values,
            "stderr": found.stderr,
            "clear": truth.values / (truth.total * np.diff(found.edges)),
        }
        shared: dict[str, Value] = {
            "feature": name,
            "misplaced": float(
                np.abs(table.nonnegative("mle").values - truth.values).sum() / (2 * truth.total)
            ),
            "error_ratio": checked.ratio,
            "error_ratio_stderr": checked.stderr,
        }
        rows += [
            {"kind": "group", **shared, **{key: float(column[i]) for key, column in columns.items()}}
            for i in range(len(found.values))
        ]
        rows += [
            {"kind": "histogram", **shared, **bar} for bar in histogram(grouped.records[name].to_numpy())
        ]
    return rows


def histogram(values: np.ndarray) -> list[dict[str, float]]:
    """Return the bars of a fine histogram of clear numbers."""
    edges = np.arange(np.floor(values.min() / NARROW), np.ceil(values.max() / NARROW) + 1) * NARROW
    heights, _ = np.histogram(values, edges, density=True)
    return [
        {"low": float(low), "high": float(high), "clear": float(height)}
        for low, high, height in zip(edges[:-1], edges[1:], heights, strict=True)
    ]


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check that the errors of every reconstruction agree with its standard errors."""
    found = []
    for name in iris.FEATURES:
        rows = frame[frame["feature"] == name]
        checked = pooled_calibration(rows)
        found.append(
            Comparison(
                f"{words(name)}: squared error of the counts over the variance that Theorem 2 claims",
                1.0,
                checked.ratio,
                checked.stderr,
                kind="printed formula",
            )
        )
    wrong = mean_of(frame.drop_duplicates(["run", "feature"])["misplaced"])
    found.append(
        Comparison(
            "Share of the records in a wrong group of the reconstruction",
            None,
            wrong.value,
            wrong.stderr,
            why="The figure is lost and the text gives no number.",
        )
    )
    return found


def words(name: str) -> str:
    """Return a column's name as text."""
    return name.replace("_", " ").capitalize()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the four features of the first run."""
    first = first_run(frame)
    figure = canvas(8.0, 5.2)
    for axes, name in zip(figure.subplots(2, 2).flat, iris.FEATURES, strict=True):
        rows = first[first["feature"] == name]
        bars, groups = rows[rows["kind"] == "histogram"], rows[rows["kind"] == "group"]
        edges = np.append(groups["low"].to_numpy(), groups["high"].iloc[-1])
        axes.bar(bars["low"], bars["clear"], NARROW, align="edge", color=GRID, label="clear records")
        axes.stairs(groups["clear"], edges, color=NAIVE, lw=1.2, ls="--", label="after MGAS")
        axes.stairs(groups["density"], edges, color=ESTIMATE, lw=1.8, label="reconstructed")
        axes.errorbar(
            (groups["low"] + groups["high"]) / 2,
            groups["density"],
            2 * groups["stderr"],
            fmt="none",
            ecolor=ESTIMATE,
            label="± 2 standard errors",
        )
        axes.set(xlabel=f"{words(name).lower()}, cm", ylabel="density", ylim=(0, None))
        open_frame(axes)
    figure.suptitle("Densities of the iris features, 30% of the values changed", x=0.01, ha="left")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def table(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the groups of the first run."""
    first = first_run(frame)
    columns = ["feature", "low", "high", "clear", "density", "stderr"]
    return pd.DataFrame(first.loc[first["kind"] == "group", columns].round(4))


EXPERIMENT = Experiment(
    id="ma-2006-fig-6.3",
    paper="Ma (2006)",
    item="Figure 6.3",
    title="Densities of the iris features after grouping and disguise",
    shows=(
        "The four features of the repeated iris data are grouped by MGAS and disguised; the density of each "
        "is reconstructed and drawn over the histogram of the clear numbers."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    quick_runs=20,
    data=("iris",),
    declared=(
        *iris.DECLARED,
        "The randomization parameter of the figure is not printed: p = 0.3.",
        "The paper shows one run; ours is repeated so that claimed and actual errors can be compared.",
    ),
    corrected=("The density estimate in the text lacks the division by the width of the group.",),
    table=table,
)
