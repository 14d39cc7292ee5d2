"""The two graphs of each figure, the claims of §4.3, and our choices."""

from __future__ import annotations

import math

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from masquerade.report import ESTIMATE, MUTED, NAIVE, canvas, open_frame
from masquerade_experiments.experiment import Comparison

NEAREST = 0.51  # the θ closest to one half
FAIRLY = 0.05  # largest loss of accuracy that we count as "fairly accurate"

NEAR_THE_COMMONER = (
    "From clear records, cut in halves, the classifier beats the commoner class by a few points only; what "
    "the disguise takes can be more than that."
)

SHOWS = (
    "A naive Bayes classifier learnt from records all of whose attributes were reported as they are with "
    "probability θ, else all reversed, the class not disguised: mean and variance of its accuracy over "
    "the runs. Beside the accuracy on clear test records stands the one estimated from test records that "
    "were disguised in the same way. It is right on average, and its error grows as θ nears one half."
)
DECLARED = (
    (
        "“The median point of the range” can be the median or the middle of the range. Every attribute is "
        "cut between two neighbouring values such that the halves differ least in size; the values of an "
        "attribute without numbers are in alphabetical order."
    ),
    "The division of the records is not stated: every third is for testing, the others for training.",
    "Negative estimated counts are set to 0, and 1 is added to every count (Laplace).",
    (
        "The values of the graphs are lost. “Fairly accurate” for θ up to 0.4 and from 0.6 is read as: at "
        f"most {FAIRLY} of the accuracy is lost."
    ),
)
CORRECTED = (
    (
        "The order of the vectors in Eq. 7 does not match M₂; for the one group used here both are the "
        "same pair of equations."
    ),
)


def mean_and_error(values: pd.Series[float]) -> tuple[float, float]:
    """Return the mean over runs and its standard error, which is nan for a single run."""
    spread = float(values.std(ddof=1)) if len(values) > 1 else math.nan
    return float(values.mean()), spread / len(values) ** 0.5


def comparisons(frame: pd.DataFrame) -> list[Comparison]:
    """Check the text: exact at the ends, fairly accurate outside (0.4, 0.6), worst near one half."""
    lost = frame["benchmark"] - frame["accuracy"]
    by_theta = {theta: mean_and_error(own) for theta, own in lost.groupby(frame["theta"])}
    rows = [
        Comparison(
            f"Accuracy lost at θ = {theta:g}, largest over runs",
            0.0,
            float(lost[frame["theta"] == theta].abs().max()),
            kind="claim as read",
            read_as="“Exactly the same as … when the original classification algorithm is applied”.",
        )
        for theta in (0.0, 1.0)
    ]
    rows += [
        Comparison(
            f"Accuracy lost at θ = {theta}",
            FAIRLY,
            *by_theta[theta],
            rule="below",
            kind="claim as read",
            read_as=f"“Fairly accurate classifiers”, read as: less than {FAIRLY} of the accuracy is lost.",
        )
        for theta in (0.4, 0.6)
    ]
    gain = frame["accuracy"] - frame["commoner_class"]
    rows += [
        Comparison(
            f"Accuracy at θ = {theta} minus that of always naming the commoner class",
            0.0,
            *mean_and_error(gain[frame["theta"] == theta]),
            rule="above",
            why=NEAR_THE_COMMONER if theta in (0.4, 0.6) else "",
            kind="claim as read",
            read_as="“Fairly accurate classifiers”, read as: better than a classifier that learnt nothing.",
        )
        for theta in (0.0, 0.4, 0.6, 1.0)
    ]
    rows.append(
        Comparison(
            f"Accuracy lost at θ = {NEAREST} minus that at θ = 0.6",
            0.0,
            by_theta[NEAREST][0] - by_theta[0.6][0],
            (by_theta[NEAREST][1] ** 2 + by_theta[0.6][1] ** 2) ** 0.5,
            rule="above",
            kind="claim as read",
            read_as="“When θ is around 0.5, the mean deviates a lot”, read as: more is lost at 0.51.",
        )
    )
    rows.append(spread_near_half(frame))
    for theta in (0.4, 0.6):
        own = frame[frame["theta"] == theta]
        rows.append(
            Comparison(
                f"Accuracy by disguised test records minus by clear ones, θ = {theta}",
                0.0,
                *mean_and_error(own["by_reports"] - own["accuracy"]),
                kind="printed formula",
            )
        )
    return rows


def spread_near_half(frame: pd.DataFrame) -> Comparison:
    """Check that the variance is larger near one half, from the squared deviations of the runs."""
    squared = {}
    for theta in (NEAREST, 0.6):
        accuracy = frame[frame["theta"] == theta]["accuracy"]
        scale = len(accuracy) / max(len(accuracy) - 1, 1)
        squared[theta] = mean_and_error(scale * (accuracy - accuracy.mean()) ** 2)
    return Comparison(
        f"Variance of the accuracy at θ = {NEAREST} minus that at θ = 0.6",
        0.0,
        squared[NEAREST][0] - squared[0.6][0],
        (squared[NEAREST][1] ** 2 + squared[0.6][1] ** 2) ** 0.5,
        rule="above",
        kind="claim as read",
        read_as="“The variance is much larger” near 0.5, read as: larger at 0.51 than at 0.6.",
    )


def averages(frame: pd.DataFrame) -> pd.DataFrame:
    """Return mean and variance over runs at every θ, and the typical error of the estimated accuracy."""
    grouped = frame.groupby("theta")
    return pd.DataFrame(
        {
            "mean": grouped["accuracy"].mean(),
            "variance": grouped["accuracy"].var(),
            "mean_by_reports": grouped["by_reports"].mean(),
            "variance_by_reports": grouped["by_reports"].var(),
            "stderr_by_reports": grouped["by_reports_stderr"].mean(),
        }
    ).reset_index()


def drawn(frame: pd.DataFrame) -> Figure:
    """Draw the mean, with bars of two standard errors, and the variance against θ."""
    figure = canvas(8.4, 4.0)
    left, right = figure.subplots(1, 2)
    for column, colour, marker, label in (
        ("by_reports", NAIVE, "s", "estimated from disguised test records"),
        ("accuracy", ESTIMATE, "o", "on clear test records"),
    ):
        points = [(theta, *mean_and_error(own[column])) for theta, own in frame.groupby("theta")]
        left.errorbar(
            [theta for theta, _, _ in points],
            [value for _, value, _ in points],
            [2 * error for _, _, error in points],
            color=colour,
            marker=marker,
            ms=4,
            lw=1.5,
            capsize=2.5,
            label=label,
        )
        variances(right, frame, column, colour, marker)
    left.axhline(
        frame["benchmark"].iloc[0], color=MUTED, ls="--", lw=1, label="classifier from clear records"
    )
    lowest = frame.groupby("theta")["accuracy"].mean().min()
    left.set(ylabel="accuracy", ylim=(max(0.0, lowest - 0.15), min(1.05, frame["benchmark"].iloc[0] + 0.15)))
    left.set_title("Mean over the runs, ± 2 standard errors", loc="left")
    right.set(ylabel="variance", yscale="log")
    right.set_title("Variance over the runs", loc="left")
    for axes in (left, right):
        axes.set(xlabel="probability θ of a true report", xlim=(-0.03, 1.03))
        open_frame(axes)
    figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def variances(axes: Axes, frame: pd.DataFrame, column: str, colour: str, marker: str) -> None:
    """Draw the variance over runs; where it is zero (θ = 0 or 1) there is no point on a logarithmic axis."""
    found = frame.groupby("theta")[column].var()
    found = found[found > 0]
    axes.plot(found.index, found, color=colour, marker=marker, ms=4, lw=1.5)
