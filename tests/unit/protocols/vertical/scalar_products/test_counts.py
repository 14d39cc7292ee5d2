"""Scalar products give the counts of the joined clear records, exactly."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.vertical.scalar_products.parties import CLEAR, FRAME, OWNERS, counts, roles, session

import masquerade as mq
from masquerade.core.tally import Tally
from masquerade.data.example_networks import ELEVEN_NODES
from masquerade.protocols.vertical.columns import counts_from
from masquerade.protocols.vertical.scalar_products import ColumnRequest, CorrelationRequest, MaskedColumns
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import SessionOffer, SessionRoster
from masquerade.sources.parties.products import RevealedVerticalCounts

QUERIES = [
    mq.Query(),
    mq.Query(by="A"),
    mq.Query(by=("L", "B")),  # one party
    mq.Query(by=("B", "A")),  # two
    mq.Query(by=("G", "A", "L")),  # three
    mq.Query(by=("C", "D"), where={"E": 1}),
    mq.Query(where={"A": 1, "X": 2}),
    mq.Query(by=("E", "T", "L", "B", "X", "C")),
]


def assert_same(mine, theirs):
    assert mine.names == theirs.names
    assert np.array_equal(mine.values, theirs.values)
    assert mine.n == theirs.n
    for kind in ("population", "given_records"):
        np.testing.assert_allclose(mine.stderr(kind), theirs.stderr(kind), atol=1e-9)
    assert np.array_equal(mine.nonnegative().values, theirs.values)


def test_tables_equal_those_of_the_joined_clear_records():
    source = counts()
    assert isinstance(source, Tally)
    for mine, theirs in zip(source.answer(QUERIES), CLEAR.answer(QUERIES), strict=True):
        assert_same(mine, theirs)


def test_k2_over_the_vertical_split_finds_the_structure_of_the_joined_table():
    found = mq.learn.structure(counts(), order=list(ELEVEN_NODES), max_parents=3)
    assert found.structure == mq.learn.structure(CLEAR, order=list(ELEVEN_NODES), max_parents=3).structure
    bayes = mq.learn.structure(counts(), order=list(ELEVEN_NODES), max_parents=2, score="k2")
    assert (
        bayes.structure
        == mq.learn.structure(CLEAR, order=list(ELEVEN_NODES), max_parents=2, score="k2").structure
    )


def test_four_parties_need_two_elementwise_products():
    owners = {"x": ["A", "T"], "y": ["S", "L"], "z": ["B", "E", "X"], "w": ["D", "C", "F", "G"]}
    source = RevealedVerticalCounts(session(roles(owners), owners)[0])
    query = mq.Query(by=("A", "L", "B", "D"))
    assert_same(source.answer([query])[0], CLEAR.answer([query])[0])


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), sizes=st.tuples(*[st.integers(1, 4)] * 3), n=st.integers(0, 30))
def test_random_columns_of_any_sizes(seed, sizes, n):
    generator = np.random.default_rng(seed)
    schema = mq.Schema({name: list(range(size)) for name, size in zip("abc", sizes, strict=True)})
    codes = {name: generator.integers(0, len(schema[name]), n) for name in "abc"}
    owners = {"x": ["a"], "y": ["b"], "z": ["c"]}
    source = RevealedVerticalCounts(session(roles(owners, codes, schema), owners, schema, n)[0])
    expected = np.zeros(sizes)
    np.add.at(expected, tuple(codes[name] for name in "abc"), 1)
    assert np.array_equal(source.answer([mq.Query(by=("a", "b", "c"))])[0].values, expected)


def test_a_column_is_masked_once_for_all_its_pairs():
    products, carrier = session(roles())
    RevealedVerticalCounts(products).answer([mq.Query(by=pair) for pair in combinations("ASLXG", 2)])
    shown = [message for _, message, _ in carrier.seen if tag_of(message) == ColumnRequest.TAG]
    assert len(shown) == len(set(shown))
    delivered = [(p, m) for p, m, _ in carrier.seen if tag_of(m) == MaskedColumns.TAG]
    assert len(delivered) == len(set(delivered))


def test_what_was_revealed_is_not_asked_again():
    products, carrier = session(roles())
    source = RevealedVerticalCounts(products)
    source.answer([mq.Query(by=("A", "L"))])
    before = len(carrier.seen)
    source.answer([mq.Query(by=("L", "A")), mq.Query(by="L", where={"A": 2})])
    assert len(carrier.seen) == before


def test_the_helper_never_sees_a_column_and_masks_look_uniform():
    """Bits of masked columns are fair: 1,500 words, 64 bits each (false alarm below 1e-6 over all bits)."""
    products, carrier = session(roles())
    RevealedVerticalCounts(products).answer([mq.Query(by=("A", "L", "X"))])
    to_helper = {tag_of(message) for party, message, _ in carrier.seen if party == "helper"}
    assert to_helper == {
        SessionOffer.TAG,
        SessionRoster.TAG,
        CorrelationRequest.TAG,
    }  # keys, and names of columns
    for _, message, reply in carrier.seen:
        if tag_of(message) == ColumnRequest.TAG:
            bits = (
                np.unpackbits(MaskedColumns.decode(reply).words.view(np.uint8)).reshape(-1, 64).mean(axis=0)
            )
            assert np.abs(bits - 0.5).max() < 6.2 * 0.5 / np.sqrt(len(FRAME))  # P(|z| > 6.2) < 6e-10


def test_the_guarantee_names_helper_and_counts():
    guarantee = counts().guarantee
    who = {item.role: item for item in guarantee.disclosures}
    assert who["analyst"].gamma is None
    # which questions come next follows from answers, unless all are known beforehand
    assert who["helper"].gamma is None
    assert "what a search found" in who["helper"].kind
    fixed, _ = session(roles(), known_beforehand=True)
    [helper] = [item for item in fixed.guarantee().disclosures if item.role == "helper"]
    assert helper.gamma == 1
    assert ("helper", "x") in guarantee.excluded_coalitions
    assert guarantee.adversaries["x"] == "semi-honest"
    assert guarantee.colluders == len(OWNERS) - 1


def test_counts_follow_from_sums_of_products():
    table = np.random.default_rng(4).integers(0, 9, (3, 2, 4))
    moments = table
    for axis in range(3):
        moved = np.moveaxis(moments, axis, 0)
        moments = np.moveaxis(np.concatenate([moved.sum(axis=0, keepdims=True), moved[1:]]), 0, axis)
    assert np.array_equal(counts_from(moments), table)


def test_refusals_come_before_anything_leaves(monkeypatch):
    products, carrier = session(roles())
    source = RevealedVerticalCounts(products)
    before = len(carrier.seen)
    monkeypatch.setattr("masquerade.protocols.vertical.scalar_products.MOST_WORDS", 2 * len(FRAME))
    assert source.check([mq.Query(by=("A", "S"))]) == []
    for query in (mq.Query(by=("A", "T", "S")), mq.Query(by=("A", "L", "B", "X"))):
        assert [refusal.code for refusal in source.check([query])] == ["too_many_cells"]
        with pytest.raises(mq.QueryRefused, match="numbers"):
            source.answer([query])
    assert len(carrier.seen) == before
