"""Ma (2006), Fig. 7.3: disclosure by a group of items, disguised together or independently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pandas as pd
from matplotlib.figure import Figure

import masquerade as mq
from masquerade.report import ESTIMATE, NAIVE, canvas, open_frame
from masquerade_experiments.experiment import Comparison, Experiment, Row, Setting

SIZES = (2, 3)
SHOWN = (0.1, 0.3, 0.5)  # values of p at which the curves are compared with the printed formulas


def settings(quick: bool) -> Sequence[Setting]:  # noqa: ARG001, FBT001  (all of it takes a moment)
    """Return the sizes of the group and the probabilities of a change."""
    return [{"items": items, "p": step / 20} for items in SIZES for step in range(1, 13)]


def measure(setting: Setting, seed: int) -> Sequence[Row]:  # noqa: ARG001
    """Return γ of the group under both policies; nothing is random."""
    together = together_policy(cast("int", setting["items"]), cast("float", setting["p"]))
    apart = apart_policy(together)
    return [
        {
            "together": float(mq.privacy(together).record_gamma),
            "apart": float(mq.privacy(apart).record_gamma),
        }
    ]


def together_policy(items: int, p: float) -> mq.Policy:
    """Return the policy that disguises all items by one symmetric channel."""
    names = tuple(f"item {i}" for i in range(1, items + 1))
    return mq.Policy.build(dict.fromkeys(names, (True, False)), {names: mq.channels.symmetric(2**items, p)})


def apart_policy(together: mq.Policy) -> mq.Policy:
    """Return the policy that disguises each item independently, with the same noise per item."""
    names = together.schema.names
    sizes = [2] * len(names)
    alone = together.group(names[0]).matrix_channel.marginal(sizes, sizes, (0,))
    assert alone is not None  # noqa: S101  (for the type checker: symmetric groups have marginals)
    return mq.Policy.build(dict.fromkeys(names, (True, False)), dict.fromkeys(names, alone))


def printed_together(items: int, p: float) -> float:
    """Return γ_s = (2^g − 1)(1 − p)/p, as printed in §7.1.3."""
    return float(2**items - 1) * (1 - p) / p


def printed_apart(items: int, p: float) -> float:
    """Return (γ_ind)^g, as printed for two and for three items: ((1 − cp)/(cp))^g with c = 2/3 and 4/7."""
    changed = {2: 2 / 3, 3: 4 / 7}[items] * p
    return float(((1 - changed) / changed) ** items)


def compare(frame: pd.DataFrame) -> Sequence[Comparison]:
    """Check both curves against the printed formulas, and that one is never above the other."""
    rows = []
    for items in SIZES:
        own = frame[frame["items"] == items]
        for p in SHOWN:
            here = own[own["p"] == p]
            rows += [
                Comparison(
                    f"γ over {items} items disguised together, p = {p}",
                    printed_together(items, p),
                    float(here["together"].iloc[0]),
                    kind="printed formula",
                ),
                Comparison(
                    f"γ over {items} items disguised one by one, p = {p}",
                    printed_apart(items, p),
                    float(here["apart"].iloc[0]),
                    kind="printed formula",
                ),
            ]
        rows.append(
            Comparison(
                f"{items} items: γ together over γ one by one, largest over p",
                1.0,
                float((own["together"] / own["apart"]).max()),
                rule="below",
                kind="claim as read",
                read_as="Together the items have the smaller γ, read as: at every p that is drawn.",
            )
        )
    return rows


def draw(frame: pd.DataFrame) -> Figure:
    """Draw both curves, with one panel per group size."""
    figure = canvas(8.0, 3.5)
    for axes, items in zip(figure.subplots(1, len(SIZES)), SIZES, strict=True):
        own = frame[frame["items"] == items]
        axes.plot(own["p"], own["apart"], color=NAIVE, lw=1.8, label="one by one")
        axes.plot(own["p"], own["together"], color=ESTIMATE, lw=1.8, label="together")
        printed = {"ls": "none", "mfc": "none", "ms": 6}
        shown = list(SHOWN)
        axes.plot(shown, [printed_apart(items, p) for p in shown], "o", color=NAIVE, **printed)
        axes.plot(
            shown,
            [printed_together(items, p) for p in shown],
            "o",
            color=ESTIMATE,
            label="formulas in print (both)",
            **printed,
        )
        axes.set(yscale="log", xlabel="probability of a change p", ylabel="γ over the group", xlim=(0, 0.62))
        axes.set_title(f"{items} items in the group", loc="left")
        axes.legend(loc="upper right")
        open_frame(axes)
    return figure


EXPERIMENT = Experiment(
    id="ma-2006-fig-7.3",
    paper="Ma (2006)",
    item="Figure 7.3",
    title="Items disguised together disclose less than items disguised one by one",
    shows=(
        "γ over a whole group of two or three in-or-out items: disguised together by one symmetric channel "
        "over their combinations, or separately by channels that change a single item just as often. For "
        "the same noise in every item, the group together has the smaller γ. This is "
        "computed exactly from the policies, nothing is drawn at random."
    ),
    settings=settings,
    measure=measure,
    compare=compare,
    draw=draw,
    is_random=False,
    declared=("The range of p in the figure is lost: 0.05 to 0.6 is drawn.",),
)
