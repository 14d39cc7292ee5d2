"""Dask frames: disguised partition by partition, every report drawn once, whatever is computed again."""

from __future__ import annotations

import dask
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import InputError, PolicyMismatch, SchemaError, UnknownValue
from masquerade.disguising import dask_frames

ROWS, PARTS = 6_000, 4
POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "limit": {"gamma": 1e12},
        "clear": "accepted",
        "variables": {
            "smoker": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
            "visits": {"categories": [0, 1, 2], "channel": {"kind": "symmetric", "p": 0.3}},
            "region": {"categories": ["n", "s"]},
        },
    }
)


@pytest.fixture
def clear():
    generator = np.random.default_rng(3)
    frame = pd.DataFrame(
        {
            "id": [f"p{number}" for number in range(ROWS)],
            "smoker": pd.Categorical(generator.choice(["yes", "no"], ROWS)),
            "visits": generator.integers(0, 3, ROWS),
            "region": generator.choice(["n", "s"], ROWS),
            "other": generator.random(ROWS),
        }
    )
    return frame, dd.from_pandas(frame, npartitions=PARTS)


def counts(source):
    return source.answer([mq.Query(by=("smoker", "visits", "region"))])[0].values.tolist()


def test_a_dask_frame_is_returned_and_every_computation_has_the_same_reports(clear):
    frame, lazy = clear
    reports = mq.disguise(lazy, POLICY, keep=["id"])
    assert isinstance(reports, dd.DataFrame)
    assert (reports.npartitions, reports.divisions) == (PARTS, lazy.divisions)
    first = reports.compute()
    assert list(first.columns) == ["id", "smoker", "visits", "region"]
    assert first["id"].tolist() == frame["id"].tolist()
    assert first["region"].tolist() == frame["region"].tolist()
    assert first.dtypes["smoker"] == frame.dtypes["smoker"]
    assert first.dtypes["visits"] == frame.dtypes["visits"]
    assert first.index.equals(frame.index)
    assert (first["smoker"] != frame["smoker"]).any()
    for scheduler in ("sync", "threads", "processes"):
        again = reports.compute(scheduler=scheduler)
        pd.testing.assert_frame_equal(again, first)
    pd.testing.assert_frame_equal(reports.persist().compute(), first)
    parts = [reports.partitions[number].compute() for number in (2, 0, 3, 1, 2)]
    pd.testing.assert_frame_equal(pd.concat([parts[1], parts[3], parts[0], parts[2]]), first)
    flipped = reports[reports["smoker"] == "yes"][["visits"]].compute()
    pd.testing.assert_frame_equal(flipped, first[first["smoker"] == "yes"][["visits"]])


def test_each_partition_is_drawn_once_and_never_on_use(clear, monkeypatch):
    _, lazy = clear
    drawn, draw = [], dask_frames.PartitionWork.draw
    monkeypatch.setattr(
        dask_frames.PartitionWork, "draw", lambda work, part: drawn.append(len(part)) or draw(work, part)
    )
    with dask.config.set(scheduler="sync"):
        reports = mq.disguise(lazy, POLICY)
        assert sorted(drawn) == [ROWS // PARTS] * PARTS
        reports.compute()
        reports["smoker"].value_counts().compute()
        mq.tally(reports, POLICY).answer([mq.Query(by="smoker")])
    assert len(drawn) == PARTS


def test_the_graph_of_the_reports_has_no_clear_value(clear):
    frame, lazy = clear
    reports = mq.disguise(lazy, POLICY)
    values = list(dict(reports.__dask_graph__()).values())
    assert not any("PartitionWork" in repr(value) for value in values)
    held = [getattr(node, "value", None) for node in values]
    frames = [value for value in held if isinstance(value, pd.DataFrame)]
    assert sum(len(part) for part in frames) == ROWS
    assert all(set(part.columns) <= {"smoker", "visits", "region"} for part in frames)
    assert not any(part["smoker"].equals(frame.loc[part.index, "smoker"]) for part in frames)


def test_reports_follow_the_channel(clear):
    frame, lazy = clear
    reports = mq.disguise(lazy, POLICY).compute()
    flipped = float((reports["smoker"].astype(str) != frame["smoker"].astype(str)).mean())
    assert abs(flipped - 0.25) < 6 * np.sqrt(0.25 * 0.75 / ROWS)  # false alarms below 2e-9


def test_partitions_draw_with_keys_of_their_own(clear):
    """Equal partitions get different reports; that they agree by chance is below 1e-100."""
    frame = clear[0].iloc[:1000]
    lazy = dd.concat([dd.from_pandas(frame, npartitions=1)] * 2)
    first, second = (mq.disguise(lazy, POLICY).partitions[number].compute() for number in range(2))
    assert (first["smoker"].to_numpy() != second["smoker"].to_numpy()).any()


def test_a_memo_keeps_the_frame_lazy_and_the_reports_equal(clear, tmp_path):
    frame, lazy = clear
    options = {"memo": tmp_path / "memo", "id": "id"}
    reports = mq.disguise(lazy, POLICY, new_memo=True, **options)
    first = reports.compute()
    pd.testing.assert_frame_equal(reports.compute(), first)
    again = mq.disguise(lazy.repartition(npartitions=7), POLICY, accept_gamma=1e30, **options).compute()
    assert again["smoker"].tolist() == first["smoker"].tolist()
    eager = mq.disguise(frame, POLICY, accept_gamma=1e30, **options)
    assert eager["visits"].tolist() == first["visits"].tolist()


def test_counts_of_a_dask_frame_equal_those_of_its_records(clear):
    frame, lazy = clear
    names = list(POLICY.schema)
    expected = counts(mq.tally(frame[names], schema=POLICY))
    assert counts(mq.tally(lazy, schema=POLICY)) == expected
    reports = mq.disguise(lazy, POLICY)
    source = mq.tally(reports, POLICY)
    assert counts(source) == counts(mq.tally(reports.compute(), POLICY))
    assert mq.tally(lazy[names]).n == ROWS  # categories are inferred


def test_one_partition_is_in_memory_at_a_time(clear):
    """Partitions are computed one by one, and only with the columns that are needed."""
    seen = []

    def note(part):
        seen.append(tuple(part.columns))
        return part

    lazy = clear[1]
    noted = lazy[["smoker"]].map_partitions(note, meta=lazy._meta[["smoker"]])
    mq.tally(noted, schema=mq.Schema({"smoker": ["yes", "no"]}))
    assert seen == [("smoker",)] * PARTS


def test_metadata_of_reports_are_kept_and_a_second_disguise_is_refused(clear):
    _, lazy = clear
    reports = mq.disguise(lazy, POLICY)
    with pytest.raises(InputError, match="already"):
        mq.disguise(reports, POLICY)
    other = mq.Policy.from_dict({"masquerade": 1, "variables": {"smoker": {"categories": ["yes", "no"]}}})
    with pytest.raises(PolicyMismatch):
        mq.tally(reports, other)


def test_an_unknown_value_is_refused_by_its_row_before_anything_is_drawn(clear, monkeypatch):
    frame, _ = clear
    frame["region"] = frame["region"].astype(object)
    frame.loc[[1700, 5000], "region"] = "Zyzzyva"
    lazy = dd.from_pandas(frame, npartitions=PARTS)
    monkeypatch.setattr(dask_frames.PartitionWork, "draw", None)
    with pytest.raises(UnknownValue, match="rows 1701, 5001") as refused:
        mq.disguise(lazy, POLICY)
    assert "Zyzzyva" not in str(refused.value)
    assert [row for problem in refused.value.problems for row in problem.rows] == [1701, 5001]
    with pytest.raises(UnknownValue, match="rows 1701, 5001"):
        mq.tally(lazy, schema=POLICY)


def test_what_cannot_be_done_by_partitions_is_refused(clear):
    _, lazy = clear
    with pytest.raises(InputError, match="cannot be shuffled"):
        mq.disguise(lazy, POLICY, shuffle=True)
    with pytest.raises(SchemaError, match="no column 'nothing'"):
        mq.disguise(lazy, POLICY, keep=["nothing"])
    with pytest.raises(SchemaError, match="no column 'visits'"):
        mq.disguise(lazy.drop(columns="visits"), POLICY)


@pytest.mark.parametrize("known", [True, False])
def test_categories_of_partitions_may_differ(known):
    parts = [
        pd.DataFrame({"smoker": pd.Categorical([one] * 50), "visits": 0, "region": "n"})
        for one in ("yes", "no")
    ]
    lazy = dd.concat([dd.from_pandas(part, npartitions=1) for part in parts])
    if not known:
        lazy["smoker"] = lazy["smoker"].cat.as_unknown() if hasattr(lazy["smoker"], "cat") else lazy["smoker"]
    reports = mq.disguise(lazy, POLICY)
    assert set(reports.compute()["smoker"]) == {"yes", "no"}
    assert mq.tally(reports, POLICY).n == 100
