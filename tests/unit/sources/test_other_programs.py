"""Sources in other people's programs: threads, pools of processes, joblib, and loops that never end."""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import ibis
import joblib
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from joblib.externals.loky import get_reusable_executor

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError, SchemaError
from masquerade.sources.engines.engine_cache import EngineLimits

TABLES = [
    mq.Query(by=("a", "b")),
    mq.Query(by="b"),
    mq.Query(by="c", where={"a": "x"}),
    mq.Query(by=("b", "c"), where={"a": "y"}),
]
POLICY = mq.Policy.build(
    {"a": ["x", "y"], "b": ["x", "y"], "c": [1, 2, 3]},
    {"a": mq.channels.binary("1/4"), "b": mq.channels.binary("1/5")},
)
pytestmark = pytest.mark.filterwarnings("ignore:fetch_arrow_table")  # Ibis's call of DuckDB
NEVER_HELD = EngineLimits(cells=4, bytes=4096, saving=float("inf"), weights=2)


@pytest.fixture(scope="module")
def frame():
    generator = np.random.default_rng(20261117)
    a = generator.choice(["x", "y"], 3000)
    c = generator.choice([1, 2, 3], 3000)
    people = pd.DataFrame({"a": a, "b": np.where(generator.random(3000) < 0.8, a, "x"), "c": c})
    return mq.simulate(people, POLICY, seed=1)


@pytest.fixture(scope="module")
def file(frame, tmp_path_factory):
    place = tmp_path_factory.mktemp("people") / "people.parquet"
    frame.to_parquet(place)
    return place


@pytest.fixture(scope="module")
def expected(frame):
    return values(mq.tally(frame, POLICY).answer(TABLES))


def values(tables):
    return [table.values.tolist() for table in tables]


def opened(frame, file, engine, *, limits=None):
    """Return a new source, which has held nothing yet."""
    if engine == "ibis":
        table = ibis.duckdb.connect().create_table("people", pa.Table.from_pandas(frame))
        source = mq.tally(table, POLICY)
    else:
        source = mq.tally(file, POLICY, engine=engine, **({"growing": True} if engine == "auto" else {}))
    if limits is not None and engine != "memory":
        source.limits = limits
    return source


@pytest.mark.parametrize("engine", ["memory", "duckdb", "auto", "ibis"])
@pytest.mark.parametrize("limits", [None, NEVER_HELD], ids=["held", "scanned"])
def test_threads_share_a_source(frame, file, expected, engine, limits):
    source = opened(frame, file, engine, limits=limits)
    begin = threading.Barrier(8)

    def ask(turn):
        if turn < 8:
            begin.wait()
        [table] = source.answer([TABLES[turn % 4]])
        return table.values.tolist(), source.n

    with ThreadPoolExecutor(8) as pool:
        for turn, (found, n) in enumerate(pool.map(ask, range(24))):
            assert found == expected[turn % 4]
            assert n == 3000


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_pools_of_processes_ask_and_errors_do_not_break_them(frame, file, expected, start):
    """The sources were asked before: DuckDB's threads do not live on in a fork."""
    if start not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    sources = [opened(frame, file, engine) for engine in ("memory", "duckdb", "auto")]
    for source in sources:
        source.answer(TABLES[:1])
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(start)) as pool:
        worker = pool.submit(os.getpid).result()
        for source in sources:
            assert values(pool.submit(source.answer, TABLES).result()) == expected
            with pytest.raises(SchemaError, match="'d'") as caught:
                pool.submit(source.answer, [mq.Query(by="d")]).result()
            with pytest.raises(SchemaError) as here:
                source.answer([mq.Query(by="d")])
            assert str(caught.value) == str(here.value)
        with pytest.raises(InputError, match="over a connection to DuckDB belongs to the process"):
            pool.submit(opened(frame, file, "ibis").answer, TABLES).result()
        assert pool.submit(os.getpid).result() == worker


def test_what_was_opened_before_a_fork(frame, file, expected):
    """Nothing is sent: the children have what the parent had, and take none of it away when they end."""
    if not hasattr(os, "fork"):
        pytest.skip("no fork here")
    files, table = opened(frame, file, "duckdb"), opened(frame, file, "ibis")
    spill = Path(files.table._spill)
    for source in (files, table):
        source.answer(TABLES[:1])
        source.limits = NEVER_HELD
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        answered = values(files.answer(TABLES)) == expected
        try:
            table.answer(TABLES)
            said = "answered"
        except InputError as error:
            said = str(error)
        mine = Path(files.table._spill) != spill
        os.write(write, f"{answered} {mine} {said}".encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as told:
        said = told.read()
    os.waitpid(child, 0)
    assert said.startswith("True True A source over a connection to DuckDB belongs to the process")
    assert "inside the function that runs there" in said
    assert spill.is_dir()
    assert values(files.answer(TABLES)) == values(table.answer(TABLES)) == expected


def test_a_source_over_sqlite_belongs_to_its_thread(frame, tmp_path, expected):
    connection = ibis.sqlite.connect(tmp_path / "people.db")
    source = mq.tally(connection.create_table("people", pa.Table.from_pandas(frame)), POLICY)
    with (
        ThreadPoolExecutor(1) as pool,
        pytest.raises(InputError, match="SQLite belongs to the thread that opened it"),
    ):
        pool.submit(source.answer, TABLES).result()
    assert values(source.answer(TABLES)) == expected


def test_joblib_asks_in_processes_and_threads(frame, file, expected):
    for backend in ("loky", "threading"):
        for source in (opened(frame, file, "memory"), opened(frame, file, "duckdb")):
            tables = joblib.Parallel(n_jobs=2, backend=backend)(
                joblib.delayed(source.answer)([query]) for query in TABLES
            )
            assert values(table for (table,) in tables) == expected
    get_reusable_executor().shutdown(wait=True)


@pytest.mark.slow
def test_dask_asks_in_its_own_processes(file, expected, tmp_path):
    """Dask is no dependency of ours: it is installed for this test alone, where packages can be had."""
    install = [sys.executable, "-m", "pip", "install", "-q", "--target", str(tmp_path), "dask", "distributed"]
    subprocess.run(install, check=True)  # noqa: S603  (our own arguments)
    asked = (
        "import json, sys\n"
        "from pathlib import Path\n"
        "import dask\n"
        "import masquerade as mq\n"
        "from distributed import Client\n"
        "if __name__ == '__main__':\n"
        "    policy, tables = mq.Policy.load(sys.argv[2]), []\n"
        "    queries = [mq.Query(by=('a', 'b')), mq.Query(by='b'), mq.Query(by='c', where={'a': 'x'}),\n"
        "               mq.Query(by=('b', 'c'), where={'a': 'y'})]\n"
        "    for engine in ('memory', 'duckdb'):\n"
        "        source = mq.tally(sys.argv[1], policy, engine=engine)\n"
        "        lazy = [dask.delayed(source.answer)([query]) for query in queries]\n"
        "        for scheduler in ('threads', 'processes'):\n"
        "            tables.append(dask.compute(*lazy, scheduler=scheduler))\n"
        "        with Client(n_workers=2, threads_per_worker=2, dashboard_address=None) as client:\n"
        "            asked = client.map(source.answer, [[query] for query in queries])\n"
        "            tables.append(client.gather(asked))\n"
        "    print(json.dumps([[table.values.tolist() for (table,) in some] for some in tables]))\n"
    )
    script = tmp_path / "asked.py"
    script.write_text(asked)
    POLICY.save(tmp_path / "policy.yaml")
    done = subprocess.run(  # noqa: S603
        [sys.executable, str(script), str(file), str(tmp_path / "policy.yaml")],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(tmp_path)])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [expected] * 6


def test_a_pickled_source_of_files_answers_about_the_state_it_was_opened_in(frame, tmp_path):
    place = tmp_path / "people.parquet"
    frame.to_parquet(place)
    kept = pickle.dumps(mq.tally(place, POLICY, engine="duckdb"))
    frame[:1000].to_parquet(place)
    with pytest.raises(MasqueradeError, match="changed"):
        pickle.loads(kept).answer(TABLES)  # noqa: S301  (our own bytes)


def test_threads_take_every_turn_of_a_history_once(frame):
    """A turn that is left out would hide all later ones from whoever reads the history."""
    clear = mq.tally(pd.DataFrame({name: frame[name].to_numpy() for name in frame}), schema=POLICY)
    asked = [mq.Query(by="a", where={"b": b, "c": c}) for b in ("x", "y") for c in (1, 2, 3)]
    asked += [mq.Query(by=names) for names in ("a", "b", "c", ("a", "b"), ("a", "c"), ("b", "c"))]
    often, rules = sys.getswitchinterval(), mq.Rules(most_variables=3)
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(10):
            source, begin = mq.Controlled(clear, rules), threading.Barrier(len(asked))

            def ask(query, source=source, begin=begin):
                begin.wait()
                source.answer([query])

            with ThreadPoolExecutor(len(asked)) as pool:
                list(pool.map(ask, asked))
            kept = [query for entry in source.control.history.entries() for query in entry.queries]
            assert sorted(map(repr, kept)) == sorted(map(repr, asked))
    finally:
        sys.setswitchinterval(often)


def held_by_this_process():
    """Return open files, threads, objects of Python, and bytes in memory."""
    gc.collect()
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    return (
        sum(1 for _ in Path("/proc/self/fd").iterdir()),
        threading.active_count(),
        len(gc.get_objects()),
        resident,
    )


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="reads /proc")
def test_ten_thousand_answers_leave_nothing_behind(frame, file):
    sources = [opened(frame, file, "memory"), opened(frame, file, "duckdb")]
    scanned = opened(frame, file, "duckdb", limits=NEVER_HELD)

    def ask(times, scans, openings):
        for _ in range(times):
            for source in sources:
                source.answer(TABLES[2:3])
        for _ in range(scans):
            scanned.answer(TABLES[2:3])
        for _ in range(openings):
            opened(frame, file, "duckdb").answer(TABLES[:1])

    ask(500, 20, 3)
    before = held_by_this_process()
    ask(5000, 100, 10)
    files, threads, objects, resident = (
        after - held for after, held in zip(held_by_this_process(), before, strict=True)
    )
    assert (files, threads) == (0, 0)
    assert objects < 1000  # a leak of one object an answer would be ten thousand
    assert resident < 20 << 20
