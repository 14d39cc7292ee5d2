"""Boards arrive in any order, incomplete, old or twice: nothing is opened that was not mixed by all."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.protocols.mixnet.parties import Mix

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto.errors import KeySpent
from masquerade.protocols.mixnet.messages import MixBoard, SignedMixMessage

PLACES = st.integers(0, 1)
RECORDS = [b"red", b"green", b"red"]


def attempt(act):
    """Return what a role answers, None where it refuses as documented."""
    try:
        return act()
    except (RoundAborted, KeySpent, InputError):
        return None


class Mixes(RuleBasedStateMachine):
    """Two leaders, a miner that sends whatever it has to whomever it likes."""

    @initialize()
    def start(self):
        self.mix = Mix(3)
        self.batch = self.mix.miner.batch(self.mix.submissions(RECORDS))
        self.shuffles, self.endorsed, self.opened = {}, {}, {}

    def board(self, known, order):
        return MixBoard(tuple(known[place] for place in order if place in known)).encode()

    @rule(place=PLACES, order=st.lists(PLACES, max_size=2))
    def shuffle(self, place, order):
        board = self.board(self.shuffles, order)
        made = attempt(lambda: self.mix.leaders[place].shuffle(self.batch, board))
        if made is not None:
            assert len(MixBoard.decode(board).parts) == place
            assert place not in self.shuffles
            self.shuffles[place] = made

    @rule(place=PLACES, order=st.sampled_from([[0, 1], [1, 0], [0], [1], [0, 0], []]))
    def endorse(self, place, order):
        board = self.board(self.shuffles, order)
        made = attempt(lambda: self.mix.leaders[place].endorse(self.batch, board))
        if made is not None:
            assert order == [0, 1]
            assert place not in self.endorsed
            self.endorsed[place] = made

    @rule(place=PLACES, order=st.sampled_from([[0, 1], [1, 0], [0], [1], [0, 0], []]))
    def open(self, place, order):
        made = attempt(lambda: self.mix.leaders[place].open(self.board(self.endorsed, order)))
        if made is not None:
            assert order == [0, 1]
            assert place not in self.opened
            self.opened[place] = made

    @rule(order=st.sampled_from([[0, 1], [1, 0], [0], [1, 1]]))
    def collect(self, order):
        board = self.board(self.shuffles, [0, 1])
        openings = [self.opened[place] for place in order if place in self.opened]
        found = attempt(lambda: self.mix.miner.collect(self.batch, board, openings))
        if found is not None:
            assert sorted(found.records) == sorted(RECORDS)
            assert len(self.opened) == 2

    @invariant()
    def opened_only_what_all_signed(self):
        if getattr(self, "opened", None):
            assert len({SignedMixMessage.decode(data).payload for data in self.endorsed.values()}) == 1
            assert len(self.endorsed) == 2


TestMixes = Mixes.TestCase
TestMixes.settings = settings(max_examples=20, stateful_step_count=25, derandomize=True, deadline=None)
