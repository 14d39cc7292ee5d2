"""The Adult records as chapter 7 uses them: 11 variables with 4, 3, 3, 3, 2, 3, 2, 3, 2, 3, 2 categories."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pandas as pd

import masquerade as mq

CARDINALITIES = (4, 3, 3, 3, 2, 3, 2, 3, 2, 3, 2)
TARGET = "income"

DECLARED = (
    (
        "The paper does not say which 11 variables were selected, nor how their categories were combined. "
        "Chosen to fit the printed cardinalities, in this order: age (to 29, 30–39, 40–49, from 50); "
        "workclass (private, self-employed, government or none); education (up to high school, some "
        "college or associate, degree); marital status (married, never married, formerly married); sex; "
        "relationship (spouse, not in family, other); race (white, other); occupation (managerial, "
        "professional or technical; sales or clerical; other); native country (United States, other); "
        "hours a week (below 40, 40, above 40); income."
    ),
    "The 32,561 records of the training file are used; an unknown value counts with 'other' or 'none'.",
)

MARRIED = ("Married-civ-spouse", "Married-AF-spouse")
OFFICE = ("Exec-managerial", "Prof-specialty", "Tech-support")
SHOP = ("Sales", "Adm-clerical")


@cache
def records() -> pd.DataFrame:
    """Return the recoded records, labels as text; read once per process."""
    frame = mq.data.load("adult")
    return pd.DataFrame(
        {
            "age": binned(frame["age"], {"to 29": 29, "30-39": 39, "40-49": 49, "from 50": 200}),
            "workclass": merged(
                frame["workclass"],
                {"private": ("Private",), "self-employed": ("Self-emp-inc", "Self-emp-not-inc")},
                "government or none",
            ),
            "education": binned(frame["education_num"], {"school": 9, "college": 12, "degree": 16}),
            "marital_status": merged(
                frame["marital_status"], {"married": MARRIED, "never": ("Never-married",)}, "formerly"
            ),
            "sex": frame["sex"].astype(str),
            "relationship": merged(
                frame["relationship"],
                {"spouse": ("Husband", "Wife"), "not in family": ("Not-in-family",)},
                "other",
            ),
            "race": merged(frame["race"], {"white": ("White",)}, "other"),
            "occupation": merged(frame["occupation"], {"office": OFFICE, "shop": SHOP}, "other"),
            "native_country": merged(frame["native_country"], {"US": ("United-States",)}, "other"),
            "hours_per_week": binned(frame["hours_per_week"], {"below 40": 39, "40": 40, "above 40": 200}),
            TARGET: frame["income"].astype(str),
        }
    )


def binned(column: pd.Series[int], tops: Mapping[str, int]) -> pd.Series[str]:
    """Return, for each number, the label of the first bin whose upper edge is at least the number."""
    cut = pd.cut(column, [-1, *tops.values()], labels=list(tops))
    return cut.astype(str)


def merged(column: pd.Series[str], groups: Mapping[str, tuple[str, ...]], rest: str) -> pd.Series[str]:
    """Return the group of every label, or `rest` for labels without a group."""
    known = {label: name for name, labels in groups.items() for label in labels}
    return column.astype(str).map(lambda label: known.get(label, rest))
