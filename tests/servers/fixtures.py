"""Fixtures of real servers, one of each per test run.

Where pytest-xdist spreads a run over processes, tests with a server are kept in one: those whose id (file,
name or parameter) has "spark", "postgres" or "servers" in it. A test named otherwise fails and says so.

Where a server is missing, its tests are left out on a developer's machine, and fail in CI.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pytest
from tests.servers.machine import java, postgres_programs
from tests.servers.postgres import Postgres, postgres_server
from tests.servers.spark import SparkCluster, spark_cluster
from tests.skips import in_ci

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HOW = "run scripts/install-servers as root, or install it yourself"


def missing_for_postgres() -> str | None:
    """Return why tests with PostgreSQL cannot run here; None if they can."""
    if find_spec("psycopg") is None:
        return "PostgreSQL: the package psycopg is missing: install masquerade[test]"
    return None if postgres_programs() else f"PostgreSQL: initdb and postgres are missing: {HOW}"


def missing_for_spark() -> str | None:
    """Return why tests with Spark cannot run here; None if they can."""
    if find_spec("pyspark") is None:
        return "Spark: the package pyspark is missing: install masquerade[test]"
    return None if java() else f"Spark: Java is missing: {HOW}"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Keep the tests with a server in one process."""
    from tests.servers.scheduling import FilesTogether  # noqa: PLC0415

    return FilesTogether(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end of a run what was left out for want of a server."""
    reasons = [str(report.longrepr[2]) for report in terminalreporter.stats.get("skipped", [])]
    for missing in (missing_for_postgres(), missing_for_spark()):
        left_out = sum(missing in reason for reason in reasons) if missing else 0
        if left_out:
            terminalreporter.write_line(f"{left_out} tests were left out. {missing}", yellow=True)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Return the PostgreSQL server of this run; `postgres.fresh_database()` gives a test its own tables."""
    _need(missing_for_postgres())
    _claim(tmp_path_factory, "postgres")
    with postgres_server() as server:
        yield server


@pytest.fixture
def own_postgres() -> Iterator[Postgres]:
    """Return a server that the test may kill."""
    _need(missing_for_postgres())
    with postgres_server() as server:
        yield server


@pytest.fixture(scope="session")
def the_spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Return the Spark cluster of this run."""
    _need(missing_for_spark())
    _claim(tmp_path_factory, "spark")
    with spark_cluster() as cluster:
        yield cluster


@pytest.fixture
def spark(the_spark_cluster: SparkCluster) -> SparkSession:
    """Return a session on the cluster of this run."""
    assert the_spark_cluster.session is not None
    return the_spark_cluster.session


@pytest.fixture
def breakable_spark(the_spark_cluster: SparkCluster) -> Iterator[SparkCluster]:
    """Return the cluster of this run for a test that kills workers; new ones replace them afterwards."""
    yield the_spark_cluster
    the_spark_cluster.restore()


def _need(missing: str | None) -> None:
    """Leave a test out for want of a server; in CI it fails, so that no test vanishes there."""
    if missing is not None and in_ci():
        pytest.fail(f"{missing}; in CI nothing may be missing")
    if missing is not None:
        pytest.skip(missing)


def _claim(folders: pytest.TempPathFactory, name: str) -> None:
    """Fail where a second server would be started in a run that is spread over processes."""
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    claim: Path = folders.getbasetemp().parent / f"{name}.claimed"
    try:
        claim.touch(exist_ok=False)
    except FileExistsError:
        pytest.fail(
            f"{name} runs in another process: have its name in the name of this test, or of its file."
        )
