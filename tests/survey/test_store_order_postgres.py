"""PostgreSQL keeps the order of arrival beside its tables: tests show that it does, and the refusal."""

from __future__ import annotations

import random
import secrets
import time

import psycopg
import pytest
from tests.servers.fixtures import missing_for_postgres
from tests.servers.postgres import postgres_server
from tests.survey.order_attack import LEAST_JOINS, LEAST_ORDER, p_of_order, right_joins
from tests.survey.world import change, report, store_url

from masquerade.core.errors import FileError, InputError
from masquerade.services.common.settings import load
from masquerade.survey.collector.example import write_example
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.collector.store import SurveyStore

PEOPLE = 30
pytestmark = pytest.mark.skipif(missing_for_postgres() is not None, reason=str(missing_for_postgres()))


def visit(store):
    """Let people exchange and report, one after the other; return ids and blinded elements in their order."""
    codes = store.invite(PEOPLE)
    ids, elements = [], []
    for person in random.SystemRandom().sample(range(PEOPLE), PEOPLE):
        elements.append(secrets.token_bytes(32))
        store.exchange(codes[person], elements[-1])
        one = report((0, 1), token=secrets.token_bytes(16))
        store.add(one)
        ids.append(one.id)
    return ids, elements


def log_of(server):
    """Return the write-ahead log of a server, oldest first."""
    files = sorted((server.folder / "data" / "pg_wal").glob("0*"))
    return b"".join(file.read_bytes() for file in files)


def test_one_postgres_cluster_joins_everybody_by_its_log_and_is_refused(own_postgres, tmp_path):
    url = store_url(own_postgres, tmp_path)
    other = store_url(own_postgres, tmp_path)  # another database, the same cluster
    with SurveyStore(url, other, accept=["one_cluster"]) as store:
        ids, elements = visit(store)
        log = log_of(own_postgres)
        shown, exchanged = sorted(ids, key=log.find), sorted(elements, key=log.find)
        assert p_of_order(shown, ids) < LEAST_ORDER
        assert right_joins(shown, exchanged, dict(zip(ids, elements, strict=True))) >= LEAST_JOINS
    for invitations in (url, other):
        with pytest.raises(FileError, match=r"same PostgreSQL cluster .*one_cluster"):
            SurveyStore(url, invitations)
    with SurveyStore(url) as store:
        with pytest.raises(InputError, match="cannot store invitations"):
            store.invite(1)
        assert store.count_invitations() == {"invited": 0, "begun": 0}
    with SurveyStore(url, tmp_path / "invitations") as store:
        store.exchange(store.invite(1)[0], b"b" * 32)
        assert store.count_invitations() == {"invited": 1, "begun": 1}


def test_a_second_postgres_cluster_is_taken(own_postgres, tmp_path):
    with postgres_server() as other:
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        reports, invitations = store_url(own_postgres, tmp_path / "a"), store_url(other, tmp_path / "b")
        with SurveyStore(reports, invitations) as store:
            ids, elements = visit(store)
            assert store.counts() | {"reports": PEOPLE, "begun": PEOPLE} == store.counts()
        log = log_of(own_postgres)
        assert all(name in log for name in ids)
        assert not any(element in log for element in elements)


def test_postgres_that_writes_statements_down_is_refused(postgres, tmp_path):
    url = store_url(postgres, tmp_path)
    for option in ("log_statement=mod", "log_min_duration_statement=0", "debug_print_plan=on"):
        noisy = f"{url}&options=-c{option.replace('=', '%3D')}"
        with pytest.raises(FileError, match=rf"{option.split('=')[0]} = .*statement_log"):
            SurveyStore(noisy)
    noisy = f"{url}&options=-clog_statement%3Dall"
    one = report((0, 1), token=secrets.token_bytes(16))
    with SurveyStore(noisy, accept=["statement_log"]) as store:
        store.add(one)
    assert one.id.hex() in (postgres.folder / "log").read_text(errors="replace")  # what is refused, and why
    with SurveyStore(url) as store:
        two = report((0, 1), token=secrets.token_bytes(16))
        store.add(two)
    assert two.id.hex() not in (postgres.folder / "log").read_text(errors="replace")


def test_postgres_that_archives_replicates_or_keeps_times_is_refused_unless_each_is_accepted(tmp_path):
    archive = tmp_path / "archive"
    archive.mkdir()
    archive.chmod(0o777)
    for folder in [archive, *archive.parents][:-1]:  # the server is another user
        folder.chmod(folder.stat().st_mode | 0o011)
    settings = {
        "archive_mode": "on",
        "archive_command": f"cp %p {archive}/%f",
        "wal_level": "logical",
        "track_commit_timestamp": "on",
    }
    with postgres_server(settings) as server:
        url = store_url(server, tmp_path)
        with pytest.raises(FileError) as refused:
            SurveyStore(url)
        assert "accept: [archiving, commit_times, replication]" in str(refused.value)
        for sign in ("archive_mode = on", "wal_level = logical", "track_commit_timestamp = on"):
            assert sign in str(refused.value)
        with pytest.raises(FileError, match=r"accept: \[commit_times\]"):
            SurveyStore(url, accept=["archiving", "replication"])
        ids = []
        with SurveyStore(url, accept=["archiving", "replication", "commit_times"]) as store:
            for _ in range(PEOPLE):
                one = report((0, 1))
                store.add(one)
                ids.append(one.id)
            times = store._reports.run("SELECT DISTINCT pg_xact_commit_timestamp(xmin) FROM reports_pool")
            assert times[0][0] is not None
            store._reports.run("SELECT pg_switch_wal()")
        until = time.monotonic() + 600
        kept = b""
        while ids[-1] not in kept and time.monotonic() < until:
            kept = b"".join(file.read_bytes() for file in sorted(archive.glob("0*")))
            time.sleep(0.05)
        assert p_of_order(sorted(ids, key=kept.find), ids) < LEAST_ORDER  # the archive has everybody's turn


def test_postgres_with_a_replication_slot_is_refused_in_the_next_transaction(own_postgres, tmp_path):
    url = store_url(own_postgres, tmp_path)
    with SurveyStore(url) as store:
        assert store.add(report())
        with psycopg.connect(own_postgres.url, autocommit=True) as operator:
            operator.execute("SELECT pg_create_physical_replication_slot('copy', true)")
        with pytest.raises(FileError, match=r"1 replication slot: .*\(replication\)"):
            store.add(report())
    with pytest.raises(FileError, match=r"accept: \[replication\]"):
        SurveyStore(url)
    with SurveyStore(url, accept=["replication"]) as store:
        assert store.counts()["reports"] == 1


def test_days_of_an_older_postgres_survey_leave_its_rows(postgres, tmp_path):
    url = store_url(postgres, tmp_path)
    with SurveyStore(url) as store:
        store.add(report((0, 1)))
        store._reports.run("DELETE FROM days")
        store._reports.run("ALTER TABLE reports ADD COLUMN day TEXT NOT NULL DEFAULT '2030-01-01'")
    with SurveyStore(url) as store:
        assert store.counts()["days"] == {"2030-01-01": 1}
        store.add(report((0, 1)))
        assert list(store.reports()) == [("p" * 64, 0, (0, 1))] * 2
        columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'reports_pool'::regclass AND attnum > 0"
        assert ("day",) not in store._reports.run(f"{columns} AND NOT attisdropped")


def test_settings_name_where_invitations_are_and_what_is_accepted_of_postgres(tmp_path):
    write_example(tmp_path / "work", "http://127.0.0.1:18765", invited=True)
    file = tmp_path / "work" / "collector.yaml"
    change(file, state=None, store="postgresql://survey@reports.example/survey")
    with pytest.raises(InputError, match="invitations must name a folder or another server"):
        load(file, SurveySettings, environment={})
    change(file, invitations="invitations", accept=["archiving"])
    settings = load(file, SurveySettings, environment={})
    assert settings.invitations == tmp_path / "work" / "invitations"
    assert settings.accept == ("archiving",)
    change(file, invitations="postgresql://survey@invitations.example/survey")
    assert str(load(file, SurveySettings, environment={}).invitations).startswith("postgresql://")
    for wrong in ("https://survey.example", "postgresql://survey:secret@host/survey"):
        change(file, invitations=wrong)
        with pytest.raises(InputError, match="invitations: must"):
            load(file, SurveySettings, environment={})
    change(file, invitations="invitations", accept=["everything"])
    with pytest.raises(InputError, match="accept"):
        load(file, SurveySettings, environment={})
