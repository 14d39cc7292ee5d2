"""Records at random places of a table that has all its rows from the beginning."""

from __future__ import annotations

import secrets

import pytest

from masquerade.core.errors import FileError, InputError
from masquerade.protocols.wire import slot_table
from masquerade.protocols.wire.durable_store import DurableStore, Layout
from masquerade.protocols.wire.slot_table import SlotTable

LAYOUT = Layout("slots", "the slots", b"slot", SlotTable.table("slots"), log=False)


@pytest.fixture(params=["file", "memory"])
def store(request, tmp_path, monkeypatch):
    monkeypatch.setattr(slot_table, "FIRST_SLOTS", 16)
    with DurableStore(tmp_path / "f.sqlite" if request.param == "file" else None, LAYOUT) as opened:
        yield opened


def fill(store, table, records):
    with store.transaction():
        table.load()
        table.make_room(len(records), max(map(len, records)))
    with store.overwriting():
        return table.add(records)


def test_records_are_found_again_at_their_places(store):
    table, records = SlotTable(store, "slots"), [secrets.token_bytes(i) for i in range(17)]
    places = fill(store, table, records)
    assert len(set(places)) == 17
    assert store.value("SELECT count(*) FROM slots") == 64  # 16, and four times as many
    other = SlotTable(store, "slots")
    assert sorted(other.load()) == sorted(zip(places, records, strict=True))
    assert [other.read(place) for place in places] == records
    with store.overwriting():
        other.replace([(places[3], b"new")])
    assert other.read(places[3]) == b"new"
    with store.overwriting():
        other.clear()
    assert other.load() == []
    with pytest.raises(InputError, match="free"):
        other.read(places[0])


def test_growth_keeps_every_record_and_moves_them_all_over_the_table(store):
    table = SlotTable(store, "slots")
    records = [secrets.token_bytes(30) for _ in range(16)]
    fill(store, table, records)
    fill(store, table, [secrets.token_bytes(30) for _ in range(200)])
    places = {record: place for place, record in table.load()}
    assert len(places) == 216
    # of 16 at random among 256: all within the first 16 with probability below 1e-24
    assert max(places[record] for record in records) > 16
    fill(store, table, [bytes(1000)])
    assert set(places) < {record for _, record in table.load()}


def test_places_are_equally_likely(store):
    """Chi-square with 15 degrees of freedom; 72 is exceeded with probability 2e-9."""
    counts = [0] * 16
    for _ in range(320):
        table = SlotTable(store, "slots")
        fill(store, table, [b"r"])
        [(place, _)] = table.load()
        counts[place - 1] += 1
        with store.overwriting():
            table.clear()
    assert sum((count - 20) ** 2 / 20 for count in counts) < 72


def test_a_torn_record_is_a_free_slot(store):
    table = SlotTable(store, "slots")
    place, other = fill(store, table, [b"a" * 20, b"b" * 20])
    content = store.value("SELECT content FROM slots WHERE place = ?", (place,))
    store.run(
        "UPDATE slots SET content = ? WHERE place = ?", (content[:20] + bytes(len(content) - 20), place)
    )
    assert table.load() == [(other, b"b" * 20)]
    assert table.has_room(15, 20)
    assert not table.has_room(16, 20)


@pytest.mark.parametrize(
    "change",
    ["UPDATE slots SET content = x'00'", "DELETE FROM slots WHERE place = 3"],
    ids=["size", "number"],
)
def test_slots_of_another_form_are_refused(store, change):
    table = SlotTable(store, "slots")
    fill(store, table, [b"a"])
    store.run(change)
    with pytest.raises(FileError, match="damaged"):
        table.load()


def test_overwriting_leaves_the_journal_alone_and_is_undone_when_it_fails(store, tmp_path):
    table = SlotTable(store, "slots")
    [place] = fill(store, table, [b"before"])

    def fail():
        assert {file.name for file in tmp_path.iterdir()} <= {"f.sqlite"}
        raise OSError

    store.committing = fail
    with pytest.raises(OSError), store.overwriting():
        table.replace([(place, b"after")])
    store.committing = lambda: None
    assert table.read(place) == b"before"
    assert store.value("PRAGMA journal_mode") in {"delete", "memory"}
    with pytest.raises(RuntimeError), store.transaction(), store.overwriting():
        pass
