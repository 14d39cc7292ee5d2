"""The enrolment office's files: complete after an interruption, and written once for many people."""

import json

import pytest

from masquerade.core.errors import FileError
from masquerade.services.common.problems import PartyUnreachable
from masquerade.services.common.settings import load
from masquerade.services.counting import office
from masquerade.services.counting.example import example_records, write_count
from masquerade.services.counting.person_file import PersonFile
from masquerade.services.counting.settings import CountOfficeSettings

NAMES = [f"P{i:05d}" for i in range(6)]


@pytest.fixture
def enrol(tmp_path, monkeypatch):
    """Call the office without a miner, as far as it gets: all files of people exist by then."""
    monkeypatch.setattr(office, "_TOGETHER", 4)
    files = write_count(tmp_path / "count", protocol="aggregation", records=example_records(6), minimum=5)
    settings = load(files["office"], CountOfficeSettings)

    def call():
        with pytest.raises(PartyUnreachable):
            office.enrol(NAMES, settings, tmp_path / "people", wait=0.0)
        return json.loads((tmp_path / "people" / "roster.json").read_text())

    return call


def key_of(file):
    person = PersonFile(file)
    person.close()
    return person.identity.public.hex()


def test_an_interrupted_office_continues_with_the_files_it_made(tmp_path, monkeypatch, enrol):
    made = PersonFile.make.__func__

    def failing(cls, path, name):
        if name == NAMES[5]:
            raise OSError("the disk is full")
        return made(cls, path, name)

    with monkeypatch.context() as patch:
        patch.setattr(PersonFile, "make", classmethod(failing))
        with pytest.raises(OSError, match="full"):
            enrol()
    listed = json.loads((tmp_path / "people" / "roster.json").read_text())
    assert list(listed) == NAMES[:5]
    assert enrol() == listed | {NAMES[5]: key_of(tmp_path / "people" / f"{NAMES[5]}.person")}


def test_files_that_the_roster_lacks_after_a_kill_keep_their_keys(tmp_path, enrol):
    before = enrol()
    (tmp_path / "people" / "roster.json").unlink()
    assert enrol() == before


def test_a_file_under_another_name_is_refused(tmp_path, enrol):
    enrol()
    folder = tmp_path / "people"
    (folder / "roster.json").unlink()
    (folder / f"{NAMES[0]}.person").replace(folder / f"{NAMES[1]}.person")
    with pytest.raises(FileError, match="another person"):
        enrol()


def test_the_roster_is_written_once_for_many_people(monkeypatch, enrol):
    written = []
    real = office.write_whole
    monkeypatch.setattr(
        office, "write_whole", lambda path, *more: (written.append(path.name), real(path, *more))
    )
    enrol()
    assert written.count("roster.json") == 2
