"""The keyed memo: the same person's same value is never drawn twice."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import stat
import threading
import unicodedata
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import masquerade as mq
from masquerade.core.errors import FileError, InputError, UnknownValue
from masquerade.disguising.memo import Memo
from masquerade.disguising.person_ids import AS_WRITTEN, person_tags

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
    assert one.save(POLICY.id).id == one.id
    with pytest.raises(FileError, match="a different memo was created here concurrently"):
        two.save(POLICY.id)
    assert Memo.load(memo).secret == one.secret
    assert not list(tmp_path.glob(".*"))


def _made(path, barrier, found):
    barrier.wait()
    found.put(Memo.load_or_create(path).id)


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
    memo = Memo.load_or_create(tmp_path / "memo.json")
    others = [threading.Thread(target=memo.save, args=(f"policy {i}",)) for i in range(20)]
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
    Memo.load_or_create(memo)
    memo.chmod(0o644)
    with pytest.raises(FileError, match=r"others may open a memo \(mode 644\)"):
        mq.disguise(people(3), POLICY, memo=memo, id="id")
    memo.chmod(0o600)
    for name, target in (("planted.json", memo), ("dangling.json", tmp_path / "nowhere.json")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(FileError, match="is a link, which another user could have created"):
            mq.disguise(people(3), POLICY, memo=tmp_path / name, id="id")
    assert not (tmp_path / "nowhere.json").exists()
    os.mkfifo(tmp_path / "pipe.json", 0o600)
    with pytest.raises(FileError, match="is not a file"):
        mq.disguise(people(3), POLICY, memo=tmp_path / "pipe.json", id="id")


def test_a_mistyped_memo_draws_nobody_again(tmp_path):
    """The attack: a second memo, made in silence, draws everybody again, and γ = 9 becomes 81."""
    frame, memo = people(), tmp_path / "memo.json"
    first = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True)
    again = mq.disguise(frame, POLICY, memo=tmp_path / "memmo.json", id="id", new_memo=True)
    assert not first.equals(again)  # what a second memo does
    (tmp_path / "memmo.json").unlink()
    frame.to_csv(tmp_path / "clear.csv", index=False)
    before = sorted(tmp_path.iterdir())
    for wrong in ("memmo.json", "nowhere/memo.json"):
        for act in (
            lambda name=wrong: mq.disguise(frame, POLICY, memo=tmp_path / name, id="id"),
            lambda name=wrong: mq.disguise(tmp_path / "clear.csv", POLICY, memo=tmp_path / name, id="id"),
            lambda name=wrong: mq.disguise_file(
                tmp_path / "clear.csv", tmp_path / "out.csv", POLICY, memo=tmp_path / name, id="id"
            ),
            lambda name=wrong: Memo.open(tmp_path / name),
        ):
            with pytest.raises(
                FileError, match=r"there is no memo\. Check the name.*the γ of both memos multiply"
            ):
                act()
    assert sorted(tmp_path.iterdir()) == before
    pd.testing.assert_frame_equal(mq.disguise(frame, POLICY, memo=memo, id="id"), first)


def test_new_memo_makes_a_new_file_and_nothing_else(tmp_path):
    memo, frame = tmp_path / "memo.json", people(20)
    Memo.load_or_create(memo)
    before = memo.read_bytes()
    (tmp_path / "dangling").symlink_to(tmp_path / "elsewhere")
    for name in ("memo.json", "dangling"):
        with pytest.raises(FileError, match="exists already"):
            mq.disguise(frame, POLICY, memo=tmp_path / name, id="id", new_memo=True)
    assert memo.read_bytes() == before
    assert not (tmp_path / "elsewhere").exists()
    with pytest.raises(InputError, match="A new memo needs a file"):
        mq.disguise(frame, POLICY, new_memo=True)


SPELLINGS = {
    "whole numbers": pa.array([1, 2, 30], pa.int64()),
    "short ones": pa.array([1, 2, 30], pa.uint8()),
    "floating point": pa.array([1.0, 2.0, 30.0]),
    "single precision": pa.array([1.0, 2.0, 30.0], pa.float32()),
    "decimals": pa.array([Decimal("1.00"), Decimal("2.00"), Decimal("30.00")]),
    "texts": pa.array(["1", "2", "30"]),
    "long texts": pa.array(["1", "2", "30"], pa.large_string()),
    "texts of floating point": pa.array(["1.0", "2.0", "30.00"]),
    "blanks before": pa.array([" 1", "  2", "\t30"]),
    "a column of fixed width": pa.array(["1         ", "2         ", "30        "]),
    "other blanks": pa.array(["1\u00a0", "\u30002", "30\r"]),
    "a dictionary": pa.array(["1 ", "2", "30"]).dictionary_encode(),
    "one with blank entries that no row has": pa.DictionaryArray.from_arrays(
        [1, 2, 3], [" ", "1", "2", "30"]
    ),
    "chunks": pa.chunked_array([["1"], ["2 ", "30"]]),
}


@pytest.mark.parametrize("ids", SPELLINGS.values(), ids=SPELLINGS)
def test_one_person_is_drawn_once_however_the_id_is_written(ids):
    """The attack: a file that was opened in a spreadsheet has the same people under other spellings."""
    key = bytes(32)
    expected = person_tags(pa.array(["1", "2", "30"]), "id", key)
    assert np.array_equal(person_tags(ids, "id", key), expected)
    if pa.types.is_string(ids.type) and ids.to_pylist() != ["1", "2", "30"]:
        assert not np.array_equal(person_tags(ids, "id", key, AS_WRITTEN), expected)  # as it was


def test_letters_of_an_id_are_composed():
    names = [unicodedata.normalize(form, "Zoë Nuñez") for form in ("NFC", "NFD")]
    assert names[0] != names[1]
    one, two = person_tags(pa.array(names), "id", bytes(32))
    assert np.array_equal(one, two)


def test_ids_that_some_system_keeps_apart_are_different_persons():
    """Two persons with one tag would share draws, and a report of one could exclude a value of the other."""
    ids = ["1", "01", "001", "1.5", "-1", "ann", "Ann", "a b", "a  b", "1e0", "0x1", "1.", "01.0", "ﬁ", "fi"]
    assert len({bytes(tag) for tag in person_tags(pa.array(ids), "id", bytes(32))}) == len(ids)


def test_floating_point_that_cannot_hold_an_id_is_refused():
    """The attack: ids of 17 digits, read as floating point, are one number for several people."""
    assert float(2**53) == float(2**53 + 1)
    for bad in (2.0**53, float("inf"), -(2.0**60)):
        with pytest.raises(UnknownValue, match=r"column 'id', row 2: .*read the column as text"):
            person_tags(pa.array([1.0, bad]), "id", bytes(32))
    assert len({bytes(tag) for tag in person_tags(pa.array([2**53, 2**53 + 1]), "id", bytes(32))}) == 2


def test_spellings_of_one_person_in_one_file_have_one_report(tmp_path):
    frame = people(4).assign(id=["7", "7 ", "7.0", "007"], a="x", b=0, c=0)
    runs = []
    for run in range(40):
        memo = tmp_path / f"{run}.json"
        made = mq.disguise(frame, POLICY, memo=memo, id="id", new_memo=True)
        runs.append(made)
        assert len(made.iloc[:3].drop_duplicates()) == 1
    # 007 is another person: reports agree with probability (0.36 + 2·0.04)·(0.25 + 3/36) < 0.15
    assert any(len(made.drop_duplicates()) == 2 for made in runs)


def test_a_memo_of_the_first_format_keeps_its_draws_and_says_so(tmp_path):
    """Its tags must not change: another form of the ids would draw everybody again."""
    memo, frame = tmp_path / "memo.json", people(200)
    memo.write_text(json.dumps({"masquerade_memo": 1, "secret": "ab" * 32, "releases": []}))
    memo.chmod(0o600)
    frame.to_csv(tmp_path / "clear.csv", index=False)
    frame.assign(id=frame["id"].astype(str) + " ").to_csv(tmp_path / "padded.csv", index=False)
    made = [
        mq.disguise_file(tmp_path / f"{name}.csv", tmp_path / f"{name}.out.csv", POLICY, memo=memo, id="id")
        for name in ("clear", "padded")
    ]
    assert "exactly as they are written" in made[0].notes[0]
    assert json.loads(memo.read_text()) == {
        "masquerade_memo": 1,
        "secret": "ab" * 32,
        "releases": [POLICY.id],
    }
    # the chance that 200 persons are drawn the same is below 0.6**200
    assert (tmp_path / "clear.out.csv").read_text() != (tmp_path / "padded.out.csv").read_text()


def test_a_release_under_a_second_memo_says_what_both_multiply_to(tmp_path):
    """The attack: a lost memo is made again, and the release says γ = 9 where both have 81."""
    frame = people(50)
    frame.to_csv(tmp_path / "clear.csv", index=False)
    out = tmp_path / "out"
    out.mkdir()

    def release(name, **memo):
        return mq.disguise_file(tmp_path / "clear.csv", out / name, POLICY, **memo)

    first = release("one.parquet", memo=tmp_path / "one", id="id", new_memo=True)
    assert (first.earlier, first.epsilon_together) == ((), pytest.approx(math.log(9)))
    assert release("copy.csv", memo=tmp_path / "one", id="id").earlier == ()  # the same draw
    second = release("two.csv", memo=tmp_path / "two", id="id", new_memo=True)
    assert {(draw.memo, draw.policy) for draw in second.earlier} == {(first.memo, POLICY.id)}
    assert second.epsilon_together == pytest.approx(math.log(81))
    fresh = release("three.arrow")
    assert {draw.memo for draw in fresh.earlier} == {first.memo, second.memo}
    assert fresh.epsilon_together == pytest.approx(3 * math.log(9))
    again = release("three.arrow", overwrite=True)
    assert again.epsilon_together == pytest.approx(4 * math.log(9))  # what is replaced was a draw, too
    other = mq.Policy.build({"d": [0, 1]}, {"d": mq.channels.binary(0.2)})
    frame.assign(d=0).to_csv(tmp_path / "clear.csv", index=False)
    apart = mq.disguise_file(tmp_path / "clear.csv", out / "other.csv", other)
    # other variables of the same person: the draws that are still there (one, two, three) count too
    assert apart.epsilon_together == pytest.approx(3 * math.log(9) + math.log(4))


def test_files_beside_a_release_that_say_nonsense_have_no_bound(tmp_path):
    people(5).to_csv(tmp_path / "clear.csv", index=False)
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    (tmp_path / "bad.csv").write_text("a\n")
    for text in (
        "[]",
        "{",
        '{"policy": 3}',
        '{"policy": "x", "policy_text": "{}"}',
        '{"policy": "x", "memo": []}',
    ):
        (tmp_path / "bad.csv.masquerade.json").write_text(text)
        made = mq.disguise_file(tmp_path / "clear.csv", tmp_path / "out.csv", POLICY, overwrite=True)
        files = {draw.file: draw.epsilon for draw in made.earlier}
        assert files.pop(str(tmp_path / "bad.csv")) is None
        assert set(files) <= {str(tmp_path / "out.csv")}
        assert made.epsilon_together is None


@pytest.mark.parametrize("damage", ["{", "[]", '{"policy": 7}', '{"policy": "' + "0" * 64 + '"}'])
def test_an_earlier_release_whose_policy_cannot_be_read_has_no_bound(tmp_path, damage):
    """Before, its draw was skipped: the same people once more, as if nothing had been released."""
    frame, rules = pd.DataFrame({"a": ["x", "y"] * 20}), stated_policy()
    frame.to_csv(tmp_path / "clear.csv", index=False)
    folder = tmp_path / "out"
    folder.mkdir()
    mq.disguise_file(tmp_path / "clear.csv", folder / "first.csv", rules)
    (folder / "first.csv.masquerade.json").write_text(damage)
    with pytest.raises(InputError, match="The γ of an earlier draw is not known"):
        mq.disguise_file(tmp_path / "clear.csv", folder / "second.csv", rules)
    assert not (folder / "second.csv").exists()
    done = mq.disguise_file(tmp_path / "clear.csv", folder / "second.csv", rules, accept_gamma=math.inf)
    assert done.epsilon_together is None
    assert [draw.epsilon for draw in done.earlier] == [None]


def stated_policy():
    return mq.Policy.from_dict(
        {
            "masquerade": 1,
            "limit": {"breach": "5%:50%"},
            "variables": {"a": {"categories": ["x", "y"], "channel": {"kind": "binary", "p": 0.1}}},
        }
    )
