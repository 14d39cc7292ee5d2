"""Messages arrive late, twice, in any order or not at all, devices start anew: counts are right or absent."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.protocols.secure_aggregation.people import (
    again,
    clear_counts,
    on_a_circle,
    people,
    server_of,
)

from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.secure_aggregation.messages import (
    Endorsement,
    MessageRefused,
    Shares,
    Unmasking,
    Vote,
    kind_of,
)

REFUSED = (DecodingError, MessageRefused, QueryRefused)
ONCE = (Shares, Vote, Endorsement, Unmasking)  # what must leave once a round, if at all


def failure(advance):
    """Return why a round was aborted, None if it was not, and what is to be sent."""
    try:
        return None, advance()
    except RoundAborted as error:
        return error, {}


class Rounds(RuleBasedStateMachine):
    """Rounds of one session over a network that does as it likes, among users whose devices may crash.

    Rules have no preconditions: keys are fresh in every run, and who is on a committee differs with them.
    """

    make = staticmethod(lambda: people(9, minimum=4, dropouts="0.3"))
    users = 9

    @initialize()
    def start(self):
        self.population = self.make()
        self.outcomes = []
        self.votes = {}  # by user and round, all that ever left
        self.stood = set()  # by user and round, the lists signed
        self.begin()

    def begin(self):
        before = self.outcomes[-1] if self.outcomes else None
        self.server = server_of(self.population, len(self.outcomes) + 1, before)
        self.sent = [[] for _ in range(self.users)]  # all that this round's server said to each user
        self.said = [[] for _ in range(self.users)]  # all that each user said in this round
        self.left = {}
        self.over = False
        self.go_on()

    def go_on(self):
        if self.over:
            return
        aborted, outgoing = failure(self.server.advance)
        for place, message in outgoing.items():
            self.sent[place].append(message)
        if aborted is not None:
            # votes that left but were lost on the way are not known to the server
            assert not aborted.spent or self.left.get(Vote)
            self.over = True
        if self.server.outcome is not None:
            self.outcomes.append(self.server.outcome)
            self.over = True

    def hand(self, place, which):
        """Give a user one of the messages it was ever sent, and keep the answer."""
        if self.over or not self.sent[place]:
            return
        try:
            reply = self.population.users[place].receive(self.sent[place][which % len(self.sent[place])])
        except REFUSED:
            return
        if reply is None:
            self.stood.add((place, self.server.context.round))  # it stands on the list, and is no witness
            return
        kind = kind_of(reply)
        if kind in ONCE:
            assert place not in self.left.setdefault(kind, set()), f"two {kind.__name__} left"
            self.left[kind].add(place)
        number = self.server.context.round
        if kind is Vote:
            assert (place, number) not in self.votes, "two votes left in a round"
            earlier = [(user, other) for user, other in self.votes if user == place and other < number]
            assert self.stood.issuperset(earlier), "a vote left after one whose list its owner never saw"
            self.votes[place, number] = reply
        if kind is Endorsement:
            self.stood.add((place, number))
        self.said[place].append(reply)

    def hear(self, place, message):
        try:
            self.server.receive(place, message)
        except (DecodingError, MessageRefused):
            return

    @rule(place=st.integers(0, 13), which=st.integers(0, 6))
    def a_user_gets_a_message_old_or_new(self, place, which):
        self.hand(place % self.users, which)

    @rule(place=st.integers(0, 13), sender=st.integers(0, 13), which=st.integers(0, 6))
    def the_server_gets_a_reply_old_or_new_from_whoever(self, place, sender, which):
        replies = self.said[sender % self.users]
        if replies and not self.over:
            self.hear(place % self.users, replies[which % len(replies)])

    @rule(
        order=st.randoms(use_true_random=False),
        silent=st.sets(st.integers(0, 60), max_size=2),
        stages=st.integers(1, 7),
    )
    def all_goes_well_for_nearly_all(self, order, silent, stages):
        """For some stages; numbers beyond the users silence nobody."""
        if self.over:
            self.another_round()
        for _ in range(stages):
            places = [place for place in range(self.users) if place not in silent and self.sent[place]]
            order.shuffle(places)
            for place in places:
                self.hand(place, -1)
            for place in reversed(places):
                if self.said[place]:
                    self.hear(place, self.said[place][-1])
                    self.hear(place, self.said[place][-1])
            self.go_on()

    @rule(impatient=st.integers(0, 9))
    def the_server_ends_the_stage(self, impatient):
        replied = sum(bool(replies) and len(replies) >= len(self.sent[0]) for replies in self.said)
        if impatient == 0 or replied >= self.users - 1:
            self.go_on()

    @rule(place=st.integers(0, 13))
    def a_device_crashes_and_starts_anew(self, place):
        place %= self.users
        self.population.users[place] = again(self.population, place, self.population.ledgers[place])

    @rule()
    def another_round(self):
        if self.over and self.server.outcome is not None and len(self.outcomes) < 3:
            self.begin()
        elif self.over:
            self.start()

    @invariant()
    def counts_are_those_of_the_survivors_who_voted(self):
        for number, outcome in enumerate(getattr(self, "outcomes", []), start=1):
            assert np.array_equal(outcome.counts, clear_counts(self.users, list(outcome.survivors)))
            assert all((place, number) in self.votes for place in outcome.survivors)

    @invariant()
    def no_two_sums_differ_by_few(self):
        outcomes = getattr(self, "outcomes", [])
        for one, two in pairwise(outcomes):
            departed = set(one.survivors) ^ set(two.survivors)
            assert not departed or len(departed) >= self.population.terms.parameters.minimum


class RoundsOnACircle(Rounds):
    """The same where a committee draws the graph, and neighbours are not everybody."""

    make = staticmethod(on_a_circle)
    users = 14


def test_rounds_do_end_with_counts_here():
    """The machine above is no idle one: where all goes well three rounds are counted."""
    machine = Rounds()
    machine.start()
    for _ in range(3):
        while not machine.over:
            for place in range(machine.users):
                machine.hand(place, -1)
                machine.hear(place, machine.said[place][-1])
            machine.go_on()
        machine.another_round() if len(machine.outcomes) < 3 else None
    assert len(machine.outcomes) == 3
    machine.counts_are_those_of_the_survivors_who_voted()


PHASES = (Phase.explicit, Phase.generate)  # keys are fresh in every run: there is nothing to shrink
SETTINGS = settings(max_examples=8, stateful_step_count=40, derandomize=True, deadline=None, phases=PHASES)
TestRounds, TestRoundsOnACircle = Rounds.TestCase, RoundsOnACircle.TestCase
TestRounds.settings = TestRoundsOnACircle.settings = SETTINGS
