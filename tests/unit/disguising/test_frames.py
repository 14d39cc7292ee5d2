"""Disguising frames: same type out, refusals without the value, the order and columns a user expects."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, PolicyMismatch, SchemaError, UnknownValue

POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "smoker": {"categories": ["yes", "no", "unknown"], "missing": "unknown",
                       "channel": {"kind": "symmetric", "p": 0.3}},
            "age": {"bins": [0, 30, 60, 90],
                    "channel": {"kind": "additive", "noise": "uniform", "scale": 30}},
            "visits": {"categories": [0, 1, 2]},
        },
    }
)  # fmt: skip


def people(rows: int = 500) -> pd.DataFrame:
    generator = np.random.default_rng(4)
    return pd.DataFrame(
        {
            "name": [f"person {i}" for i in range(rows)],
            "visits": generator.integers(0, 3, rows),
            "smoker": generator.choice(["yes", "no", None], rows),
            "age": generator.uniform(0, 90, rows),
        }
    )


@pytest.mark.parametrize(
    "convert", [lambda f: f, pl.from_pandas, pa.Table.from_pandas], ids=["pandas", "polars", "arrow"]
)
def test_the_callers_type_comes_back_with_only_the_policys_columns(convert):
    frame = convert(people())
    disguised = mq.disguise(frame, POLICY)
    assert type(disguised) is type(frame)
    columns = list(disguised.columns) if not isinstance(disguised, pa.Table) else disguised.column_names
    assert columns == ["visits", "smoker", "age"]
    assert len(disguised) == 500
    assert mq.tally(disguised, POLICY).answer([mq.Query(by="visits")])[0].total == pytest.approx(500)


def test_an_undisguised_variable_stays_and_reports_have_their_own_labels():
    frame = people()
    disguised = mq.disguise(frame, POLICY)
    assert (disguised["visits"] == frame["visits"]).all()
    assert set(disguised["age"]) <= set(POLICY.observed["age"].categories)
    assert set(disguised["age"]) > set(POLICY.schema["age"].categories[:1])
    assert set(disguised["smoker"]) == {"yes", "no", "unknown"}


def test_two_releases_differ_and_share_no_seed():
    frame = people(2000)
    first, second = (mq.disguise(frame, POLICY)["smoker"] for _ in range(2))
    # 2000 values, each equal by chance at most 0.49 + 0.3²/2 + …; all equal has probability below 1e-400
    assert (first != second).any()


def test_kept_columns_are_passed_on_and_policy_columns_cannot_be_kept():
    disguised = mq.disguise(people(), POLICY, keep=["name"])
    assert list(disguised["name"]) == [f"person {i}" for i in range(500)]
    with pytest.raises(InputError, match="'age' is a variable of the policy"):
        mq.disguise(people(), POLICY, keep=["age"])


def test_shuffling_breaks_the_order_and_renews_the_index():
    frame = people()
    disguised = mq.disguise(frame, POLICY, keep=["name"], shuffle=True)
    assert list(disguised["name"]) != list(frame["name"])
    assert sorted(disguised["name"]) == sorted(frame["name"])
    assert list(disguised.index) == list(range(500))
    joined = disguised.merge(frame, on="name")
    assert (joined["visits_x"] == joined["visits_y"]).all()


def test_an_unknown_value_is_named_by_row_and_column_only():
    frame = people()
    frame.loc[41, "visits"] = 7
    with pytest.raises(UnknownValue) as caught:
        mq.disguise(frame, POLICY)
    assert (caught.value.column, caught.value.row) == ("visits", 42)
    assert "7" not in str(caught.value)


def test_a_missing_column_and_a_missing_value_are_refused():
    with pytest.raises(SchemaError, match="no column 'age'"):
        mq.disguise(people().drop(columns="age"), POLICY)
    frame = people().astype({"visits": "float"})
    frame.loc[3, "visits"] = np.nan
    with pytest.raises(UnknownValue, match="row 4: the value is missing"):
        mq.disguise(frame, POLICY)


def test_the_policy_travels_and_another_one_is_refused():
    other = mq.Policy.build({"smoker": ["yes", "no", "unknown"]}, {"smoker": mq.channels.symmetric(3, 0.2)})
    disguised = mq.disguise(people(), POLICY)
    assert disguised.attrs["masquerade"] == {"policy": POLICY.id}
    with pytest.raises(PolicyMismatch, match="disguised under policy"):
        mq.tally(disguised, other)
    with pytest.raises(PolicyMismatch):
        mq.tally(mq.disguise(pa.Table.from_pandas(people()), POLICY), other)


def test_simulation_is_repeatable_and_marked():
    one, two = (mq.simulate(people(), POLICY, seed=9) for _ in range(2))
    assert one.equals(two)
    assert one.attrs["masquerade"] == {"policy": POLICY.id, "simulated": "true"}


def test_no_rows_is_fine_and_no_frame_is_not():
    assert len(mq.disguise(people(0), POLICY)) == 0
    with pytest.raises(InputError, match="is not a frame"):
        mq.disguise({"smoker": ["yes"]}, POLICY)


def test_strata_use_their_own_channel():
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "region": {"categories": ["n", "s"]},
                "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.5}},
            },
            "strata": {"by": "region", "channels": {"n": {"smoker": {"kind": "binary", "p": 0}}}},
        }
    )
    frame = pd.DataFrame({"region": ["n", "s"] * 2000, "smoker": ["yes"] * 4000})
    disguised = mq.simulate(frame, policy, seed=1)
    assert (disguised["smoker"][disguised["region"] == "n"] == "yes").all()
    # 2000 fair coins: outside 1000 ± 110 with probability below 1e-6
    assert abs((disguised["smoker"][disguised["region"] == "s"] == "yes").sum() - 1000) < 110
