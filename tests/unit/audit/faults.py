"""Pipelines with one fault each, and samplers that do not draw what they claim."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import masquerade as mq

Pipeline = Callable[[pd.DataFrame, mq.Policy], pd.DataFrame]
COLUMN = "canary"


def policy() -> mq.Policy:
    """Return the policy that all pipelines claim to follow."""
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
                "drinker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.3}},
                "region": {
                    "categories": ["north", "south", "east", "west"],
                    "channel": {"kind": "symmetric", "p": 0.4},
                },
                "sex": {"categories": ["f", "m"]},
            },
        }
    )


def another_policy() -> mq.Policy:
    """Return one whose channels look alike and are not: more is kept."""
    values = policy().to_dict()
    values["variables"]["smoker"]["channel"] = {"kind": "binary", "p": 0.15}
    return mq.Policy.from_dict(values)


def sound(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Disguise, mix the rows."""
    return mq.disguise(frame, own, keep=[COLUMN], shuffle=True)


def wrong_policy(frame: pd.DataFrame, _: mq.Policy) -> pd.DataFrame:
    """Disguise under another policy."""
    return _unmarked(mq.disguise(frame, another_policy(), keep=[COLUMN], shuffle=True))


def clear_column(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Pass a column on as it is."""
    found = _unmarked(mq.disguise(frame, own, keep=[COLUMN]))
    found["drinker"] = frame["drinker"].to_numpy()
    return found.sample(frac=1).reset_index(drop=True)


def seed_reused(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Seed the generator anew for every record."""
    parts = frame.drop(columns=COLUMN).drop_duplicates()
    drawn = _unmarked(mq.simulate(parts, own, seed=3))
    key = list(parts.columns)
    table = dict(zip(map(tuple, parts[key].to_numpy()), map(tuple, drawn[key].to_numpy()), strict=True))
    found = pd.DataFrame([table[tuple(row)] for row in frame[key].to_numpy()], columns=key)
    found[COLUMN] = frame[COLUMN].to_numpy()
    return found.sample(frac=1).reset_index(drop=True)


def order_kept(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Disguise, and leave the rows as they were."""
    return mq.disguise(frame, own, keep=[COLUMN])


def rows_dropped(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Lose all who drink and smoke in the north: rows that some step could not read."""
    lost = (frame["smoker"] == "yes") & (frame["drinker"] == "yes") & (frame["region"] == "north")
    return sound(frame[~lost].reset_index(drop=True), own)


def columns_swapped(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Exchange two columns before they are disguised."""
    return sound(frame.rename(columns={"smoker": "drinker", "drinker": "smoker"}), own)


def disguised_twice(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Disguise what is disguised."""
    once = _unmarked(mq.disguise(frame, own, keep=[COLUMN]))
    return mq.disguise(once, own, keep=[COLUMN], shuffle=True)


def rows_twice(frame: pd.DataFrame, own: mq.Policy) -> pd.DataFrame:
    """Append a part of the rows again, drawn anew."""
    return sound(pd.concat([frame, frame.head(50)], ignore_index=True), own)


def remembered(memo: Path) -> Pipeline:
    """Disguise with a memo."""
    return lambda frame, own: mq.disguise(
        frame, own, memo=memo, id=COLUMN, new_memo=not memo.exists(), keep=[COLUMN], shuffle=True
    )


PIPELINES: dict[str, tuple[Pipeline, str, str]] = {
    "wrong policy": (wrong_policy, "smoker", "wrong policy"),
    "column in clear": (clear_column, "drinker", "in clear"),
    "seed reused": (seed_reused, "seed", "reuses its seed"),
    "order kept": (order_kept, "order", "order of rows is kept"),
    "rows dropped": (rows_dropped, "rows", "were dropped"),
    "columns swapped": (columns_swapped, "smoker", "columns were swapped"),
    "disguised twice": (disguised_twice, "smoker", "wrong policy"),
    "rows twice": (rows_twice, "rows", "more than once"),
}


def response(gamma: float, truths: int) -> np.ndarray:
    """Return the matrix of randomized response."""
    matrix = np.ones((truths, truths))
    np.fill_diagonal(matrix, gamma)
    return matrix / matrix.sum(axis=1, keepdims=True)


def drawn_from(matrix: np.ndarray) -> Callable[[int, int], Any]:
    """Return a sampler that draws from a matrix, afresh."""
    generator = np.random.default_rng()
    reports = np.arange(matrix.shape[1])
    return lambda truth, n: generator.permutation(np.repeat(reports, generator.multinomial(n, matrix[truth])))


def too_large(gamma: float, truths: int) -> np.ndarray:
    """Keep the truth too often: γ is 5% above what is claimed."""
    return response(1.05 * gamma, truths)


def uneven(gamma: float, truths: int) -> np.ndarray:
    """Draw the other categories by a remainder of six bits: the first come up more often."""
    matrix = response(gamma, truths)
    odds = np.bincount(np.arange(64) % (truths - 1), minlength=truths - 1) / 64
    for truth in range(truths):
        others = [other for other in range(truths) if other != truth]
        matrix[truth, others] = (1 - matrix[truth, truth]) * odds
    return matrix


def leaking(gamma: float, truths: int) -> np.ndarray:
    """Add a report that only the first truth ever gives, once in five hundred draws."""
    matrix = np.hstack([response(gamma, truths), np.zeros((truths, 1))])
    matrix[0] *= 1 - 0.002
    matrix[0, -1] = 0.002
    return matrix


SAMPLERS: dict[str, Callable[[float, int], np.ndarray]] = {
    "γ too large": too_large,
    "uneven remainder": uneven,
    "rare report that tells": leaking,
}


def _unmarked(frame: pd.DataFrame) -> pd.DataFrame:
    found = pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})
    found.attrs.clear()
    return found
