"""Ma (2006), Fig. 7.5: frequent itemsets of the Adult records from disguised items."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from masquerade_experiments.experiment import Experiment, Row, Setting
from masquerade_experiments.ma_2006 import census, itemsets

ITEMS = len(census.CARDINALITIES)  # of a record: one category of each variable
STUDY = itemsets.Study(census.records, (3,) * 4 + (2,) * 5 + (1,) * 8, most=ITEMS)


def settings(quick: bool) -> Sequence[Setting]:  # noqa: FBT001  (the contract of experiments)
    """Return the probabilities of a change."""
    return [{"p": p} for p in ((0.3, 0.45) if quick else (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45))]


def measure(setting: Setting, seed: int) -> Sequence[Row]:
    """Disguise all items once and search for frequent itemsets."""
    return itemsets.mined(STUDY, cast("float", setting["p"]), seed)


EXPERIMENT = Experiment(
    id="ma-2006-fig-7.5",
    paper="Ma (2006)",
    item="Figure 7.5",
    title="Frequent itemsets of the census, from disguised items",
    shows=itemsets.SHOWS,
    settings=settings,
    measure=measure,
    compare=itemsets.comparisons,
    draw=itemsets.drawn,
    table=itemsets.averages,
    quick_runs=2,
    data=("adult",),
    declared=(
        *census.DECLARED,
        *itemsets.DECLARED,
        (
            f"Up to p = {itemsets.UNBOUNDED} searches stop at {ITEMS} items, as many as a record has. No "
            "frequent set is lost, and no value that is judged depends on it: at p = 0.4 the search as "
            "printed would continue with larger sets, which no record contains, and its false positives "
            f"are counted up to {ITEMS} items."
        ),
    ),
    corrected=itemsets.CORRECTED,
)
