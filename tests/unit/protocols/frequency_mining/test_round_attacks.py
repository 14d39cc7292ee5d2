"""Rounds that are repeated, or leave somebody out: each fails closed, and names who did it."""

from __future__ import annotations

import pytest
from tests.unit.protocols.frequency_mining.people import (
    BY_REGION,
    SMOKES,
    Village,
    frame,
    payload,
    policy,
    refusal,
)

import masquerade as mq
from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import LogOutOfRange, SealBroken
from masquerade.protocols.frequency_mining.messages import MiningStep, ShownVotes, SignedMiningMessage
from masquerade.protocols.frequency_mining.roles import MiningUser, shown_cheat
from masquerade.protocols.people.ledger import FileLedger
from masquerade.protocols.people.questions import Question
from masquerade.simulation import people_from
from masquerade.simulation.frequency import FrequencyMining
from masquerade.sources.people.frequency import FrequencyTally

# replay


def test_a_vote_is_worth_nothing_in_another_round_or_by_another_user():
    village = Village(4)
    first = village.until(village.round(), "votes")
    old = village.step(first)
    second = village.until(village.round([Question((), (("ill", 0),))], number=2), "votes")
    second.receive(old["u0"])  # of another round: ignored
    assert second.waiting == tuple(village.names)
    fresh = {name: village.users[name].receive(second.message) for name in village.names}
    for cheat, taken in (("u1", old["u1"]), ("u2", fresh["u0"])):
        resigned = village.signed(cheat, MiningStep.VOTE, 2, payload(taken))
        attempt = {**fresh, cheat: resigned}
        votes = [(name, payload(reply)) for name, reply in attempt.items()]
        assert second._booth.invalid(votes, workers=1) == [cheat]
    moved = SignedMiningMessage.decode(old["u0"])
    renumbered = SignedMiningMessage(moved.user, MiningStep.VOTE, 2, moved.payload, moved.signature)
    with pytest.raises(SealBroken):
        second.receive(renumbered.encode())


def test_an_invalid_vote_is_evidence_and_a_miner_that_lies_about_a_cheat_is_named():
    village = Village(4)
    current = village.round()
    opening = current.message
    village.step(current)
    roster = current.message
    village.step(current)
    honest = {}

    def spoilt(name, reply):
        honest[name] = reply
        vote = payload(reply)
        return (
            reply
            if name != "u2"
            else village.signed("u2", MiningStep.VOTE, 1, vote[:-1] + bytes([vote[-1] ^ 1]))
        )

    with pytest.raises(RoundAborted) as stopped:
        village.step(current, spoilt)
    assert stopped.value.culprits == ("u2",)
    assert list(current.evidence) == ["u2"]

    def shown(vote):
        return shown_cheat(village.terms, opening, roster, vote)

    assert shown(current.evidence["u2"]) == "u2"
    cheat = SignedMiningMessage.decode(current.evidence["u2"])
    forged = SignedMiningMessage("u1", MiningStep.VOTE, 1, cheat.payload, cheat.signature).encode()
    other = village.signed("u2", MiningStep.VOTE, 2, cheat.payload)
    for lie in (honest["u1"], honest["u2"], forged, other, b"nothing"):
        with pytest.raises(RoundAborted) as said:
            shown(lie)
        assert said.value.culprits == ("miner",)


def spoiling(village, cheat, number=1):
    """Return a change of replies: one user signs a vote that is not valid."""

    def change(name, reply):
        vote = payload(reply)
        wrong = vote[:-1] + bytes([vote[-1] ^ 1])
        return reply if name != cheat else village.signed(cheat, MiningStep.VOTE, number, wrong)

    return change


def test_users_see_for_themselves_that_somebody_cheated_and_are_counted_without():
    """A round without one user is refused, unless that user is shown to have cheated."""
    village = Village(5)
    current, others = village.until(village.round(), "votes"), ["u0", "u1", "u3", "u4"]
    with pytest.raises(RoundAborted):
        village.step(current, spoiling(village, "u2"))
    again = village.round(number=2, users=others)
    said = refusal(village.users["u0"].receive(again.message))
    assert "was already sent" in said.reason  # a miner's word alone lets nobody be counted twice
    assert "left, fewer than 3" in said.reason
    for name in others:
        said = refusal(village.users[name].receive(current.accusation))
        assert (said.code, said.culprits) == ("aborted", ("u2",))
    assert (
        "u2 cast an invalid vote"
        in refusal(village.users["u1"].receive(village.round(number=3).message)).reason
    )
    village.until(again, "done")
    smokers = (village.data["smoker"].iloc[[0, 1, 3, 4]] == "yes").sum()
    assert again.tables[SMOKES].sum() == smokers
    fewer = village.round(number=4, users=others[:3])
    assert refusal(village.users["u0"].receive(fewer.message)).code in {"already_spent", "departed_too_few"}


def test_a_miner_that_lies_about_a_cheat_is_refused_from_then_on(tmp_path):
    """It shows a valid vote, so as to count again without that user: the difference is their answer."""
    ledgers = {f"u{i}": FileLedger(tmp_path / f"u{i}.sqlite") for i in range(5)}
    village = Village(5, ledgers=ledgers)
    current = village.until(village.round(), "votes")
    votes = village.step(current)
    user, message = village.users["u0"], "no vote at all"
    nothing = ShownVotes(1, (message.encode(),)).encode()
    assert refusal(user.receive(nothing)).culprits == ("miner",)
    without = village.round([BY_REGION], number=2, users=["u0", "u1", "u3", "u4"])
    assert refusal(user.receive(without.message)).code == "departed_too_few"  # and nothing of a lie
    user = village.users["u1"]
    said = refusal(user.receive(ShownVotes(1, (votes["u2"],)).encode()))
    assert said.culprits == ("miner",)
    assert "u2 that is presented as invalid is valid" in said.reason
    for again in (village, Village(5, ledgers=ledgers, identities=village.identities)):  # and after a restart
        same = again.round([BY_REGION], number=3)
        said = refusal(again.users["u1"].receive(same.message))
        assert "presented a valid vote as invalid" in said.reason
        with pytest.raises(QueryRefused):
            same.receive(again.users["u1"].receive(same.message))


def test_old_invitations_and_those_of_other_epochs_are_refused():
    village, other = Village(4), Village(4, epoch="autumn")
    opening = village.round().message
    village.until(village.round(), "done")
    assert refusal(village.users["u0"].receive(opening)).code == "already_spent"
    assert "differ from the agreed terms" in refusal(other.users["u0"].receive(opening)).reason


def test_two_different_votes_of_one_user_are_noticed():
    village = Village(4)
    current = village.until(village.round(), "votes")
    current.receive(village.users["u0"].receive(current.message))
    with pytest.raises(RoundAborted, match="two different votes") as caught:
        current.receive(village.signed("u0", MiningStep.VOTE, 1, b"another"))
    assert caught.value.culprits == ("u0",)


# dropouts


@pytest.mark.parametrize(("phase", "spent"), [("keys", False), ("endorsements", False), ("votes", True)])
def test_a_missing_user_aborts_and_is_named(phase, spent):
    village = Village(4)
    current = village.until(village.round(), phase)
    with pytest.raises(RoundAborted, match="1 of 4 users did not answer") as caught:
        village.step(current, lambda name, reply: None if name == "u2" else reply)
    assert (caught.value.spent, caught.value.culprits) == (spent, ("u2",))
    assert current.tables == {}


def test_without_one_vote_the_sum_is_no_count():
    village = Village(4)
    current = village.until(village.round(), "votes")
    votes = [payload(user.receive(current.message)) for user in village.users.values()]
    assert current._booth.frequencies(votes, workers=1) == [int((village.data["smoker"] == "yes").sum())]
    with pytest.raises(LogOutOfRange):
        current._booth.frequencies(votes[:3], workers=1)


# a second count without one user


def test_a_retry_without_one_user_is_refused_by_the_tally_and_by_the_users():
    data = frame(6)
    people = FrequencyMining(people_from(data, policy(), seed=None), minimum=3)
    tally = people.tally()

    def losing(user, message):
        reply = people.exchange(user, message)
        return (
            None if user == "user 2" and SignedMiningMessage.decode(reply).step == MiningStep.VOTE else reply
        )

    tally._exchange = losing
    with pytest.raises(RoundAborted) as caught:
        tally.answer([mq.Query(by="ill")])
    assert caught.value.spent
    refusals = {refusal.code for refusal in tally.check([mq.Query(by="ill")])}
    assert refusals == {"already_spent", "departed_too_few"}
    assert {refusal.code for refusal in tally.check([mq.Query(by="smoker")])} == {"departed_too_few"}
    stubborn = FrequencyTally(people.terms, people.exchange, [u for u in people.users if u != "user 2"])
    with pytest.raises(QueryRefused, match="left"):
        stubborn.answer([mq.Query(by="ill")])


def test_spent_votes_stay_spent_after_a_restart(tmp_path):
    ledgers = {f"u{i}": FileLedger(tmp_path / f"u{i}.db") for i in range(4)}
    village = Village(4, policy("smoker"), ledgers=ledgers)
    village.until(village.round(), "done")
    reports = village.users["u0"]._reports
    ledgers["u0"].close()
    again = MiningUser(
        "u0",
        village.identities["u0"],
        dict.fromkeys(village.policy.schema, 0) | {"smoker": 0},
        village.terms,
        ledger=FileLedger(tmp_path / "u0.db"),
    )
    assert refusal(again.receive(village.round(number=2).message)).code == "already_spent"
    fewer = village.round([Question((), (("ill", 0),))], number=3, users=["u0", "u1", "u2"])
    assert refusal(again.receive(fewer.message)).code == "departed_too_few"
    truth = village.policy.schema["smoker"].code(village.data["smoker"][0])
    drawn_again = MiningUser(
        "u0",
        village.identities["u0"],
        {"smoker": truth, "region": 0, "ill": 0},
        village.terms,
        ledger=FileLedger(tmp_path / "u0.db"),
    )
    assert drawn_again._reports["smoker"] == reports["smoker"]  # memoised, not drawn anew


# adaptive learners


def test_one_dropout_between_two_rounds_leaves_no_record_to_subtract():
    data = frame(6)
    people = FrequencyMining(people_from(data, policy(), seed=None), minimum=3)
    tally = people.tally()
    tally.answer([mq.Query(by=("smoker", "region"))])
    tally.users = tuple(user for user in tally.users if user != "user 4")
    (found,) = tally.check([mq.Query(by=("smoker", "ill"))])
    assert found.code == "departed_too_few"
    # a miner that does not follow its own rules meets the users' rules: not one vote leaves
    stubborn = FrequencyTally(people.terms, people.exchange, tally.users)
    with pytest.raises(QueryRefused, match="difference"):
        stubborn.answer([mq.Query(by=("smoker", "ill"))])
    assert stubborn.rounds == 0


def test_later_rounds_go_on_if_many_left_or_all_is_disguised():
    many = FrequencyMining(people_from(frame(9), policy(), seed=None), minimum=3)
    many.tally().answer([mq.Query(by="smoker")])
    left = FrequencyTally(many.terms, many.exchange, list(many.users)[3:])
    assert left.answer([mq.Query(by="ill")])[0].n == 6
    hidden = FrequencyMining(people_from(frame(6), policy("smoker", "region"), seed=None), minimum=3)
    first = hidden.tally()
    before = first.answer([mq.Query(by="smoker")])[0]
    hidden.gone.add("user 1")
    with pytest.raises(RoundAborted):
        first.answer([mq.Query(by=("region", "smoker"))])
    after = first.answer([mq.Query(by=("region", "smoker"))])[0]
    assert (before.n, after.n) == (6, 5)
    assert [refusal.code for refusal in first.check([mq.Query(by="ill")])] == ["departed_too_few"]
    assert first.answer([mq.Query(by="smoker")])[0].n == 6  # known from before


def test_newcomers_between_rounds_are_refused_too():
    people = FrequencyMining(people_from(frame(6), policy(), seed=None), minimum=3)
    few = FrequencyTally(people.terms, people.exchange, list(people.users)[:5])
    few.answer([mq.Query(by="smoker")])
    more = FrequencyTally(people.terms, people.exchange, list(people.users))
    with pytest.raises(QueryRefused, match="only to users of the earlier ones"):
        more.answer([mq.Query(by="ill")])
