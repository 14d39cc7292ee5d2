"""Whole tables: what comes out is the same partition applied in clear, and nobody stands alone."""

from __future__ import annotations

from collections import Counter
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.protocols.k_anonymity.suppression.parties import ROWS, clear_distances, small

from masquerade.anonymity.suppression import partition_distances
from masquerade.core.errors import InputError, QueryRefused
from masquerade.crypto.keys import AgreementKey, SigningKey
from masquerade.protocols.k_anonymity.suppression import comparison
from masquerade.protocols.k_anonymity.suppression.messages import PartitionTerms, distances_on
from masquerade.protocols.k_anonymity.suppression.roles import KeyHolder, SuppressionMiner
from masquerade.simulation.suppression_run import SuppressionRun


def suppressed(rows, k, partition=partition_distances):
    """Return the same in clear: what differs in a group of the partition is left out."""
    groups = partition(np.array(clear_distances(rows)), k)
    return tuple(
        tuple(
            value if all(rows[j][c] == value for j in np.flatnonzero(groups == groups[i])) else None
            for c, value in enumerate(row)
        )
        for i, row in enumerate(rows)
    )


def test_the_talks_table_comes_out_as_printed():
    rows = [
        ("03-24-79", "07030"),
        ("08-02-57", "07030"),
        ("11-12-39", "07030"),
        ("08-02-57", "07030"),
        ("08-01-40", "07030"),
    ]
    found = SuppressionRun(rows, 2, attributes=["date of birth", "zip code"]).run()
    assert found.rows == (
        (None, "07030"),
        ("08-02-57", "07030"),
        (None, "07030"),
        ("08-02-57", "07030"),
        (None, "07030"),
    )


small_tables = st.tuples(st.integers(3, 8), st.integers(1, 3)).flatmap(
    lambda shape: st.lists(
        st.tuples(*[st.sampled_from(["", "ä", "b\0"])] * shape[1]), min_size=shape[0], max_size=shape[0]
    )
)


@given(rows=small_tables, k=st.integers(2, 3))
@settings(max_examples=6, deadline=None, derandomize=True)
def test_every_table_equals_the_clear_result_and_is_k_anonymous(rows, k):
    found = SuppressionRun(rows, k).run()
    assert found.distances.between.tolist() == clear_distances(rows)
    assert found.rows == suppressed(rows, k)
    assert min(Counter(found.rows).values()) >= k
    cells = zip(chain(*found.rows), chain(*rows), strict=True)
    assert all(new in (None, old) for new, old in cells)  # suppression only removes


def test_three_key_holders_and_an_auditor_come_to_the_same_distances():
    population = small(holders=3)
    boards = population.compare()
    for audit in (False, True):
        view = distances_on(population.terms, boards, audit=audit)
        assert view.between.tolist() == clear_distances(ROWS)


def test_costs_are_counted_for_every_role():
    population = small()
    population.run()
    assert set(population.meter.roles) == {"key holders", "miner", "randomness server"}
    assert min(population.meter.roles.values()) > 0
    for figures in (population.meter.seconds, population.meter.sent, population.meter.received):
        assert (figures > 0).all()


def test_the_guarantee_follows_from_the_terms():
    found = small(holders=3, attributes=["town", "trade"]).run().guarantee
    assert found.colluders == 2
    leaks = [item for item in found.disclosures if item.gamma is None]
    assert {item.role for item in leaks} == {"every participant", "miner"}
    assert all(item.variables == ("town", "trade") for item in found.disclosures)
    assert ("miner", "randomness server") in found.excluded_coalitions
    assert "group of at least 2" in found.summary()
    assert "two such rows" in found.summary()


def many(people):
    public = {f"p{i}": SigningKey().public for i in range(people)}
    identities = {name: SigningKey() for name in ("miner", "h1", "h2", "r")}
    box = AgreementKey()
    terms = PartitionTerms(
        "s",
        2,
        ["a"],
        identities["miner"].public,
        box.public,
        {name: identities[name].public for name in ("h1", "h2")},
        identities["r"].public,
        public,
    )
    return identities, box, terms


def test_more_than_300_people_are_refused_by_whoever_would_have_to_work(monkeypatch):
    asked = []
    monkeypatch.setattr(comparison, "seconds_per_test", lambda *given: asked.append(given) or 2.0)
    identities, box, terms = many(301)
    for make in (
        lambda **options: KeyHolder("h1", identities["h1"], terms, **options),
        lambda **options: SuppressionMiner(identities["miner"], box, terms, **options),
    ):
        with pytest.raises(QueryRefused, match=r"45,150 comparisons.*about 25.1 h ") as refused:
            make()
        assert refused.value.refusals[0].code == "too_many_people"
        make(accept_cost=True)
    with pytest.raises(QueryRefused, match="accept_cost=True"):
        SuppressionRun([["x"]] * 301, 2)
    assert asked == [(1, 2)] * 3
    many_enough = many(300)
    KeyHolder("h1", many_enough[0]["h1"], many_enough[2])
    assert len(asked) == 3


def test_the_time_in_a_refusal_is_measured(monkeypatch):
    ticks = iter([10.0, 16.0])
    monkeypatch.setattr(comparison.time, "process_time", lambda: next(ticks))
    assert comparison.seconds_per_test(2, 2) == 6.0 / (6 * 2)  # six pairs of two attributes


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 1}, "'k' must be"),
        ({"holders": 1}, "At least 2 key holders"),
        ({"attributes": ["x", "x"]}, "names are distinct"),
        ({"value_size": 0}, "value_size"),
        ({"value_size": 3}, "more than 3 bytes"),
        ({"rows": [("a", "b"), ("a",)]}, "same attributes"),
        ({"rows": []}, "A table needs rows"),
        ({"rows": [("a", "\ud800")] * 4}, "Unicode"),
        ({"rows": [("a",)] * 4, "attributes": ["x", "y"]}, "2 values"),
    ],
)
def test_terms_that_make_no_sense_are_refused(change, message):
    with pytest.raises(InputError, match=message):
        small(**change)


def test_everything_agreed_on_enters_the_id():
    _, _, terms = many(4)
    fields = {name: getattr(terms, name) for name in terms.__dataclass_fields__}
    other = SigningKey().public
    changes = {
        "session": "t",
        "k": 3,
        "attributes": ["b"],
        "miner": other,
        "box": AgreementKey().public,
        "holders": {**terms.holders, "h3": other},
        "randomness": other,
        "people": {**terms.people, "p4": other},
        "value_size": 65,
        "minimum": 4,
    }
    assert set(changes) == set(fields)
    ids = {PartitionTerms(**fields | {name: value}).id for name, value in changes.items()}
    assert len(ids | {terms.id}) == 1 + len(changes)


def test_a_value_is_another_number_in_another_attribute_or_session():
    (_, _, first), (_, _, second) = many(4), many(4)
    numbers = [first.exponent(0, b"x"), first.exponent(1, b"x"), first.exponent(0, b"x\0")]
    numbers += [first.exponent(0, b""), second.exponent(0, b"x")]
    assert len({number.reveal() for number in numbers}) == 5
    assert first.exponent(0, b"x").reveal() == numbers[0].reveal()


def test_the_miner_cannot_be_the_randomness_server():
    identities, box, terms = many(4)
    with pytest.raises(InputError, match="try every value"):
        PartitionTerms(
            "s", 2, ["a"], terms.miner, box.public, terms.holders, identities["miner"].public, terms.people
        )
