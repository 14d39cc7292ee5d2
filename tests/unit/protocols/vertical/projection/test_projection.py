"""Projections between owners and a receiver, every message as bytes: what is counted, and what is refused."""

from __future__ import annotations

import os
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError, SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.data.example_networks import eleven_nodes
from masquerade.protocols.vertical.projection import (
    MarginRequest,
    Numbers,
    ProjectionOwner,
    ProjectionRequest,
    SealedSecret,
    SealedSecrets,
    SecretReceipt,
    SecretRequest,
    projection_agreement,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import (
    Advert,
    LocalTransport,
    RosterReceipt,
    SessionOffer,
    SessionRoster,
)
from masquerade.sources.parties.projection import receive_projected

SCHEMA = eleven_nodes().schema
N = 200  # owners send one column for ten records
FRAME = eleven_nodes().sample(N, seed=11)
CLEAR = mq.tally(FRAME, schema=SCHEMA)
OWNERS = {"x": ("A", "T", "E"), "y": ("S", "L", "B", "D"), "z": ("X", "C", "F", "G")}
SESSION = bytes(16)
KINDS = (SecretRequest, SealedSecrets, SealedSecret, SecretReceipt, MarginRequest, ProjectionRequest, Numbers)


class Carrier(LocalTransport):
    """Keeps what it carries; `garble` changes replies."""

    def __init__(self, parties, garble=None):
        super().__init__(parties)
        self.seen, self._garble = [], garble or (lambda _party, _message, reply: reply)

    def exchange(self, party, message):
        reply = self._garble(party, message, super().exchange(party, message))
        self.seen.append((party, message, reply))
        return reply


def owners_of(**options):
    """Return owners who know each other; `options` by owner."""
    identities = {name: SigningKey() for name in OWNERS}
    public = {name: identity.public for name, identity in identities.items()}
    return {
        name: ProjectionOwner(
            name,
            {variable: CLEAR.codes[variable] for variable in names},
            identities[name],
            public,
            **{"schema": SCHEMA, "owners": OWNERS, "receiver": "r", **options.get(name, {})},
        )
        for name, names in OWNERS.items()
    }


def carried(parties, garble=None):
    return Carrier({name: role.receive for name, role in parties.items()}, garble)


def received(transport, **options):
    return receive_projected(OWNERS, transport, SCHEMA, N, receiver="r", **options)


def met(parties):
    """Bring owners together by hand up to the roster."""
    terms = projection_agreement(SCHEMA, OWNERS, "r", N, b"")
    offer = SessionOffer(SESSION, terms, tuple(OWNERS)).encode()
    roster = SessionRoster(SESSION, tuple(parties[name].receive(offer) for name in OWNERS))
    for name in OWNERS:
        assert RosterReceipt.decode(parties[name].receive(roster.encode())).roster == roster.digest
    return parties


def dealt(parties):
    """Bring owners together and let them share a secret."""
    sealed = SealedSecrets.decode(met(parties)["x"].receive(SecretRequest(SESSION).encode())).sealed
    for name, box in zip(("y", "z"), sealed, strict=True):
        assert SecretReceipt.decode(
            parties[name].receive(SealedSecret(SESSION, box).encode())
        ) == SecretReceipt(SESSION)
    return parties


def submitted(parties, name, asked, *way):
    reply = parties[name].receive(ProjectionRequest(SESSION, asked, *(way or (0, 0, 1))).encode())
    return Numbers.decode(reply).values


@pytest.mark.parametrize(
    "names", [("A",), ("T", "A"), ("A", "S"), ("T", "L", "B"), ("E", "X", "C", "G"), ("S", "B", "F")]
)
def test_counts_are_exact(names):
    source = received(carried(owners_of()))
    [found], [exact] = (which.answer([mq.Query(by=tuple(names))]) for which in (source, CLEAR))
    assert np.array_equal(found.values, exact.values)
    assert np.array_equal(found.stderr(), exact.stderr())


def test_owners_send_one_column_for_ten_records_in_a_session():
    """Columns of several questions add up: inner products across questions are counts as well."""
    parties = dealt(owners_of())
    with pytest.raises(
        InputError, match=r"42 or more projected columns of 200 records, and at most 20 are allowed"
    ):
        submitted(parties, "x", ("A", "T", "E", "S", "L", "B", "D"))
    # 7 + 1 products, then S·L and X, then those of B and D and C: 8 + 5 + 6
    for asked in (("A", "T", "E", "S"), ("S", "L", "X"), ("B", "D", "C"), ("A", "T", "E", "S"), ("L", "X")):
        submitted(parties, "y", asked)
    with pytest.raises(InputError, match=r"22 or more projected columns"):
        submitted(parties, "y", ("S", "B", "F"))
    assert len(submitted(parties, "y", ("S", "L", "X"))) == 5 * N
    submitted(parties, "x", ("A", "T", "E", "S"))  # another owner counts the same questions


def test_slices_are_exact_too():
    source, query = received(carried(owners_of())), mq.Query(by=("L",), where={"A": 1})
    assert np.array_equal(source.answer([query])[0].values, CLEAR.answer([query])[0].values)


def test_k2_finds_the_structure_of_the_joined_table():
    order = tuple(SCHEMA)
    source = received(carried(owners_of()))
    # with one parent at most, every family is at two owners at most
    found = mq.learn.structure(source, order=order, max_parents=1).structure
    assert found == mq.learn.structure(CLEAR, order=order, max_parents=1).structure


def test_three_owners_in_one_question_are_refused_before_anything_is_asked():
    carrier = carried(owners_of())
    source = received(carrier)
    before = len(carrier.seen)
    with pytest.raises(QueryRefused, match="combine columns of two owners only"):
        source.answer([mq.Query(by=("A", "S")), mq.Query(by=("A", "S", "X"))])
    assert len(carrier.seen) == before


def test_fewer_dimensions_give_estimates():
    source = received(carried(owners_of()), dimensions=(60, 60), trials=8)
    [table], [exact] = (which.answer([mq.Query(by=("A", "S"))]) for which in (source, CLEAR))
    # one inner product of 480 products of normals: 8 standard errors leave less than 1e-8 to chance
    assert np.all(np.abs(table.values - exact.values) < 8 * table.stderr() + 1e-9)
    assert np.any(np.abs(table.values - exact.values) > 1e-9)


def test_no_column_travels_as_it_is():
    """Neither a column of codes nor a ±1 column is among the numbers that owners send."""
    parties = dealt(owners_of())
    for name, own in OWNERS.items():
        for other in OWNERS:
            if other != name:
                asked = (own[0], OWNERS[other][0])
                values = submitted(parties, name, tuple(v for v in SCHEMA if v in asked))
                assert len(values) % N == 0
                assert not np.any(np.isclose(np.abs(values), np.round(np.abs(values)), atol=1e-6).all())
                assert len(np.unique(values)) == len(values)


def test_two_questions_are_turned_by_two_rotations_and_one_by_the_same():
    parties = dealt(owners_of())
    first, second = submitted(parties, "x", ("A", "S")), submitted(parties, "x", ("A", "X"))
    assert np.array_equal(first, submitted(parties, "x", ("A", "S")))
    assert not np.any(np.isclose(first, second))
    assert np.isclose(first @ first, N)  # a rotation keeps lengths
    # owners of one question are turned alike: the inner product is that of the columns
    other = submitted(parties, "y", ("A", "S"))
    signs = [1 - 2 * CLEAR.codes[name].astype(int) for name in ("A", "S")]
    assert np.isclose(first @ other, signs[0] @ signs[1])


def test_every_session_has_a_secret_of_its_own():
    first, second = (submitted(dealt(owners_of()), "x", ("A", "S")) for _ in range(2))
    assert not np.any(np.isclose(first, second))


@pytest.mark.parametrize("receiver", ["x", "z"])
def test_an_owner_cannot_receive(receiver):
    with pytest.raises(InputError, match="A third party is needed"):
        receive_projected(OWNERS, carried(owners_of()), SCHEMA, N, receiver=receiver)
    with pytest.raises(InputError, match="A third party is needed"):
        owners_of(y={"receiver": receiver})


def test_one_owner_needs_no_projection():
    with pytest.raises(InputError, match="at least two owners"):
        receive_projected({"x": tuple(SCHEMA)}, carried({}), SCHEMA, N, receiver="r")


@pytest.mark.parametrize(
    "changed",
    [
        {"receiver": "another"},
        {"alignment": b"other records"},
        {"owners": {**OWNERS, "x": ("A", "E", "T")}},
    ],
)
def test_owners_under_other_terms_do_not_take_part(changed):
    parties = owners_of(y=changed)
    with pytest.raises(RoundAborted, match="terms of the session differ") as caught:
        received(carried(parties))
    assert caught.value.culprits == ("y",)
    assert not caught.value.spent


def test_owners_with_another_number_of_records_do_not_take_part():
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        receive_projected(OWNERS, carried(owners_of()), SCHEMA, N + 1, receiver="r")


@pytest.mark.parametrize("roster", [("x",), ("x", "y"), ("x", "y", "z", "r"), ("x", "x", "y", "z")])
def test_the_secret_is_for_the_owners_alone(roster):
    """Even if owners know the receiver's identity, it cannot get among those who share the secret."""
    identities = {name: SigningKey() for name in (*OWNERS, "r")}
    public = {name: identity.public for name, identity in identities.items()}
    owner = ProjectionOwner(
        "x",
        {name: CLEAR.codes[name] for name in OWNERS["x"]},
        identities["x"],
        public,
        schema=SCHEMA,
        owners=OWNERS,
        receiver="r",
    )
    terms = projection_agreement(SCHEMA, OWNERS, "r", N, b"")
    with pytest.raises(InputError, match="roster"):
        owner.receive(SessionOffer(SESSION, terms, roster).encode())


def test_a_roster_with_a_forged_key_is_refused():
    parties = owners_of()
    terms = projection_agreement(SCHEMA, OWNERS, "r", N, b"")
    offer = SessionOffer(SESSION, terms, tuple(OWNERS)).encode()
    adverts = {name: Advert.decode(parties[name].receive(offer)) for name in OWNERS}
    forged = Advert(SESSION, terms, "y", os.urandom(32), adverts["y"].signature)
    roster = SessionRoster(SESSION, tuple((forged if n == "y" else adverts[n]).encode() for n in OWNERS))
    with pytest.raises(MasqueradeError):
        parties["x"].receive(roster.encode())


def test_the_first_owner_deals_once():
    parties = met(owners_of())
    with pytest.raises(InputError, match="first owner"):
        parties["y"].receive(SecretRequest(SESSION).encode())
    first, second = (
        SealedSecrets.decode(parties["x"].receive(SecretRequest(SESSION).encode())) for _ in range(2)
    )
    for name, place in (("y", 0), ("z", 1)):
        parties[name].receive(SealedSecret(SESSION, first.sealed[place]).encode())
        parties[name].receive(SealedSecret(SESSION, second.sealed[place]).encode())  # the same secret again
    assert np.isfinite(submitted(parties, "y", ("A", "S"))).all()


def test_a_sealed_secret_is_for_one_owner_and_cannot_be_changed():
    parties = met(owners_of())
    sealed = SealedSecrets.decode(parties["x"].receive(SecretRequest(SESSION).encode())).sealed
    for box in (sealed[1], sealed[0][:-1] + bytes([sealed[0][-1] ^ 1]), b"", bytes(60)):
        with pytest.raises((SealBroken, DecodingError)):
            parties["y"].receive(SealedSecret(SESSION, box).encode())
    with pytest.raises(InputError, match="no secret yet"):
        parties["y"].receive(ProjectionRequest(SESSION, ("A", "S"), 0, 0, 1).encode())


@pytest.mark.parametrize(
    "message",
    [
        MarginRequest(bytes(15) + b"x", ("A",)),
        ProjectionRequest(bytes(15) + b"x", ("A", "S"), 0, 0, 1),
        MarginRequest(SESSION, ("S",)),
        MarginRequest(SESSION, ("T", "A")),
        MarginRequest(SESSION, ()),
        MarginRequest(SESSION, ("A", "A")),
        ProjectionRequest(SESSION, ("S", "X"), 0, 0, 1),
        ProjectionRequest(SESSION, ("A", "W"), 0, 0, 1),
        ProjectionRequest(SESSION, ("A", "S"), 0, 0, 2),
        ProjectionRequest(SESSION, ("A", "S"), N + 1, 5, 1),
        ProjectionRequest(SESSION, ("A", "S"), 5, 0, 1),
        ProjectionRequest(SESSION, ("A", "S"), 40, 40, 2**31),
    ],
)
def test_questions_that_are_none_are_refused(message):
    parties = dealt(owners_of())
    with pytest.raises(MasqueradeError):
        parties["x"].receive(message.encode())
    assert submitted(parties, "x", ("A", "S")).size == N  # and nothing has changed


def test_columns_are_projected_in_one_way():
    """Two ways would be drawn from the same randomness, and could be put together."""
    parties = dealt(owners_of())
    submitted(parties, "x", ("A", "S"))
    with pytest.raises(InputError, match="in one way"):
        submitted(parties, "x", ("A", "S"), 40, 40, 1)
    with pytest.raises(InputError, match="in one way"):
        submitted(parties, "x", ("A", "X"), 40, 40, 1)


def test_variables_that_were_not_consented_to_are_not_counted():
    parties = dealt(owners_of(x={"variables": {"A", "T"}}))
    submitted(parties, "x", ("A", "S"))
    for message in (MarginRequest(SESSION, ("E",)), ProjectionRequest(SESSION, ("E", "S"), 0, 0, 1)):
        with pytest.raises(InputError, match="may not be counted"):
            parties["x"].receive(message.encode())


@pytest.mark.parametrize(
    "changed",
    [
        lambda values: values[:-1],
        lambda values: np.append(values, 0.0),
        lambda values: -values if values.size < N else values + 0.4,
    ],
    ids=["too few", "too many", "impossible"],
)
def test_an_owner_who_sends_something_else_is_found_out(changed):
    def garble(party, _message, reply):
        if party != "y" or tag_of(reply) != Numbers.TAG:
            return reply
        found = Numbers.decode(reply)
        return Numbers(found.session, changed(found.values)).encode()

    source = received(carried(owners_of(), garble))
    with pytest.raises(RoundAborted):
        source.answer([mq.Query(by=("A", "S"))])


def test_numbers_that_are_not_finite_do_not_decode():
    for bad in (np.nan, np.inf, -np.inf):
        with pytest.raises(DecodingError, match="not finite"):
            Numbers.decode(Numbers(SESSION, np.array([1.0, bad])).encode())
    with pytest.raises(DecodingError):
        Numbers.decode(Numbers(SESSION, np.array([1.0])).encode()[:-1])


@given(st.binary(max_size=300), st.sampled_from(KINDS))
@settings(max_examples=150, deadline=None)
def test_random_bytes_raise_only_the_one_error(data, kind):
    for body in (data, kind.TAG + data):
        with pytest.raises(DecodingError):
            kind.decode(body)


@given(st.sampled_from(KINDS[:6]), st.integers(0, 10_000), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_an_owner_takes_any_bytes(kind, place, change):
    """A message that was changed on the way is answered or refused, never anything else."""
    message = {
        SecretRequest: SecretRequest(SESSION),
        SealedSecrets: SealedSecrets(SESSION, (b"a",)),
        SealedSecret: SealedSecret(SESSION, bytes(60)),
        SecretReceipt: SecretReceipt(SESSION),
        MarginRequest: MarginRequest(SESSION, ("A",)),
        ProjectionRequest: ProjectionRequest(SESSION, ("A", "S"), 0, 0, 1),
    }[kind].encode()
    data = bytearray(message)
    data[place % len(data)] ^= change
    with suppress(MasqueradeError):
        SHARED["x"].receive(bytes(data))


SHARED = dealt(owners_of())


def test_who_learns_what_is_said():
    guarantee = received(carried(owners_of())).guarantee
    [item] = guarantee.disclosures
    assert (item.role, item.gamma, item.variables) == ("r", None, SCHEMA.names)
    assert set(guarantee.excluded_coalitions) == {("r", owner) for owner in OWNERS}
