"""Basket files: read, packed, disguised a few items at a time."""

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tests.e2e.test_cli_app import ok

import masquerade as mq
from masquerade.core.errors import FileError, InputError, PolicyError, UnknownValue
from masquerade.disguising.seeded import simulate_codes
from masquerade.frames.baskets import Baskets, basket_policy, read_baskets
from masquerade.frames.file_reader import open_batches
from masquerade.frames.file_writer import AtomicWriter

TEXT = "3 1 20\n\n1 1 3\n20\n\n"
HELD = [{"1", "3", "20"}, set(), {"1", "3"}, {"20"}]


def held(baskets):
    columns = baskets.codes()
    return [{name for name in baskets.items if columns[name][row]} for row in range(baskets.n)]


@pytest.mark.parametrize(
    "text", [TEXT, TEXT.replace(" ", ","), TEXT.replace(" ", " , "), TEXT.replace(" ", "\t"), TEXT.rstrip()]
)
def test_items_between_blanks_or_commas(tmp_path, text):
    path = tmp_path / "baskets.dat"
    path.write_text(text, encoding="utf-8")
    baskets = read_baskets(path)
    assert baskets.items == ("1", "3", "20")  # by number
    assert held(baskets) == HELD
    assert baskets.schema["3"].categories == (False, True)


def test_compressed_files_and_names_with_blanks(tmp_path):
    path = tmp_path / "baskets.csv.gz"
    path.write_bytes(gzip.compress(b"whole milk,tea\ntea\n"))
    baskets = read_baskets(path)
    assert baskets.items == ("tea", "whole milk")
    assert held(baskets) == [{"tea", "whole milk"}, {"tea"}]
    semicolons = tmp_path / "other.txt"
    semicolons.write_text("a, b;c\n", encoding="utf-8")
    assert read_baskets(semicolons, separator=";").items == ("a, b", "c")


def test_a_list_of_items_is_kept_and_enforced(tmp_path):
    path = tmp_path / "baskets.dat"
    path.write_text("b a\na\nc\n", encoding="utf-8")
    assert read_baskets(path, ["c", "b", "a", "never"]).items == ("c", "b", "a", "never")
    with pytest.raises(UnknownValue, match="row 3") as caught:
        read_baskets(path, ["a", "b"])
    assert "'c'" not in str(caught.value)  # an error about data never prints it


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00 a"])
def test_files_that_are_none(tmp_path, content):
    path = tmp_path / "baskets.dat"
    path.write_bytes(content)
    with pytest.raises(FileError):
        read_baskets(path)
    with pytest.raises(FileError):
        read_baskets(tmp_path / "missing.dat")


def test_too_much_memory_is_refused_before_it_is_taken(tmp_path):
    path = tmp_path / "baskets.dat"
    path.write_text("\n".join(f"{i} {i + 1}" for i in range(200)), encoding="utf-8")
    with pytest.raises(InputError, match="most_bytes"):
        read_baskets(path, most_bytes=201 * 4 * 8 - 1)
    assert read_baskets(path, most_bytes=201 * 4 * 8).n == 200


def random_baskets(items=150, n=997):
    words = np.random.default_rng(1).integers(0, 2**63, (items, -(-n // 64)), dtype=np.uint64)
    words[:, -1] &= np.uint64((1 << n % 64) - 1)
    return Baskets(tuple(f"i{k}" for k in range(items)), words, n)


def test_disguising_a_few_items_at_a_time_hides_each_group_once():
    baskets = random_baskets()
    policy = basket_policy(
        baskets.items, mq.channels.binary("1"), [("i3", "i140")], lambda _: mq.channels.flip([2, 2], 0)
    )
    seen = []

    def disguise(codes, part):
        seen.extend(part.schema)
        assert len(codes) <= 70  # never all of them
        return simulate_codes(dict(codes), part, 1)

    turned = baskets.through(policy, disguise)  # channels that always change the report
    assert sorted(seen) == sorted(baskets.items)
    for name, column in baskets.codes().items():
        np.testing.assert_array_equal(turned.codes([name])[name], 1 - column)


def test_clear_items_stay_and_other_policies_are_refused():
    baskets = random_baskets(3)
    same = baskets.through(mq.Policy.clear(baskets.schema), lambda *_: pytest.fail("nothing to disguise"))
    np.testing.assert_array_equal(same.words, baskets.words)
    with pytest.raises(InputError, match="different items"):
        baskets.through(basket_policy(["x"], mq.channels.binary("0.1")), simulate_codes)
    other = mq.Policy.build(dict.fromkeys(baskets.items, ("in", "out")), {})
    with pytest.raises(InputError, match="false and true"):
        baskets.through(other, simulate_codes)
    with pytest.raises(InputError, match="no item"):
        baskets.codes(["nothing"])


def test_the_policy_treats_all_items_alike():
    policy = basket_policy(
        "abcd", mq.channels.binary("0.1"), ["bd"], lambda cells: mq.channels.symmetric(cells, "0.3")
    )
    assert [group.names for group in policy.groups] == [("a",), ("b", "d"), ("c",)]
    assert policy.group("a").channel == policy.group("c").channel == mq.channels.binary("0.1")
    assert policy.group("b").channel.gamma == 7  # (1 − p)(2² − 1)/p
    with pytest.raises(InputError, match="joint"):
        basket_policy("ab", mq.channels.binary("0.1"), ["ab"])
    with pytest.raises(PolicyError):
        basket_policy("abc", mq.channels.binary("0.1"), ["ab", "bc"], lambda c: mq.channels.symmetric(c, 0.1))


def test_basket_files_are_read_and_written_as_columns(tmp_path):
    source, target = tmp_path / "clear.dat", tmp_path / "seen.baskets"
    source.write_text("red wine,jam\n,\njam\n,\n", encoding="utf-8")
    with open_batches(source) as batches:
        assert batches.notes == [f"{source}: read as 4 baskets of 2 items, one basket per line."]
        (batch,) = batches.select(["jam", "red wine", "beer"])
    assert batch.to_pydict() == {
        "jam": [True, False, True, False],
        "red wine": [True, False, False, False],
        "beer": [False] * 4,
    }
    with AtomicWriter(target, batch.schema, {"policy": "b1"}) as writer:
        writer.write(batch)
    assert target.read_text(encoding="utf-8") == "jam,red wine,\n,\njam\n,\n"
    with open_batches(target, ["jam", "red wine", "beer"]) as batches:
        assert batches.metadata == {"policy": "b1"}
        assert next(iter(batches)).equals(batch)
    for name, values, saying in (
        ("age", [1], "not true or false"),
        ("a,b", [True], "no comma"),
        (" a", [True], "double blank"),
    ):
        odd = pa.record_batch({name: values})
        with pytest.raises(FileError, match=saying), AtomicWriter(tmp_path / "x.dat", odd.schema, {}):
            pass


def test_commands_take_basket_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("clear.dat").write_text("bread butter\nbeer\nbread butter jam\n" * 300, encoding="utf-8")
    ok("policy", "init", "clear.dat", "--per-answer", "--epsilon", "2", "--out", "policy.yaml")
    assert ok("policy", "check", "policy.yaml", "clear.dat").stdout.startswith("900 records can be read")
    ok("disguise", "clear.dat", "-p", "policy.yaml", "--out", "seen.baskets", "--accept-gamma", "inf")
    policy = mq.Policy.load("policy.yaml")
    seen = read_baskets("seen.baskets", policy.schema)
    assert seen.n == 900
    wanted = mq.stats.shares(mq.tally(seen, policy), "beer").to_dict()
    assert json.loads(ok("stats", "shares", "seen.baskets", "--of", "beer", "--json").stdout) == wanted
    rules = ok("learn", "rules", "seen.baskets", "--min-support", "0.2", "--min-confidence", "0.8").stdout
    assert re.search(r"\{butter\}\s+=> \{bread\}", rules)
