"""Messages arrive late, twice, in any order or not at all: a round ends with the true count or not at all."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.unit.protocols.frequency_mining.people import SMOKES, Village, refusal

from masquerade.core.errors import RoundAborted
from masquerade.protocols.frequency_mining.messages import MiningStep, SignedMiningMessage

NAMES = st.sampled_from(["u0", "u1", "u2"])


def failure(act):
    """Return why a round was aborted, None if it was not."""
    try:
        act()
    except RoundAborted as error:
        return error
    return None


class Rounds(RuleBasedStateMachine):
    """One round among three users over a network that does as it likes."""

    @initialize()
    def start(self):
        self.village = Village(3)
        self.round = self.village.round()
        self.sent = [self.round.message]  # all that the miner ever said
        self.replies = []  # all that users ever said
        self.votes = {}
        self.over = False

    @precondition(lambda self: not self.over)
    @rule(user=NAMES, which=st.integers(0, 2))
    def users_get_a_message_old_or_new(self, user, which):
        message = self.sent[min(which, len(self.sent) - 1)]
        reply = self.village.users[user].receive(message)
        signed = SignedMiningMessage.decode(reply)
        if signed.step is MiningStep.REFUSAL:
            assert refusal(reply).code in {"already_spent", "out_of_order"}
            return  # the network loses these here; what they do to a round is tested elsewhere
        if signed.step is MiningStep.VOTE:
            assert self.votes.setdefault(user, reply) == reply, "two different votes left"
        self.replies.append(reply)

    @precondition(lambda self: self.replies and not self.over)
    @rule(data=st.data())
    def the_miner_gets_an_answer_old_or_new(self, data):
        self.hear(data.draw(st.sampled_from(self.replies)))

    @precondition(lambda self: not self.over)
    @rule(order=st.permutations(["u0", "u1", "u2"]))
    def all_goes_well_for_a_while(self, order):
        for user in order:
            self.users_get_a_message_old_or_new(user, 2)
        for reply in self.replies[-3:]:
            if not self.over:
                self.hear(reply)

    def hear(self, reply):
        signed = SignedMiningMessage.decode(reply)
        stopped = failure(lambda: self.round.receive(reply))
        if stopped is not None:
            # a user who was asked again after another message has posted other keys: that is noticed
            assert stopped.culprits == (signed.user,)
            assert signed.step is MiningStep.KEYS
            self.over = True

    @precondition(lambda self: not self.over)
    @rule()
    def the_miner_goes_on(self):
        missing = self.round.waiting
        stopped = failure(self.round.advance)
        if stopped is not None:
            assert missing
            assert stopped.culprits == missing
            assert stopped.spent == (self.round.phase == "votes")
            self.over = stopped.spent
            return
        assert not missing
        if self.round.phase == "done":
            assert int(self.round.tables[SMOKES]) == int((self.village.data["smoker"] == "yes").sum())
            self.over = True
        else:
            self.sent.append(self.round.message)

    @precondition(lambda self: self.over)
    @rule()
    def another_village(self):
        self.start()

    @invariant()
    def no_count_without_all_votes(self):
        if getattr(self, "round", None) is not None and self.round.tables:
            assert set(self.votes) == set(self.village.names)


TestRounds = Rounds.TestCase
TestRounds.settings = settings(max_examples=25, stateful_step_count=30, derandomize=True, deadline=None)


def test_users_who_are_asked_in_any_order_are_counted():
    village = Village(5)
    current = village.round()
    for turn in range(3):
        for name in sorted(village.names, reverse=bool(turn % 2)):
            reply = village.users[name].receive(current.message)
            current.receive(reply)
            current.receive(reply)
        current.advance()
    assert current.phase == "done"
    assert current.invitation.questions == (SMOKES,)
