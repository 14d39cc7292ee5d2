"""Counts over Spark Connect: a server of its own, no Java in this process."""

from __future__ import annotations

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest
from tests.servers.machine import answers, end_with_parent, free_port
from tests.servers.spark import START_SECONDS, end_group, environment

import masquerade as mq

POLICY = mq.Policy.build(
    {"smoker": ["yes", "no"], "region": ["n", "s"]}, {"smoker": mq.channels.binary("1/4")}
)
ASK = """
import sys
import masquerade as mq
from masquerade.sources.engines.connections import spark_table

policy = mq.Policy.load(sys.argv[3])
with spark_table([sys.argv[2]], sys.argv[1]) as frame:
    assert type(frame).__module__.startswith("pyspark.sql.connect"), type(frame)
    source = mq.tally(frame, policy)
    both, met = mq.Query(by=("smoker", "region")), mq.Query(by="region", where={"smoker": "yes"})
    tables = source.answer([both, met])
    network = mq.learn.structure(source, ["region", "smoker"])
for table in tables:
    print(table.n, table.values.ravel().tolist())
print(network.links)
"""


@pytest.fixture
def connect_server(tmp_path):
    """Start Spark's own server and wait until its port answers."""
    if find_spec("grpc") is None:
        pytest.skip("Spark Connect needs grpcio")
    known, port = environment(tmp_path) | {"SPARK_DAEMON_MEMORY": "768m"}, free_port()
    (tmp_path / "log4j2.properties").write_text("rootLogger.level = error\n")
    program = Path(known["SPARK_HOME"], "bin", "spark-submit")
    settings = {
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.driver.memory": "768m",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
    }
    options = [text for name, value in settings.items() for text in ("--conf", f"{name}={value}")]
    with (tmp_path / "server.log").open("wb") as sink:
        process = subprocess.Popen(  # noqa: S603
            [program, "--master", "local[1]", *options, "--class",
             "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"],
            env=known, cwd=tmp_path, stdout=sink, stderr=sink, stdin=subprocess.DEVNULL,
            start_new_session=True, preexec_fn=end_with_parent,  # noqa: PLW1509
        )  # fmt: skip
    until = time.monotonic() + START_SECONDS
    try:
        while not answers(port):
            assert process.poll() is None, (tmp_path / "server.log").read_text()[-2000:]
            assert time.monotonic() < until
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        end_group(process)


@pytest.mark.slow
def test_a_frame_of_spark_connect_is_counted_where_it_lies(connect_server, tmp_path):
    people = pd.DataFrame({"smoker": ["yes", "no", "no"] * 1000, "region": ["n", "s", "n", "s"] * 750})
    people.to_parquet(tmp_path / "people.parquet")
    POLICY.save(tmp_path / "policy.yaml")
    asked = [connect_server, str(tmp_path / "people.parquet"), str(tmp_path / "policy.yaml")]
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-W", "ignore", "-c", ASK, *asked], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    source = mq.tally(people, POLICY)
    wanted = source.answer(
        [mq.Query(by=("smoker", "region")), mq.Query(by="region", where={"smoker": "yes"})]
    )
    links = mq.learn.structure(source, ["region", "smoker"]).links
    assert done.stdout.splitlines() == [
        *(f"{table.n} {table.values.ravel().tolist()}" for table in wanted),
        str(links),
    ]
