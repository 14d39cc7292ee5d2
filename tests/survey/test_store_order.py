"""What lies on the disk tells nobody's place in the order of arrival, and joins nobody with a report.

The same attack reads the files of the store as it was, and of the store as it is, after a SIGKILL in the
middle of a write: it succeeds there, and fails here. False alarms of the whole file: at most 280 orders with
1e-9 each and 280 joins with 1/12! each, together 8.7e-7.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path

import httpx
import pytest
from tests.survey.first_layout import FirstStore
from tests.survey.order_attack import (
    LEAST_JOINS,
    LEAST_ORDER,
    Search,
    guess,
    p_of_order,
    right_joins,
    signs,
)
from tests.survey.world import change, free_port, report

from masquerade.core.errors import FileError
from masquerade.crypto import oprf
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.wire import slot_table
from masquerade.survey import Survey
from masquerade.survey.collector.example import body_of, write_example
from masquerade.survey.collector.file_store import _mark_of
from masquerade.survey.collector.store import SurveyStore, report_id
from masquerade.survey.page.page import body_size

ROOT = Path(__file__).parents[2]
FILES = {"report": "reports.sqlite", "exchange": "invitations.sqlite"}
SIZES = (30, 120, pytest.param(1000, marks=pytest.mark.slow))


class Attack:
    """What the files in a folder tell of what really happened: lines of `what, person, value, value`."""

    def __init__(self, folder, happened):
        self.happened = happened
        self.everything = b"".join(file.read_bytes() for file in sorted(folder.iterdir()))
        orders = {what: {} for what in FILES}
        self.chances = {what: {} for what in FILES}
        truths = {(what, column): self.truth(what, column) for what, column in product(FILES, (2, 3))}
        for (what, column), truth in truths.items():
            for sign, numbers in signs(folder, FILES[what], list(truth)):
                name = sign.replace(FILES[what], "file")
                orders[what][column, name] = guess(numbers)
                self.chances[what][column, name] = p_of_order(orders[what][column, name], list(truth))
        self.joins = {}
        for ((a, sign), ours), ((b, other), theirs) in product(*(orders[what].items() for what in FILES)):
            if sign == other:
                whose = {person: value for value, person in truths["exchange", b].items()}
                right = {value: whose.get(person) for value, person in truths["report", a].items()}
                self.joins[a, b, sign] = right_joins(ours, theirs, right)

    def truth(self, what, column):
        """Return the values that are on the disk, with the person, in the order of coming."""
        rows = [(bytes.fromhex(line[column]), int(line[1])) for line in self.happened if line[0] == what]
        there = {value for value, _ in Search([value for value, _ in rows]).in_page(self.everything)}
        return {value: person for value, person in rows if value in there}

    def check_failed(self):
        """Raise AssertionError if the attack is better than chance."""
        assert {what: len(found) for what, found in self.chances.items()} == {"report": 28, "exchange": 28}
        assert len(self.joins) == 56
        for found in self.chances.values():
            assert min(found.values()) >= LEAST_ORDER, min(found, key=found.get)
        assert max(self.joins.values()) < LEAST_JOINS


def killed(layout, folder, people):
    """Let people come to a store until it is killed in the middle of a write; return what happened."""
    command = [sys.executable, "-m", "tests.survey.arrivals", layout, str(folder), str(people)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    return [line.split() for line in done.stdout.splitlines()]


@pytest.mark.parametrize("people", SIZES)
def test_files_of_the_store_as_it_was_order_people_and_join_them(tmp_path, people):
    attack = Attack(tmp_path / "s", killed("before", tmp_path / "s", people))
    for found in attack.chances.values():
        assert min(found.values()) < LEAST_ORDER
    # 315 of 1,000 on an idle machine, fewer on a busy one; chance joins 4
    assert max(attack.joins.values()) > max(LEAST_JOINS, people / 30)


@pytest.mark.parametrize("people", SIZES)
def test_files_of_a_store_killed_in_mid_write_order_nobody_and_join_nobody(tmp_path, people):
    happened = killed("now", tmp_path / "s", people)
    assert {file.name for file in (tmp_path / "s").iterdir()} == set(FILES.values())  # no log, no journal
    attack = Attack(tmp_path / "s", happened)
    late = {line[2] for line in happened if line[0] == "late"}
    kept = {value.hex() for value in attack.truth("report", 2)}
    assert len(kept) >= people - len(late)  # all that was acknowledged
    assert kept & late  # and some of what was just being written
    attack.check_failed()


def test_files_of_a_collector_killed_while_people_send_order_nobody_and_join_nobody(tmp_path):
    """The collector itself, with tokens over HTTP; it is killed from outside, in the middle of a crowd."""
    folder, port, ordered, crowd = tmp_path / "work", free_port(), 30, 40
    write_example(folder, f"http://127.0.0.1:{port}", invited=True)
    change(folder / "collector.yaml", limits={"per_minute": 10**9})
    survey = Survey.load(folder / "survey.yaml")
    with SurveyStore(folder / "collected") as store:
        codes = store.invite(ordered + crowd)
    command = [sys.executable, "-m", "masquerade", "survey", "serve", str(folder / "collector.yaml")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)  # noqa: S603
    happened, sending = [], threading.Event()

    def visit(http, person):
        blinded = oprf.blind(secrets.token_bytes(32))
        asked = {"invitation": codes[person], "blinded": blinded.element.encode().hex()}
        signed = http.post("/v1/token", content=padded(survey, asked)).json()
        digest = hashlib.sha256(codes[person].encode()).hexdigest()
        happened.append(("exchange", person, digest, _mark_of(blinded.element.encode()).hex()))
        point = ristretto255.decode(bytes.fromhex(signed["evaluated"]))
        output = oprf.output_of(blinded.value, oprf.unblind(blinded, point).encode())
        name = secrets.token_hex(16)
        body = body_of(survey, (0, 1, 1, 2), token=blinded.value.hex() + output.hex(), name=name)
        kept = hashlib.blake2b(blinded.value, digest_size=16).hexdigest()
        assert http.post("/v1/reports", content=body).status_code == 200
        happened.append(("report", person, name, kept))

    def send(people):
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=600) as http:
            for person in people:
                try:
                    visit(http, person)
                except (httpx.TransportError, ValueError):  # the collector is gone
                    return
                if person >= ordered + crowd // 4:
                    sending.set()

    assert any("listens at" in line for line in iter(process.stderr.readline, ""))
    send(random.SystemRandom().sample(range(ordered), ordered))
    assert len(happened) == 2 * ordered
    known = list(happened)
    threads = [
        threading.Thread(target=send, args=(range(ordered + i, ordered + crowd, 4),)) for i in range(4)
    ]
    for thread in threads:
        thread.start()
    assert sending.wait(600)
    os.kill(process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    process.wait()
    process.stderr.close()
    assert {file.name for file in (folder / "collected").iterdir()} == {*FILES.values(), "collector.lock"}
    Attack(folder / "collected", known).check_failed()


def padded(survey, values):
    """Return a message in the one length that all have."""
    return json.dumps(values).encode().ljust(body_size(survey))


def test_files_of_the_store_as_it_was_are_brought_into_slots_in_a_new_order(tmp_path):
    folder, people = tmp_path / "s", 120
    happened = killed("before", folder, people)
    assert (folder / "reports.sqlite-wal").stat().st_size
    names = [bytes.fromhex(line[2]) for line in happened if line[0] == "report"]
    tokens = [bytes.fromhex(line[3]) for line in happened if line[0] == "report"]
    with SurveyStore(folder) as store:
        counts = store.counts()
        assert (counts["reports"], counts["invited"], counts["begun"]) == (people, people, people)
        assert counts["days"] == {"2030-01-01": people}
        with pytest.raises(KeySpent):
            store.add(report(token=tokens[0]))
        assert {name for name, _ in rows_of(store)} == set(names)
        new = [
            (what, person, value, _mark_of(bytes.fromhex(other)).hex() if what == "exchange" else other)
            for what, person, value, other in happened
        ]
        assert {file.name for file in folder.iterdir()} == set(FILES.values())
        Attack(folder, new).check_failed()


def rows_of(store):
    with store._reports.reading():
        return list(store._reports.rows())


def test_what_was_withdrawn_and_exchanged_in_the_store_as_it_was_is_remembered(tmp_path):
    code, token = secrets.token_bytes(10), secrets.token_bytes(16)
    first = FirstStore(tmp_path / "s")
    first.add(report_id(code), token, "[0,1]")
    first.add(b"o" * 16, b"t" * 16, "[1,1]", day="2030-01-02")
    first.withdraw(report_id(code))
    invitations = first.invite(2)
    first.exchange(invitations[0], b"b" * 32)
    first.close()
    with SurveyStore(tmp_path / "s") as store:
        assert store.counts() | {"reports": 1, "withdrawn": 1, "invited": 2, "begun": 1} == store.counts()
        assert not store.add(report(name=report_id(code), token=token))
        with pytest.raises(KeySpent):
            store.add(report(token=token))
        store.exchange(invitations[0], b"b" * 32)
        with pytest.raises(KeySpent):
            store.exchange(invitations[0], b"c" * 32)
        store.exchange(invitations[1], b"c" * 32)
        assert list(store.reports()) == [("p" * 64, 0, (1, 1))]


@pytest.mark.parametrize("columns", [4, 1500, 9000])  # a slot in a page, nearly a page, over several pages
def test_reports_and_exchanges_change_their_own_bytes_of_a_file_and_move_none(tmp_path, monkeypatch, columns):
    monkeypatch.setattr(slot_table, "FIRST_SLOTS", 64)
    made = [report((1,) * columns, token=secrets.token_bytes(16)) for _ in range(41)]
    with SurveyStore(tmp_path / "s") as store:
        store.add(made.pop())  # slots of this size, and the day
        codes = store.invite(40)
        before = {name: (tmp_path / "s" / name).read_bytes() for name in FILES.values()}
        for one, code in zip(made, codes, strict=True):
            store.exchange(code, secrets.token_bytes(32))
            store.add(one)
        size = store._reports._slots._size
        free = len(store._reports._slots._free)
        assert free == 64 - 41
    changed = {}
    for name, content in before.items():
        after = (tmp_path / "s" / name).read_bytes()
        assert len(after) == len(content)
        changed[name] = [
            i for i, (a, b) in enumerate(zip(content, after, strict=True)) if a != b and i >= 100
        ]
        for i in range(0, len(after), 4096):  # headers of pages and pointers to cells
            if content[i] in (0x0A, 0x0D):
                end = i + 8 + 2 * int.from_bytes(content[i + 3 : i + 5], "big")
                assert content[i:end] == after[i:end]
    assert len(changed["invitations.sqlite"]) <= 40 * 40
    assert len(changed["reports.sqlite"]) <= 40 * size + 18


def test_a_report_half_written_when_the_power_failed_is_a_free_slot_and_may_come_again(tmp_path):
    one, other = report(token=b"t" * 16), report(token=b"u" * 16)
    with SurveyStore(tmp_path / "s") as store:
        [code] = store.invite(1)
        store.add(other)
        store.add(one)
        store.exchange(code, b"b" * 32)
    file = tmp_path / "s" / "reports.sqlite"
    content = file.read_bytes()
    at = content.index(one.id)
    file.write_bytes(content[: at + 20] + bytes(12) + content[at + 32 :])
    mark, file = _mark_of(b"b" * 32), tmp_path / "s" / "invitations.sqlite"
    file.write_bytes(file.read_bytes().replace(mark, mark[:16] + bytes(len(mark) - 16)))
    with SurveyStore(tmp_path / "s") as store:
        assert store.counts()["reports"] == 1
        assert store.add(one)
        assert not store.add(other)
        store.exchange(code, b"c" * 32)  # nobody had a token for the other element
        with pytest.raises(KeySpent):
            store.exchange(code, b"b" * 32)
        assert sum(store.counts()["days"].values()) == store.counts()["reports"] == 2


def test_a_report_withdrawn_is_on_the_disk_no_more_but_for_its_id_and_token(tmp_path):
    code, token = secrets.token_bytes(10), secrets.token_bytes(16)
    mark = (7, 1, 3, 5, 2, 6, 9, 9, 8, 1)
    with SurveyStore(tmp_path / "s") as store:
        store.add(report(mark, name=report_id(code), token=token))
        store.add(report((0,) * 10))
        text = b"[7,1,3,5,2,6,9,9,8,1]"
        assert text in (tmp_path / "s" / "reports.sqlite").read_bytes()
        assert store.withdraw(code)
        left = b"".join(file.read_bytes() for file in (tmp_path / "s").iterdir())
        assert text not in left
        assert report_id(code) in left
        with pytest.raises(KeySpent):
            store.add(report(token=token))
        store.end()
        store.erase()
        left = b"".join(file.read_bytes() for file in (tmp_path / "s").iterdir())
        assert report_id(code) not in left
        assert token not in left


def test_growth_that_is_killed_in_its_middle_is_undone_and_keeps_everything(tmp_path):
    """A table that is written again has a journal; what a killed process left of it is rolled back."""
    script = """
import os, signal, sys
from masquerade.protocols.wire import slot_table
from masquerade.survey.collector.store import Report, SurveyStore
slot_table.FIRST_SLOTS = 64
store = SurveyStore(sys.argv[1])
for i in range(64): store.add(Report(bytes([i]) * 16, "p" * 64, 0, (0, 1), bytes([100 + i]) * 16))
store._reports.run("PRAGMA cache_size = 1")
def kill_while_growing():
    if os.path.exists(f"{sys.argv[1]}/reports.sqlite-journal"): os.kill(os.getpid(), signal.SIGKILL)
store._reports.committing = kill_while_growing
store.add(Report(b"n" * 16, "p" * 64, 0, (0, 1)))
"""
    command = [sys.executable, "-c", script, str(tmp_path / "s")]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL  # noqa: S603
    assert (tmp_path / "s" / "reports.sqlite-journal").stat().st_size
    with SurveyStore(tmp_path / "s") as store:
        assert {file.name for file in (tmp_path / "s").iterdir()} == set(FILES.values())
        assert {name for name, _ in rows_of(store)} == {bytes([i]) * 16 for i in range(64)}
        assert store.add(report())
        with pytest.raises(KeySpent):
            store.add(report(token=bytes([100]) * 16))


def test_a_record_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(slot_table, "MOST_RECORD_BYTES", 1000)
    with SurveyStore(tmp_path / "s") as store, pytest.raises((FileError, ValueError), match="at most 1,000"):
        store.add(report(range(1000)))


def test_a_damaged_file_is_refused_or_read_without_its_damaged_reports(tmp_path):
    with SurveyStore(tmp_path / "s") as store:
        made = [report((i % 2, 1)) for i in range(20)]
        for one in made:
            store.add(one)
    file = tmp_path / "s" / "reports.sqlite"
    content = file.read_bytes()
    names = {one.id for one in made}
    for _ in range(40):
        damaged = bytearray(content)
        for _ in range(20):
            damaged[secrets.randbelow(len(damaged))] = secrets.randbelow(256)
        file.write_bytes(damaged)
        try:
            with SurveyStore(tmp_path / "s") as store:
                assert {name for name, _ in rows_of(store)} <= names
        except FileError:
            continue
