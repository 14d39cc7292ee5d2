"""What would break masked products: second uses, wrong receivers, other records, false shares."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.vertical.scalar_products.parties import (
    CLEAR,
    FRAME,
    OWNERS,
    SCHEMA,
    Carrier,
    roles,
    session,
)

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused, RoundAborted
from masquerade.core.guarantee import ANALYST
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.crypto.keys import SigningKey
from masquerade.protocols.vertical.columns import ColumnPart, Columns
from masquerade.protocols.vertical.scalar_products import (
    ELEMENTWISE,
    INNER,
    SHOWN,
    ColumnRequest,
    CorrelationRequest,
    HelpedProducts,
    MaskedColumns,
    OpenNumbers,
    ProductRequest,
    SumRequest,
)
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import SessionOffer, SessionRoster
from masquerade.sources.parties.products import RevealedVerticalCounts

QUERY = mq.Query(by=("A", "L"))
A = Columns("x", (ColumnPart("x", ("A",)),))
L = Columns("y", (ColumnPart("y", ("L",)),))
X = Columns("z", (ColumnPart("z", ("X",)),))


@pytest.fixture
def asked():
    parties = roles()
    products, carrier = session(parties)
    RevealedVerticalCounts(products).answer([QUERY])
    return parties, products, carrier


def sent(carrier, kind, to):
    return next(m for party, m, _ in carrier.seen if party == to and tag_of(m) == kind.TAG)


def test_a_mask_never_serves_two_versions_of_a_column(asked):
    parties, _, carrier = asked
    shown = MaskedColumns.decode(sent(carrier, MaskedColumns, "y"))
    assert parties["y"].receive(shown.encode())  # delivered again, the same
    second = MaskedColumns(shown.session, shown.columns, shown.words + np.uint64(1))
    signature = parties["x"]._identity.sign(SHOWN, *second.signed_bytes(parties["x"].roster))
    with pytest.raises(KeySpent, match="may be used only once"):  # though its holder signed both
        parties["y"].receive(replace(second, signature=signature).encode())


class Changing(Carrier):
    """Whoever asks adds to masked columns of some holder on their way to another party."""

    def __init__(self, parties, holder, to, added):
        super().__init__(parties)
        self.holder, self.to, self.added = holder, to, added

    def exchange(self, party, message):
        if party == self.to and tag_of(message) == MaskedColumns.TAG:
            shown = MaskedColumns.decode(message)
            if shown.columns.is_product and shown.columns.holder == self.holder:
                message = replace(shown, words=shown.words + self.added).encode()
        return super().exchange(party, message)


def few(n):
    schema = mq.Schema({"a": [0, 1], "b": [0, 1]})
    generator = np.random.default_rng(1)
    return schema, {name: generator.integers(0, 2, n).astype(np.uint8) for name in schema}


def test_adding_powers_of_two_to_a_masked_column_is_refused():
    """Were it taken, the opened sum would have the other party's column in its upper bits, row by row."""
    schema, codes = few(56)
    owners = {"north": ("a",), "south": ("b",)}
    parties = roles(owners, codes, schema)
    products, _ = session(parties, owners, schema, 56)
    column = Columns("south", (ColumnPart("south", ("b",)),))
    shown = MaskedColumns.decode(parties["south"].receive(ColumnRequest(products.session, column).encode()))
    weights = np.uint64(64) << np.arange(56, dtype=np.uint64)
    with pytest.raises(RoundAborted, match="'south' do not match its signature") as caught:
        parties["north"].receive(replace(shown, words=shown.words + weights).encode())
    assert caught.value.culprits == (ANALYST,)
    opened = ProductRequest(
        products.session, INNER, (Columns("north", (ColumnPart("north", ("a",)),)),), column, ()
    )
    with pytest.raises(InputError, match="not delivered"):
        parties["north"].receive(opened.encode())
    parties["north"].receive(shown.encode())
    (table,) = RevealedVerticalCounts(products).answer([mq.Query(by=("a", "b"))])
    assert table.values[1, 1] == np.sum(codes["a"] & codes["b"])


@pytest.mark.parametrize(("holder", "to"), [("x", "z"), ("y", "z")])
def test_a_share_of_a_product_that_was_changed_on_the_way_is_refused(holder, to):
    parties = roles()
    carrier = Changing({n: r.receive for n, r in parties.items()}, holder, to, np.uint64(1))
    products = HelpedProducts(OWNERS, "helper", carrier, SCHEMA, len(FRAME))
    with pytest.raises(RoundAborted, match=f"'{holder}' do not match its signature") as caught:
        RevealedVerticalCounts(products).answer([mq.Query(by=("A", "L", "X"))])
    assert caught.value.culprits == (ANALYST,)


def test_masked_columns_of_other_sessions_names_or_holders_are_refused():
    identities = {name: SigningKey() for name in (*OWNERS, "helper")}
    products, _ = session(parties := roles(identities=identities))
    T = Columns("x", (ColumnPart("x", ("T",)),))
    shown, other = (
        MaskedColumns.decode(parties["x"].receive(ColumnRequest(products.session, columns).encode()))
        for columns in (A, T)
    )
    assert shown.words.size == other.words.size
    elsewhere, _ = session(again := roles(identities=identities))
    replayed = MaskedColumns.decode(again["x"].receive(ColumnRequest(elsewhere.session, A).encode()))
    for false in (
        replace(shown, columns=T),
        replace(shown, signature=other.signature),
        replace(shown, signature=bytes(64)),
        replace(replayed, session=products.session),
        replace(shown, words=shown.words[::-1]),
    ):
        with pytest.raises(RoundAborted, match="not match its signature"):
            parties["z"].receive(false.encode())
    for stranger in ("helper", "stranger", "z"):
        renamed = replace(shown, columns=Columns(stranger, A.parts))
        with pytest.raises(InputError, match="from another party of the session"):
            parties["z"].receive(renamed.encode())
    assert parties["z"].receive(shown.encode())


@pytest.fixture(scope="module")
def delivery():
    schema, codes = few(5)
    owners = {"north": ("a",), "south": ("b",)}
    parties = roles(owners, codes, schema)
    products, _ = session(parties, owners, schema, 5)
    column = Columns("south", (ColumnPart("south", ("b",)),))
    return parties["north"], parties["south"].receive(ColumnRequest(products.session, column).encode())


@settings(max_examples=200, deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), junk=st.binary(max_size=80))
def test_masked_columns_with_any_byte_changed_are_refused(delivery, at, flip, junk):
    party, message = delivery
    damaged = bytearray(message)
    damaged[int(at * len(message))] ^= flip
    for data in (bytes(damaged), message[: int(at * len(message))], message + b"\0", message[:31] + junk):
        with pytest.raises(MasqueradeError):
            party.receive(data)


def test_after_all_that_damage_the_true_columns_are_taken(delivery):
    party, message = delivery
    assert party.receive(message)


def test_a_share_counted_twice_is_refused():
    """The difference to the share counted once would open one party's share of the product times a column."""
    parties = roles()
    products, carrier = session(parties)
    RevealedVerticalCounts(products).answer([mq.Query(by=("A", "L", "X"))])
    asked = [
        ProductRequest.decode(m) for p, m, _ in carrier.seen if p == "z" and tag_of(m) == ProductRequest.TAG
    ]
    question = next(question for question in asked if len(question.lefts) == 2)
    (first, second), (one, two) = question.lefts, question.sealed
    for lefts, sealed in (
        ((first, first, second), (one, one, two)),
        ((second, first), (two, one)),
        ((first,), (one,)),
    ):
        with pytest.raises(InputError, match="each once and in order"):
            parties["z"].receive(replace(question, lefts=lefts, sealed=sealed).encode())


def test_what_a_party_keeps_is_bounded():
    n = len(FRAME)
    parties = roles(y={"most_kept": 3 * n})
    products, _ = session(parties)
    source = RevealedVerticalCounts(products)
    source.answer([QUERY])
    with pytest.raises(
        RoundAborted, match=f"'y' refused: This party keeps at most {3 * n:,} numbers"
    ) as caught:
        source.answer([mq.Query(by=("T", "L")), mq.Query(by=("E", "L"))])
    assert caught.value.culprits == ("y",)
    kept = parties["y"]._kept
    with pytest.raises(RoundAborted, match="keeps at most"):
        source.answer([mq.Query(by=("E", "L"))])
    assert parties["y"]._kept == kept <= 3 * n
    source.answer([QUERY])


def test_products_that_are_formed_count_as_kept():
    """The other's column has room, the share of the product has none."""
    parties = roles(y={"most_kept": 2 * len(FRAME)})
    products, _ = session(parties)
    with pytest.raises(RoundAborted, match="'y' refused: This party keeps at most"):
        products._shares((*A.parts, *L.parts))
    assert len(FRAME) < parties["y"]._kept <= 2 * len(FRAME)
    with pytest.raises(InputError, match="not been computed yet"):
        parties["y"].receive(ColumnRequest(products.session, Columns("y", (*A.parts, *L.parts))).encode())


def test_columns_of_a_party_that_the_session_leaves_out_are_refused(asked):
    parties, products, _ = asked
    shown = parties["z"].receive(ColumnRequest(products.session, X).encode())
    others = roles()
    fresh = others["x"]
    offer = SessionOffer(products.session, fresh.agreement, ("x", "y", "helper")).encode()
    adverts = tuple(others[name].receive(offer) for name in ("x", "y", "helper"))
    fresh.receive(SessionRoster(products.session, adverts).encode())
    with pytest.raises(InputError, match="from another party of the session"):
        fresh.receive(shown)


def test_whoever_asks_may_be_malicious_and_nobody_else():
    products, _ = session(roles())
    guarantee = products.guarantee()
    assert guarantee.adversaries == {
        ANALYST: "malicious",
        **dict.fromkeys(("helper", *OWNERS), "semi-honest"),
    }
    assert any("learns what it asks for" in text for text in guarantee.assumptions)
    assert any("not verified" in text for text in guarantee.assumptions)


def test_a_correlation_serves_once_whatever_is_asked_with_it(asked):
    """Were a share recomputed from other columns, the difference would give away the mask."""
    parties, _, carrier = asked
    message = sent(carrier, ProductRequest, "y")
    first = parties["y"].receive(message)
    question = ProductRequest.decode(message)
    forged = ProductRequest(question.session, question.kind, question.lefts, question.right, (b"x" * 40,))
    assert parties["y"].receive(forged.encode()) == first
    assert parties["y"].receive(message) == first


def test_shares_are_uniform_and_only_their_sum_is_a_count(asked):
    _, _, carrier = asked
    shares = [OpenNumbers.decode(r).words for _, m, r in carrier.seen if tag_of(m) == ProductRequest.TAG]
    assert len(shares) == 2
    assert all(int(word) > len(FRAME) for share in shares for word in share)  # 4 words: false alarm 2^-50
    counts = CLEAR.answer([QUERY])[0].values[1:, 1:].ravel()
    assert np.array_equal((shares[0] + shares[1]).astype(float), counts)


def test_shares_of_products_are_never_opened():
    parties = roles()
    products, carrier = session(parties)
    RevealedVerticalCounts(products).answer([mq.Query(by=("A", "L", "X"))])
    formed = [
        OpenNumbers.decode(reply).words
        for _, message, reply in carrier.seen
        if tag_of(message) == ProductRequest.TAG and ProductRequest.decode(message).kind == ELEMENTWISE
    ]
    assert [len(words) for words in formed] == [0, 0]


def test_a_correction_opens_for_its_holder_and_its_pair_alone(asked):
    parties, products, carrier = asked
    for party in ("y", "x"):
        shown = parties["z"].receive(ColumnRequest(products.session, X).encode())
        parties[party].receive(shown)
    for columns, holder in ((A, "x"), (L, "y")):
        parties["z"].receive(parties[holder].receive(ColumnRequest(products.session, columns).encode()))
    sealed = ProductRequest.decode(sent(carrier, ProductRequest, "y")).sealed  # made for A and L, at y
    with pytest.raises(SealBroken):
        parties["z"].receive(ProductRequest(products.session, INNER, (A,), X, sealed).encode())
    with pytest.raises(InputError, match="wrong party"):
        parties["x"].receive(ProductRequest(products.session, INNER, (A,), X, sealed).encode())
    with pytest.raises(DecodingError):
        parties["z"].receive(ProductRequest(products.session, INNER, (A,), X, (b"",)).encode())


def test_a_false_share_is_no_count_and_aborts():
    parties = roles()

    class Lying(Carrier):
        def exchange(self, party, message):
            reply = super().exchange(party, message)
            if party == "y" and tag_of(message) == ProductRequest.TAG:
                words = OpenNumbers.decode(reply).words
                return OpenNumbers(
                    ProductRequest.decode(message).session, words - np.uint64(1) * words
                ).encode()
            return reply

    products = HelpedProducts(
        OWNERS, "helper", Lying({n: r.receive for n, r in parties.items()}), SCHEMA, len(FRAME)
    )
    with pytest.raises(RoundAborted, match="not a count") as caught:
        RevealedVerticalCounts(products).answer([QUERY])
    assert caught.value.spent


def test_other_records_another_order_or_another_schema_are_refused_before_anything_leaves():
    for options in ({"y": {"alignment": b"other"}}, {"y": {"helper": "somebody"}}):
        with pytest.raises(RoundAborted, match="terms of the session differ") as caught:
            session(roles(**options))
        assert caught.value.culprits == ("y",)
        assert not caught.value.spent
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        session(roles(), n=len(FRAME) - 1)
    other = mq.Schema([*SCHEMA.variables[:-1], mq.Variable("G", (1, 2, 3))])
    with pytest.raises(RoundAborted, match="terms of the session differ"):
        session(roles(), schema=other)


def test_consent_is_asked_of_all_before_anything_is_counted():
    products, carrier = session(roles(y={"variables": ["S", "B", "D"]}))
    before = len(carrier.seen)
    with pytest.raises(QueryRefused, match="y: 'L' may not be counted") as caught:
        RevealedVerticalCounts(products).answer([QUERY])
    assert caught.value.refusals[0].code == "not_consented"
    assert len(carrier.seen) == before + len(OWNERS)
    parties = roles(y={"variables": ["S"]})
    products, _ = session(parties)
    for message in (SumRequest(products.session, ("L",)), ColumnRequest(products.session, L)):
        with pytest.raises(InputError, match="may not be counted"):  # whatever the asker was told
            parties["y"].receive(message.encode())


def test_nonsense_is_refused(asked):
    parties, products, _ = asked
    s = products.session
    unheard = Columns("y", (ColumnPart("y", ("S",)),))
    cases = [
        ("x", ColumnRequest(s, L), "another party"),
        ("x", ColumnRequest(s, Columns("x", (ColumnPart("y", ("L",)),))), "another party"),
        ("x", ColumnRequest(s, Columns("x", (ColumnPart("x", ("T", "A")),))), "order of the schema"),
        (
            "x",
            ColumnRequest(s, Columns("x", (ColumnPart("x", ("A",)), ColumnPart("y", ("L",))))),
            "not been computed yet",
        ),
        ("x", ColumnRequest(b"?" * 16, A), "another session"),
        ("x", ProductRequest(s, INNER, (A, A), L, ()), "each once and in order"),
        ("x", MaskedColumns(s, L, np.zeros(3, dtype=np.uint64)), "numbers. Got 3"),
        ("x", MaskedColumns(s, A, np.zeros(3, dtype=np.uint64)), "from another party"),
        ("x", SumRequest(s, ("L",)), "not variables of this party"),
        ("x", ProductRequest(s, INNER, (A,), unheard, ()), "not delivered"),
        ("x", ProductRequest(s, 7, (A,), L, ()), "one of 0, 1"),
        ("x", ProductRequest(s, INNER, (A,), A, ()), "computed by that party itself"),
        ("z", ProductRequest(s, INNER, (A,), L, ()), "holds none"),
        ("x", ProductRequest(s, INNER, (), L, ()), "shares of one product"),
        ("helper", CorrelationRequest(s, INNER, A, A), "computed by that party itself"),
        ("helper", CorrelationRequest(b"?" * 16, INNER, A, L), "another session"),
    ]
    for party, message, words in cases:
        with pytest.raises(InputError, match=words):
            parties[party].receive(message.encode())
    for party in parties.values():
        for data in (b"", b"\0" * 30, ColumnRequest(s, A).encode()[:-1]):
            with pytest.raises(DecodingError):
                party.receive(data)


def test_a_huge_product_is_not_dealt_for(asked, monkeypatch):
    parties, products, _ = asked
    monkeypatch.setattr("masquerade.protocols.vertical.scalar_products.MOST_WORDS", len(FRAME))
    with pytest.raises(InputError, match="The helper deals for columns of at most"):
        parties["helper"].receive(CorrelationRequest(products.session, ELEMENTWISE, A, L).encode())


def test_one_party_needs_no_products():
    with pytest.raises(InputError, match="at least two"):
        HelpedProducts({"x": list(SCHEMA)}, "helper", Carrier({}), SCHEMA, 10)
    with pytest.raises(InputError, match="names of the parties must be distinct"):
        HelpedProducts({"x": ["A"], "helper": ["B"]}, "helper", Carrier({}), SCHEMA, 10)
