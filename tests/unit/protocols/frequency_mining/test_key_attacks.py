"""Keys that are used twice, rogue, or other than what others were shown: each is refused."""

from __future__ import annotations

import pytest
from tests.unit.protocols.frequency_mining.people import BY_REGION, Village, payload, refusal

from masquerade.core.errors import FileError, RoundAborted
from masquerade.crypto.errors import KeySpent
from masquerade.crypto.proofs import BallotKeys, Knows, mask, prove
from masquerade.crypto.secp256k1 import secp256k1
from masquerade.protocols.frequency_mining.ballots import (
    POINT,
    PublicKeys,
    make_keys,
    possession_of,
    public_keys,
    read_keys,
    sum_of_keys,
)
from masquerade.protocols.frequency_mining.messages import Gathered, MiningStep, SignedMiningMessage
from masquerade.protocols.frequency_mining.roles import setting_of
from masquerade.protocols.people.ledger import MemoryLedger

G = secp256k1.generator


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
    assert SignedMiningMessage.decode(vote).step == MiningStep.VOTE
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

    posts["u3"] = village.signed("u3", MiningStep.KEYS, 1, forged)
    for post in posts.values():
        current.receive(post)
    with pytest.raises(RoundAborted, match="u3") as caught:
        current.advance()
    assert (caught.value.spent, caught.value.culprits) == (False, ("u3",))
    roster = Gathered(MiningStep.KEYS, 1, tuple(posts.values())).encode()  # a miner in league with u3 goes on
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
        attempt = {**posts, "u3": village.signed("u3", MiningStep.KEYS, 1, bad)}
        roster = Gathered(MiningStep.KEYS, 1, tuple(attempt.values())).encode()
        assert refusal(village.users["u0"].receive(roster)).culprits == ("u3",)


# different rosters


def test_users_who_were_shown_different_rosters_do_not_vote():
    village = Village(5, alone=True)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    _, twin = make_keys(1, setting_of(village.terms, 1, current.message), "u4")
    rosters = [
        Gathered(MiningStep.KEYS, 1, tuple(posts)).encode(),
        Gathered(MiningStep.KEYS, 1, (*posts[:4], village.signed("u4", MiningStep.KEYS, 1, twin))).encode(),
    ]
    shown = dict(zip(village.names[:4], (0, 0, 1, 1), strict=True))
    endorsed = {name: village.users[name].receive(rosters[shown[name]]) for name in shown}
    for side in (0, 1):
        chosen = next(name for name, place in shown.items() if place == side)
        fake = village.signed("u4", MiningStep.ENDORSEMENT, 1, payload(endorsed[chosen]))
        message = Gathered(MiningStep.ENDORSEMENT, 1, (*endorsed.values(), fake)).encode()
        said = refusal(village.users[chosen].receive(message))
        assert "different roster" in said.reason
        assert said.culprits == ("miner",)


def test_nobody_signs_two_rosters_in_a_round():
    village = Village(4, alone=True)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    user = village.users["u0"]
    assert (
        SignedMiningMessage.decode(user.receive(Gathered(MiningStep.KEYS, 1, tuple(posts)).encode())).step
        == MiningStep.ENDORSEMENT
    )
    _, twin = make_keys(1, setting_of(village.terms, 1, current.message), "u3")
    other = Gathered(
        MiningStep.KEYS, 1, (*posts[:3], village.signed("u3", MiningStep.KEYS, 1, twin))
    ).encode()
    assert refusal(user.receive(other)).code == "already_spent"
    assert refusal(user.receive(current.message)).code == "already_spent"


def test_a_roster_with_changed_missing_or_unsigned_keys_is_refused():
    village = Village(4)
    current = village.round()
    posts = [user.receive(current.message) for user in village.users.values()]
    _, fresh = make_keys(1, setting_of(village.terms, 1, current.message), "u1")
    # the miner cannot sign for u1; if it could, u1 would notice
    mine = village.signed("u1", MiningStep.KEYS, 1, fresh)
    forged = SignedMiningMessage("u1", MiningStep.KEYS, 1, fresh, bytes(64)).encode()
    cases = {
        "keys for this user are not": (posts[0], mine, *posts[2:]),
        "did not sign": (posts[0], forged, *posts[2:]),
        "does not list the invited users": tuple(posts[:3]),
        "once each": (posts[0], posts[1], posts[1], posts[3]),
    }
    for words, parts in cases.items():
        said = refusal(village.users["u1"].receive(Gathered(MiningStep.KEYS, 1, parts).encode()))
        assert words in said.reason
        assert said.culprits == ("miner",)


def test_an_endorsement_cannot_be_left_out_or_forged():
    village = Village(4)
    current = village.until(village.round(), "endorsements")
    endorsed = [user.receive(current.message) for user in village.users.values()]
    forged = SignedMiningMessage("u3", MiningStep.ENDORSEMENT, 1, payload(endorsed[0]), bytes(64)).encode()
    for parts in (endorsed[:3], [*endorsed[:3], forged], [*endorsed[:3], endorsed[2]]):
        said = refusal(
            village.users["u0"].receive(Gathered(MiningStep.ENDORSEMENT, 1, tuple(parts)).encode())
        )
        assert said.culprits == ("miner",)
