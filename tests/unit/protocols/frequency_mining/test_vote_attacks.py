"""Votes, points and proofs that are none, and strangers: each is refused, and the culprit named."""

from __future__ import annotations

import pytest
from tests.unit.protocols.frequency_mining.people import BY_REGION, SMOKES, Village, payload, refusal

from masquerade.core.errors import InputError, RoundAborted
from masquerade.crypto import proof_batches
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.proof_batches import spread
from masquerade.crypto.proofs import Knows, knows_bit, mask, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency_mining.ballots import (
    POINT,
    ballots_of,
    validity,
)
from masquerade.protocols.frequency_mining.messages import Gathered, MiningStep, SignedMiningMessage
from masquerade.protocols.frequency_mining.roles import MiningRound, MiningUser, opened_booth
from masquerade.protocols.people.questions import Question

G = secp256k1.generator
P = 2**256 - 2**32 - 977


# votes that are none


def cheating_vote(booth, user, pairs, bits, *, shift=0):
    """Return a vote for any numbers, h shifted by −shift·G, proved like the honest vote nearest to it."""
    plain = [
        mask(min(max(bit, 0), 1), pair, X, Y)
        for bit, pair, X, Y in zip(bits, pairs, *booth.total, strict=True)
    ]
    m = [
        first + secp256k1.multiply_public(G, bit - min(max(bit, 0), 1))
        for (first, _), bit in zip(plain, bits, strict=True)
    ]
    h = [second - secp256k1.multiply_public(G, shift) for _, second in plain]
    ballots = ballots_of(booth.total, booth.keys[user], m, h)
    knows = []
    for alone, start, end in booth.spans:
        for pair, bit in zip(pairs[start:end], bits[start:end], strict=True):
            knows += knows_bit(min(max(bit, 0), 1), pair)
        knows += [] if alone else [Knows(tuple(pair.y for pair in pairs[start:end]))]
    statement = validity(booth.spans, ballots)
    proof = prove(statement, knows, booth.setting.transcript(user, "vote"))
    return b"".join(point.encode() for point in (*m, *h)) + proof


@pytest.mark.parametrize(
    ("question", "bits", "shift"),
    [
        (SMOKES, [2], 0),
        (SMOKES, [-1], 0),
        (SMOKES, [1], 5),
        (SMOKES, [0], -1),
        (BY_REGION, [1, 1, 0], 0),
        (BY_REGION, [0, 0, 0], 0),
        (BY_REGION, [2, -1, 0], 0),
        (Question(("region",), (("ill", 0),)), [1, 0, 0, 1], 0),
    ],
    ids=[
        "two",
        "minus one",
        "h shifted",
        "h shifted back",
        "two cells",
        "no cell",
        "sums to one",
        "cell and rest",
    ],
)
def test_a_vote_that_no_honest_user_could_send_is_refused_and_named(question, bits, shift):
    village = Village(4)
    current = village.until(village.round([question]), "votes")
    pairs = village.users["u2"]._round.keys._value
    bad = cheating_vote(current._booth, "u2", pairs, bits, shift=shift)
    with pytest.raises(RoundAborted, match="u2") as caught:
        village.step(
            current,
            lambda name, reply: village.signed("u2", MiningStep.VOTE, 1, bad) if name == "u2" else reply,
        )
    assert (caught.value.spent, caught.value.culprits) == (True, ("u2",))


def test_the_cheat_of_the_test_above_passes_when_it_does_not_cheat():
    village = Village(4)
    current = village.until(village.round([BY_REGION]), "votes")
    good = cheating_vote(current._booth, "u2", village.users["u2"]._round.keys._value, [0, 1, 0])
    assert current._booth.invalid([("u2", good)]) == []


# points and proofs that are none


def off_curve():
    return next(encoding for x in range(1, 50) if not decodes(encoding := b"\x02" + x.to_bytes(32, "big")))


def decodes(encoding):
    try:
        secp256k1.decode(encoding)
    except DecodingError:
        return False
    return True


MALFORMED = {
    "identity": bytes(POINT),
    "hybrid": b"\x06" + G.encode()[1:],
    "uncompressed": b"\x04" + G.encode()[1:],
    "x not reduced": b"\x02" + (P + 1).to_bytes(32, "big"),
    "not on the curve": off_curve(),
}


@pytest.mark.parametrize("bad", MALFORMED.values(), ids=MALFORMED)
@pytest.mark.parametrize("phase", ["keys", "votes"])
def test_malformed_points_are_refused_wherever_they_stand(phase, bad):
    village = Village(4)
    current = village.until(village.round(), phase)
    replies = {name: user.receive(current.message) for name, user in village.users.items()}
    kind, said = MiningStep.KEYS if phase == "keys" else MiningStep.VOTE, payload(replies["u1"])
    for at in range(0, len(said) // POINT * POINT, POINT)[:4]:
        spoilt = said[:at] + bad + said[at + POINT :]
        if phase == "votes":
            assert current._booth.invalid([("u1", spoilt)]) == ["u1"]
            continue
        attempt = {**replies, "u1": village.signed("u1", kind, 1, spoilt)}
        with pytest.raises(RoundAborted) as caught:
            opened_booth(
                village.terms, current.message, Gathered(MiningStep.KEYS, 1, tuple(attempt.values())).encode()
            )
        assert caught.value.culprits == ("u1",)


@pytest.mark.parametrize("phase", ["keys", "votes"])
def test_truncated_and_lengthened_messages_are_refused(phase):
    village = Village(4)
    current = village.until(village.round(), phase)
    kind = MiningStep.KEYS if phase == "keys" else MiningStep.VOTE
    said = payload(village.users["u1"].receive(current.message))
    for bad in (b"", said[:-1], said[: POINT + 1], said + b"\0"):
        again = village.round()
        again.phase, again._booth = current.phase, current._booth
        for name in village.names:
            again.receive(village.signed(name, kind, 1, bad))
        with pytest.raises(RoundAborted) as caught:
            again.advance()
        assert set(caught.value.culprits) == set(village.names)


def test_a_proof_with_any_bit_changed_is_refused():
    village = Village(3)
    current = village.until(village.round(), "votes")
    vote = payload(village.users["u0"].receive(current.message))
    booth = current._booth
    assert booth.invalid([("u0", vote)]) == []
    for bit in range(0, 8 * len(vote), 13):  # 13 is prime to 8: all places of a byte, every part of the vote
        spoilt = bytearray(vote)
        spoilt[bit // 8] ^= 1 << bit % 8
        assert booth.invalid([("u0", bytes(spoilt))]) == ["u0"], bit


def test_a_cheat_is_found_among_many():
    village = Village(20)
    current = village.until(village.round(), "votes")
    votes = [(name, payload(user.receive(current.message))) for name, user in village.users.items()]
    spoilt = [
        (name, vote[:-1] + bytes([vote[-1] ^ 1]) if name in {"u5", "u17"} else vote) for name, vote in votes
    ]
    assert current._booth.invalid(votes) == []
    assert sorted(current._booth.invalid(spoilt)) == ["u17", "u5"]


# who may speak


def test_strangers_and_uninvited_members_are_not_heard():
    village, stranger = Village(5), Village(4)
    current = village.round(users=village.names[:4])
    with pytest.raises(SealBroken):
        current.receive(stranger.users["u0"].receive(stranger.round().message))
    with pytest.raises(DecodingError, match="not invited"):
        current.receive(village.signed("u4", MiningStep.KEYS, 1, b""))
    assert refusal(village.users["u4"].receive(current.message)).code == "not_survivors"
    with pytest.raises(InputError, match="not enrolled"):
        MiningUser("u0", stranger.identities["u0"], {}, village.terms)


def test_an_objection_stops_the_round_and_says_who_objects():
    village = Village(4)
    current = village.until(village.round(), "endorsements")
    said = started_again(village, "u1").receive(current.message)
    with pytest.raises(RoundAborted, match="u1 stopped") as caught:
        current.receive(said)
    assert (caught.value.spent, caught.value.culprits) == (False, ("u1",))


def started_again(village, name):
    """Return a user whose device was started again, and refuses the middle of a round."""
    return MiningUser(name, village.identities[name], village.users[name]._reports, village.terms)


def test_an_objection_to_another_message_or_round_stops_nothing():
    """It is truly signed: who sends it again, at another step or in a later round, ends no round by it."""
    village = Village(4)
    first = village.until(village.round(), "endorsements")
    objections = [
        started_again(village, "u1").receive(first.message),
        village.users["u1"].receive(b"noise"),
    ]
    for said in objections:
        assert SignedMiningMessage.decode(said).step is MiningStep.REFUSAL
        SignedMiningMessage.decode(said).check(village.terms)
    later = village.round([BY_REGION], number=2)
    for phase in ("keys", "endorsements", "votes"):
        village.until(later, phase)
        for said in objections:
            later.receive(said)
    village.until(later, "done")
    assert later.tables


def test_messages_out_of_order_get_an_objection_and_change_nothing():
    village = Village(4)
    current = village.until(village.round(), "votes")
    fresh = Village(4)
    said = refusal(fresh.users["u0"].receive(current.message))
    assert said.code == "out_of_order"
    opened = fresh.round()
    fresh.users["u0"].receive(opened.message)
    assert "roster comes before" in refusal(fresh.users["u0"].receive(current.message)).reason


def test_a_large_round_is_checked_by_other_processes_and_names_the_same_cheats(monkeypatch):
    """Keys and votes of 6 users and 9 counts, where 20 are many: both are shared out by default."""
    monkeypatch.setattr(proof_batches, "_MANY", 20)
    shared = []
    monkeypatch.setattr(
        proof_batches,
        "spread",
        lambda work, tasks, workers: shared.append(workers) or spread(work, tasks, workers),
    )
    village = Village(6)
    current = MiningRound(village.terms, 1, village.names, (Question(("smoker", "region")), BY_REGION))
    village.until(current, "votes")
    assert shared == [2, 1]  # the miner's check of the roster; the users', who share theirs, on one core

    def spoil(name, reply):
        if name != "u4":
            return reply
        vote = SignedMiningMessage.decode(reply)
        return village.signed(name, MiningStep.VOTE, 1, vote.payload[:-1] + bytes([vote.payload[-1] ^ 1]))

    with pytest.raises(RoundAborted, match="u4") as aborted:
        village.step(current, spoil)
    assert aborted.value.culprits == ("u4",)
    assert shared == [2, 1, 2]
