"""The collector's states, its own k, and what it keeps on disk."""

from contextlib import closing

import pytest
from tests.unit.protocols.k_anonymity.threshold.world import World

from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.protocols.k_anonymity.threshold.evaluation_ledger import EvaluationLedger
from masquerade.protocols.k_anonymity.threshold.messages import Closing, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.report_store import ReportStore
from masquerade.protocols.k_anonymity.threshold.roles import Collector, RandomnessServer


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
    other = World(ThresholdTerms("summer", 3, 12, 16), server=world.server)
    stranger = World(server=RandomnessServer(bytes(32), EvaluationLedger()))
    collector = Collector(world.notice, identity=world.server.identity, k=3)
    with pytest.raises(SealBroken, match="a different epoch"):
        collector.begin(other.server.close("summer"))
    with pytest.raises(SealBroken, match="signature"):
        collector.begin(stranger.server.close("spring"))
    genuine = Closing.decode(world.server.close("spring"))
    with pytest.raises(SealBroken, match="signature"):
        collector.begin(Closing(genuine.notice, genuine.evaluations + 1, genuine.signature).encode())
    assert collector.state == "waiting"


def test_the_collector_imposes_its_own_k():
    world = World(ThresholdTerms("spring", 2, 12, 16))
    with pytest.raises(InputError, match="classes of 3"):
        Collector(world.notice, identity=world.server.identity, k=3)


@pytest.mark.parametrize("length", [0, 1, 153, 155, 309])
def test_reports_have_one_length(length):
    collector = World(ThresholdTerms("spring", 3, 8, 10)).collector()
    assert collector.layout.size == 154
    with pytest.raises(DecodingError, match="154 bytes"):
        collector.take(bytes(length))


def test_a_collector_goes_on_after_a_restart(tmp_path):
    world = World()
    reports = world.reports([(b"07030", b"polio")] * 3)

    def opened():
        return ReportStore.in_folder(tmp_path / "epoch", world.layout.size)

    with closing(opened()) as store:
        collector = world.collector(store=store)
        collector.take(reports[0])
        collector.take(reports[1])
    with closing(opened()) as store:
        collector = Collector(world.notice, identity=world.server.identity, k=3, store=store)
        assert collector.state == "taking"
        collector.take(reports[2])
        assert collector.open_classes().opened == 3
    with closing(opened()) as store:
        assert Collector(world.notice, identity=world.server.identity, k=3, store=store).state == "done"
        assert all(file.stat().st_mode & 0o077 == 0 for file in (tmp_path / "epoch").iterdir())


def of_ten(run):
    """Return reports of ten bytes, sorted: a store does not keep their order."""
    return sorted(run[at : at + 10] for at in range(0, len(run), 10))


def test_reports_and_notes_of_the_first_version_are_taken_over_once(tmp_path):
    (tmp_path / "reports").write_bytes(b"first fourbut secondcut sh")  # cut short by a power failure
    (tmp_path / "closing.note").write_bytes(b"said")
    kept = {file: file.read_bytes() for file in tmp_path.iterdir()}
    with closing(ReportStore.in_folder(tmp_path, 10)) as store:
        assert of_ten(store.read()) == [b"but second", b"first four"]
        assert (store.find_note("closing"), store.find_note("opened")) == (b"said", None)
        assert not any(file.exists() for file in kept)
        store.append(b"and more: ")
    for file, content in kept.items():  # as if the power had failed before they were removed
        file.write_bytes(content)
    with closing(ReportStore.in_folder(tmp_path, 10)) as store:
        assert of_ten(store.read()) == [b"and more: ", b"but second", b"first four"]
        assert not any(file.exists() for file in kept)


def test_a_disk_that_is_full_leaves_no_half_report(tmp_path):
    with closing(ReportStore.in_folder(tmp_path, 10)) as store:
        store.append(b"first four")
        store._store.run(f"PRAGMA max_page_count = {store._store.value('PRAGMA page_count')}")
        with pytest.raises(FileError, match="full"):
            store.append(bytes(100_000))
        store._store.run("PRAGMA max_page_count = 1000000")
        store.append(b"but second")
        assert of_ten(store.read()) == [b"but second", b"first four"]


def test_a_folder_that_cannot_be_used_is_refused(tmp_path):
    (tmp_path / "file").write_text("here already")
    with pytest.raises(FileError, match="cannot be kept"):
        ReportStore.in_folder(tmp_path / "file", 10)


def test_an_epoch_without_reports_opens_nothing():
    opening = World().collector().open_classes()
    assert (opening.received, opening.opened, opening.small, opening.faults()) == (0, 0, {}, [])
