"""What would break masked products: second uses, wrong receivers, other records, false shares."""

import numpy as np
import pytest
from tests.unit.protocols.products.parties import CLEAR, FRAME, OWNERS, SCHEMA, Carrier, roles, session

import masquerade as mq
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError, KeySpent, SealBroken
from masquerade.protocols.products.columns import Columns, Part
from masquerade.protocols.products.helped import HelpedProducts
from masquerade.protocols.products.messages import (
    ELEMENTWISE,
    INNER,
    Correlate,
    Multiply,
    Opened,
    Show,
    Shown,
    Sums,
)
from masquerade.protocols.products.tally import RevealedVerticalCounts
from masquerade.protocols.wire import tag_of

QUERY = mq.Query(by=("A", "L"))
A = Columns("x", (Part("x", ("A",)),))
L = Columns("y", (Part("y", ("L",)),))
X = Columns("z", (Part("z", ("X",)),))


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
    shown = Shown.decode(sent(carrier, Shown, "y"))
    assert parties["y"].receive(shown.encode())  # delivered again, the same
    with pytest.raises(KeySpent, match="a mask serves once"):
        parties["y"].receive(Shown(shown.session, shown.columns, shown.words + np.uint64(1)).encode())


def test_a_correlation_serves_once_whatever_is_asked_with_it(asked):
    """Were a share recomputed from other columns, the difference would give away the mask."""
    parties, _, carrier = asked
    message = sent(carrier, Multiply, "y")
    first = parties["y"].receive(message)
    question = Multiply.decode(message)
    forged = Multiply(question.session, question.kind, question.lefts, question.right, (b"x" * 40,))
    assert parties["y"].receive(forged.encode()) == first
    assert parties["y"].receive(message) == first


def test_shares_are_uniform_and_only_their_sum_is_a_count(asked):
    _, _, carrier = asked
    shares = [Opened.decode(r).words for _, m, r in carrier.seen if tag_of(m) == Multiply.TAG]
    assert len(shares) == 2
    assert all(int(word) > len(FRAME) for share in shares for word in share)  # 4 words: false alarm 2^-50
    counts = CLEAR.answer([QUERY])[0].values[1:, 1:].ravel()
    assert np.array_equal((shares[0] + shares[1]).astype(float), counts)


def test_shares_of_products_are_never_opened():
    parties = roles()
    products, carrier = session(parties)
    RevealedVerticalCounts(products).answer([mq.Query(by=("A", "L", "X"))])
    formed = [
        Opened.decode(reply).words
        for _, message, reply in carrier.seen
        if tag_of(message) == Multiply.TAG and Multiply.decode(message).kind == ELEMENTWISE
    ]
    assert [len(words) for words in formed] == [0, 0]


def test_a_correction_opens_for_its_holder_and_its_pair_alone(asked):
    parties, products, carrier = asked
    for party in ("y", "x"):
        shown = parties["z"].receive(Show(products.session, X).encode())
        parties[party].receive(shown)
    for columns, holder in ((A, "x"), (L, "y")):
        parties["z"].receive(parties[holder].receive(Show(products.session, columns).encode()))
    sealed = Multiply.decode(sent(carrier, Multiply, "y")).sealed  # made for A and L, at y
    with pytest.raises(SealBroken):
        parties["z"].receive(Multiply(products.session, INNER, (A,), X, sealed).encode())
    with pytest.raises(InputError, match="wrong party"):
        parties["x"].receive(Multiply(products.session, INNER, (A,), X, sealed).encode())
    with pytest.raises(DecodingError):
        parties["z"].receive(Multiply(products.session, INNER, (A,), X, (b"",)).encode())


def test_a_false_share_is_no_count_and_aborts():
    parties = roles()

    class Lying(Carrier):
        def exchange(self, party, message):
            reply = super().exchange(party, message)
            if party == "y" and tag_of(message) == Multiply.TAG:
                words = Opened.decode(reply).words
                return Opened(Multiply.decode(message).session, words - np.uint64(1) * words).encode()
            return reply

    products = HelpedProducts(
        OWNERS, "helper", Lying({n: r.receive for n, r in parties.items()}), SCHEMA, len(FRAME)
    )
    with pytest.raises(RoundAborted, match="no count") as caught:
        RevealedVerticalCounts(products).answer([QUERY])
    assert caught.value.spent


def test_other_records_another_order_or_another_schema_are_refused_before_anything_leaves():
    for options in ({"y": {"alignment": b"other"}}, {"y": {"helper": "somebody"}}):
        with pytest.raises(RoundAborted, match="other terms") as caught:
            session(roles(**options))
        assert caught.value.culprits == ("y",)
        assert not caught.value.spent
    with pytest.raises(RoundAborted, match="other terms"):
        session(roles(), n=len(FRAME) - 1)
    other = mq.Schema([*SCHEMA.variables[:-1], mq.Variable("G", (1, 2, 3))])
    with pytest.raises(RoundAborted, match="other terms"):
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
    for message in (Sums(products.session, ("L",)), Show(products.session, L)):
        with pytest.raises(InputError, match="may not be counted"):  # whatever the asker was told
            parties["y"].receive(message.encode())


def test_nonsense_is_refused(asked):
    parties, products, _ = asked
    s = products.session
    unheard = Columns("y", (Part("y", ("S",)),))
    cases = [
        ("x", Show(s, L), "another party"),
        ("x", Show(s, Columns("x", (Part("y", ("L",)),))), "another party"),
        ("x", Show(s, Columns("x", (Part("x", ("T", "A")),))), "order of the schema"),
        ("x", Show(s, Columns("x", (Part("x", ("A",)), Part("y", ("L",))))), "not formed yet"),
        ("x", Show(b"?" * 16, A), "another session"),
        ("x", Shown(s, L, np.zeros(3, dtype=np.uint64)), "numbers. Got 3"),
        ("x", Shown(s, A, np.zeros(3, dtype=np.uint64)), "from another party"),
        ("x", Sums(s, ("L",)), "not variables of this party"),
        ("x", Multiply(s, INNER, (A,), unheard, ()), "not delivered"),
        ("x", Multiply(s, 7, (A,), L, ()), "inner or an elementwise"),
        ("x", Multiply(s, INNER, (A,), A, ()), "own columns alone"),
        ("z", Multiply(s, INNER, (A,), L, ()), "holds none"),
        ("x", Multiply(s, INNER, (), L, ()), "multiplied together"),
        ("helper", Correlate(s, INNER, A, A), "own columns alone"),
        ("helper", Correlate(b"?" * 16, INNER, A, L), "another session"),
    ]
    for party, message, words in cases:
        with pytest.raises(InputError, match=words):
            parties[party].receive(message.encode())
    for party in parties.values():
        for data in (b"", b"\0" * 30, Show(s, A).encode()[:-1]):
            with pytest.raises(DecodingError):
                party.receive(data)


def test_a_huge_product_is_not_dealt_for(asked, monkeypatch):
    parties, products, _ = asked
    monkeypatch.setattr("masquerade.protocols.products.helper.MOST_WORDS", len(FRAME))
    with pytest.raises(InputError, match="not dealt for"):
        parties["helper"].receive(Correlate(products.session, ELEMENTWISE, A, L).encode())


def test_one_party_needs_no_products():
    with pytest.raises(InputError, match="at least two"):
        HelpedProducts({"x": list(SCHEMA)}, "helper", Carrier({}), SCHEMA, 10)
    with pytest.raises(InputError, match="each its own"):
        HelpedProducts({"x": ["A"], "helper": ["B"]}, "helper", Carrier({}), SCHEMA, 10)
