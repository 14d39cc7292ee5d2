"""The keyed memo: the same person's same value is never drawn twice."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import stat
import threading

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
    first = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True, keep=["id"])
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
    before = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True)
    changed = frame.assign(a=frame["a"].map({"x": "y", "y": "z", "z": "x"}))
    after = mq.disguise(changed, POLICY, memo=memo, id="id")
    pd.testing.assert_frame_equal(before[["b", "c"]], after[["b", "c"]])
    assert (before["a"] != after["a"]).any()


def test_draws_of_different_values_are_independent(tmp_path):
    """P(x reported as x) = 0.6 and P(y reported as y) = 0.6: both together 0.36 if independent."""
    memo, rows = tmp_path / "memo.json", 20_000
    people_x = people(rows).assign(a="x")
    one = mq.disguise(people_x, POLICY, memo=memo, id="id", new_memo=True)["a"] == "x"
    two = mq.disguise(people_x.assign(a="y"), POLICY, memo=memo, id="id")["a"] == "y"
    # the memo's key is random: bounds at 1e-6, √(p(1−p)/n)·4.9
    assert abs(one.mean() - 0.6) < 4.9 * np.sqrt(0.24 / rows)
    assert abs((one & two).mean() - 0.36) < 4.9 * np.sqrt(0.36 * 0.64 / rows)


def test_another_memo_and_another_policy_draw_anew(tmp_path):
    frame = people()
    first = mq.disguise(frame, POLICY, memo=tmp_path / "one.json", id="id", new_memo=True)
    second = mq.disguise(frame, POLICY, memo=tmp_path / "two.json", id="id", new_memo=True)
    assert not first.equals(second)
    other = mq.Policy.build(POLICY.schema, {"a": mq.channels.symmetric(3, "0.41")})
    mq.disguise(frame, other, memo=tmp_path / "one.json", id="id")
    assert Memo.open(tmp_path / "one.json").releases == {
        POLICY.id: pytest.approx(math.log(9)),
        other.id: pytest.approx(math.log(0.59 / 0.205)),
    }


def test_the_file_is_the_owners_and_holds_no_value_and_no_person(tmp_path):
    memo = tmp_path / "memo.json"
    mq.disguise(people().assign(id="Alice"), POLICY, memo=memo, id="id", new_memo=True)
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
        '{"masquerade_memo": true, "secret": "' + "ab" * 32 + '", "releases": []}',
        '{"masquerade_memo": 1, "secret": "' + "ab" * 32 + '", "releases": {}}',
        '{"masquerade_memo": 2, "secret": "' + "ab" * 32 + '", "releases": []}',
        '{"masquerade_memo": 2, "secret": "' + "ab" * 32 + '", "releases": {"p": []}}',
    ):
        memo.write_text(text)
        memo.chmod(0o600)
        with pytest.raises(FileError):
            mq.disguise(people(), POLICY, memo=memo, id="id")
        assert memo.read_text() == text
    with pytest.raises(InputError, match="needs both"):
        mq.disguise(people(), POLICY, memo=memo)
    for missing in (None, " "):
        frame = people(3).assign(id=["p", missing, "q"])
        with pytest.raises(UnknownValue, match="column 'id', row 2"):
            mq.disguise(frame, POLICY, memo=tmp_path / "new.json", id="id", new_memo=True)
    assert not (tmp_path / "new.json").exists()


def test_two_draws_of_everybody_are_not_released_by_two_who_begin_at_once(tmp_path):
    """The attack: both look for the memo before either has made it, and each thinks of its own secret."""
    memo = tmp_path / "memo.json"
    one, two = Memo.open(memo, new=True), Memo.open(memo, new=True)
    assert one.secret != two.secret
    assert one.saved(POLICY.id).id == one.id
    with pytest.raises(FileError, match="another memo was made here meanwhile"):
        two.saved(POLICY.id)
    assert Memo.load(memo).secret == one.secret
    assert not list(tmp_path.glob(".*"))


def _made(path, barrier, found):
    barrier.wait()
    found.put(Memo.kept(path).id)


def test_processes_that_begin_at_once_have_one_memo(tmp_path):
    context = multiprocessing.get_context("fork")
    barrier, found = context.Barrier(6), context.Queue()
    workers = [context.Process(target=_made, args=(tmp_path / "memo.json", barrier, found)) for _ in range(6)]
    for worker in workers:
        worker.start()
    ids = {found.get() for _ in workers}
    for worker in workers:
        worker.join()
    assert ids == {Memo.load(tmp_path / "memo.json").id}


def test_no_policy_that_a_memo_served_is_forgotten_by_two_who_save_at_once(tmp_path):
    memo = Memo.kept(tmp_path / "memo.json")
    others = [threading.Thread(target=memo.saved, args=(f"policy {i}",)) for i in range(20)]
    for thread in others:
        thread.start()
    for thread in others:
        thread.join()
    assert sorted(Memo.load(memo.path).releases) == sorted(f"policy {i}" for i in range(20))


def test_reports_say_which_memo_drew_them(tmp_path):
    memo, frame = tmp_path / "memo.json", people(50)
    marked = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True).attrs["masquerade"]
    assert marked == {"policy": POLICY.id, "memo": Memo.load(memo).id}
    frame.to_parquet(tmp_path / "clear.parquet", index=False)
    release = mq.disguise_file(
        tmp_path / "clear.parquet", tmp_path / "out.parquet", POLICY, memo=memo, id="id"
    )
    assert release.memo == Memo.load(memo).id
    assert pd.read_parquet(tmp_path / "out.parquet").attrs.get("masquerade", marked) == marked
    fresh = mq.disguise_file(tmp_path / "clear.parquet", tmp_path / "fresh.parquet", POLICY)
    assert fresh.memo is None
    # drawn by different memos, and so about different people: still one table
    both = mq.tally([tmp_path / "out.parquet", tmp_path / "fresh.parquet"], POLICY)
    assert both.answer([mq.Query()])[0].n == 100


@pytest.mark.skipif(os.name != "posix", reason="files have no modes here")
def test_a_memo_that_others_could_have_read_or_planted_is_refused(tmp_path):
    memo = tmp_path / "memo.json"
    Memo.kept(memo)
    memo.chmod(0o644)
    with pytest.raises(FileError, match=r"others may open a memo \(mode 644\)"):
        mq.disguise(people(3), POLICY, memo=memo, id="id")
    memo.chmod(0o600)
    for name, target in (("planted.json", memo), ("dangling.json", tmp_path / "nowhere.json")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(FileError, match="is a link, which anybody could have put there"):
            mq.disguise(people(3), POLICY, memo=tmp_path / name, id="id")
    assert not (tmp_path / "nowhere.json").exists()
    os.mkfifo(tmp_path / "pipe.json", 0o600)
    with pytest.raises(FileError, match="no file"):
        mq.disguise(people(3), POLICY, memo=tmp_path / "pipe.json", id="id")
