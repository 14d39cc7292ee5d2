"""The wrappers around a source, with a source that only counts how it is asked."""

import numpy as np
import pytest
from tests.unit.core.linear import clear_table

from masquerade.core.errors import InputError, QueryRefused, Refusal
from masquerade.core.guarantee import Disclosure, Guarantee
from masquerade.core.query import Query
from masquerade.core.schema import Schema
from masquerade.core.tally import Cached, Merged, Tally, raise_refusals

SCHEMA = Schema({"a": (0, 1), "b": ("x", "y", "z")})


class Fake:
    """A source in which every cell holds `each` records, and which remembers every batch."""

    def __init__(self, each=1, refuses=(), gamma=2, schema=SCHEMA):
        self.schema, self.each, self.refuses = schema, each, refuses
        self.guarantee = Guarantee((Disclosure("miner", "values", ("a",), gamma),))
        self.batches = []

    def check(self, queries):
        return [Refusal("no", f"not {query.by}", query) for query in queries if query in self.refuses]

    def answer(self, queries):
        self.batches.append(list(queries))
        raise_refusals(self.check(queries))
        return [
            clear_table(
                np.full(self.schema.shape(query.by), float(self.each)),
                [self.schema[name] for name in query.by],
                6 * self.each,
            )
            for query in queries
        ]


A, B, AB = Query("a"), Query("b"), Query(("a", "b"))


def test_the_wrappers_are_sources_themselves():
    source = Fake()
    assert isinstance(source, Tally)
    assert isinstance(Cached(source), Tally)
    assert isinstance(Merged([source]), Tally)
    assert not isinstance(object(), Tally)


def test_cached_asks_only_new_questions_once_and_as_one_batch():
    source = Fake()
    cached = Cached(source)
    first = cached.answer([A, B, A])
    assert source.batches == [[A, B]]
    assert first[0] is first[2]
    second = cached.answer([B, AB])
    assert source.batches == [[A, B], [AB]]
    assert second[0] is first[1]
    cached.answer([A, AB])
    assert cached.answer([]) == []
    assert len(source.batches) == 2
    assert cached.guarantee is source.guarantee


def test_cached_does_not_take_one_for_true():
    source = Fake()
    Cached(source).answer([Query("b", {"a": 1}), Query("b", {"a": True})])
    assert len(source.batches[0]) == 2


def test_cached_checks_only_what_is_not_answered_yet_and_keeps_nothing_refused():
    source = Fake()
    cached = Cached(source)
    cached.answer([A])
    source.refuses = (A, B)
    assert [refusal.query for refusal in cached.check([A, B, B])] == [B]
    with pytest.raises(QueryRefused):
        cached.answer([A, B])
    source.refuses = ()
    assert cached.answer([B])[0].names == ("b",)


def test_merged_adds_the_tables_of_its_sources():
    merged = Merged([Fake(1), Fake(2), Fake(4)])
    one, two = merged.answer([A, AB])
    assert one.values.tolist() == [7, 7]
    assert two.values.tolist() == [[7] * 3] * 2
    assert one.n == 42
    assert merged.answer([]) == []


def test_merged_asks_nobody_if_one_refuses():
    sources = [Fake(), Fake(refuses=(B,)), Fake(refuses=(B, A))]
    with pytest.raises(QueryRefused) as caught:
        Merged(sources).answer([A, B])
    assert all(source.batches == [] for source in sources)
    assert [refusal.query for refusal in caught.value.refusals] == [B, A, B]
    assert str(caught.value) == "not ('b',); not ('a',)"  # each reason once


def test_merged_sources_guarantee_the_weakest_gamma():
    assert Merged([Fake(gamma=2), Fake(gamma=5), Fake(gamma=3)]).guarantee.disclosures[0].gamma == 5


def test_merged_needs_sources_of_one_schema():
    with pytest.raises(InputError, match="at least one"):
        Merged([])
    for other in ({"a": (False, True), "b": ("x", "y", "z")}, {"b": ("x", "y", "z"), "a": (0, 1)}):
        with pytest.raises(InputError, match="same schema"):
            Merged([Fake(), Fake(schema=Schema(other))])


def test_no_refusal_raises_nothing():
    assert raise_refusals([]) is None
