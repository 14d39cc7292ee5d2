"""Linking with identities: a joiner that inserts, swaps, leaves out or replays is refused and named."""

import hmac
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from masquerade.core.errors import InputError, MasqueradeError, RoundAborted
from masquerade.crypto.batch_mac import Texts
from masquerade.crypto.errors import DecodingError
from masquerade.crypto.keys import SigningKey
from masquerade.crypto.point_sets import hash_to_points
from masquerade.protocols.linkage.psi import (
    DOMAIN,
    JOINER,
    Chain,
    Confirmation,
    Joiner,
    LinkageStep,
    LinkingOffer,
    LinkingParty,
    MaskedPoints,
    PseudonymRequest,
    Pseudonyms,
    Receipt,
    ReturnedPoints,
)
from masquerade.protocols.linkage.record_keys import normal_form
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import LocalTransport

NAMES = ("north", "registry", "south")
KEYS = {
    "north": [f"P{i}" for i in range(8)],
    "registry": [f"P{i}" for i in range(1, 9)],
    "south": [f"P{i}" for i in range(2, 9)],
}
IDENTITIES = {name: SigningKey() for name in NAMES}
PUBLIC = {name: identity.public for name, identity in IDENTITIES.items()}
SESSION, MOST = bytes(range(16)), 100


def signing(names=NAMES, **options):
    """Return parties with identities, who link with one another only."""
    return {
        name: LinkingParty(name, KEYS[name], roster=names, identity=IDENTITIES[name], peers=PUBLIC, **options)
        for name in names
    }


def carried(parties, change=None):
    """Return a transport that passes replies on as `change(party, message, reply)` says."""

    class Carrier(LocalTransport):
        def exchange(self, party, message):
            reply = super().exchange(party, message)
            return reply if change is None else change(party, message, reply)

    return Carrier({name: party.receive for name, party in parties.items()})


class Alone:
    """A joiner that drives parties by hand."""

    def __init__(self, names=NAMES, session=SESSION, parties=None):
        self.names, self.session = names, session
        self.parties = signing(names) if parties is None else parties
        self.sets = {name: self.say(name, LinkingOffer(session, names, MOST), MaskedPoints) for name in names}

    def say(self, party, message, kind):
        return kind.decode(self.parties[party].receive(message.encode()))

    def mask(self, party, points):
        return self.say(party, points, MaskedPoints)

    def around(self, origin, names=None):
        points = self.sets[origin]
        for name in self.names if names is None else names:
            if name != origin:
                points = self.mask(name, points)
        return points

    def finish(self, origin, points):
        return self.say(origin, ReturnedPoints(self.session, points.points, points.steps), Receipt)

    def words(self):
        return [self.finish(name, self.around(name)) for name in self.names]

    def confirm(self, words):
        message = Confirmation(self.session, tuple(done.encode() for done in words))
        return [self.say(name, message, Receipt) for name in self.names]


def guesses(count=20, session=SESSION):
    forms = Texts.of(normal_form(f"P{i}") for i in range(count))
    return hash_to_points(forms, DOMAIN + session).tobytes()


def refused(words, culprit, act):
    with pytest.raises(RoundAborted, match=words) as caught:
        act()
    assert caught.value.culprits == (culprit,)
    assert caught.value.spent


@pytest.mark.parametrize("names", [NAMES[:2], NAMES], ids=["two", "three"])
@pytest.mark.parametrize("peers", [None, PUBLIC], ids=["joiner passes on", "joiner checks"])
def test_honest_parties_find_what_they_find_without_signatures(names, peers):
    parties = signing(names)
    joiner = Joiner(names, carried(parties), session=SESSION, peers=peers)
    common = set.intersection(*(set(KEYS[name]) for name in names))
    assert joiner.link() == len(common)
    assert joiner.sizes == {name: len(KEYS[name]) for name in names}
    for name, party in parties.items():
        assert {KEYS[name][row] for row in party.rows} == common
    assert Joiner(names, carried(parties), session=SESSION, peers=peers).link() == len(common)  # resumed


def test_a_joiner_that_rides_guesses_along_is_refused_before_anything_is_masked():
    """Guesses under all masks would name every pseudonym: here not even the first mask is put on."""
    alone = Alone()
    for party, origin in (("north", "south"), ("registry", "south"), ("south", "north")):
        points = alone.sets[origin]
        ridden = replace(points, points=points.points + guesses())
        refused(f"of '{origin}' differs from the set", JOINER, lambda p=party, r=ridden: alone.mask(p, r))
        refused(
            "came without its signed steps",
            JOINER,
            lambda p=party, r=ridden: alone.mask(p, replace(r, steps=())),
        )
    for name, party in alone.parties.items():
        with pytest.raises(InputError, match="no pseudonyms yet"):
            alone.say(name, PseudonymRequest(SESSION), Pseudonyms)
        with pytest.raises(InputError, match="no pseudonyms yet"):
            _ = party.pseudonyms


def test_without_identities_the_same_ride_names_everybody():
    """What the signatures are for: a joiner must then be trusted, and the guarantee says so."""
    parties = {name: LinkingParty(name, KEYS[name]) for name in NAMES}
    alone = Alone(parties=parties)
    ride, todo = guesses(), list(NAMES)
    for party, origin in [(party, origin) for party in NAMES for origin in NAMES if party != origin]:
        points = alone.sets[origin]
        rides = party in todo
        reply = alone.mask(party, replace(points, points=points.points + (ride if rides else b"")))
        alone.sets[origin] = replace(points, points=reply.points[: len(points.points)])
        if rides:
            ride = reply.points[len(points.points) :]
            todo.remove(party)
    for name in NAMES:
        alone.finish(name, alone.sets[name])
    book = {
        hmac.digest(SESSION, b"masquerade pseudonym" + ride[at : at + 32], "sha256")[:16]
        for at in range(0, len(ride), 32)
    }
    assert set(parties["north"].pseudonyms) <= book
    guarantee = Joiner(NAMES, LocalTransport({})).guarantee()
    assert guarantee.adversaries["miner"] == "semi-honest"
    assert any("miner relays sets unchanged" in text for text in guarantee.assumptions)


@pytest.mark.parametrize("options", [{"roster": NAMES}, {"identity": IDENTITIES["north"], "peers": PUBLIC}])
def test_a_session_of_fewer_parties_than_agreed_shows_no_keys(options):
    """Told of a roster of two, a party blinds by its mask: guesses sent as the other's set would match."""
    party = LinkingParty("north", KEYS["north"], **options)
    offer = LinkingOffer(SESSION, NAMES[:2], MOST).encode()
    if "roster" in options:
        with pytest.raises(InputError, match="differ from the agreed parties"):
            party.receive(offer)
        for other in ((*NAMES, "stranger"), ("north", "registry", "stranger")):
            with pytest.raises(InputError, match="differ from the agreed parties"):
                party.receive(LinkingOffer(SESSION, other, MOST).encode())
        party.receive(LinkingOffer(SESSION, NAMES[::-1], MOST).encode())
    else:
        party.receive(offer)
        ride = MaskedPoints(SESSION, "registry", guesses())
        refused("without its signed steps", JOINER, lambda: party.receive(ride.encode()))
        elsewhere = Alone().sets["registry"]  # signed, but for the session of three
        refused("has not signed this step", JOINER, lambda: party.receive(elsewhere.encode()))


def test_sets_of_other_sessions_origins_or_caps_are_refused():
    alone = Alone()
    for other in (Alone(session=bytes(16)), Alone(names=NAMES[::-1])):
        replayed = replace(other.sets["south"], session=SESSION)
        refused("'south' has not signed", JOINER, lambda r=replayed: alone.mask("north", r))
    renamed = replace(alone.sets["south"], origin="registry")
    refused("came without its signed steps", JOINER, lambda: alone.mask("north", renamed))
    (step,) = alone.sets["south"].steps
    for field, value in (("party", "registry"), ("size", 6), ("came", b"?" * 32), ("went", b"?" * 32)):
        forged = replace(alone.sets["south"], steps=(replace(step, **{field: value}),))
        refused(
            "came without" if field == "party" else "has not signed",
            JOINER,
            lambda f=forged: alone.mask("north", f),
        )
    stranger = replace(step, party="stranger")
    for steps in ((step, stranger), (step, step), (stranger,)):
        forged = replace(alone.sets["south"], steps=steps)
        refused("came without its signed steps", JOINER, lambda f=forged: alone.mask("north", f))


def test_the_origin_takes_back_its_own_set_alone_with_every_mask_once():
    alone = Alone()
    whole = alone.around("south")
    one = replace(whole, points=alone.sets["south"].points, steps=whole.steps[:1])
    refused("without the mask of 'north', 'registry'", JOINER, lambda: alone.finish("south", one))
    swapped = replace(whole, points=whole.points[32:64] + whole.points[:32] + whole.points[64:])
    refused("differs from the set that 'registry' signed", JOINER, lambda: alone.finish("south", swapped))
    for steps in (
        whole.steps[::-1],
        (whole.steps[0], whole.steps[2], whole.steps[1]),
        (whole.steps[0], whole.steps[2]),
        whole.steps[1:],
        (),
    ):
        refused(
            "came without its signed steps|has not signed",
            JOINER,
            lambda s=steps: alone.finish("south", replace(whole, steps=s)),
        )
    refused("came without", JOINER, lambda: alone.finish("south", alone.around("north")))
    assert alone.finish("south", whole).records == len(KEYS["south"])


def test_masks_put_on_side_by_side_are_no_chain():
    """Both maskers were honest, so the joiner is named, not they."""
    alone = Alone()
    first, second = (alone.mask(name, alone.sets["south"]) for name in ("north", "registry"))
    mixed = replace(second, steps=(*first.steps, second.steps[1]))
    refused("'registry' has not signed this step", JOINER, lambda: alone.finish("south", mixed))
    refused("without the mask of 'north'", JOINER, lambda: alone.finish("south", second))


def test_a_set_is_not_masked_twice_by_one_party():
    alone = Alone()
    once = alone.mask("north", alone.sets["south"])
    with pytest.raises(MasqueradeError, match="done already"):
        alone.mask("north", once)
    fresh = signing()["north"]  # restarted, in the same session
    fresh.receive(LinkingOffer(SESSION, NAMES, MOST).encode())
    with pytest.raises(InputError, match="this party's mask already"):
        fresh.receive(once.encode())


def test_an_earlier_set_of_a_restarted_origin_is_not_taken_back():
    alone = Alone()
    whole = alone.around("south")
    restarted = Alone()
    refused("differs from the set that it sent", JOINER, lambda: restarted.finish("south", whole))


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        ({"given": b"other"}, "put its mask on a set other than that of 'south'"),
        ({"passed": 5}, "changed the size of the set of 'south'"),
    ],
)
def test_a_party_that_signs_something_else_is_named_by_its_signature(claim, words):
    chain = Chain(LinkingOffer(SESSION, NAMES, MOST), PUBLIC)

    def false_step(given):
        return chain.sign_step(
            IDENTITIES["north"],
            "north",
            replace(given, points=claim.get("given", given.points)),
            guesses(claim.get("passed", len(KEYS["south"]))),
        )

    alone = Alone()
    false = false_step(alone.sets["south"])
    refused(words, "north", lambda: alone.mask("registry", false))
    refused(words, "north", lambda: alone.finish("south", false))

    def change(party, message, reply):
        masks = party == "north" and tag_of(message) == MaskedPoints.TAG
        return false_step(MaskedPoints.decode(message)).encode() if masks else reply

    names = ("south", "north", "registry")
    chain = Chain(LinkingOffer(SESSION, names, MOST), PUBLIC)
    joiner = Joiner(names, carried(signing(), change), most=MOST, session=SESSION, peers=PUBLIC)
    refused("'north' returned a different set", "north", joiner.name_records)


def test_a_party_that_leaves_an_earlier_step_out_is_named_by_a_joiner_that_checks():
    chain, sets = Chain(LinkingOffer(SESSION, NAMES, MOST), PUBLIC), {}

    def change(party, message, reply):
        if tag_of(message) == LinkingOffer.TAG:
            sets[party] = MaskedPoints.decode(reply)
        elif party == "south" and tag_of(message) == MaskedPoints.TAG:
            skipping = sets["north"]  # not what registry passed on
            return chain.sign_step(IDENTITIES["south"], "south", skipping, guesses(8)).encode()
        return reply

    joiner = Joiner(NAMES, carried(signing(), change), most=MOST, session=SESSION, peers=PUBLIC)
    refused("'south' returned a different set", "south", joiner.name_records)


def test_a_word_is_given_under_one_name():
    chain = Chain(LinkingOffer(SESSION, NAMES, MOST), dict.fromkeys(NAMES, PUBLIC["north"]))
    word = chain.sign_receipt(IDENTITIES["north"], "north", 8)
    chain.check_done("north", word, 8)
    refused("'south' has not signed", JOINER, lambda: chain.check_done("south", word, 8))


def test_a_size_that_is_not_the_set_s_names_its_signer():
    alone = Alone()
    chain = Chain(LinkingOffer(SESSION, NAMES, MOST), PUBLIC)
    (step,) = alone.sets["south"].steps
    unsigned = replace(step, size=3)
    signature = IDENTITIES["south"].sign("step of linking", *chain._fields("south", (), unsigned))
    false = replace(alone.sets["south"], steps=(replace(unsigned, signature=signature),))
    refused("'south' signed a different size", "south", lambda: alone.mask("north", false))


@pytest.mark.parametrize("kind", [MaskedPoints, Receipt], ids=["a set", "a word"])
def test_a_joiner_that_checks_names_a_party_that_does_not_sign(kind):
    def change(party, _message, reply):
        if party == "registry" and tag_of(reply) == kind.TAG:
            found = kind.decode(reply)
            empty = {"steps": ()} if kind is MaskedPoints else {"signature": b""}
            return replace(found, **empty).encode()
        return reply

    joiner = Joiner(NAMES, carried(signing(), change), peers=PUBLIC)
    refused("'registry' (returned a different set|did not sign)", "registry", joiner.link)


def test_no_pseudonym_is_shown_before_all_have_signed():
    alone = Alone()
    words = alone.words()
    for name, party in alone.parties.items():
        with pytest.raises(InputError, match="Not every party has signed"):
            alone.say(name, PseudonymRequest(SESSION), Pseudonyms)
        with pytest.raises(InputError, match="Not every party has signed"):
            _ = party.pseudonyms
    replayed = replace(Alone(session=bytes(16)).words()[1], session=SESSION)
    for false in (
        replayed,
        replace(words[1], signature=b""),
        replace(words[1], signature=words[0].signature),
    ):
        tried = [words[0], false, words[2]]
        refused("'registry' has not signed that", JOINER, lambda t=tried: alone.confirm(t))
    refused("'north' has not signed that", JOINER, lambda: alone.confirm(words[::-1]))
    refused("has not signed that", JOINER, lambda: alone.confirm([replace(words[0], records=7), *words[1:]]))
    with pytest.raises(InputError, match="Every party of the session"):
        alone.confirm(words[:2])
    with pytest.raises(InputError, match="another session"):
        alone.confirm([replace(words[0], session=bytes(16)), *words[1:]])
    alone.confirm(words)
    for name, party in alone.parties.items():
        shown = alone.say(name, PseudonymRequest(SESSION), Pseudonyms).values
        assert shown == b"".join(sorted(party.pseudonyms))


def test_a_chain_broken_anywhere_keeps_everybody_s_pseudonyms_back():
    alone = Alone()
    words = [alone.finish(name, alone.around(name)) for name in ("north", "registry")]
    whole = alone.around("south")
    refused("differs from the set", JOINER, lambda: alone.finish("south", replace(whole, points=guesses(7))))
    refused("'south' has not signed", JOINER, lambda: alone.confirm([*words, replace(words[0], records=7)]))
    for name in ("north", "registry"):
        with pytest.raises(InputError, match="Not every party has signed"):
            alone.say(name, PseudonymRequest(SESSION), Pseudonyms)


def test_a_word_for_a_set_that_was_not_masked_here_or_had_another_size():
    alone, chain = Alone(), Chain(LinkingOffer(SESSION, NAMES, MOST), PUBLIC)
    words = [chain.sign_receipt(IDENTITIES[name], name, len(KEYS[name])) for name in NAMES]
    with pytest.raises(InputError, match="'north' has not been received by this party"):
        alone.say("south", Confirmation(SESSION, tuple(done.encode() for done in words)), Receipt)
    honest = alone.words()
    honest[2] = chain.sign_receipt(IDENTITIES["south"], "south", 6)
    refused("'south' signed a different size", "south", lambda: alone.confirm(honest))


def test_who_may_be_what():
    signed = Joiner(NAMES, LocalTransport({}), name="university", peers=PUBLIC).guarantee()
    assert signed.adversaries == {"university": "malicious", **dict.fromkeys(NAMES, "semi-honest")}
    assert any("may leave some out" in text for text in signed.assumptions)
    assert any("an inserted guess" in text for text in signed.assumptions)
    two = Joiner(NAMES[:2], LocalTransport({}), name="university").guarantee()
    assert set(two.excluded_coalitions) == {("university", "north"), ("university", "registry")}
    own = Joiner(NAMES[:2], LocalTransport({}), name="north", peers=PUBLIC).guarantee()
    assert own.excluded_coalitions == ()
    assert own.adversaries["north"] == "semi-honest"


def test_a_joiner_that_calls_too_few_common_is_refused():
    """One pseudonym called common would make every later count one about that person."""
    parties = signing(least=6)
    joiner = Joiner(NAMES, carried(parties), session=SESSION)
    joiner.name_records()
    found = sorted(set.intersection(*(set(party.pseudonyms) for party in parties.values())))
    for some in ([], found[:1], found[:5]):
        with pytest.raises(InputError, match=f"{len(some)} records are common"):
            parties["north"].receive(Pseudonyms(SESSION, b"".join(some)).encode())
    with pytest.raises(InputError, match="not known yet"):
        _ = parties["north"].common
    assert joiner.intersect() == 6
    strict = Joiner(NAMES, carried(signing(least=7)))
    with pytest.raises(RoundAborted, match="6 records are common: this party takes part with 7"):
        strict.link()


def test_what_a_party_cannot_be_made_with():
    for options, words in (
        ({"identity": IDENTITIES["north"]}, "both or neither"),
        ({"peers": PUBLIC}, "both or neither"),
        ({"roster": ("registry", "south")}, "including this one"),
        ({"roster": ("north",)}, "two or more parties"),
        ({"least": -1}, "'least' must be at least 0"),
    ):
        with pytest.raises(InputError, match=words):
            LinkingParty("north", ["x"], **options)
    party = LinkingParty("north", ["x"], identity=IDENTITIES["north"], peers={"south": PUBLIC["south"]})
    with pytest.raises(InputError, match="No identity is known for 'registry'"):
        party.receive(LinkingOffer(SESSION, NAMES, MOST).encode())
    party.receive(LinkingOffer(SESSION, ("north", "south"), MOST).encode())
    with pytest.raises(InputError, match="No identity is known for 'south'"):
        Joiner(("north", "south"), LocalTransport({}), peers={"north": PUBLIC["north"]})
    with pytest.raises(InputError, match="A session has 16 bytes"):
        Joiner(NAMES, LocalTransport({}), session=b"short")
    unsigned = LinkingParty("north", ["x"])
    unsigned.receive(LinkingOffer(SESSION, NAMES, MOST).encode())
    with pytest.raises(InputError, match="nothing to confirm"):
        unsigned.receive(Confirmation(SESSION, ()).encode())


@pytest.fixture(scope="module")
def transcript():
    """Return a party that waits for each kind of message, and the message that it waits for."""
    masking, finishing, confirming = Alone(), Alone(), Alone()
    whole = finishing.around("south")
    words = tuple(done.encode() for done in confirming.words())
    return [
        (masking.parties["north"], masking.sets["south"].encode()),
        (finishing.parties["south"], ReturnedPoints(SESSION, whole.points, whole.steps).encode()),
        (confirming.parties["north"], Confirmation(SESSION, words).encode()),
    ]


@settings(max_examples=300, deadline=None)
@given(
    which=st.integers(0, 2),
    at=st.floats(0, 1, exclude_max=True),
    flip=st.integers(1, 255),
    cut=st.integers(0, 200),
    junk=st.binary(max_size=80),
)
def test_a_message_with_any_byte_changed_is_refused(transcript, which, at, flip, cut, junk):
    party, message = transcript[which]
    damaged = bytearray(message)
    damaged[int(at * len(message))] ^= flip
    for data in (
        bytes(damaged),
        message[: len(message) - 1 - cut],
        message + junk + b"\0",
        message[:35] + junk,
    ):
        with pytest.raises(MasqueradeError):
            party.receive(data)


def test_after_all_that_damage_the_true_messages_are_taken(transcript):
    for party, message in transcript:
        assert party.receive(message)


STEP = LinkageStep("x", 2, bytes(32), b"d" * 32, b"s" * 64)
EXAMPLES = [
    MaskedPoints(SESSION, "x", bytes(64), (STEP, replace(STEP, party="ü"))),
    ReturnedPoints(SESSION, bytes(64), (STEP,)),
    Confirmation(SESSION, (Receipt(SESSION, 2, b"s" * 64).encode(), b"")),
    Receipt(SESSION, 2, b"s" * 64),
]


@settings(max_examples=200, deadline=None)
@given(
    which=st.integers(0, len(EXAMPLES) - 1),
    at=st.floats(0, 1, exclude_max=True),
    value=st.integers(0, 255),
    junk=st.binary(max_size=200),
)
def test_new_messages_have_one_spelling_and_one_error(which, at, value, junk):
    message = EXAMPLES[which]
    data = message.encode()
    assert type(message).decode(data) == message
    damaged = bytearray(data)
    damaged[int(at * len(data))] = value
    for some in (
        bytes(damaged),
        data[: int(at * len(data))],
        data + b"\0",
        data[: len(message.TAG) + 4] + junk,
    ):
        try:
            found = type(message).decode(some)
        except DecodingError:
            continue
        assert found.encode() == some


def test_half_a_signature_is_none():
    data = Receipt(SESSION, 2, b"s" * 64).encode()
    with pytest.raises(DecodingError, match="0 or 64 bytes"):
        Receipt.decode(data[:-68] + (63).to_bytes(4, "big") + b"s" * 63)


def test_a_joiner_may_be_one_of_two_who_sign():
    joiner = Joiner(NAMES[:2], carried(signing(NAMES[:2])), name="north", peers=PUBLIC)
    assert joiner.link() == 7
