"""The release ledger: what was written stays, and every change shows at its line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from masquerade.core.errors import FileError, InputError, RoundAborted
from masquerade.crypto.errors import SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.wire.durable_store import DurableStore, Notes
from masquerade.services.common import release_ledger
from masquerade.services.common.ledger_totals import spending, summary, total
from masquerade.services.common.release_ledger import (
    FILE,
    START,
    Mark,
    Release,
    ReleaseLedger,
    SignedMark,
    agree,
    canonical,
    check_known_end,
    entry_of,
    in_state,
    inspect,
    parse,
)
from masquerade.services.common.state import LAYOUT, State

KEY = SigningKey()
RELEASE = Release(
    session="s1",
    protocol="vertical",
    recipient="miner",
    kind="disguised columns",
    variables=("smoker", "region"),
    rows=1000,
    policy="ab" * 32,
    gamma=Fraction(9, 2),
    digest="cd" * 32,
    draw="d1",
)


def memory():
    """Return notes that end with the test."""
    return Notes(DurableStore(None, LAYOUT))


def end(notes):
    found = SignedMark.decode(notes.get("release ledger", "head"))
    return None if found is None else found.mark


def written(path, number=5, notes=None, draw="d"):
    """Write a ledger of some releases; return its lines."""
    with ReleaseLedger.open(path, notes=notes) as ledger:
        for i in range(number):
            ledger.append(replace(RELEASE, session=f"s{i}", draw=f"{draw}{i}"))
    return path.read_bytes().splitlines(keepends=True)


def test_releases_are_read_back_as_written(tmp_path):
    path = tmp_path / FILE
    with ReleaseLedger.open(path) as ledger:
        first = ledger.append(RELEASE)
        second = ledger.append(
            replace(RELEASE, gamma=None, policy=None, digest=None, draw=None, recipient="ä\u2028".strip())
        )
        assert ledger.entries() == (first, second)
        assert ledger.entries()[-1].mark == second.mark
    with ReleaseLedger.open(path) as ledger:
        assert ledger.entries() == (first, second)
        assert ledger.entries()[0].release == RELEASE
    assert (first.number, second.number) == (1, 2)
    assert second.previous == first.hash
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_line_is_plain_json_that_others_can_check(tmp_path):
    import hashlib  # noqa: PLC0415

    previous = "0" * 64
    for line in written(tmp_path / FILE):
        values = json.loads(line)
        own = values.pop("hash")
        assert values["gamma"] == "9/2"
        assert values["previous"] == previous
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        assert hashlib.sha256(text.encode()).hexdigest() == own
        assert set(values) == {
            *("number", "time", "session", "protocol", "recipient", "kind", "variables", "rows", "policy"),
            *("gamma", "digest", "draw", "previous"),
        }
        previous = own


def refused(path, notes=None):
    """Return the error that opening raises, after checking that nothing was changed by that."""
    before = path.read_bytes()
    with pytest.raises(FileError) as caught:
        ReleaseLedger.open(path, notes=notes)
    assert path.read_bytes() == before
    return str(caught.value)


@pytest.mark.parametrize("line", [1, 3, 5])
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'"gamma":"9/2"', b'"gamma":"3/2"'),
        (b'"gamma":"9/2"', b'"gamma":null'),
        (b'"recipient":"miner"', b'"recipient":"friend"'),
        (b'"rows":1000', b'"rows":1'),
        (b'"rows":1000', b'"rows":1000.0'),
        (b'"rows":1000', b'"rows": 1000'),
        (b'"gamma":"9/2"', b'"gamma":"18/4"'),
        (b'"variables":["smoker","region"]', b'"variables":[]'),
        (b'"time":"2', b'"time":"3'),
        (b'{"digest"', b'{"added":1,"digest"'),
        (b'"kind"', b'"kin"'),
        (b"{", b"[" * 100_000 + b"{"),
    ],
)
def test_an_edited_line_is_named(tmp_path, line, old, new):
    path = tmp_path / FILE
    lines = written(path)
    assert old in lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    path.write_bytes(b"".join(lines))
    assert f"line {line}: " in refused(path)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: lines[1:], 1),
        (lambda lines: lines[:2] + lines[3:], 3),
        (lambda lines: [lines[1], lines[0], *lines[2:]], 1),
        (lambda lines: lines[:3] + lines[2:], 4),
        (lambda lines: [*lines[:2], b"\n", *lines[2:]], 3),
        (lambda lines: [*lines, b"{}\n"], 6),
        (lambda lines: [*lines, lines[0]], 6),
    ],
)
def test_deleted_added_and_reordered_lines_are_named(tmp_path, change, line):
    path = tmp_path / FILE
    lines = written(path)
    path.write_bytes(b"".join(change(lines)))
    assert f"line {line}: " in refused(path)


def test_a_line_of_another_ledger_does_not_fit(tmp_path):
    ours, theirs = written(tmp_path / "a"), written(tmp_path / "b", draw="other")
    (tmp_path / "a").write_bytes(b"".join([*ours[:2], *theirs[2:]]))
    assert "line 3: does not follow the line before" in refused(tmp_path / "a")


@pytest.mark.parametrize("left", [0, 1, 4])
def test_a_missing_end_shows_by_the_head(tmp_path, left):
    path, notes = tmp_path / FILE, memory()
    lines = written(path, notes=notes)
    assert end(notes).number == 5
    path.write_bytes(b"".join(lines[:left]))
    assert f"line {left + 1} is missing: the ledger was shortened, since 5 releases" in refused(path, notes)
    path.write_bytes(b"".join(lines)[:-10])  # within the last line
    assert "line 5 is missing" in refused(path, notes)


def test_another_ledger_of_the_same_length_shows_by_the_head(tmp_path):
    notes = memory()
    written(tmp_path / "a", notes=notes)
    written(tmp_path / "b", draw="e")
    assert "line 5: is not the one that was written" in refused(tmp_path / "b", notes)


def test_a_line_cut_short_by_a_crash_is_removed_for_nothing_left_under_it(tmp_path):
    path, notes = tmp_path / FILE, memory()
    lines = written(path, notes=notes)
    for tail in (lines[0][:40], b"\0" * 300, b"{"):
        path.write_bytes(b"".join(lines) + tail)
        with ReleaseLedger.open(path, notes=notes) as ledger:
            assert len(ledger.entries()) == 5
            ledger.entries()
        assert path.read_bytes() == b"".join(lines)


def test_a_head_left_behind_by_a_crash_catches_up(tmp_path):
    path, notes = tmp_path / FILE, memory()
    written(path, notes=notes)
    last = end(notes)
    notes.put(
        "release ledger", "head", Mark(4, json.loads(path.read_bytes().splitlines()[3])["hash"]).encode()
    )
    with ReleaseLedger.open(path, notes=notes) as ledger:
        assert end(notes) == last
        assert ledger.append(RELEASE).number == 6


def test_a_ledger_is_added_to_by_one(tmp_path):
    path = tmp_path / FILE
    with ReleaseLedger.open(path) as ledger:
        with pytest.raises(FileError, match="is in use"):
            ReleaseLedger.open(path)
        ledger.append(RELEASE)
        with path.open("ab") as stream:
            stream.write(b"x")
        for act in (lambda: ledger.append(RELEASE), ledger.entries):
            with pytest.raises(FileError, match="changed by another process"):
                act()


def test_verify_reads_from_the_disk(tmp_path):
    path = tmp_path / FILE
    with ReleaseLedger.open(path) as ledger:
        for _ in range(3):
            ledger.append(RELEASE)
        lines = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(lines[0] + lines[1].replace(b"miner", b"MINER") + lines[2])
        with pytest.raises(FileError, match="line 2: was edited"):
            ledger.entries()
        path.write_bytes(lines[0] + lines[1])
        with pytest.raises(FileError, match="line 3 is missing"):
            ledger.entries()


def test_a_release_is_on_the_disk_before_its_number_is_known(tmp_path, monkeypatch):
    events = []
    notes = memory()
    notes.put = lambda _scope, _name, mark: events.append(f"end {Mark.decode(mark).number}")
    with ReleaseLedger.open(tmp_path / FILE, notes=notes) as ledger:
        events.clear()
        write, sync = os.write, os.fsync
        monkeypatch.setattr(release_ledger.os, "write", lambda h, d: (events.append("write"), write(h, d))[1])
        monkeypatch.setattr(release_ledger.os, "fsync", lambda h: (events.append("sync"), sync(h))[1])
        ledger.append(RELEASE)
        assert events == ["write", "sync", "end 1"]


def test_a_full_disk_leaves_whole_lines(tmp_path, monkeypatch):
    path = tmp_path / FILE
    with ReleaseLedger.open(path) as ledger:
        ledger.append(RELEASE)
        before = path.read_bytes()
        write = os.write

        def full(handle, data):
            write(handle, data[:20])
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(release_ledger.os, "write", full)
        with pytest.raises(FileError, match="no space left"):
            ledger.append(RELEASE)
        monkeypatch.undo()
        assert path.read_bytes() == before
        assert ledger.append(RELEASE).number == 2
        ledger.entries()


def test_places_that_cannot_be_used(tmp_path):
    with pytest.raises(FileError, match="no such file"):
        ReleaseLedger.open(tmp_path / "a" / FILE)
    with pytest.raises(FileError, match="directory"):
        ReleaseLedger.open(tmp_path)


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": Fraction(1, 2)},
        {"gamma": 1.5},
        {"rows": -1},
        {"session": "a\nb"},
        {"recipient": None},
        {"kind": "x" * 501},
        {"variables": ("a", "\x1b[31m")},
        {"gamma": Fraction(10) ** 5000},
    ],
)
def test_what_is_no_release_is_refused(wrong):
    with pytest.raises(InputError):
        replace(RELEASE, **wrong)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
ENTRY = entry_of(RELEASE, START)


@settings(max_examples=100, deadline=None)
@given(
    line=st.binary(max_size=300)
    | JSON.map(lambda value: json.dumps(value).encode())
    | st.tuples(st.sampled_from(sorted(ENTRY.to_dict())), JSON).map(
        lambda change: canonical({**ENTRY.to_dict(), change[0]: change[1]})
    )
)
@example(line=b"0")
@example(line=b"")
@example(line=b"{}")
def test_nothing_else_is_taken_for_a_release(line):
    assume(line + b"\n" != ENTRY.line())
    with pytest.raises(FileError, match="line 1: "):
        parse(Path("ledger"), line + b"\n")


@settings(max_examples=40, deadline=None)
@given(place=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_any_changed_byte_shows(tmp_path_factory, place, byte):
    path = tmp_path_factory.mktemp("l") / FILE
    notes = memory()
    data = bytearray(b"".join(written(path, number=2, notes=notes)))
    place %= len(data)
    if data[place] == byte:
        return
    data[place] = byte
    path.write_bytes(data)
    with pytest.raises(FileError, match=r"line \d"):
        ReleaseLedger.open(path, notes=notes)


# with a state


def test_a_service_keeps_the_end_in_its_state(tmp_path):
    folder = tmp_path / "state"
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        ledger.append(RELEASE)
        assert end(state.notes) == Mark(1, ledger.entries()[0].hash)
        entries, known = inspect(folder)  # while it is in use
        assert entries == ledger.entries()
        assert known.mark == entries[-1].mark
        assert known.public == KEY.public
    (folder / FILE).write_bytes(b"")
    with State.open(folder) as state, pytest.raises(FileError, match="line 1 is missing"):
        in_state(state, KEY)
    with pytest.raises(FileError, match="line 1 is missing"):
        inspect(folder)
    (folder / FILE).unlink()
    with pytest.raises(FileError, match="is missing, with 1 releases"):
        inspect(folder / FILE)


def test_after_a_restore_the_ledger_says_that_lines_may_be_missing(tmp_path):
    folder = tmp_path / "state"
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        ledger.append(RELEASE)
    shutil.rmtree(folder / "once")
    for _ in range(2):
        with State.open(folder) as state, in_state(state, KEY) as ledger:
            assert [entry.release.kind for entry in ledger.entries()] == ["disguised columns", "restored"]
            assert total(spending(ledger.entries())) == Fraction(9, 2)
            assert "releases between the backup and then may be missing" in summary(ledger.entries())


def test_a_file_alone_is_inspected_without_its_end(tmp_path):
    path = tmp_path / "copy.jsonl"
    lines = written(path)
    entries, known = inspect(path)
    assert len(entries) == 5
    assert known is None
    path.write_bytes(b"".join(lines)[:-5])
    with pytest.raises(FileError, match="line 5 is cut short"):
        inspect(path)
    with pytest.raises(FileError, match="no release ledger here"):
        inspect(tmp_path)


def forged(folder):
    """Rebuild the chain without the second release, as an attacker with write access can; return its end."""
    entries, last, lines = inspect(folder)[0], START, b""
    for entry in (entries[0], *entries[2:]):
        made = replace(entry_of(entry.release, last), time=entry.time)
        made = replace(made, hash=made.due_hash)
        lines, last = lines + made.line(), made.mark
    parse(folder / FILE, lines, last)  # the chain says nothing: it has no key
    (folder / FILE).write_bytes(lines)
    return last


def sql(folder, change, *values):
    with closing(sqlite3.connect(folder / "state.sqlite")) as store, store:
        assert store.execute(change, values).rowcount == 1


UPDATE = "UPDATE notes SET value = ? WHERE scope = 'release ledger' AND name = 'head'"


@pytest.fixture
def three(tmp_path):
    """A state whose ledger has three releases."""
    folder = tmp_path / "state"
    with State.open(folder) as state, in_state(state, KEY) as ledger:
        assert not ledger.doubted
        for i in range(3):
            ledger.append(replace(RELEASE, session=f"s{i}"))
    return folder


@pytest.mark.parametrize("signed", ["not at all", "by another", "for another end", "deleted"])
def test_one_sql_update_hides_a_release(three, signed):
    end = inspect(three)[1]
    last = forged(three)
    if signed == "deleted":
        sql(three, "DELETE FROM notes WHERE scope = 'release ledger' AND name = 'head'")
    elif signed == "not at all":
        sql(three, UPDATE, last.encode())
    elif signed == "by another":
        sql(three, UPDATE, SignedMark.of(last, end.epoch, SigningKey()).encode())
    else:
        sql(three, UPDATE, replace(end, mark=last).encode())
        with State.open(three) as state, pytest.raises(FileError, match="differs from the signed end"):
            in_state(state, KEY)
        with pytest.raises(FileError, match="differs from the signed end"):
            inspect(three)
        return
    for _ in range(2):
        with State.open(three) as state, in_state(state, KEY) as ledger:
            assert [entry.release.kind for entry in ledger.entries()][2:] == ["restored"]
            assert ledger.doubted
            assert ledger.end.public == KEY.public
    with State.open(three) as state, in_state(state, KEY) as ledger:
        agree(ledger, state, "so be it")
        assert not ledger.doubted
        assert "so be it" in summary(ledger.entries())


def test_a_ledger_put_back_with_its_old_signature_lacks_what_a_peer_has_seen(three):
    lines = (three / FILE).read_bytes()
    older = inspect(three)[1]
    with State.open(three) as state, in_state(state, KEY) as ledger:
        ledger.append(RELEASE)
        seen = ledger.end  # a peer keeps it
        check_known_end(ledger, seen, KEY.public)
    (three / FILE).write_bytes(lines)
    sql(three, UPDATE, older.encode())
    with State.open(three) as state, in_state(state, KEY) as ledger:
        assert not ledger.doubted  # by itself the node cannot see it
        with pytest.raises(RoundAborted, match="lacks line 4, which this node signed"):
            check_known_end(ledger, seen, KEY.public)
        with pytest.raises(SealBroken):
            check_known_end(ledger, seen, SigningKey().public)


def test_where_the_operator_agreed_to_a_restore_older_ends_may_be_missing(three):
    lines, older = (three / FILE).read_bytes(), inspect(three)[1]
    with State.open(three) as state, in_state(state, KEY) as ledger:
        ledger.append(RELEASE)
        seen = ledger.end
    (three / FILE).write_bytes(lines)
    sql(three, UPDATE, older.encode())
    shutil.rmtree(three / "once")
    with State.open(three) as state, in_state(state, KEY) as ledger:
        with pytest.raises(RoundAborted, match="rolled back"):
            check_known_end(ledger, seen, KEY.public)
        agree(ledger, state, "so be it")
        check_known_end(ledger, seen, KEY.public)


def test_in_a_ledger_of_an_earlier_version_a_line_says_where_signing_begins(tmp_path):
    folder = tmp_path / "state"
    with State.open(folder) as state, ReleaseLedger.open(folder / FILE, notes=state.notes) as ledger:
        ledger.append(RELEASE)
        state.notes.put("release ledger", "epoch", str(state.epoch).encode())
    assert inspect(folder)[1].signature == b""
    for _ in range(2):
        with State.open(folder) as state, in_state(state, KEY) as ledger:
            assert [entry.release.kind for entry in ledger.entries()] == [RELEASE.kind, "signed from here on"]
            assert not ledger.doubted
            assert total(spending(ledger.entries())) == Fraction(9, 2)
            assert "From release 2 on" in summary(ledger.entries())


WRITER = """
import sys
from dataclasses import replace
from fractions import Fraction
from masquerade.crypto.keys import SigningKey
from masquerade.services.common.release_ledger import Release, in_state
from masquerade.services.common.state import LAYOUT, State
ledger = in_state(State.open(sys.argv[1]), SigningKey.from_seed(bytes(32)))
release = Release("s", "p", "miner", "k", ("a",), 1, None, Fraction(2))
while True:
    print(ledger.append(release).hash, flush=True)
"""


def test_nothing_acknowledged_is_lost_when_killed_at_any_moment(tmp_path):
    acknowledged = []
    for i in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path / "state")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:  # noqa: S603
            first = writer.stdout.readline()
            time.sleep(0.02 + 0.037 * i)
            writer.send_signal(signal.SIGKILL)
            rest = writer.stdout.read()
        acknowledged += [line.decode() for line in (first + rest).split(b"\n")[:-1]]
        with State.open(tmp_path / "state") as state, in_state(state, KEY) as ledger:
            there = [entry.hash for entry in ledger.entries()]
            assert set(acknowledged) <= set(there)
            ledger.entries()
    assert len(acknowledged) > 3
