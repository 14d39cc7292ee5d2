"""Copies of a survey's PostgreSQL database that lack reports, and databases that cannot store every text."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from dataclasses import replace

import psycopg
import pytest
from tests.servers.fixtures import missing_for_postgres
from tests.servers.machine import postgres_programs
from tests.survey.test_postgres_traces import add_reports
from tests.survey.world import report, store_url

from masquerade.core.errors import FileError
from masquerade.survey.collector.store import SurveyStore, encode_content

pytestmark = pytest.mark.skipif(missing_for_postgres() is not None, reason=str(missing_for_postgres()))
WAITING = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessShareLock' AND relation IS NOT NULL"
REPORTS = 30


def client_program(name):
    """Return a program of PostgreSQL's own, beside the server's."""
    beside = os.path.join(os.path.dirname(postgres_programs()["postgres"]), name)  # noqa: PTH118, PTH120
    found = beside if os.path.exists(beside) else shutil.which(name)  # noqa: PTH110
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run_client(name, url, *arguments, given=None):
    """Run a program on a database; return what it prints."""
    done = subprocess.run(  # noqa: S603
        [client_program(name), *arguments, f"--dbname={url}"], input=given, capture_output=True, check=True
    )
    return done.stdout


def restored(postgres, folder, dump):
    """Return the address of a new database that was restored from a dump."""
    folder.mkdir()
    url = store_url(postgres, folder)
    run_client("psql", url, "--quiet", "--set=ON_ERROR_STOP=1", given=dump)
    return url


def dump_in_the_middle(store, url, own):
    """Start a dump while a report is being written, so that it waits for the writer; return its content."""
    found = []
    copying = threading.Thread(target=lambda: found.append(run_client("pg_dump", url)))

    def committing():
        copying.start()
        with psycopg.connect(own, autocommit=True) as operator:
            while not operator.execute(WAITING).fetchall():
                pass

    store._reports.committing = committing
    store.add(report((0, 1)))
    store._reports.committing = lambda: None
    copying.join()
    return found[0]


def test_a_dump_that_lacks_reports_is_noticed_when_it_is_restored(own_postgres, tmp_path):
    url = store_url(own_postgres, tmp_path)
    with SurveyStore(url) as store:
        add_reports(store, REPORTS)
        torn = dump_in_the_middle(store, url, own_postgres.url)
    whole = run_client("pg_dump", url)
    copy = restored(own_postgres, tmp_path / "torn", torn)
    with psycopg.connect(copy) as operator:  # neither the dump nor its restore ended with an error
        assert operator.execute("SELECT count(*) FROM reports").fetchone() == (0,)
        assert operator.execute("SELECT count(*) FROM spent").fetchone() == (REPORTS,)
    with pytest.raises(FileError, match=rf"{REPORTS} of {REPORTS} reports are missing.*while it was stopped"):
        SurveyStore(copy)
    with psycopg.connect(copy, autocommit=True) as operator:
        operator.execute("DELETE FROM days")  # as the message says
    with SurveyStore(copy) as store:
        assert store.counts()["reports"] == 0
    with SurveyStore(restored(own_postgres, tmp_path / "whole", whole)) as store:
        assert store.counts()["reports"] == REPORTS + 1


def test_a_database_without_some_characters_is_refused_where_people_write(postgres, tmp_path):
    """Before, one such text stopped the reports of all others that were written together with it."""
    url = store_url(postgres, tmp_path)
    name = url.partition("?")[0].rpartition("/")[2]
    with psycopg.connect(postgres.url, autocommit=True) as operator:
        operator.execute(f"DROP DATABASE {name}")
        operator.execute(
            f"CREATE DATABASE {name} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'"
        )
    foreign = replace(report((0, 1)), texts={"remarks": "日本"})
    with SurveyStore(url) as store:
        assert store.add(report((0, 1)))
        with store._counts.changing:  # the writer waits here, so that the next two form a group
            first = store.submit(report((0, 0)))
            while not store._waiting.empty():
                pass
            group = [store.submit(foreign), store.submit(report((1, 1)))]
        assert first.result()
        for done in group:  # the ordinary report is lost together with the other
            with pytest.raises(FileError, match="cannot read or write"):
                done.result()
        store._reports.make_room(("p", 0, encode_content((0, 1), {})))
        with pytest.raises(FileError, match=r"encoding LATIN1.*ENCODING 'UTF8'"):
            store._reports.make_room(("p", 0, encode_content((0, 1), {"remarks": "x"})))


def test_the_encoding_of_an_address_does_not_matter(postgres, tmp_path):
    url = f"{store_url(postgres, tmp_path)}&client_encoding=LATIN1"
    with SurveyStore(url) as store:
        store._reports.make_room(("p", 0, encode_content((0, 1), {"remarks": "x"})))
        assert store.add(replace(report((0, 1)), texts={"remarks": "日本"}))
        assert store.texts() == [("remarks", "日本")]
