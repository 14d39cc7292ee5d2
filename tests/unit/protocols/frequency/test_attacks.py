"""Every known way to break the protocol: each fails closed, and names the culprit where that can be told."""

from __future__ import annotations

import pytest
from tests.unit.protocols.frequency.people import BY_REGION, SMOKES, Village, frame, policy, refusal

import masquerade as mq
from masquerade.core.errors import FileError, InputError, QueryRefused, RoundAborted
from masquerade.crypto import proof_batches
from masquerade.crypto.errors import DecodingError, KeySpent, LogOutOfRange, SealBroken
from masquerade.crypto.proof_batches import spread
from masquerade.crypto.proofs import BallotKeys, Knows, knows_bit, mask, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency.ballots import (
    POINT,
    PublicKeys,
    ballots_of,
    make_keys,
    possession_of,
    public_keys,
    read_keys,
    sum_of_keys,
    validity,
)
from masquerade.protocols.frequency.messages import Gathered, ShownVotes, Signed, Step
from masquerade.protocols.frequency.roles import Round, User, opened_booth, setting_of, shown_cheat
from masquerade.protocols.people.ledger import FileLedger, MemoryLedger
from masquerade.protocols.people.questions import Question
from masquerade.simulation import people_from
from masquerade.simulation.frequency import Population
from masquerade.sources.frequency import FrequencyTally

G = secp256k1.generator
P = 2**256 - 2**32 - 977


def payload(reply: bytes) -> bytes:
    return Signed.decode(reply).payload


# the same keys for two frequencies


def test_the_same_keys_twice_would_show_the_difference_of_two_bits():
    pair = BallotKeys.fresh(secp256k1)
    X, Y = (secp256k1.multiply_generator(secp256k1.random_secret()) for _ in range(2))
    (m1, _), (m0, _) = mask(1, pair, X, Y), mask(0, pair, X, Y)
    assert m1 - m0 == G  # this is what a second use gives away


def test_keys_come_out_once_and_are_burnt_first():
    village = Village(4)
    current = village.until(village.round(), "votes")
    user = village.users["u0"]
    vote = user.receive(current.message)
    assert Signed.decode(vote).step == Step.VOTE
    assert user.receive(current.message) == vote  # the very same bytes, not a new vote
    with pytest.raises(KeySpent):
        user._round.keys.take()
    user._last = None  # as if the answer had not been kept
    assert refusal(user.receive(current.message)).code == "already_spent"


def test_no_vote_leaves_if_the_ledger_cannot_be_written():
    class Full(MemoryLedger):
        full = False

        def claim(self, entries):
            if self.full:
                raise FileError("the disk is full")
            super().claim(entries)

    ledgers = {f"u{i}": Full() for i in range(4)}
    village = Village(4, ledgers=ledgers)
    current = village.until(village.round(), "votes")
    ledgers["u1"].full = True
    assert refusal(village.users["u1"].receive(current.message)).reason == "the disk is full"
    ledgers["u1"].full = False
    assert refusal(village.users["u1"].receive(current.message)).code == "already_spent"  # gone all the same


def test_every_count_has_keys_of_its_own():
    village = Village(4)
    current = village.round([BY_REGION])
    keys, _ = read_keys(payload(village.users["u0"].receive(current.message)), 3)
    assert len({*keys.X, *keys.Y}) == 6


# rogue keys


def rogue(village, current, posts, cheat):
    """Return keys of the cheat that cancel everybody else's, with the best proof a cheat can make."""
    others = [read_keys(payload(post), 1)[0] for name, post in posts.items() if name != cheat]
    total = sum_of_keys(others)
    pair = BallotKeys.fresh(secp256k1)
    own = public_keys([pair])
    keys = PublicKeys((own.X[0] - total.X[0],), (own.Y[0] - total.Y[0],))
    setting = setting_of(village.terms, current.invitation.number, current.message)
    _, honest = make_keys(1, setting, cheat)
    return pair, b"".join(point.encode() for point in (*keys.X, *keys.Y)) + honest[2 * POINT :]


def test_a_rogue_key_would_expose_everyone_and_is_refused_by_miner_and_users():
    village = Village(4)
    current = village.round()
    posts = {name: user.receive(current.message) for name, user in village.users.items()}
    pair, forged = rogue(village, current, posts, "u3")

    victim = BallotKeys.fresh(secp256k1)
    m, _ = mask(1, victim, secp256k1.multiply_generator(pair.x), G)
    seen = secp256k1.multiply(secp256k1.multiply_generator(victim.y), pair.x)
    assert m - seen == G  # with such a key the sum X = x·G is the cheat's own, and every bit lies open

    posts["u3"] = village.signed("u3", Step.KEYS, 1, forged)
    for post in posts.values():
        current.receive(post)
    with pytest.raises(RoundAborted, match="u3") as caught:
        current.advance()
    assert (caught.value.spent, caught.value.culprits) == (False, ("u3",))
    roster = Gathered(Step.KEYS, 1, tuple(posts.values())).encode()  # a miner in league with u3 goes on
    for name in ("u0", "u1", "u2"):
        said = refusal(village.users[name].receive(roster))
        assert (said.code, said.culprits) == ("aborted", ("u3",))


def test_keys_of_another_user_round_or_place_are_refused():
    village = Village(4)
    current = village.round()
    posts = {name: user.receive(current.message) for name, user in village.users.items()}
    stolen = payload(posts["u0"])
    swapped = payload(posts["u3"])
    swapped = swapped[POINT : 2 * POINT] + swapped[:POINT] + swapped[2 * POINT :]
    other, _ = make_keys(1, setting_of(village.terms, 2, village.round(number=2).message), "u3")
    keys = public_keys(other)
    stale = prove(
        possession_of(keys),
        [Knows((pair.x,)) for pair in other] + [Knows((pair.y,)) for pair in other],
        setting_of(village.terms, 2, village.round(number=2).message).transcript("u3", "keys"),
    )
    late = b"".join(point.encode() for point in (*keys.X, *keys.Y)) + stale
    for bad in (stolen, swapped, late):
        attempt = {**posts, "u3": village.signed("u3", Step.KEYS, 1, bad)}
        roster = Gathered(Step.KEYS, 1, tuple(attempt.values())).encode()
        assert refusal(village.users["u0"].receive(roster)).culprits == ("u3",)


# different rosters


def test_users_who_were_shown_different_rosters_do_not_vote():
    village = Village(5, alone=True)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    _, twin = make_keys(1, setting_of(village.terms, 1, current.message), "u4")
    rosters = [
        Gathered(Step.KEYS, 1, tuple(posts)).encode(),
        Gathered(Step.KEYS, 1, (*posts[:4], village.signed("u4", Step.KEYS, 1, twin))).encode(),
    ]
    shown = dict(zip(village.names[:4], (0, 0, 1, 1), strict=True))
    endorsed = {name: village.users[name].receive(rosters[shown[name]]) for name in shown}
    for side in (0, 1):
        chosen = next(name for name, place in shown.items() if place == side)
        fake = village.signed("u4", Step.ENDORSEMENT, 1, payload(endorsed[chosen]))
        message = Gathered(Step.ENDORSEMENT, 1, (*endorsed.values(), fake)).encode()
        said = refusal(village.users[chosen].receive(message))
        assert "another roster" in said.reason
        assert said.culprits == ("miner",)


def test_nobody_signs_two_rosters_in_a_round():
    village = Village(4, alone=True)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    user = village.users["u0"]
    assert Signed.decode(user.receive(Gathered(Step.KEYS, 1, tuple(posts)).encode())).step == Step.ENDORSEMENT
    _, twin = make_keys(1, setting_of(village.terms, 1, current.message), "u3")
    other = Gathered(Step.KEYS, 1, (*posts[:3], village.signed("u3", Step.KEYS, 1, twin))).encode()
    assert refusal(user.receive(other)).code == "already_spent"
    assert refusal(user.receive(current.message)).code == "already_spent"


def test_a_roster_with_changed_missing_or_unsigned_keys_is_refused():
    village = Village(4)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    _, fresh = make_keys(1, setting_of(village.terms, 1, current.message), "u1")
    # the miner cannot sign for u1; if it could, u1 would notice
    mine = village.signed("u1", Step.KEYS, 1, fresh)
    forged = Signed("u1", Step.KEYS, 1, fresh, bytes(64)).encode()
    cases = {
        "other keys for me": (posts[0], mine, *posts[2:]),
        "did not sign": (posts[0], forged, *posts[2:]),
        "were invited": tuple(posts[:3]),
        "once each": (posts[0], posts[1], posts[1], posts[3]),
    }
    for words, parts in cases.items():
        said = refusal(village.users["u1"].receive(Gathered(Step.KEYS, 1, parts).encode()))
        assert words in said.reason
        assert said.culprits == ("miner",)


def test_an_endorsement_cannot_be_left_out_or_forged():
    village = Village(4)
    current = village.until(village.round(), "endorsements")
    endorsed = [user.receive(current.message) for user in village.users.values()]
    forged = Signed("u3", Step.ENDORSEMENT, 1, payload(endorsed[0]), bytes(64)).encode()
    for parts in (endorsed[:3], [*endorsed[:3], forged], [*endorsed[:3], endorsed[2]]):
        said = refusal(village.users["u0"].receive(Gathered(Step.ENDORSEMENT, 1, tuple(parts)).encode()))
        assert said.culprits == ("miner",)


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
        resigned = village.signed(cheat, Step.VOTE, 2, payload(taken))
        attempt = {**fresh, cheat: resigned}
        votes = [(name, payload(reply)) for name, reply in attempt.items()]
        assert second._booth.invalid(votes, workers=1) == [cheat]
    moved = Signed.decode(old["u0"])
    renumbered = Signed(moved.user, Step.VOTE, 2, moved.payload, moved.signature)
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
            reply if name != "u2" else village.signed("u2", Step.VOTE, 1, vote[:-1] + bytes([vote[-1] ^ 1]))
        )

    with pytest.raises(RoundAborted) as stopped:
        village.step(current, spoilt)
    assert stopped.value.culprits == ("u2",)
    assert list(current.evidence) == ["u2"]

    def shown(vote):
        return shown_cheat(village.terms, opening, roster, vote)

    assert shown(current.evidence["u2"]) == "u2"
    cheat = Signed.decode(current.evidence["u2"])
    forged = Signed("u1", Step.VOTE, 1, cheat.payload, cheat.signature).encode()
    other = village.signed("u2", Step.VOTE, 2, cheat.payload)
    for lie in (honest["u1"], honest["u2"], forged, other, b"nothing"):
        with pytest.raises(RoundAborted) as said:
            shown(lie)
        assert said.value.culprits == ("miner",)


def spoiling(village, cheat, number=1):
    """Return a change of replies: one user signs a vote that is not valid."""

    def change(name, reply):
        vote = payload(reply)
        wrong = vote[:-1] + bytes([vote[-1] ^ 1])
        return reply if name != cheat else village.signed(cheat, Step.VOTE, number, wrong)

    return change


def test_users_see_for_themselves_that_somebody_cheated_and_are_counted_without():
    """A round without one user is refused, unless that user is shown to have cheated."""
    village = Village(5)
    current, others = village.until(village.round(), "votes"), ["u0", "u1", "u3", "u4"]
    with pytest.raises(RoundAborted):
        village.step(current, spoiling(village, "u2"))
    again = village.round(number=2, users=others)
    said = refusal(village.users["u0"].receive(again.message))
    assert "has left already" in said.reason  # a miner's word alone lets nobody be counted twice
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
    assert "u2 that is shown as a cheat is valid" in said.reason
    for again in (village, Village(5, ledgers=ledgers, identities=village.identities)):  # and after a restart
        same = again.round([BY_REGION], number=3)
        said = refusal(again.users["u1"].receive(same.message))
        assert "shown a cheat that was none" in said.reason
        with pytest.raises(QueryRefused):
            same.receive(again.users["u1"].receive(same.message))


def test_old_invitations_and_those_of_other_epochs_are_refused():
    village, other = Village(4), Village(4, epoch="autumn")
    opening = village.round().message
    village.until(village.round(), "done")
    assert refusal(village.users["u0"].receive(opening)).code == "already_spent"
    assert "other terms" in refusal(other.users["u0"].receive(opening)).reason


def test_two_different_votes_of_one_user_are_noticed():
    village = Village(4)
    current = village.until(village.round(), "votes")
    current.receive(village.users["u0"].receive(current.message))
    with pytest.raises(RoundAborted, match="two different votes") as caught:
        current.receive(village.signed("u0", Step.VOTE, 1, b"another"))
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
    people = Population(people_from(data, policy(), seed=None), minimum=3)
    tally = people.tally()

    def losing(user, message):
        reply = people.exchange(user, message)
        return None if user == "user 2" and Signed.decode(reply).step == Step.VOTE else reply

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
    again = User(
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
    drawn_again = User(
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
    people = Population(people_from(data, policy(), seed=None), minimum=3)
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
    many = Population(people_from(frame(9), policy(), seed=None), minimum=3)
    many.tally().answer([mq.Query(by="smoker")])
    left = FrequencyTally(many.terms, many.exchange, list(many.users)[3:])
    assert left.answer([mq.Query(by="ill")])[0].n == 6
    hidden = Population(people_from(frame(6), policy("smoker", "region"), seed=None), minimum=3)
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
    people = Population(people_from(frame(6), policy(), seed=None), minimum=3)
    few = FrequencyTally(people.terms, people.exchange, list(people.users)[:5])
    few.answer([mq.Query(by="smoker")])
    more = FrequencyTally(people.terms, people.exchange, list(people.users))
    with pytest.raises(QueryRefused, match="only to users of the earlier ones"):
        more.answer([mq.Query(by="ill")])


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
            current, lambda name, reply: village.signed("u2", Step.VOTE, 1, bad) if name == "u2" else reply
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
    kind, said = Step.KEYS if phase == "keys" else Step.VOTE, payload(replies["u1"])
    for at in range(0, len(said) // POINT * POINT, POINT)[:4]:
        spoilt = said[:at] + bad + said[at + POINT :]
        if phase == "votes":
            assert current._booth.invalid([("u1", spoilt)]) == ["u1"]
            continue
        attempt = {**replies, "u1": village.signed("u1", kind, 1, spoilt)}
        with pytest.raises(RoundAborted) as caught:
            opened_booth(
                village.terms, current.message, Gathered(Step.KEYS, 1, tuple(attempt.values())).encode()
            )
        assert caught.value.culprits == ("u1",)


@pytest.mark.parametrize("phase", ["keys", "votes"])
def test_truncated_and_lengthened_messages_are_refused(phase):
    village = Village(4)
    current = village.until(village.round(), phase)
    kind = Step.KEYS if phase == "keys" else Step.VOTE
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
        current.receive(village.signed("u4", Step.KEYS, 1, b""))
    assert refusal(village.users["u4"].receive(current.message)).code == "not_survivors"
    with pytest.raises(InputError, match="not enrolled"):
        User("u0", stranger.identities["u0"], {}, village.terms)


def test_an_objection_stops_the_round_and_says_who_objects():
    village = Village(4)
    current = village.until(village.round(), "endorsements")
    said = village.users["u1"].receive(b"noise")
    with pytest.raises(RoundAborted, match="u1 stopped") as caught:
        current.receive(said)
    assert (caught.value.spent, caught.value.culprits) == (False, ("u1",))


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
    current = Round(village.terms, 1, village.names, (Question(("smoker", "region")), BY_REGION))
    village.until(current, "votes")
    assert shared == [2, 1]  # the miner's check of the roster; the users', who share theirs, on one core

    def spoil(name, reply):
        if name != "u4":
            return reply
        vote = Signed.decode(reply)
        return village.signed(name, Step.VOTE, 1, vote.payload[:-1] + bytes([vote.payload[-1] ^ 1]))

    with pytest.raises(RoundAborted, match="u4") as aborted:
        village.step(current, spoil)
    assert aborted.value.culprits == ("u4",)
    assert shared == [2, 1, 2]
