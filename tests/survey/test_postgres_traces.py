"""Traces of a survey that PostgreSQL keeps outside its tables: statistics, logs, copies by triggers."""

from __future__ import annotations

import secrets

import psycopg
import pytest
from tests.servers.fixtures import missing_for_postgres
from tests.servers.postgres import postgres_server
from tests.survey.order_attack import LEAST_ORDER, p_of_order
from tests.survey.test_store_order_postgres import log_of, visit
from tests.survey.world import report, store_url

from masquerade.core.errors import FileError
from masquerade.survey.collector.postgres_checks import check_address
from masquerade.survey.collector.store import SurveyStore

pytestmark = pytest.mark.skipif(missing_for_postgres() is not None, reason=str(missing_for_postgres()))
EARLY, LATE = 40, 20


def add_reports(store, number):
    """Add reports one by one; return their ids."""
    reports = [report((0, 1), token=secrets.token_bytes(16)) for _ in range(number)]
    for one in reports:
        store.add(one)
    return [one.id for one in reports]


def ids_in_statistics(operator, ids):
    """Return the ids that the server's statistics name."""
    statement = (
        "SELECT coalesce(histogram_bounds::text, '') || coalesce(most_common_vals::text, '') FROM pg_stats "
        "WHERE schemaname = 'public'"
    )
    text = "".join(row[0] for row in operator.execute(statement))
    return {one for one in ids if one.hex() in text}


def test_postgres_statistics_name_nobody(postgres, tmp_path):
    url = store_url(postgres, tmp_path)
    with psycopg.connect(url, autocommit=True) as operator:
        with SurveyStore(url) as store:
            for column in ("id", "policy", "mode", "codes"):  # a survey of an earlier version
                operator.execute(f"ALTER TABLE reports ALTER COLUMN {column} SET STATISTICS 100")
            early = add_reports(store, EARLY)
            operator.execute("ANALYZE")  # a server does so by itself, from 50 rows on
            late = add_reports(store, LATE)
            store.tidy()
            assert ids_in_statistics(operator, early + late) == set(early)  # who came before whom
            store.erase()
            assert ids_in_statistics(operator, early + late) == set(early)  # and none of them is deleted
        with SurveyStore(url) as store:
            assert not ids_in_statistics(operator, early + late)
            early = add_reports(store, EARLY)
            operator.execute("ANALYZE")
            assert not ids_in_statistics(operator, early)
            columns = "SELECT count(*) FROM pg_stats WHERE schemaname = 'public'"
            assert operator.execute(columns).fetchone() == (0,)
            assert store.counts()["reports"] == EARLY


def test_postgres_that_starts_to_write_statements_down_is_noticed_in_the_next_transaction(
    own_postgres, tmp_path
):
    url, log = store_url(own_postgres, tmp_path), own_postgres.folder / "log"
    with psycopg.connect(own_postgres.url, autocommit=True) as operator, SurveyStore(url) as store:
        add_reports(store, 1)
        operator.execute("ALTER SYSTEM SET log_statement = 'all'")
        operator.execute("SELECT pg_reload_conf()")
        seen = "SELECT 1 FROM pg_settings WHERE name = 'log_statement' AND setting = 'all'"
        while store._reports.value(seen) is None:  # the server tells its processes one by one
            pass
        one = report((0, 1), token=secrets.token_bytes(16))
        with pytest.raises(FileError, match=r"log_statement = all: .*statement_log"):
            store.add(one)
        assert one.id.hex() not in log.read_text(errors="replace")
        operator.execute("ALTER SYSTEM RESET log_statement")
        operator.execute("SELECT pg_reload_conf()")
        while store._reports.value(seen) is not None:
            pass
        assert store.add(one)


def test_postgres_triggers_and_rules_that_copy_rows_are_refused(postgres, tmp_path):
    url = store_url(postgres, tmp_path)
    copying = (
        "CREATE TABLE audit (turn BIGSERIAL, id BYTEA);"
        "CREATE FUNCTION copy_row() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "INSERT INTO audit (id) SELECT NEW.id WHERE NOT EXISTS (SELECT FROM audit WHERE id = NEW.id); "
        "RETURN NULL; END $$;"
        "CREATE TRIGGER audit AFTER INSERT ON reports_pool FOR EACH ROW EXECUTE FUNCTION copy_row()"
    )
    with psycopg.connect(url, autocommit=True) as operator:
        with SurveyStore(url, accept=["statement_log"]) as store:
            operator.execute(copying)
            ids = add_reports(store, 30)
        kept = [bytes(row[0]) for row in operator.execute("SELECT id FROM audit ORDER BY turn")]
        assert p_of_order(kept, ids) < LEAST_ORDER  # the audit table has everybody's turn
        with pytest.raises(FileError, match=r"1 trigger: .*\(statement_log\)"):
            SurveyStore(url)
        operator.execute("DROP TRIGGER audit ON reports_pool")
        with SurveyStore(url) as store:
            operator.execute("CREATE RULE audit AS ON INSERT TO spent_pool DO NOTHING")
            with pytest.raises(FileError, match=r"1 rule: .*\(statement_log\)"):
                store.add(report())


def test_postgres_log_has_no_report_where_the_log_is_minimal(tmp_path):
    """Even reports and invitations of one cluster, which a log of the usual level joins."""
    with postgres_server({"wal_level": "minimal", "max_wal_senders": "0"}) as server:
        url, other = store_url(server, tmp_path), store_url(server, tmp_path)
        with SurveyStore(url, other, accept=["one_cluster"]) as store:
            ids, elements = visit(store)
            store.tidy()
            assert store.counts() | {"reports": len(ids), "begun": len(ids)} == store.counts()
        log = log_of(server)
        assert not [one for one in (*ids, *elements) if one in log]


def test_postgres_of_an_ordinary_role_is_looked_at_as_well(own_postgres, tmp_path):
    url = store_url(own_postgres, tmp_path)
    with psycopg.connect(url, autocommit=True) as operator:
        password = secrets.token_hex(8)
        operator.execute(
            f"CREATE ROLE survey LOGIN PASSWORD '{password}'; GRANT CREATE ON SCHEMA public TO survey"
        )
        (tmp_path / "own").write_text(f"*:*:*:*:{password}\n")
        (tmp_path / "own").chmod(0o600)
        own = url.replace("//tester@", "//survey@").replace(str(tmp_path / "pgpass"), str(tmp_path / "own"))
        with SurveyStore(own) as store:
            ids = add_reports(store, 3)
            assert [name for name, _ in sorted(store._reports.rows())] == sorted(ids)
            operator.execute("SELECT pg_create_physical_replication_slot('copy', true)")
            with pytest.raises(FileError, match="1 replication slot"):
                store.add(report())
            with pytest.raises(FileError, match=r"one_cluster|replication"):
                SurveyStore(own, url)


@pytest.mark.parametrize(
    ("url", "is_taken"),
    [
        ("postgresql://survey@reports.example/survey", False),
        ("postgresql://survey@reports.example/survey?sslmode=require", False),
        ("postgresql://survey@reports.example/survey?sslmode=verify-full", True),
        ("postgresql://survey@reports.example/survey?sslmode=verify-ca", True),
        ("postgresql://survey@127.0.0.1/survey", True),
        ("postgresql://survey@[::1]/survey", True),
        ("postgresql://survey@localhost/survey?hostaddr=192.0.2.1", False),
        ("postgresql://survey@localhost,reports.example/survey", False),
        ("postgresql:///survey?host=/run/postgresql", True),
        ("postgresql:///survey?service=reports", False),
        ("postgresql:///survey", True),
    ],
)
def test_postgres_on_another_machine_shows_a_certificate_that_is_verified(monkeypatch, url, is_taken):
    for name in ("PGHOST", "PGHOSTADDR", "PGSSLMODE", "PGSERVICE"):
        monkeypatch.delenv(name, raising=False)
    if is_taken:
        check_address(url, ())
    else:
        with pytest.raises(FileError, match=r"not verified.*unverified_server"):
            check_address(url, ())
        check_address(url, ["unverified_server"])
    monkeypatch.setenv("PGHOST", "reports.example")
    with pytest.raises(FileError, match="not verified"):
        check_address("postgresql:///survey", ())
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    check_address("postgresql:///survey", ())
