"""What a collector keeps, in files and in PostgreSQL: each report once, nothing lost, nothing joined."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psycopg
import pytest
from scipy.stats import kendalltau
from tests.survey.world import report, store_url

from masquerade.channels.policy import Policy
from masquerade.core.errors import FileError, InputError
from masquerade.crypto.errors import KeySpent
from masquerade.services.common.problems import Ended
from masquerade.survey.collector import postgres_tables
from masquerade.survey.collector.postgres_tables import PostgresTables
from masquerade.survey.collector.quotas import Quota
from masquerade.survey.collector.store import SurveyStore, report_id

POLICY = Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            "sex": {"categories": ["f", "m"]},
            "pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}},
        },
    }
)


@pytest.fixture(params=["files", "postgres"])
def place(request, tmp_path):
    """Return where a store keeps: a folder, or a database of its own."""
    if request.param == "files":
        return tmp_path / "s"
    return store_url(request.getfixturevalue("postgres"), tmp_path)


@pytest.fixture
def store(place):
    with opened(place) as found:
        yield found


def opened(place):
    """Return a store whose invitations are where its reports are, which PostgreSQL must be told to accept."""
    return SurveyStore(place, place, accept=["one_cluster"])


def test_many_at_once_are_all_kept_once_in_few_writes(store):
    commits = []
    store._reports.committed = lambda: commits.append(1)
    rows = [report() for _ in range(500)]
    with ThreadPoolExecutor(16) as pool:
        outcomes = list(pool.map(store.add, [*rows, *rows]))
    assert sum(outcomes) == 500
    assert store.counts()["reports"] == 500
    assert len(commits) < 1000


def recounted(store):
    """Count all reports, one by one."""
    found = {}
    for policy, mode, codes in store.reports():
        own = found.setdefault(policy, {})
        own[mode, codes] = own.get((mode, codes), 0) + 1
    return found


def test_equal_reports_are_counted_as_they_come_and_go_and_not_read_again(place):
    with opened(place) as store, opened(place) as other:
        code = secrets.token_bytes(10)
        store.add(replace(report(), id=report_id(code)))
        assert store.count_reports() == recounted(store)
        read = []
        grouped = store._count_equal
        store._count_equal = lambda: read.append(1) or grouped()
        rows = [report() for _ in range(50)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(store.add, [*rows, *rows]))
        assert store.count_reports() == recounted(store)
        assert sum(map(sum, [own.values() for own in store.count_reports().values()])) == 51
        assert store.withdraw(code)
        assert not store.withdraw(code)
        assert store.count_reports() == recounted(store)
        assert not read  # all that was known from the beginning, and what happened since
        other.add(report())
        assert store.count_reports() == recounted(store)
        assert len(read) == 1  # what another process did shows
        store.erase()
        assert store.count_reports() == {}


def test_a_token_spent_or_an_id_taken_is_refused(store):
    first = report(token=b"t" * 16)
    assert store.add(first)
    assert not store.add(first)
    with pytest.raises(KeySpent, match="invitation"):
        store.add(report(token=b"t" * 16))
    with pytest.raises(KeySpent, match="id"):
        store.add(report((1, 1, 1, 1), name=first.id))
    # two under one token in one group: one is kept
    twins = [report(token=b"u" * 16), report(token=b"u" * 16)]
    outcomes = store._insert_group(twins)
    assert outcomes[0] is True
    assert isinstance(outcomes[1], KeySpent)
    store.end()
    with pytest.raises(Ended):
        store.add(report())


def test_a_report_withdrawn_never_comes_back_and_all_is_deleted_in_the_end(store):
    secret = secrets.token_bytes(10)
    mine = report(name=report_id(secret))
    assert not store.withdraw(secret)
    store.add(mine)
    store.add(report())
    assert store.withdraw(secret)
    assert not store.add(mine)
    assert (store.counts()["reports"], store.counts()["withdrawn"]) == (1, 1)
    [code] = store.invite(1)
    store.exchange(code, b"b" * 32)
    store.end()
    with pytest.raises(Ended, match="no longer be withdrawn"):
        store.withdraw(secret)
    assert store.erase() == 1
    assert store.counts() | {"reports": 0, "withdrawn": 0, "invited": 0, "begun": 0} == store.counts()


def test_postgres_rows_of_who_was_invited_and_what_was_answered_have_no_order(
    postgres, tmp_path, monkeypatch
):
    """By rows, transactions and values: nothing of the order in which people came is left in the tables."""
    hidden, people = 20, 60
    monkeypatch.setattr(postgres_tables, "LEAST_HIDDEN", hidden)  # 128 in earnest: fewer people do here
    with opened(store_url(postgres, tmp_path)) as store:
        arrived = []
        for i, code in enumerate(store.invite(people)):  # one by one: nobody shares a transaction by chance
            store.exchange(code, secrets.token_bytes(32))
            arrived.append(report((i % 2, 1), token=secrets.token_bytes(16)))
            store.add(arrived[-1])
        came = {one.id: turn for turn, one in enumerate(arrived)}
        tables = {"reports": ("id", store._reports), "spent": ("token", store._reports)}
        tables["exchanged"] = ("digest", store._invitations)
        values = {}
        for tidied in (False, True):
            for name, (key, own) in tables.items():
                rows = own.run(f"SELECT * FROM {name}")  # noqa: S608
                values[name] = {value for row in rows for value in row if isinstance(value, bytes)}
                shared = own.run(f"SELECT count(*) FROM {name} GROUP BY xmin::text")  # noqa: S608
                assert sum(number for (number,) in shared) == people
                assert min(number for (number,) in shared) >= hidden
                assert tidied == (len(shared) == 1)  # then nobody's transaction was before another's
                blocks = f"SELECT array_agg({key} ORDER BY ctid) FROM {name} GROUP BY tableoid, xmin::text"  # noqa: S608
                for (block,) in own.run(blocks):
                    assert block == sorted(block)
            assert not values["exchanged"] & (values["reports"] | values["spent"])
            [*pool] = store._reports.run("SELECT id FROM reports_pool")  # who came last is mixed with others
            assert hidden <= len(pool) < 2 * hidden
            assert min(came[bytes(name)] for (name,) in pool) < people - len(pool)
            store.tidy()
        shown = [came[bytes(name)] for (name,) in store._reports.run("SELECT id FROM reports ORDER BY id")]
        assert kendalltau(shown, range(people)).pvalue > 1e-6


KILLED = """
import os, signal, sys
from masquerade.survey.collector.store import Report, SurveyStore
place, when = sys.argv[1:]
store = SurveyStore(place, place, accept=["one_cluster"])
def row(i): return Report(bytes([i]) * 16, "p" * 64, 0, (0, 1), bytes([100 + i]) * 16)
for i in range(3):
    store.add(row(i))
    print(i, flush=True)
setattr(store._reports, when, lambda: os.kill(os.getpid(), signal.SIGKILL))
store.add(row(3))
print("acknowledged", flush=True)
"""


@pytest.mark.parametrize("when", ["committing", "committed"])
def test_killed_before_or_after_its_commit_it_keeps_what_it_acknowledged_and_a_page_may_repeat(place, when):
    """The two instants that matter: just before a report is durable, and between that and its reply."""
    command = [sys.executable, "-c", KILLED, str(place), when]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert done.stdout.split() == ["0", "1", "2"]
    with opened(place) as store:
        assert store.counts()["reports"] == (4 if when == "committed" else 3)
        for i in range(4):  # pages that had no reply send again, and those that had one might
            again = report((0, 1), name=bytes([i]) * 16, token=bytes([100 + i]) * 16)
            assert store.add(again) == (when == "committing" and i == 3)
        assert store.counts()["reports"] == 4


def test_a_full_disk_refuses_and_takes_again_later(store):
    store.add(report())
    if isinstance(store._reports, PostgresTables):
        store._reports._accept = frozenset({"statement_log"})  # a trigger is in place of a full disk
        store._reports.run(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no space left' USING ERRCODE = '53100'; END $$"
        )
        store._reports.run(
            "CREATE TRIGGER no_space BEFORE INSERT ON reports_pool EXECUTE FUNCTION full_disk()"
        )
    else:
        pages = store._reports.value("PRAGMA page_count")
        store._reports.run(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(FileError, match="full"):
        store.add(report(range(10_000)))  # no slot has room for it
    kept = store.counts()["reports"]
    if isinstance(store._reports, PostgresTables):
        store._reports.run("DROP TRIGGER no_space ON reports_pool")
    else:
        store._reports.run("PRAGMA max_page_count = 1000000")
    assert store.add(report())
    assert store.counts()["reports"] == kept + 1


def test_quotas_count_answers_or_reports_and_say_which(store):
    store.register(POLICY)
    store.limit([Quota("sex", "f", 2), Quota("pills", "yes", 3)])
    take = lambda codes: store.add(report(codes, policy=POLICY.id))  # noqa: E731
    secret = secrets.token_bytes(10)
    first = report((0, 1), name=report_id(secret), policy=POLICY.id)
    assert store.add(first)
    assert take((0, 1))
    with pytest.raises(Ended, match="quota is full"):
        take((0, 1))
    assert not store.add(first)  # what is there already is no further one
    assert store.withdraw(secret)
    assert take((0, 0))
    with pytest.raises(Ended):
        take((0, 1))
    assert take((1, 0))
    answers, reports = store.quotas.figures()
    assert (answers["count"], answers["counts"]) == (2, "answers")
    assert (reports["count"], reports["counts"]) == (2, "reports")
    assert "disguised reports, not answers" in reports["meaning"]
    before = store.quotas.figures()
    store.limit(store.quotas.quotas)  # as after a restart
    assert store.quotas.figures() == before
    with pytest.raises(InputError) as refused:
        store.limit([Quota("sez", "f", 2), Quota("sex", "w", 2)])
    assert "no column 'sez'" in str(refused.value)
    assert "'w' is not a category" in str(refused.value)


def test_postgres_that_is_gone_is_said_and_found_again(own_postgres, tmp_path):
    url = store_url(own_postgres, tmp_path)
    with SurveyStore(url) as store:
        assert store.add(report())
        own = store._reports.value("SELECT pg_backend_pid()")
        with psycopg.connect(own_postgres.url) as other:
            other.execute("SELECT pg_terminate_backend(%s, 60000)", (own,))
        with pytest.raises(FileError, match="store: PostgreSQL"):  # the connection is broken
            store.add(report())
        assert store.add(report())
        own_postgres.kill()
        with pytest.raises(FileError, match=r"store: .*PostgreSQL"):
            store.add(report())
    with pytest.raises(FileError, match="no connection to PostgreSQL"):
        SurveyStore(url)
