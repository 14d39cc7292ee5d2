"""The collector's states, its own k, and what it keeps on disk."""

import pytest
from tests.unit.protocols.threshold.world import World

from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.threshold.agreement import Closing, Terms
from masquerade.protocols.threshold.collector import Collector
from masquerade.protocols.threshold.report_store import FileStore
from masquerade.protocols.threshold.served_ledger import MemoryLedger
from masquerade.protocols.threshold.server import RandomnessServer


def code(caught):
    return caught.value.refusals[0].code


def test_no_report_is_taken_while_the_key_exists():
    world = World()
    reports = world.reports([(b"07030", b"polio")] * 3)
    collector = Collector(world.notice, identity=world.server.identity, k=3)
    assert collector.state == "waiting"
    for action in (lambda: collector.take(reports[0]), collector.open_classes):
        with pytest.raises(QueryRefused) as caught:
            action()
        assert code(caught) == "epoch_open"
    closing = world.server.close("spring")
    collector.begin(closing)
    collector.begin(closing)
    assert collector.state == "taking"
    assert collector.take(b"".join(reports)) == 3
    assert collector.open_classes().opened == 3
    assert collector.state == "done"
    with pytest.raises(QueryRefused) as caught:
        collector.take(reports[0])
    assert code(caught) == "already_opened"
    assert collector.open_classes().opened == 3  # the same reports, nothing more


def test_closings_of_others_are_refused():
    world = World()
    other = World(Terms("summer", 3, 12, 16), server=world.server)
    stranger = World(server=RandomnessServer(bytes(32), MemoryLedger()))
    collector = Collector(world.notice, identity=world.server.identity, k=3)
    with pytest.raises(SealBroken, match="another epoch"):
        collector.begin(other.server.close("summer"))
    with pytest.raises(SealBroken, match="signature"):
        collector.begin(stranger.server.close("spring"))
    genuine = Closing.decode(world.server.close("spring"))
    with pytest.raises(SealBroken, match="signature"):
        collector.begin(Closing(genuine.notice, genuine.evaluations + 1, genuine.signature).encode())
    assert collector.state == "waiting"


def test_the_collector_imposes_its_own_k():
    world = World(Terms("spring", 2, 12, 16))
    with pytest.raises(InputError, match="classes of 3"):
        Collector(world.notice, identity=world.server.identity, k=3)


@pytest.mark.parametrize("length", [0, 1, 153, 155, 309])
def test_reports_have_one_length(length):
    collector = World(Terms("spring", 3, 8, 10)).collector()
    assert collector.layout.size == 154
    with pytest.raises(DecodingError, match="154 bytes"):
        collector.take(bytes(length))


def test_a_collector_goes_on_after_a_restart(tmp_path):
    world = World()
    reports = world.reports([(b"07030", b"polio")] * 3)
    store = FileStore(tmp_path / "epoch", world.layout.size)
    collector = world.collector(store=store)
    collector.take(reports[0])
    collector.take(reports[1])
    store.close()
    with (tmp_path / "epoch" / "reports").open("ab") as file:
        file.write(reports[2][:50])  # cut short by a power failure

    again = FileStore(tmp_path / "epoch", world.layout.size)
    collector = Collector(world.notice, identity=world.server.identity, k=3, store=again)
    assert collector.state == "taking"
    collector.take(reports[2])
    assert collector.open_classes().opened == 3
    again.close()

    last = FileStore(tmp_path / "epoch", world.layout.size)
    assert Collector(world.notice, identity=world.server.identity, k=3, store=last).state == "done"
    last.close()
    assert (tmp_path / "epoch" / "reports").stat().st_mode & 0o077 == 0


def test_a_disk_that_is_full_leaves_no_half_report(tmp_path, monkeypatch):
    store = FileStore(tmp_path, 10)
    store.append(b"first four")

    def full(_file):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(FileError, match="No space left"):
            store.append(b"never kept")
    store.append(b"but second")
    assert store.read() == b"first fourbut second"
    store.close()


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("here already")
    with pytest.raises(FileError, match="cannot be kept"):
        FileStore(tmp_path / "file", 10)


def test_an_epoch_without_reports_opens_nothing():
    opening = World().collector().open_classes()
    assert (opening.received, opening.opened, opening.small, opening.faults()) == (0, 0, {}, [])
