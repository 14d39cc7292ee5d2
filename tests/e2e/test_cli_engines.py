"""`masquerade estimate` and `learn` where the records lie: DuckDB, PostgreSQL and Spark, for real."""

from __future__ import annotations

import json
import logging
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyarrow import parquet
from tests.e2e.docs_runner import blocks
from tests.e2e.test_cli_app import Terminal, files, ok, refused, run
from tests.e2e.test_cli_learn import LEARNERS, POLICY, people

import masquerade as mq
from masquerade.cli import output
from masquerade.sources.engines import engine_tables

PATIENCE = 600  # seconds that a process may take on a machine that is busy
ESTIMATE = ["estimate", "--by", "smoker,age", "--by", "cough", "--where", "asthma=true"]
COMMANDS = {"estimate": ESTIMATE, **{name: ["learn", name, *rest] for name, rest in LEARNERS.items()}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with disguised people in one CSV and in three Parquet files, and their policy."""
    found = tmp_path_factory.mktemp("engines")
    (found / "policy.yaml").write_text(POLICY)
    disguised = mq.simulate(people(), mq.Policy.load(found / "policy.yaml"), seed=2, keep=["who"])
    disguised.to_csv(found / "disguised.csv", index=False)
    for part in range(3):
        disguised.iloc[part::3].to_parquet(found / f"part-{part}.parquet", index=False)
    return found


@pytest.fixture(scope="module")
def expected(folder):
    """Return what every command prints when it counts in memory."""
    return {name: ok(*asked(name, folder / "disguised.csv", folder)).stdout for name in COMMANDS}


def asked(name, data, folder, *options):
    """Return a command with all that it needs."""
    command = COMMANDS[name]
    words = 1 if name == "estimate" else 2
    return [*command[:words], data, "-p", folder / "policy.yaml", *command[words:], "--json", *options]


def fill(server, folder, table):
    """Put the disguised people into a table."""
    with psycopg.connect(server.url, autocommit=True) as connection, connection.cursor() as cursor:
        kinds = "smoker text, age int, cough text, asthma boolean, who bigint"
        cursor.execute(f"CREATE TABLE {table} ({kinds})")
        with cursor.copy(f"COPY {table} FROM STDIN (FORMAT csv, HEADER)") as copy:
            copy.write((folder / "disguised.csv").read_bytes())


@pytest.fixture(scope="module")
def database(postgres, folder):
    """Return a database with the people in two schemas; one of the tables has capitals."""
    server = postgres.fresh_database()
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA office")
    fill(server, folder, "people")
    fill(server, folder, 'office."Census"')
    return server


@pytest.mark.parametrize("name", COMMANDS)
def test_duckdb_says_the_same(name, folder, expected):
    done = ok(*asked(name, folder / "part-*.parquet", folder, "--engine", "duckdb"))
    assert done.stdout == expected[name]


@pytest.mark.parametrize("name", COMMANDS)
def test_postgres_says_the_same(name, folder, expected, database):
    done = ok(*asked(name, "people", folder, "--engine", "postgres", "--url", database.url))
    assert done.stdout == expected[name]
    assert "the PostgreSQL table does not say under which policy" in done.stderr


@pytest.mark.parametrize("name", ["estimate", "naive-bayes"])
def test_spark_says_the_same(name, folder, expected, spark):
    spark.read.parquet(str(folder / "part-*.parquet")).createOrReplaceTempView("people")
    try:
        assert ok(*asked(name, "people", folder, "--engine", "spark")).stdout == expected[name]
    finally:
        spark.catalog.dropTempView("people")


@pytest.mark.parametrize("data", ["part-*.parquet", "disguised.csv"])
def test_spark_reads_files(data, folder, expected, spark):
    assert spark.version
    assert ok(*asked("estimate", folder / data, folder, "--engine", "spark")).stdout == expected["estimate"]


def command_of(*arguments):
    """Return the command for a process of its own."""
    return [sys.executable, "-c", "from masquerade.cli import main; main()", *map(str, arguments)]


def test_spark_starts_a_session_of_its_own(folder, expected, the_spark_cluster, tmp_path):
    there = ["--engine", "spark", "--url", "local[1]"]
    done = subprocess.run(  # noqa: S603
        command_of(*asked("estimate", folder / "disguised.csv", folder, *there)),
        env=os.environ | the_spark_cluster.environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.decode() == expected["estimate"]
    assert done.stderr.count(b"\n") == 1  # the note about the policy, and no word of Java's


def test_clear_tables_and_survey_weights(folder, database, tmp_path):
    people().assign(w=1.5).to_csv(tmp_path / "clear.csv", index=False)
    with psycopg.connect(database.url, autocommit=True) as connection, connection.cursor() as cursor:
        kinds = "smoker text, age int, cough text, asthma boolean, who bigint, w float8"
        cursor.execute(f"CREATE TABLE clear_people ({kinds})")
        with cursor.copy("COPY clear_people FROM STDIN (FORMAT csv, HEADER)") as copy:
            copy.write((tmp_path / "clear.csv").read_bytes())
    options = ["--clear", "--weights", "w", "--id", "who"]
    there = ["--engine", "postgres", "--url", database.url]
    done = ok(*asked("estimate", "clear_people", folder, *options, *there))
    assert done.stderr == ""
    (in_memory, cough), (found, _) = (
        json.loads(ok(*asked("estimate", tmp_path / "clear.csv", folder, *options)).stdout),
        json.loads(done.stdout),
    )
    assert cough["n"] == 6000
    for one, other in zip(in_memory["cells"], found["cells"], strict=True):
        assert other["labels"] == one["labels"]
        assert other["count"] == pytest.approx(one["count"], rel=1e-9)
        assert other["stderr"] == pytest.approx(one["stderr"], rel=1e-9)


@pytest.mark.parametrize("table", ["office.Census", 'office."Census"', "public.people", "PEOPLE"])
def test_names_of_tables(table, folder, expected, database):
    there = ["--engine", "postgres", "--url", database.url]
    assert ok(*asked("estimate", table, folder, *there)).stdout == expected["estimate"]


def test_credentials_from_the_environment(folder, expected, database, monkeypatch, tmp_path):
    command = asked("estimate", "people", folder, "--engine", "postgres")
    monkeypatch.setenv("MASQUERADE_URL", database.url)
    assert ok(*command).stdout == expected["estimate"]
    monkeypatch.delenv("MASQUERADE_URL")
    for name, value in database.environment.items():
        monkeypatch.setenv(name, value)
    assert ok(*command).stdout == expected["estimate"]
    monkeypatch.delenv("PGPASSWORD")
    words = (str(database.folder), database.port, database.database, database.user, database.password)
    (tmp_path / "pgpass").write_text(":".join(map(str, words)).replace(f"{database.folder}:", "*:") + "\n")
    (tmp_path / "pgpass").chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(tmp_path / "pgpass"))
    assert ok(*command).stdout == expected["estimate"]


def test_wrong_credentials_are_never_repeated(folder, database, tmp_path):
    secret = "Zyzz.yva"  # noqa: S105
    urls = {
        database.url.replace(database.password, secret): "user name or password was refused",
        database.url.replace(f":{database.password}", ""): "the server requires a password",
        database.url.replace(f"/{database.database}", f"/{secret}"): "no such database",
        f"postgresql://tester:1@{secret}@127.0.0.1/people": "the host is unknown",
        f"postgresql://tester:12/{secret}@127.0.0.1/people": "could not connect with the URL",
        f"postgresql://tester:%zz{secret}@127.0.0.1/people": "the URL is not valid",
        f"spark://{secret}:7077": "the URL is not valid",
        f"postgresql://tester:{secret}@127.0.0.1:1/people": "no server answers",
    }
    out = tmp_path / "table.json"
    for url, said in urls.items():
        there = ["--engine", "postgres", "--url", url, "--out", out]
        line = refused(*asked("estimate", "people", folder, *there))
        assert said in line
        assert "PostgreSQL: " in line
        assert not any(part in line for part in (secret, "Zyzz", "yva", database.password))
    assert files(tmp_path) == set()


def test_what_is_not_there_is_one_line(folder, database, tmp_path):
    there = ["--engine", "postgres", "--url", database.url]
    for table in ("nobody", "nowhere.people", "a..b", ""):
        assert "this database has no table or view" in refused(*asked("estimate", table, folder, *there))
    with psycopg.connect(database.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE narrow AS SELECT smoker, age, cough AS asthma FROM people")
        connection.execute("CREATE TABLE odd AS SELECT smoker, age, cough, 'Zyzzyva' AS asthma FROM people")
    line = refused(*asked("estimate", "narrow", folder, *there))
    assert "PostgreSQL: unknown column 'cough'" in line
    line = refused(*asked("tree", "odd", folder, *there, "--out", tmp_path / "model.json"))
    assert "column 'asthma'" in line
    assert "Zyzzyva" not in line
    assert files(tmp_path) == set()


def test_what_is_not_there_on_spark_is_one_line(folder, spark):
    assert spark.version
    there = ["--engine", "spark"]
    assert "Spark: found no readable table 'nobody'" in refused(*asked("estimate", "nobody", folder, *there))
    missing = folder / "none-*.parquet"
    assert "Spark: found no readable file" in refused(*asked("estimate", missing, folder, *there))
    assert "--where" in refused(*asked("estimate", "nobody", folder, *there, "--where", "age=7"))


@pytest.mark.filterwarnings("ignore:.*stands for missing values")
def test_a_wrong_value_of_a_csv_is_not_read_as_missing_on_spark(folder, spark, tmp_path):
    assert spark.version
    lines = (folder / "disguised.csv").read_text().replace("\nyes,1,", "\nyes,1x,", 1)
    (tmp_path / "odd.csv").write_text(lines)
    policy = POLICY.replace("[0, 1, 2]", "[0, 1, 2], missing: 2")
    (tmp_path / "policy.yaml").write_text(policy)
    result = run("estimate", tmp_path / "odd.csv", "-p", tmp_path / "policy.yaml", "--by", "age",
                 "--engine", "spark")  # fmt: skip
    assert result.exit_code == 2
    assert "Spark: " in result.stderr
    assert "1x" not in result.stderr


def test_files_of_another_policy_are_refused_on_spark(folder, spark, tmp_path):
    assert spark.version
    table = parquet.read_table(folder / "part-0.parquet")
    marked = table.replace_schema_metadata({b"masquerade.policy": b"0" * 64})
    parquet.write_table(marked, tmp_path / "other.parquet")
    command = asked("estimate", tmp_path / "other.parquet", folder, "--engine", "spark")
    assert "disguised under policy 000000000000" in refused(*command)
    assert "omit --clear" in refused(*command, "--clear")


@pytest.mark.parametrize(
    ("data", "options", "said"),
    [
        ("-", ["--engine", "duckdb"], "DuckDB cannot count standard input"),
        ("-", ["--engine", "spark"], "Spark cannot count standard input"),
        ("-", ["--engine", "postgres"], "PostgreSQL cannot count standard input"),
        ("part-0.parquet", ["--url", "postgresql://nobody@nowhere"], "--engine postgres"),
        ("part-0.parquet", ["--url", "spark://nowhere:1", "--engine", "duckdb"], "--engine spark"),
        ("people", ["others", "--engine", "postgres"], "one table at a time"),
        ("part-0.parquet", ["--engine", "oracle"], "--engine"),
    ],
)
@pytest.mark.parametrize("name", ["estimate", "naive-bayes"])
def test_what_cannot_work_is_refused_at_once(name, data, options, said, folder):
    path = folder / data if data.endswith("parquet") else data
    assert said in refused(*asked(name, path, folder, *options), stdin="")


@pytest.mark.parametrize(
    ("engine", "package"), [("postgres", "psycopg"), ("postgres", "ibis"), ("spark", "pyspark.sql")]
)
def test_a_missing_extra_is_named(engine, package, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    line = refused(*asked("estimate", "people", folder, "--engine", engine))
    assert f"pip install 'masquerade[{engine}]'" in line


def test_a_lost_connection_is_one_line_and_nothing_is_written(own_postgres, folder, tmp_path):
    fill(own_postgres, folder, "people")
    with psycopg.connect(own_postgres.url, autocommit=True) as connection:
        # the scan waits, so that the server is lost in the middle of it
        connection.execute("CREATE VIEW slow AS SELECT * FROM people WHERE (SELECT pg_sleep(900)::text) = ''")
        command = asked("naive-bayes", "slow", folder, "--engine", "postgres", "--out", tmp_path / "m.json")
        started = subprocess.Popen(  # noqa: S603
            command_of(*command),
            env=os.environ | {"MASQUERADE_URL": own_postgres.url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        scanning = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        until = time.monotonic() + PATIENCE
        while connection.execute(scanning).fetchone() == (0,) and time.monotonic() < until:
            time.sleep(0.05)
        own_postgres.kill()
        printed, said = started.communicate(timeout=PATIENCE)
    assert started.returncode == 2
    assert printed == b""
    assert said.decode().startswith("masquerade: PostgreSQL: the connection was lost")
    assert said.count(b"\n") == 1
    assert files(tmp_path) == set()


def test_the_plan_is_said_when_asked_for(folder, database):
    log = logging.getLogger("masquerade.sources")
    before = (log.level, list(log.handlers))
    pattern = folder / "part-*.parquet"
    said = ok(*asked("estimate", pattern, folder, "--engine", "duckdb", "-v")).stderr
    assert "masquerade: counting in DuckDB over 3 files: asked for (" in said
    assert " and 2 more)\n" in said
    said = ok(*asked("estimate", pattern, folder, "--verbose")).stderr
    assert "masquerade: counting in memory: 0 MiB of codes, memory is used up to " in said
    there = ["--engine", "postgres", "--url", database.url, "-v"]
    said = ok(*asked("naive-bayes", "people", folder, *there)).stderr
    assert "masquerade: counting in PostgreSQL: the records stay there\n" in said
    assert database.password not in said
    assert "counting in" not in ok(*asked("estimate", pattern, folder)).stderr
    assert (log.level, log.handlers) == before


def test_a_scan_shows_its_share_on_a_terminal(monkeypatch):
    monkeypatch.setattr(output, "PATIENCE", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    with output.watch_progress("counting") as watch:
        assert watch is not None
        watch(None)
        watch(0.425)
        until = time.monotonic() + PATIENCE
        while "42%" not in sys.stderr.getvalue() and time.monotonic() < until:
            time.sleep(0.01)
    assert "counting" in sys.stderr.getvalue()
    assert "42%" in sys.stderr.getvalue()


def test_nobody_watches_in_a_pipe(monkeypatch):
    monkeypatch.setattr(sys, "stderr", open(os.devnull, "w"))  # noqa: PTH123, SIM115
    with sys.stderr, output.watch_progress("counting") as watch:
        assert watch is None


def test_duckdb_tells_its_share_while_it_scans(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(
        engine_tables, "PATIENCE", 0.005
    )  # a scan of ten million rows takes a hundred times as long
    table = parquet.read_table(folder / "part-0.parquet")
    parquet.write_table(pa.concat_tables([table] * 5_000), tmp_path / "many.parquet", row_group_size=1 << 18)
    shares = []
    source = mq.tally(
        tmp_path / "many.parquet",
        mq.Policy.load(folder / "policy.yaml"),
        engine="duckdb",
        watch=shares.append,
    )
    (answer,) = source.answer([mq.Query(by=list(source.schema))])
    assert answer.n == 10_000_000
    known = [share for share in shares if share is not None]
    assert all(0 <= share <= 1 for share in known)
    assert max(known) > 0


PAGE = Path(__file__).parents[2] / "docs" / "howto" / "large-data.md"


def on_the_page(engine):
    """Return what the how-to page shows without running it: commands and Python for one engine."""
    shown = [block for block in blocks(PAGE.read_text(encoding="utf-8")) if engine in block.text]
    lines = [line for block in shown if block.language == "sh" for line in block.text.split("\n")]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("masquerade ")]
    (code,) = [block.text for block in shown if block.language == ""]
    assert commands
    return commands, code


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Return the names of the page's first block after it was run: files, and a policy."""
    monkeypatch.chdir(tmp_path)
    first = next(block for block in blocks(PAGE.read_text(encoding="utf-8")) if block.language == "python")
    names = {}
    exec(first.text, names)  # noqa: S102  (our own documentation)
    return names


def test_the_page_about_large_data_works_on_postgres(page, postgres, monkeypatch):
    server = postgres.fresh_database()
    table = pa.concat_tables(parquet.read_table(path) for path in sorted(Path("people").iterdir()))
    with psycopg.connect(server.url) as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE people (region text, smoker text, cough text)")
        with cursor.copy("COPY people FROM STDIN") as copy:
            for row in zip(*(table[name].to_pylist() for name in ("region", "smoker", "cough")), strict=True):
                copy.write_row(row)
    monkeypatch.setenv("MASQUERADE_URL", server.url)
    commands, code = on_the_page("postgres")
    for command in commands:
        ok(*command)
    assert Path("structure.json").is_file()
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    exec(code, page)  # noqa: S102
    north = table.filter(pc.equal(table["region"], "north"))
    expected = mq.learn.naive_bayes(mq.tally(north, page["policy"]), "smoker", ["cough"])
    assert page["bayes"].to_dict() == expected.to_dict()


def test_the_page_about_large_data_works_on_spark(page, spark, tmp_path):
    commands, code = on_the_page("spark")
    for command in commands:
        ok(*(word.replace("people/", f"{tmp_path}/people/") for word in command))
    spark.read.parquet(str(tmp_path / "people")).createOrReplaceTempView("clear_people")
    names = {"spark": spark, "checkpoints": str(tmp_path / "kept"), "disguised_folder": str(tmp_path / "new")}
    kept = spark.sparkContext.getCheckpointDir()
    exec(code, page | names)  # noqa: S102
    spark.catalog.dropTempView("clear_people")
    if kept is not None:
        spark.sparkContext.setCheckpointDir(str(Path(kept).parent))
    source = mq.tally(f"{tmp_path}/new/*.parquet", page["policy"])
    assert source.n == 60_000
    # disguised anew: a clear variable is as it was; six free cells with deviations above 28 are not
    asked_for = [mq.Query(by="region"), mq.Query(by=("region", "smoker", "cough"))]
    regions, cells = source.answer(asked_for)
    before = mq.tally("people/*.parquet", page["policy"]).answer(asked_for)
    assert (regions.values == before[0].values).all()
    assert (cells.values != before[1].values).any()
