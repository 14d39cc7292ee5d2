"""Everything that would break a secure sum is refused, before or without giving counts away."""

import pytest
from tests.unit.protocols.secure_sum.pools import (
    CLEAR,
    FRAME,
    NAMES,
    POLICY,
    SCHEMA,
    members,
    pool_of,
    pooled,
    shares,
)

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.secure_sum import CountRequest, MaskedCounts, MaskedSum, pooling_agreement
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import Advert, Batch, LocalTransport, SessionOffer, SessionRoster
from masquerade.sources.parties.pooled import pooling_party

BY_A = mq.Query(by="A")


class Recording(LocalTransport):
    """A transport that keeps every message and reply, as whoever carries them could."""

    def __init__(self, parties):
        super().__init__(parties)
        self.seen = []

    def exchange(self, party, message):
        reply = super().exchange(party, message)
        self.seen.append((party, message, reply))
        return reply


@pytest.fixture
def running():
    parties = members(shares())
    transport = Recording({name: party.receive for name, party in parties.items()})
    return parties, transport, pool_of(parties, transport=transport)


def test_two_parties_are_refused_with_the_reason():
    with pytest.raises(InputError, match="of two parties, each could subtract"):
        MaskedSum(("a", "b"), LocalTransport({}), CLEAR)
    party = members(shares())["east"]
    offer = SessionOffer(bytes(16), pooling_agreement(CLEAR), ("east", "west"))
    with pytest.raises(InputError, match="of two parties, each could subtract"):
        party.receive(offer.encode())


def test_the_modulus_is_above_the_largest_sum(monkeypatch):
    monkeypatch.setattr("masquerade.protocols.secure_sum.LARGEST_PARTY", 2**64 // 3 + 1)
    with pytest.raises(InputError, match="may reach the modulus"):
        MaskedSum(NAMES, LocalTransport({}), CLEAR)


def test_a_party_larger_than_announced_is_refused(monkeypatch):
    monkeypatch.setattr("masquerade.protocols.secure_sum.LARGEST_PARTY", 80)
    with pytest.raises(RoundAborted, match="at most 80 records"):
        pool_of(members(shares())).totals([mq.Query()])


def test_what_travels_tells_nothing_about_a_party(running):
    """Masked cells of the same counts differ in every round: twelve uniform words (false alarm: 2^-48)."""
    _, transport, pool = running
    for _ in range(2):
        pool.totals([BY_A])
    cells = [
        MaskedCounts.decode(reply).cells
        for _, message, reply in transport.seen
        if tag_of(message) == CountRequest.TAG
    ]
    words = [int(value) for row in cells for value in row]
    assert len(words) == len(set(words)) == 12
    assert max(words) > 2**60


def test_a_repeated_round_repeats_its_bytes_and_another_question_is_refused(running):
    parties, transport, pool = running
    pool.totals([BY_A])
    party, message, reply = next(
        item
        for item in transport.seen
        if item[0] == "east" and len(item[2]) < 200 and CountRequest.TAG in item[1]
    )
    assert parties[party].receive(message) == reply
    other = CountRequest(pool.session, 1, Batch((mq.Query(by="B"),))).encode()
    with pytest.raises(InputError, match="not the next one"):
        parties[party].receive(other)
    pool.totals([BY_A])
    with pytest.raises(InputError, match="not the next one"):
        parties[party].receive(message)
    with pytest.raises(InputError, match="another session"):
        parties[party].receive(CountRequest(b"x" * 16, 3, Batch((BY_A,))).encode())


def test_a_party_that_answers_another_question_aborts_the_round_and_leaks_nothing(running):
    _, transport, pool = running

    def lying(party, message):
        if party == "west" and CountRequest.TAG in message:
            message = CountRequest(
                pool.session, CountRequest.decode(message).round, Batch((mq.Query(by="T"),))
            ).encode()
        return LocalTransport.exchange(transport, party, message)

    transport.exchange = lying
    with pytest.raises(RoundAborted, match="larger than the parties' records allow") as caught:
        pool.totals([BY_A])
    assert caught.value.spent


def test_other_policies_and_schemas_are_refused():
    disguised = mq.simulate(FRAME, POLICY, seed=1)
    with pytest.raises(RoundAborted, match="terms of the session differ") as caught:
        pooled([*shares()[:2], shares(disguised, POLICY)[2]])
    assert caught.value.culprits == ("west",)
    assert not caught.value.spent
    fewer = mq.tally(FRAME[["A", "B"]].iloc[::3], schema=mq.Schema([SCHEMA["A"], SCHEMA["B"]]))
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        pooled([fewer, *shares()[1:]])


def test_estimates_and_weights_are_no_counts_to_pool():
    disguised = mq.simulate(FRAME, POLICY, seed=1)
    merged = [mq.Cached(mq.tally(disguised.iloc[i::3], POLICY)) for i in range(3)]
    with pytest.raises(RoundAborted, match="Only exact counts"):
        pooled(merged).answer([BY_A])
    weighted = mq.tally(FRAME.assign(w=1.5), schema=POLICY, weights="w")
    with pytest.raises(InputError, match="no exact counts"):
        members([weighted, *shares()[1:]])


def test_nobody_counts_before_everybody_consents():
    identities = {name: SigningKey() for name in NAMES}
    public = {name: identity.public for name, identity in identities.items()}
    parties = {
        name: pooling_party(
            name, source, identities[name], public, variables=["A"] if name == "west" else None
        )
        for name, source in zip(NAMES, shares(), strict=True)
    }
    transport = Recording({name: party.receive for name, party in parties.items()})
    pool = pool_of(parties, transport=transport)
    with pytest.raises(QueryRefused, match="west: 'B' may not be counted") as caught:
        pool.totals([mq.Query(by="B")])
    assert caught.value.refusals[0].code == "not_consented"
    assert not [message for _, message, _ in transport.seen if CountRequest.TAG in message]
    assert pool.totals([BY_A]).sum() == len(FRAME)


def test_a_session_that_differs_by_one_party_from_an_earlier_one_is_refused():
    names = (*NAMES, "south")
    for earlier, allowed in (
        (names, True),
        (NAMES, False),
        (("x", "y", "z", *names), True),
        ((*names, "x"), False),
    ):
        parties = members(shares(parts=4), names=names, earlier=[earlier])
        if allowed:
            pool_of(parties)
        else:
            with pytest.raises(RoundAborted, match="the difference of the sums"):
                pool_of(parties)


class Middle(LocalTransport):
    """A carrier who puts its own keys into adverts, signed or not."""

    def __init__(self, parties, identity):
        super().__init__(parties)
        self.identity = identity

    def exchange(self, party, message):
        reply = super().exchange(party, message)
        if Advert.TAG in reply and party == "north":
            true = Advert.decode(reply)
            forged = (true.session, true.agreement, true.party, AgreementKey().public)
            signature = (
                true.signature
                if self.identity is None
                else self.identity.sign(
                    "advert of a party", true.session, true.agreement, true.party.encode(), forged[-1]
                )
            )
            return Advert(*forged, signature).encode()
        return reply


@pytest.mark.parametrize("identity", [None, SigningKey()], ids=["unsigned", "signed by a stranger"])
def test_a_carrier_cannot_put_its_own_key_into_the_roster(identity):
    parties = members(shares())
    transport = Middle({name: party.receive for name, party in parties.items()}, identity)
    with pytest.raises(RoundAborted, match="not signed by its known identity"):
        pool_of(parties, transport=transport)


def test_a_second_roster_or_session_is_refused(running):
    parties, transport, _ = running
    rosters = [message for party, message, _ in transport.seen if SessionRoster.TAG in message]
    joins = [message for _, message, _ in transport.seen if SessionOffer.TAG in message]
    assert parties["east"].receive(rosters[0])  # the same again is the same
    with pytest.raises(InputError, match="joined a session already"):
        parties["east"].receive(SessionOffer(b"y" * 16, pooling_agreement(CLEAR), NAMES).encode())
    roster = SessionRoster.decode(rosters[0])
    with pytest.raises(InputError, match="A different roster"):
        parties["east"].receive(SessionRoster(roster.session, roster.adverts[::-1]).encode())
    assert joins[0] == joins[1]


def test_a_lost_party_aborts_and_the_rest_learn_nothing(running):
    _, transport, pool = running

    def gone(party, message):
        if party == "west" and CountRequest.TAG in message:
            raise InputError("connection lost")
        return LocalTransport.exchange(transport, party, message)

    transport.exchange = gone
    with pytest.raises(RoundAborted) as caught:
        pool.totals([BY_A])
    assert caught.value.culprits == ("west",)
    assert caught.value.spent


def test_oversized_batches_and_messages_are_refused(monkeypatch):
    source = pooled(shares())
    monkeypatch.setattr(type(source), "most_cells", 7)
    assert source.check([BY_A, mq.Query(by="T")]) == []
    (refusal,) = source.check([BY_A, mq.Query(by=("A", "T"), where={"S": 1})])
    assert refusal.code == "too_many_cells"
    monkeypatch.setattr("masquerade.protocols.secure_sum.MOST_CELLS", 3)
    with pytest.raises(QueryRefused, match="east: A batch has at most 3 cells; this batch has 4"):
        source.answer([BY_A, mq.Query(by="T")])  # a party has limits of its own
    with pytest.raises(InputError, match="at most 10 bytes"):
        LocalTransport({"a": bytes.upper}, largest=10).exchange("a", bytes(11))
    with pytest.raises(InputError, match="no party 'b'"):
        LocalTransport({"a": bytes.upper}).exchange("b", b"")


def test_damaged_messages_raise_the_decoding_error_and_change_nothing(running):
    parties, transport, pool = running
    pool.totals([BY_A])
    _, message, reply = next(item for item in transport.seen[::-1] if item[0] == "east")
    for damaged in (message[:-1], message + b"\0", b"", b"\xff" * 40, message[:30]):
        with pytest.raises(DecodingError):
            parties["east"].receive(damaged)
    assert parties["east"].receive(message) == reply
