"""A service that is being started is waited for: as long as said, with a line after a while."""

import pytest

from masquerade.core.errors import InputError
from masquerade.services.common import client
from masquerade.services.common.client import NotRunning, once_started
from masquerade.services.common.problems import PartyUnreachable


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves only while the client sleeps."""

    class Clock:
        now = 0.0

        def monotonic(self):
            return self.now

        def sleep(self, seconds):
            self.now += seconds

    found = Clock()
    monkeypatch.setattr(client, "time", found)
    return found


def late(clock, error, seconds):
    """Return a question that is answered only after a while."""

    def ask():
        if clock.now < seconds:
            raise error("nobody there")
        return "an answer"

    return ask


@pytest.mark.parametrize("error", [NotRunning, PartyUnreachable])
def test_a_service_that_starts_in_time_answers(clock, error):
    told = []
    assert once_started(late(clock, error, 5), "north", 60, told.append) == "an answer"
    assert 5 <= clock.now < 6
    assert told == ["waiting for 'north' to start, 60 seconds at most"]


def test_whoever_waits_is_told_what_starts_it(clock):
    told = []
    once_started(late(clock, NotRunning, 5), "north", 60, told.append, "masquerade party serve")
    assert told == ["waiting for 'north' to start, 60 seconds at most (masquerade party serve)"]


def test_nobody_is_told_of_a_short_wait(clock):
    told = []
    once_started(late(clock, NotRunning, 1), "north", 60, told.append)
    assert told == []


@pytest.mark.parametrize("wait", [0, 3])
def test_there_is_an_end_to_waiting(clock, wait):
    with pytest.raises(NotRunning):
        once_started(late(clock, NotRunning, 1000), "north", wait)
    assert wait <= clock.now < wait + 1


def test_an_error_of_a_service_that_runs_is_not_waited_for(clock):
    with pytest.raises(InputError, match="nobody there"):
        once_started(late(clock, InputError, 5), "north", 60)
    assert clock.now == 0
