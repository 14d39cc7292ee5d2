"""Common code of the two timing curves: measurement, comparison and drawing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from masquerade.report import NAIVE, SERIES, canvas, open_frame
from masquerade.simulation import Lesson, Mined, duration, slope, synthetic_people, users
from masquerade_experiments.experiment import Comparison, Row, Setting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PUBLISHED, PROVED, PRODUCTION = "as published", "with proofs", "production"
FORMS = (PUBLISHED, PROVED, PRODUCTION)
DECLARED = (
    (
        "The talk's figures are pictures, which the text that we have lacks: their times are not "
        "compared, only what the protocol implies and the talk says. The miner's work is a product over all "
        "users, so its time is a straight line through zero; each user sends one flow of data, whose "
        "cost does not depend on the others."
    ),
    (
        "Judged are the counts and the bytes that users send. Points that the miner adds and that a user "
        "forms are shown: two of each for every user and frequency by the protocol's construction, so that "
        "they could not come out otherwise. The small logarithm is not among them: about √n further "
        "additions for a frequency. Times stand beside them."
    ),
    (
        "Making the keys, two pairs for every user and frequency, is not timed. The talk does not say "
        "whether its curves contain it."
    ),
    (
        "Times are processor seconds on one core. A user's time in the form with proofs includes checking "
        "the keys of all others, which the talk does not have and without which a dishonest miner sees every "
        "answer. That form is for at most 50,000 pairs of a user and a count."
    ),
    (
        "The production form is secure aggregation against a semi-honest server, with 10% colluding and "
        "prepared for 5% leaving."
    ),
)


def settings_of(sizes: dict[str, Sequence[int]]) -> list[Setting]:
    """Return one setting for each form and number of users."""
    return [{"form": form, "users": n} for form, listed in sizes.items() for n in listed]


def measured(
    setting: Setting, seed: int, lesson: Lesson, published: Callable[[int, int], tuple[Mined, int]]
) -> Sequence[Row]:
    """Do one run of a setting.

    `published` runs the printed protocol with n users and a seed; it also returns the number of wrong counts.
    """
    n, form = int(setting["users"] or 0), str(setting["form"])
    if form == PUBLISHED:
        found, wrong = published(n, seed)
        return [
            {
                "miner": found.miner_seconds,
                "user": found.user_seconds,
                "miner_operations": found.miner_operations,
                "user_operations": found.user_operations,
                "sent": found.sent,
                "wrong": wrong,
            }
        ]
    result = users(
        synthetic_people(n, seed=seed % 2**32),
        lesson,
        "frequency" if form == PROVED else "aggregation",
        server="semi-honest",
    )
    return [
        {
            "miner": result.cost.server_seconds,
            "user": result.cost.client_seconds.mean,
            "sent": result.cost.sent.mean,
            "wrong": result.compared.differing,
        }
    ]


def compared(frame: pd.DataFrame, counts: int) -> list[Comparison]:
    """Check that all counts are right and what users send; show how operations and times grow with n."""
    plain = frame[frame["form"] == PUBLISHED]
    sent = plain["sent"]
    found = [
        Comparison(
            "frequencies that are not those of the clear records, all forms",
            0,
            int(frame["wrong"].sum()),
            kind="claim as read",
            read_as="“The protocol computes the sum of each input”, read as: every count is exact.",
        ),
        *(
            Comparison(
                f"as published: power of n by which {what} of {whose} grow", None, *slopes(plain, column)
            )
            for role, whose in (("miner", "the miner"), ("user", "a user"))
            for what, column in (("the points", f"{role}_operations"), ("the seconds", role))
        ),
        Comparison(
            "as published: bytes that a user sends more at the largest n than at the smallest",
            0,
            float(sent.max() - sent.min()),
            kind="own count",
        ),
        Comparison(
            "as published: points of the group that a user sends for a frequency",
            2,
            sent.min() / 33 / counts,
            kind="own count",
        ),
    ]
    for form in FORMS:
        own = frame[frame["form"] == form]
        if len(own):
            last = own[own["users"] == own["users"].max()]
            n = int(last["users"].iloc[0])
            found += [
                Comparison(f"{form}: seconds of {whose}, {n:,} users", None, float(last[role].mean()))
                for role, whose in (("miner", "the miner"), ("user", "a user"))
            ]
    return found


def slopes(frame: pd.DataFrame, role: str) -> tuple[float, float]:
    """Return the exponent of n, as a mean over runs, and its standard error (nan for a single run)."""
    each = [slope(own["users"].tolist(), own[role].tolist()) for _, own in frame.groupby("run")]
    spread = float(np.std(each, ddof=1)) if len(each) > 1 else np.nan
    return float(np.mean(each)), spread / len(each) ** 0.5


def drawn(frame: pd.DataFrame, what: str) -> Figure:
    """Draw the times of the miner and of a user, with one line per form of the protocol."""
    figure = canvas(8.2, 4.0)
    left, right = figure.subplots(1, 2)
    for axes, role, title in ((left, "miner", "the miner"), (right, "user", "one user")):
        for form, colour, mark in zip(FORMS, (SERIES[0], NAIVE, SERIES[1]), "osD", strict=True):
            own = frame[frame["form"] == form].groupby("users")[role].mean()
            axes.plot(
                own.index, own.to_numpy(), f"{mark}-", color=colour, markersize=5, linewidth=1.8, label=form
            )
        dress(axes)
        axes.set_title(f"{what}: {title}", loc="left", fontsize=10)
    left.set_ylabel("processor time")
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper left", ncols=3)
    return figure


def dress(axes: Axes) -> None:
    """Format the axes: numbers of users and times."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter  # noqa: PLC0415

    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_locator(LogLocator(10))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda n, _: f"{n:,.0f}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda s, _: duration(s)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("users")
    open_frame(axes)
