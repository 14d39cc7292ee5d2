"""The servers that some sources need."""

from __future__ import annotations

import ibis
import psycopg
import pytest
from tests.conformance.sources import STARTED


@pytest.fixture(scope="session")
def database(postgres):
    """Return an Ibis connection to a database of its own."""
    with psycopg.connect(postgres.fresh_database().url, autocommit=True) as connection:
        STARTED["database"] = ibis.postgres.from_connection(connection)
        yield STARTED["database"]


@pytest.fixture(scope="session")
def session(the_spark_cluster):
    """Return the session on the cluster."""
    STARTED["session"] = the_spark_cluster.session
    return STARTED["session"]
