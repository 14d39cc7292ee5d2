"""The keyed memo: the same person's same value is never drawn twice."""

from __future__ import annotations

import json
import stat

import numpy as np
import pandas as pd
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.disguising.memo import Memo

POLICY = mq.Policy.build(
    {"a": ["x", "y", "z"], "b": [0, 1], "c": [0, 1]},
    {"a": mq.channels.symmetric(3, 0.4), ("b", "c"): mq.channels.symmetric(4, 0.5)},
)


def people(rows: int = 3000, seed: int = 1) -> pd.DataFrame:
    generator = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "id": np.arange(rows),
            "a": generator.choice(["x", "y", "z"], rows),
            "b": generator.integers(0, 2, rows),
            "c": generator.integers(0, 2, rows),
        }
    )


def test_a_second_release_repeats_the_first_in_any_order_and_format(tmp_path):
    memo, frame = tmp_path / "memo.json", people()
    first = mq.disguise(frame, POLICY, memo=memo, id="id", keep=["id"])
    mixed = frame.sample(frac=1, random_state=2)
    second = mq.disguise(mixed, POLICY, memo=memo, id="id", keep=["id"]).sort_index()
    pd.testing.assert_frame_equal(first, second)
    frame.to_csv(tmp_path / "clear.csv", index=False)
    mq.disguise_file(tmp_path / "clear.csv", tmp_path / "out.csv", POLICY, memo=memo, id="id")
    pd.testing.assert_frame_equal(
        pd.read_csv(tmp_path / "out.csv"), first.drop(columns="id"), check_dtype=False
    )


def test_only_what_changed_is_drawn_anew(tmp_path):
    memo, frame = tmp_path / "memo.json", people()
    before = mq.disguise(frame, POLICY, memo=memo, id="id")
    changed = frame.assign(a=frame["a"].map({"x": "y", "y": "z", "z": "x"}))
    after = mq.disguise(changed, POLICY, memo=memo, id="id")
    pd.testing.assert_frame_equal(before[["b", "c"]], after[["b", "c"]])
    assert (before["a"] != after["a"]).any()


def test_draws_of_different_values_are_independent(tmp_path):
    """P(x reported as x) = 0.6 and P(y reported as y) = 0.6: both together 0.36 if independent."""
    memo, rows = tmp_path / "memo.json", 20_000
    people_x = people(rows).assign(a="x")
    one = mq.disguise(people_x, POLICY, memo=memo, id="id")["a"] == "x"
    two = mq.disguise(people_x.assign(a="y"), POLICY, memo=memo, id="id")["a"] == "y"
    # the memo's key is random: bounds at 1e-6, √(p(1−p)/n)·4.9
    assert abs(one.mean() - 0.6) < 4.9 * np.sqrt(0.24 / rows)
    assert abs((one & two).mean() - 0.36) < 4.9 * np.sqrt(0.36 * 0.64 / rows)


def test_another_memo_and_another_policy_draw_anew(tmp_path):
    frame = people()
    first = mq.disguise(frame, POLICY, memo=tmp_path / "one.json", id="id")
    assert not first.equals(mq.disguise(frame, POLICY, memo=tmp_path / "two.json", id="id"))
    other = mq.Policy.build(POLICY.schema, {"a": mq.channels.symmetric(3, "0.41")})
    mq.disguise(frame, other, memo=tmp_path / "one.json", id="id")
    assert Memo.open(tmp_path / "one.json").releases == (POLICY.id, other.id)


def test_the_file_is_the_owners_and_holds_no_value_and_no_person(tmp_path):
    memo = tmp_path / "memo.json"
    mq.disguise(people().assign(id="Alice"), POLICY, memo=memo, id="id")
    assert stat.S_IMODE(memo.stat().st_mode) == 0o600
    assert set(json.loads(memo.read_text())) == {"masquerade_memo", "secret", "releases"}
    assert "Alice" not in memo.read_text()
    assert "secret" not in repr(Memo.open(memo))


def test_bad_memos_are_refused_and_nothing_is_written(tmp_path):
    memo = tmp_path / "memo.json"
    for text in (
        "",
        "[]",
        '{"masquerade_memo": 1, "secret": "ab", "releases": []}',
        '{"masquerade_memo": 9}',
    ):
        memo.write_text(text)
        with pytest.raises(FileError):
            mq.disguise(people(), POLICY, memo=memo, id="id")
        assert memo.read_text() == text
    with pytest.raises(InputError, match="needs both"):
        mq.disguise(people(), POLICY, memo=memo)
    with pytest.raises(UnknownValue, match="column 'id', row 2"):
        mq.disguise(people(3).assign(id=["p", None, "q"]), POLICY, memo=tmp_path / "new.json", id="id")
    assert not (tmp_path / "new.json").exists()
