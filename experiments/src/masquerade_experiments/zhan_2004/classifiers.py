"""§4: accuracy of naive Bayes from records that are either all reported truthfully or all reversed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

import masquerade as mq
from masquerade_experiments.experiment import Row
from masquerade_experiments.zhan_2004.halves import Bits, divided

THETAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.45, 0.51, 0.55, 0.6, 0.7, 0.8, 0.9, 1.0)
QUICK_THETAS = (0.0, 0.4, 0.51, 0.6, 1.0)
BINARY = (0, 1)

# a prediction is right for a record and its opposite, only for one of them, or for neither
# reversing a record swaps the two outcomes in the middle
OUTCOMES = ("both", "reported", "opposite", "neither")
SWAPPED = (0, 2, 1, 3)


@dataclass(frozen=True)
class Study:
    """Binary records and the attribute to predict."""

    records: Callable[[], pd.DataFrame]
    target: str


@dataclass(frozen=True, eq=False)
class Parts:
    """Records for training and for testing, as Arrow tables, which are fast to disguise."""

    training: pa.Table
    testing: pa.Table
    features: tuple[str, ...]


@cache
def parts(study: Study) -> Parts:
    """Return the records, divided for training and testing; computed once per process."""
    training, testing = divided(study.records())
    features = tuple(str(name) for name in training if name != study.target)
    return Parts(arrow(training), arrow(testing), features)


def arrow(frame: pd.DataFrame) -> pa.Table:
    """Return a frame as an Arrow table."""
    return pa.table({name: frame[name].to_numpy() for name in frame})


@cache
def reversal(features: tuple[str, ...], target: str, theta: float) -> mq.Policy:
    """Return the one-group policy: with probability θ no feature is reversed, else all; class in clear."""
    channel = mq.channels.flip([2] * len(features), theta)
    return mq.Policy.build(dict.fromkeys((*features, target), BINARY), {features: channel})


@cache
def clear_accuracy(study: Study) -> float:
    """Return the accuracy of the classifier learnt from clear records: the paper's benchmark."""
    held = parts(study)
    schema = mq.Schema(dict.fromkeys((*held.features, study.target), BINARY))
    model = mq.learn.naive_bayes(mq.tally(held.training, schema=schema), study.target)
    return float(right(model, held.testing).mean())


@cache
def commoner_class(study: Study) -> float:
    """Return the accuracy of always predicting the more frequent class of the training records."""
    held = parts(study)
    training, testing = (bits(table, study.target) for table in (held.training, held.testing))
    return float((testing == int(2 * training.mean() > 1)).mean())


def learnt(study: Study, theta: float, seed: int) -> list[Row]:
    """Return the accuracy of one classifier, measured on clear and on disguised test records."""
    held = parts(study)
    policy = reversal(held.features, study.target, theta)
    random = np.random.default_rng(seed)
    source = mq.tally(mq.simulate(held.training, policy, random), policy)
    model = mq.learn.naive_bayes(source, study.target)
    value, stderr, of_disguise = accuracy_by_reports(model, mq.simulate(held.testing, policy, random), theta)
    return [
        {
            "accuracy": float(right(model, held.testing).mean()),
            "benchmark": clear_accuracy(study),
            "commoner_class": commoner_class(study),
            "by_reports": value,
            "by_reports_stderr": stderr,
            "by_reports_stderr_of_disguise": of_disguise,
        }
    ]


def right(model: mq.learn.NaiveBayes, table: pa.Table, *, reverse: bool = False) -> NDArray[np.bool_]:
    """Return True for rows (or reversed rows) whose class is predicted correctly; predict equal rows once."""
    rows = np.stack([bits(table, feature.name) for feature in model.features], axis=1) ^ int(reverse)
    keys = rows @ (1 << np.arange(rows.shape[1]))
    _, first, place = np.unique(keys, return_index=True, return_inverse=True)
    distinct = {feature.name: rows[first, i] for i, feature in enumerate(model.features)}
    predicted = np.asarray(model.predict(distinct))[place]
    return np.asarray(predicted == bits(table, model.target.name))


def bits(table: pa.Table, name: str) -> Bits:
    """Return a column of zeros and ones."""
    return np.asarray(table.column(name).to_numpy(), dtype=np.int64)


def accuracy_by_reports(
    model: mq.learn.NaiveBayes, reported: pa.Table, theta: float
) -> tuple[float, float, float]:
    """Return the accuracy on true test records, estimated from disguised records, and two standard errors.

    The first standard error includes the sampling of test records, the second only the disguise.

    Formula: Eq. 7 for one group. Whether the prediction is right for a record and for its opposite is one of
    four outcomes; reversing a record swaps two of them, so the outcome of a report is the true outcome sent
    through that swap with probability 1 − θ. The accuracy is the estimated share of the true outcomes "both"
    and "reported". It equals `mq.evaluate.accuracy`, without the 2^g × 2^g matrix of the group.
    Reference: Zhan, Chang & Matwin (2004) §3.5.
    Cost: two predictions for every distinct report.
    """
    as_reported, as_opposite = right(model, reported), right(model, reported, reverse=True)
    outcome = np.select(
        [as_reported & as_opposite, as_reported, as_opposite], OUTCOMES[:-1], default=OUTCOMES[-1]
    )
    policy = outcome_policy(theta)
    (table,) = mq.tally(pa.table({"outcome": outcome}), policy).answer([mq.Query(by=("outcome",))])
    counted = np.array([1.0, 1.0, 0.0, 0.0])
    errors = [table.covariance.quadratic(counted, kind) for kind in ("population", "given_records")]
    of_all, of_disguise = (float(np.sqrt(max(variance, 0.0))) / table.n for variance in errors)
    return float(counted @ table.values) / table.n, of_all, of_disguise


@cache
def outcome_policy(theta: float) -> mq.Policy:
    """Return the policy that the disguise of records implies for the outcome of their predictions."""
    channel = mq.channels.flip([len(OUTCOMES)], theta, opposites=[SWAPPED])
    return mq.Policy.build({"outcome": OUTCOMES}, {"outcome": channel})
