"""What must survive: nothing leaves before it is written, and what is written is found again."""

import os

import pytest
from tests.unit.protocols.aggregation.people import CLEAR, DISGUISED, people, server_of, until

from masquerade.core.errors import FileError, InputError, QueryRefused
from masquerade.protocols.aggregation.journal import FileJournal, MemoryJournal
from masquerade.protocols.aggregation.messages import Kind, MessageRefused
from masquerade.protocols.aggregation.record import Record, reported
from masquerade.protocols.aggregation.user import User


class Full(MemoryJournal):
    """A disk that is full from some moment on."""

    full = False

    def append(self, entry):
        if self.full:
            raise FileError("the journal cannot be written")
        super().append(entry)


def test_entries_are_found_again_by_the_next_process(tmp_path):
    first = FileJournal(tmp_path / "journal")
    first.append({"kind": "spent", "round": 1})
    first.close()
    second = FileJournal(tmp_path / "journal")
    second.append({"kind": "spent", "round": 2})
    assert [entry["round"] for entry in second.entries()] == [1, 2]
    assert (tmp_path / "journal").stat().st_mode & 0o077 == 0
    second.close()


def test_one_process_at_a_time(tmp_path):
    first = FileJournal(tmp_path / "journal")
    with pytest.raises(FileError, match="in use"):
        FileJournal(tmp_path / "journal")
    first.close()


def test_a_torn_last_line_is_dropped_and_other_damage_is_an_error(tmp_path):
    path = tmp_path / "journal"
    path.write_bytes(b'{"round": 1}\n{"roun')
    journal = FileJournal(path)
    journal.append({"round": 2})
    journal.close()
    assert path.read_bytes() == b'{"round": 1}\n{"round": 2}\n'
    path.write_bytes(b'{"round": 1}\n{"roun\n{"round": 2}\n')
    with pytest.raises(FileError, match="line 2"):
        FileJournal(path)


def test_half_a_line_on_a_full_disk_is_taken_back(tmp_path, monkeypatch):
    journal = FileJournal(tmp_path / "journal")
    journal.append({"round": 1})
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda file, data: write(file, data[:5]))
        with pytest.raises(FileError, match="cannot be written"):
            journal.append({"round": 2})
    journal.append({"round": 3})
    journal.close()
    assert (tmp_path / "journal").read_bytes() == b'{"round": 1}\n{"round": 3}\n'


def test_a_journal_in_no_folder_is_an_error(tmp_path):
    with pytest.raises(FileError, match="cannot be opened"):
        FileJournal(tmp_path / "nowhere" / "journal")


@pytest.mark.parametrize("stage", [Kind.DELIVERY, Kind.SURVIVORS])
def test_nothing_leaves_when_it_cannot_be_written(stage):
    population = people()
    journal = Full()
    old = population.users[0]
    population.users[0] = User(0, old._key, population.terms, old._record, journal)
    server = server_of(population)
    outgoing = until(population, server, stage)
    journal.full = True
    with pytest.raises(FileError):
        population.users[0].receive(outgoing[0])
    journal.full = False
    assert population.users[0].receive(outgoing[0]) is not None  # nothing had changed


def test_a_vote_stays_spent_after_a_restart(tmp_path):
    population = people()
    old = population.users[0]
    journal = FileJournal(tmp_path / "journal")
    population.users[0] = User(0, old._key, population.terms, old._record, journal)
    server = server_of(population)
    announcement = until(population, server, Kind.ANNOUNCEMENT)[0]
    for place, user in enumerate(population.users):
        server.receive(place, user.receive(announcement))
    until(population, server, Kind.SURVIVORS)
    journal.close()
    again = User(0, old._key, population.terms, old._record, FileJournal(tmp_path / "journal"))
    with pytest.raises(QueryRefused, match="has left already") as refused:
        again.receive(announcement)
    assert refused.value.refusals[0].code == "already_spent"
    later = server_of(population, number=2)
    with pytest.raises(QueryRefused, match="never saw"):
        again.receive(later.advance()[0])


def test_a_clear_record_is_not_counted_in_two_sessions():
    population = people()
    assert not until(population, server_of(population), None)
    other = server_of(population, nonce=bytes([1] * 16))
    with pytest.raises(QueryRefused, match="another session"):
        population.users[0].receive(other.advance()[0])


def test_a_disguised_record_may_be_counted_again():
    population = people(policy=DISGUISED)
    for nonce in (bytes(16), bytes([1] * 16)):
        assert not until(population, server_of(population, nonce=nonce), None)


def test_a_report_is_drawn_once_for_a_person(tmp_path):
    reports = set()
    for _ in range(20):
        journal = FileJournal(tmp_path / "journal")
        reports.add(reported((1, 2), DISGUISED, journal).codes)
        journal.close()
    assert len(reports) == 1
    fresh = {reported((1, 2), DISGUISED, MemoryJournal()).codes for _ in range(60)}
    assert len(fresh) > 1  # all alike with probability 0.56^59 < 1e-14


def test_records_do_not_print_themselves():
    assert "1" not in repr(Record((1, 1), CLEAR.id))


def test_wrong_records_and_identities_are_refused():
    population = people()
    with pytest.raises(InputError, match="known category"):
        reported((2, 0), CLEAR, MemoryJournal())
    key = population.users[1]._key
    with pytest.raises(InputError, match="not the one enrolled"):
        User(0, key, population.terms, Record((0, 0), CLEAR.id), MemoryJournal())
    with pytest.raises(InputError, match="policy"):
        User(1, key, population.terms, Record((0, 0), DISGUISED.id), MemoryJournal())


def test_another_batch_under_the_same_round_is_refused():
    from masquerade.protocols.aggregation.batch import Batch, Table  # noqa: PLC0415
    from masquerade.protocols.aggregation.server import Server  # noqa: PLC0415

    population = people()
    first = server_of(population)
    population.users[0].receive(first.advance()[0])
    other = Server(population.terms, bytes(16), 1, Batch((Table((0,)),), population.terms.sizes))
    with pytest.raises(MessageRefused, match="other questions"):
        population.users[0].receive(other.advance()[0])
    with pytest.raises(MessageRefused, match="already"):
        population.users[0].receive(server_of(population).advance()[0])
