"""Linking finds the common records and shows no others; whatever could show them is refused."""

import hashlib
import hmac
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.util import scratch
from masquerade.core.util.scratch import Scratch
from masquerade.crypto.errors import DecodingError, KeySpent
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.protocols.linkage.psi import (
    Joiner,
    LinkingOffer,
    LinkingParty,
    MaskedPoints,
    PseudonymRequest,
    Pseudonyms,
    ReturnedPoints,
)
from masquerade.protocols.linkage.record_keys import LONGEST_KEY, normal_form
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport

KEYS = {
    "clinic": [f"Patient {i}" for i in range(40)],
    "registry": [f"  PATIENT   {i}" for i in range(39, 9, -1)],
    "school": [f"patient {i}" for i in range(0, 60, 3)],
}
COMMON = {f"patient {i}" for i in range(12, 40, 3)}


def linked(keys, **options):
    """Return parties after linking, the joiner, what it carried, and how many records are common."""
    parties = {name: LinkingParty(name, listed) for name, listed in keys.items()}
    seen = []

    class Carrier(LocalTransport):
        def exchange(self, party, message):
            reply = super().exchange(party, message)
            seen.append((party, message, reply))
            return reply

    joiner = Joiner(tuple(keys), Carrier({n: p.receive for n, p in parties.items()}), **options)
    return parties, joiner, seen, joiner.link()


def in_order(name, party):
    return [" ".join(KEYS[name][row].split()).casefold() for row in party.rows]


@pytest.mark.parametrize(
    "names", [("clinic", "registry"), ("clinic", "registry", "school")], ids=["two", "three"]
)
def test_parties_agree_on_the_common_records_and_their_order(names):
    parties, joiner, _, count = linked({name: KEYS[name] for name in names})
    orders = {name: in_order(name, party) for name, party in parties.items()}
    expected = COMMON if len(names) == 3 else {f"patient {i}" for i in range(10, 40)}
    assert count == len(expected)
    first = next(iter(orders.values()))
    assert set(first) == expected
    assert all(order == first for order in orders.values())
    assert len({tuple(party.common) for party in parties.values()}) == 1
    assert joiner.sizes == {name: len(KEYS[name]) for name in names}


def test_pseudonyms_are_equal_for_equal_keys_and_new_in_every_session():
    keys = {"a": ["ann", "bob"], "b": ["BOB ", "eve"], "c": ["bob"]}
    first, *_ = linked(keys)
    second, *_ = linked(keys)
    assert first["a"].pseudonyms[1] == first["b"].pseudonyms[0] == first["c"].pseudonyms[0]
    assert len({*first["a"].pseudonyms, *first["b"].pseudonyms}) == 3
    assert not set(first["a"].pseudonyms) & set(second["a"].pseudonyms)


def test_no_party_sees_another_fully_masked_set():
    """With three parties, what passes through a party never equals anything that it could compare."""
    parties, _, seen, _ = linked(KEYS)
    full = {name: set(party.pseudonyms) for name, party in parties.items()}
    points = {}
    for party, message, reply in seen:
        for data in (message, reply):
            if tag_of(data) in {MaskedPoints.TAG, ReturnedPoints.TAG}:
                kind = MaskedPoints if tag_of(data) == MaskedPoints.TAG else ReturnedPoints
                blob = kind.decode(data).points
                points.setdefault(party, set()).update(blob[i : i + 32] for i in range(0, len(blob), 32))
    session = MaskedPoints.decode(seen[0][2]).session
    for party, found in points.items():
        named = {hmac.digest(session, b"masquerade pseudonym" + p, hashlib.sha256)[:16] for p in found}
        assert not any(named & others for others in full.values()), party


def test_sets_are_shuffled_before_they_leave():
    """Forty keys in order: sent in that order with probability 1/40!."""
    party = LinkingParty("a", KEYS["clinic"])
    reply = MaskedPoints.decode(party.receive(LinkingOffer(bytes(16), ("a", "b"), 100).encode()))
    sent = [reply.points[i : i + 32] for i in range(0, len(reply.points), 32)]
    own = [
        ristretto255.multiply(
            ristretto255.hash_to_group(normal_form(key), b"masquerade linking 1 " + bytes(16)), party._blind
        ).encode()
        for key in KEYS["clinic"]
    ]
    assert sorted(sent) == sorted(own)
    assert sent != own


def test_long_replies_lie_in_files_and_are_said_again(tmp_path, monkeypatch):
    monkeypatch.setattr(scratch, "IN_MEMORY", 100)
    parties = {
        name: LinkingParty(name, KEYS[name], scratch=Scratch(tmp_path)) for name in ("clinic", "registry")
    }
    seen = []

    class Carrier(LocalTransport):
        def exchange(self, party, message):
            seen.append((party, message, super().exchange(party, message)))
            mapped = Path("/proc/self/maps").read_text(encoding="utf-8")
            long_ones = [reply for _, _, reply in seen if len(reply) > 100]
            assert mapped.count(str(tmp_path)) == len(long_ones)
            return seen[-1][2]

    assert Joiner(tuple(parties), Carrier({n: p.receive for n, p in parties.items()})).link() == 30
    assert not list(tmp_path.iterdir())
    assert len([reply for _, _, reply in seen if len(reply) > 100]) == 6
    for party, message, reply in seen:
        assert parties[party].receive(message) == reply
    for party in parties.values():
        party.forget()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text(encoding="utf-8")


def test_who_learns_what():
    guarantee = linked(KEYS)[1].guarantee()
    who = {item.role: item for item in guarantee.disclosures}
    assert who["miner"].gamma == 1
    assert "overlaps" in who["miner"].kind
    assert who["school"].gamma is None
    assert ("miner", "school") in guarantee.excluded_coalitions
    pair = linked({name: KEYS[name] for name in ("clinic", "registry")}, name="clinic")[1].guarantee()
    assert pair.excluded_coalitions == ()
    with pytest.raises(InputError, match="overlap with each of the others"):
        Joiner(tuple(KEYS), LocalTransport({}), name="clinic")


def test_duplicates_are_refused_by_number_alone():
    with pytest.raises(InputError, match="1 records share their key with another") as caught:
        LinkingParty("a", ["Jo", "x", " jO "])
    assert "Jo" not in str(caught.value)


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("Ångström", "Ångström", True),
        ("STRASSE", "straße", True),
        (" a\t b ", "A B", True),
        ("007", "7", False),
        (7, "7", True),
        (("a", "b"), "a b", False),
        (("ab", "c"), ("a", "bc"), False),
        ("resume", "résumé", False),
    ],
)
def test_the_normal_form_of_keys(first, second, equal):
    assert (normal_form(first) == normal_form(second)) is equal


@pytest.mark.parametrize("key", ["", "  ", 1.5, None, True, (), ("a", ""), "x" * (LONGEST_KEY + 1), "\ud800"])
def test_what_is_no_key(key):
    with pytest.raises(InputError, match="key"):
        normal_form(key)


@given(st.text(max_size=40))
def test_a_normal_form_is_stable(text):
    try:
        form = normal_form(text)
    except InputError:
        return
    assert normal_form(form[2:].decode()) == form


def begun(most=100, roster=("a", "b", "c")):
    party = LinkingParty("a", ["x", "y", "z"])
    reply = party.receive(LinkingOffer(bytes(16), roster, most).encode())
    return party, MaskedPoints.decode(reply).points


def other_points(count):
    return b"".join(ristretto255.hash_to_group(bytes([i]), b"test").encode() for i in range(count))


def test_sizes_are_capped_on_both_sides():
    with pytest.raises(InputError, match="At most 2 keys"):
        LinkingParty("a", ["x", "y", "z"], most=2)
    with pytest.raises(InputError, match="at most 2 keys per party"):
        begun(most=2)
    party, _ = begun(most=3)
    with pytest.raises(DecodingError, match="at most 3 points"):
        party.receive(MaskedPoints(bytes(16), "b", other_points(4)).encode())
    with pytest.raises(InputError, match="at most 1,000,000 keys"):
        begun(most=1_000_001)


def test_malformed_sets_are_refused():
    party, own = begun()
    two = other_points(2)
    for data, words in (
        (two[:-1], "points of 32 bytes"),
        (two[:32] * 2, "twice"),
        (bytes(32), "not the identity"),
        (b"\xff" * 32, "canonical"),
    ):
        with pytest.raises(DecodingError, match=words):
            party.receive(MaskedPoints(bytes(16), "b", data).encode())
    for message, words in (
        (MaskedPoints(bytes(16), "a", two), "another party of the session"),
        (MaskedPoints(bytes(16), "stranger", two), "another party of the session"),
        (MaskedPoints(b"?" * 16, "b", two), "another session"),
        (ReturnedPoints(bytes(16), two), "3 points. Got 2"),
        (PseudonymRequest(bytes(16)), "no pseudonyms yet"),
    ):
        with pytest.raises(InputError, match=words):
            party.receive(message.encode())
    party.receive(ReturnedPoints(bytes(16), own).encode())
    for values, words in (
        (bytes(16), "does not belong to this party"),
        (bytes(15), "incomplete"),
        (bytes(32), "none twice"),
    ):
        with pytest.raises(InputError, match=words):
            party.receive(Pseudonyms(bytes(16), values).encode())


def test_every_step_is_done_once():
    """A second set of one party under the same mask would let it test guesses without end."""
    party, _ = begun()
    message = MaskedPoints(bytes(16), "b", other_points(2)).encode()
    assert party.receive(message) == party.receive(message)
    with pytest.raises(KeySpent, match="done already"):
        party.receive(MaskedPoints(bytes(16), "b", other_points(3)).encode())
    with pytest.raises(KeySpent, match="done already"):
        party.receive(LinkingOffer(b"?" * 16, ("a", "b"), 100).encode())


def test_rosters_that_are_none():
    party = LinkingParty("a", ["x"])
    for roster in (("a",), ("a", "a"), ("b", "c")):
        with pytest.raises(InputError, match="two or more parties"):
            party.receive(LinkingOffer(bytes(16), roster, 10).encode())
    with pytest.raises(InputError, match="No session"):
        party.receive(PseudonymRequest(bytes(16)).encode())


def test_forgotten_pseudonyms_are_gone():
    parties, *_ = linked(KEYS)
    party = parties["school"]
    party.forget()
    for what in ("pseudonyms", "common", "rows"):
        with pytest.raises(InputError, match="destroyed"):
            getattr(party, what)


def test_a_party_that_changes_the_set_aborts_and_is_named():
    parties = {name: LinkingParty(name, keys) for name, keys in KEYS.items()}

    class Dropping(LocalTransport):
        def exchange(self, party, message):
            reply = super().exchange(party, message)
            if party == "school" and tag_of(message) == MaskedPoints.TAG:
                points = MaskedPoints.decode(reply)
                return MaskedPoints(points.session, points.origin, points.points[:-32]).encode()
            return reply

    joiner = Joiner(tuple(KEYS), Dropping({n: p.receive for n, p in parties.items()}))
    with pytest.raises(RoundAborted, match="different set") as caught:
        joiner.link()
    assert caught.value.culprits == ("school",)


@settings(max_examples=10, deadline=None)
@given(sets=st.lists(st.sets(st.integers(0, 12), max_size=8), min_size=2, max_size=4))
def test_any_sets_are_intersected(sets):
    keys = {f"party {i}": [str(k) for k in sorted(found)] for i, found in enumerate(sets)}
    parties, _, _, count = linked(keys)
    common = set.intersection(*sets)
    assert count == len(common)
    for name, party in parties.items():
        assert {int(keys[name][row]) for row in party.rows} == common
