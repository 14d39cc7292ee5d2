"""Sessions in parts: cut by ranges of pseudonyms, joined part by part, kept in a folder, resumed."""

import json
import threading
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tests.unit.protocols.vertical.sites import (
    POLICIES,
    SESSION,
    SHARED,
    batches,
    carried,
    learner,
    pseudonyms,
    seeded_sites,
    tags_of,
)
from tests.unit.protocols.vertical.test_attacks import PEOPLE, N, scattered

import masquerade as mq
from masquerade.core.errors import FileError, InputError, RoundAborted
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.disguising.memo import Memo
from masquerade.protocols.linkage.pseudonyms import (
    MOST_PARTS,
    SortedPseudonyms,
    bounds_of,
    most_in_part,
    parts_for,
)
from masquerade.protocols.vertical.disguised_cells import (
    CellRequest,
    ClearCells,
    DescriptionRequest,
    RepeatedCells,
    Site,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport
from masquerade.sources.engines.engine import Engine
from masquerade.sources.parties.joined import JoiningMiner

AGREED = {party: policy.id for party, policy in POLICIES.items()}
QUERIES = [mq.Query(by=("S", "T", "G")), mq.Query(by=("E", "L"), where={"D": 1}), mq.Query(by="A")]


class Watched(LocalTransport):
    """A transport that notes what was asked, and breaks down after some parts."""

    def __init__(self, sites, breaks_after=10**9):
        super().__init__({party: place.receive for party, place in sites.items()})
        self.asked, self.left = [], breaks_after

    def exchange(self, party, message):
        if tag_of(message) == DescriptionRequest.TAG:
            self.asked.append((party, None))
        else:
            self.asked.append((party, CellRequest.decode(message).part))
            self.left -= 1
            if self.left < 0:
                raise InputError("gone")
        return super().exchange(party, message)


def same_answers(one, other):
    for mine, theirs in zip(one.answer(QUERIES), other.answer(QUERIES), strict=True):
        np.testing.assert_allclose(mine.values, theirs.values, rtol=1e-12)
        np.testing.assert_allclose(mine.stderr(), theirs.stderr(), rtol=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, MOST_PARTS), st.data())
def test_every_pseudonym_is_in_one_part(parts, data):
    part = data.draw(st.integers(0, parts - 1))
    low, high = map(int, bounds_of(part, parts))
    assert low == 0 if part == 0 else low == int(bounds_of(part - 1, parts)[1]) + 1
    assert high == (1 << 64) - 1 if part == parts - 1 else high >= low
    assert low * parts >> 64 == high * parts >> 64 == part


@pytest.mark.parametrize("parts", [1, 2, 3, 7, 64])
def test_parts_are_a_partition_of_the_rows(parts):
    tags = tags_of([*pseudonyms(300), bytes(16), b"\xff" * 16, bytes(15) + b"\1"])  # two begin alike
    cut = [SortedPseudonyms(tags).rows(part, parts) for part in range(parts)]
    rows = np.concatenate(cut)
    assert sorted(rows.tolist()) == list(range(303))
    ordered = [bytes(tags[row]) for row in rows]
    assert ordered == sorted(ordered)


def test_how_many_parts():
    assert [parts_for(rows, 10) for rows in (0, 1, 10, 11, 100)] == [1, 1, 1, 2, 10]
    assert parts_for(1 << 60, 1) == MOST_PARTS
    with pytest.raises(InputError, match="'rows_at_once' must be at least 1"):
        parts_for(5, 0)
    assert most_in_part(100, 1) == 100
    assert most_in_part(10**7, 10) == 2 * 10**6 + 1000


@pytest.mark.parametrize("rows_at_once", [1000, 70, 11])
def test_parts_change_nothing(rows_at_once, tmp_path):
    sites, _ = seeded_sites(300, seed=2)
    whole = JoiningMiner(AGREED, SESSION).records(carried(sites))
    seen = []
    kept = JoiningMiner(AGREED, SESSION).records(
        carried(sites), tmp_path, rows_at_once=rows_at_once, progress=lambda *done: seen.append(done)
    )
    parts = -(-300 // rows_at_once)
    assert seen == [(part + 1, parts) for part in range(parts)]
    assert len(list(tmp_path.glob("*.parquet"))) == parts
    assert kept.n == whole.n == 300
    assert kept.guarantee == whole.guarantee
    same_answers(kept, whole)
    same_answers(JoiningMiner(AGREED, SESSION).records(carried(sites), rows_at_once=rows_at_once), whole)
    same_answers(mq.tally(tmp_path / "part-*.parquet", kept.policy), whole)
    in_engine = mq.tally(tmp_path / "part-*.parquet", kept.policy, engine="duckdb")
    assert isinstance(in_engine, Engine)
    same_answers(in_engine, whole)


def test_no_pseudonym_reaches_the_folder(tmp_path):
    sites, _ = seeded_sites(120, seed=2)
    JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path, rows_at_once=40)
    written = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    tags = [bytes(tag) for tag in sites["x"].cells[0].tags]
    assert not any(tag in written or tag.hex().encode() in written for tag in tags)
    assert not [
        name for name in parquet.read_schema(tmp_path / "part-000000.parquet").names if "pseud" in name
    ]


def test_rows_of_a_part_keep_no_order(tmp_path):
    """Ninety records in one part, twice: in the same order with probability 1/90!, up to equal rows."""
    sites, _ = seeded_sites(90, seed=3)
    tables = []
    for name in ("one", "two"):
        JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path / name)
        tables.append(parquet.read_table(tmp_path / name / "part-000000.parquet"))
    assert not tables[0].equals(tables[1])
    order = [(name, "ascending") for name in tables[0].schema.names]
    assert tables[0].sort_by(order).equals(tables[1].sort_by(order))


def test_an_interrupted_session_goes_on_where_it_stopped(tmp_path):
    sites, _ = seeded_sites(300, seed=2)
    whole = JoiningMiner(AGREED, SESSION).records(carried(sites))
    breaking = Watched(sites, breaks_after=7)  # two parts of three parties, and one request more
    with pytest.raises(RoundAborted, match="gone"):
        JoiningMiner(AGREED, SESSION).records(breaking, tmp_path, rows_at_once=60)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "part-000000.parquet",
        "part-000001.parquet",
        "session.json",
    ]
    stamps = [(tmp_path / f"part-00000{i}.parquet").stat().st_mtime_ns for i in range(2)]
    again = Watched(sites)
    source = JoiningMiner(AGREED, SESSION).records(
        again, tmp_path, rows_at_once=1000
    )  # its parts are settled
    assert again.asked == [(p, None) for p in "xyz"] + [(p, part) for part in (2, 3, 4) for p in "xyz"]
    assert [(tmp_path / f"part-00000{i}.parquet").stat().st_mtime_ns for i in range(2)] == stamps
    same_answers(source, whole)
    silent = Watched({})
    same_answers(JoiningMiner(AGREED, SESSION).records(silent, tmp_path), whole)
    assert silent.asked == []


class Together(LocalTransport):
    """Answers cells once three are asked for at the same time; every party answers one question at a time."""

    def __init__(self, sites, breaks_at=None):
        super().__init__({party: place.receive for party, place in sites.items()})
        self.locks, self.breaks_at = {party: threading.Lock() for party in sites}, breaks_at
        self.meeting = threading.Barrier(3)

    def exchange(self, party, message):
        if tag_of(message) == CellRequest.TAG:
            part = CellRequest.decode(message).part
            if self.breaks_at is None or part <= self.breaks_at:  # of later parts some may never be asked for
                self.meeting.wait(300)
            if party == "y" and part == self.breaks_at:
                raise RoundAborted("gone", spent=False)
        with self.locks[party]:
            return super().exchange(party, message)


def test_parties_are_asked_at_the_same_time_and_parts_ahead(tmp_path):
    sites, _ = seeded_sites(300, seed=5)
    whole = JoiningMiner(AGREED, SESSION).records(carried(sites))
    with pytest.raises(RoundAborted, match="gone"):
        JoiningMiner(AGREED, SESSION).records(Together(sites, 3), tmp_path, rows_at_once=60, parts_ahead=1)
    assert {path.name for path in tmp_path.glob("*.parquet")} == {f"part-00000{i}.parquet" for i in range(3)}
    again = JoiningMiner(AGREED, SESSION).records(Together(sites), tmp_path, rows_at_once=60, parts_ahead=2)
    same_answers(again, whole)
    same_answers(
        JoiningMiner(AGREED, SESSION).records(Together(sites), rows_at_once=60, parts_ahead=1), whole
    )


def test_a_folder_of_something_else_is_refused(tmp_path):
    sites, _ = seeded_sites(50, seed=2)
    JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path)
    with pytest.raises(FileError, match="a different session"):
        JoiningMiner(AGREED, bytes(16)).records(carried(sites), tmp_path)
    with pytest.raises(FileError, match="a different session, recipient"):
        JoiningMiner(AGREED, SESSION, name="other").records(carried(sites), tmp_path)
    with pytest.raises(FileError, match="or policy"):
        JoiningMiner({**AGREED, "x": "0" * 64}, SESSION).records(carried(sites), tmp_path)
    (tmp_path / "part-000000.parquet").unlink()
    fewer, _ = seeded_sites(40, seed=2)
    with pytest.raises(FileError, match="not the announced records"):
        JoiningMiner(AGREED, SESSION).records(carried(fewer), tmp_path)
    session = tmp_path / "session.json"
    for text in ("", "[]", "{}", json.dumps({**json.loads(session.read_text()), "version": 2})):
        session.write_text(text)
        with pytest.raises(FileError, match=r"session\.json"):
            JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path)
    session.unlink()
    (tmp_path / "part-000000.parquet").write_bytes(b"x")
    with pytest.raises(FileError, match=r"no session\.json"):
        JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path)
    with pytest.raises(FileError, match="cannot create this folder"):
        JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path / "part-000000.parquet" / "x")


def test_a_part_that_lost_a_record_is_noticed(tmp_path):
    sites, _ = seeded_sites(120, seed=2)
    JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path, rows_at_once=40)
    path = tmp_path / "part-000001.parquet"
    parquet.write_table(parquet.read_table(path).slice(1), path)
    with pytest.raises(InputError, match="announced 120 records, but sent 119"):
        JoiningMiner(AGREED, SESSION).records(carried(sites), tmp_path)


def test_arbitrary_partitions_in_parts(tmp_path):
    sites = {party: Site(party, SHARED, held, SESSION) for party, held in scattered().items()}
    agreed = dict.fromkeys(sites, SHARED.id)
    whole = JoiningMiner(agreed, SESSION).records(carried(sites))
    kept = JoiningMiner(agreed, SESSION).records(carried(sites), tmp_path, rows_at_once=9)
    assert kept.n == N
    assert len(list(tmp_path.glob("*.parquet"))) == 7
    same_answers(kept, whole)
    expected = mq.tally(PEOPLE, schema=SHARED).answer(QUERIES[:1])[0].values
    assert np.array_equal(kept.answer(QUERIES[:1])[0].values, expected)


def test_a_learning_site_in_parts(tmp_path):
    sites, _ = seeded_sites(200, seed=4)
    whole = learner(sites, "z").source(carried(sites), ELEVEN_NODES)
    watched = Watched(sites, breaks_after=3)
    with pytest.raises(RoundAborted, match="gone"):
        learner(sites, "z").source(watched, ELEVEN_NODES, folder=tmp_path, rows_at_once=50)
    again = Watched(sites)
    kept = learner(sites, "z").source(again, ELEVEN_NODES, folder=tmp_path, rows_at_once=50)
    assert [part for _, part in again.asked] == [None, None, 1, 1, 2, 2, 3, 3]
    assert kept.guarantee == whole.guarantee
    queries = [mq.Query(by=("C", "F")), mq.Query(by=("E", "D", "G"))]
    for mine, theirs in zip(kept.answer(queries), whole.answer(queries), strict=True):
        np.testing.assert_allclose(mine.values, theirs.values, rtol=1e-12)


class Misplaced(LocalTransport):
    """Sends part 0 whatever part is asked for."""

    def exchange(self, party, message):
        if party != "y" or tag_of(message) == DescriptionRequest.TAG:
            return super().exchange(party, message)
        asked = CellRequest.decode(message)
        first = CellRequest(asked.session, asked.recipient, asked.names, 0, asked.parts)
        reply = super().exchange(party, first.encode())
        return reply.replace(b"".join(n.to_bytes(4, "big") for n in (0, asked.parts)), message[-8:])


def test_a_record_in_another_part_is_refused():
    sites, _ = seeded_sites(100, seed=2)
    transport = Misplaced({party: place.receive for party, place in sites.items()})
    with pytest.raises(InputError, match="'y' sent a record that belongs to another part"):
        JoiningMiner(AGREED, SESSION).records(transport, rows_at_once=30)


def test_one_part_cannot_hold_everything():
    """A party whose pseudonyms all lie in one range would make a part as large as the session."""
    sites, _ = seeded_sites(4000, seed=2)
    for place in sites.values():
        tags = place.cells[0].tags.copy()
        tags[:, 0] = 0
        place.cells = (replace(place.cells[0], tags=tags),)
    with pytest.raises(RoundAborted, match="at most 1,020 rows"):
        JoiningMiner(AGREED, SESSION).records(carried(sites), rows_at_once=10)


def test_codes_travel_in_the_smallest_type():
    sites, _ = seeded_sites(10, seed=2)
    (batch,) = batches(sites["x"])
    assert batch.schema.types == [pa.binary(16), *[pa.uint8()] * (len(batch.schema) - 1)]


def test_cells_of_a_memo_are_drawn_part_by_part_and_never_held(tmp_path):
    """The same reports, whatever they are cut into, as all drawn at once."""
    rows, (party, policy) = 700, next((name, it) for name, it in POLICIES.items() if "S" in it.schema)
    generator, memo = np.random.default_rng(), Memo.load_or_create(tmp_path / "memo.json")
    keys = pa.array([f"person {place}" for place in range(rows)])
    codes = {
        name: generator.integers(0, len(policy.schema[name]), rows, dtype=np.uint8) for name in policy.schema
    }
    places = np.sort(generator.permutation(rows)[: rows - 50])
    tags = generator.integers(0, 256, (len(places), 16), dtype=np.uint8)
    tags = tags[np.lexsort(tags.T[::-1])]

    def draws(some=None):
        return memo.draws(policy.id, keys if some is None else keys.take(pa.array(some)), "key")

    chosen = {name: column[places] for name, column in codes.items()}
    whole = Site(party, policy, [ClearCells(chosen, tags, draws(places))], SESSION)
    parts = Site(party, policy, [RepeatedCells(codes, tags, places, draws)], SESSION)
    for site in (whole, parts):
        for cut in (1, 7):
            for part in range(cut):
                for names in ((), tuple(policy.schema)[1:2]):
                    asked = CellRequest(SESSION, "miner", names, part, cut).encode()
                    assert site.receive(asked) == whole.receive(asked)
    assert [list(cells.codes) for cells in parts.clear(0, 1)] == [list(codes)]
    assert np.array_equal(parts.clear(0, 1)[0].codes["S"], chosen["S"])


def test_pseudonyms_that_come_in_order_are_cut_as_others_are():
    tags = np.random.default_rng().integers(0, 256, (999, 16), dtype=np.uint8)
    ordered = tags[np.lexsort(tags.T[::-1])]
    for part in range(5):
        found = ordered[SortedPseudonyms(ordered).rows(part, 5)]
        assert np.array_equal(found, tags[SortedPseudonyms(tags).rows(part, 5)])
    ordered[500] = ordered[501]
    with pytest.raises(InputError, match="must have one record"):
        SortedPseudonyms(ordered)
