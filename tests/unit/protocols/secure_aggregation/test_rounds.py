"""Whole rounds: exactly the clear counts of the survivors, or none at all, whatever happens to messages."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.unit.protocols.secure_aggregation.people import (
    CLEAR,
    DISGUISED,
    clear_counts,
    codes_of,
    on_a_circle,
    people,
    server_of,
    until,
    whole,
)

from masquerade.core.errors import QueryRefused, RoundAborted
from masquerade.crypto.errors import DecodingError
from masquerade.protocols.secure_aggregation.agreement import Parameters
from masquerade.protocols.secure_aggregation.messages import (
    KINDS,
    Announcement,
    Commitments,
    Delivery,
    Endorsements,
    MessageRefused,
    Neighbours,
    RoundCall,
    Shares,
    Survivors,
    Unmasking,
    Vote,
    kind_of,
)
from masquerade.simulation.aggregation import Aggregation

STAGES = [
    Announcement,
    Neighbours,
    Delivery,
    Survivors,
    Endorsements,
]


@pytest.mark.parametrize("server", ["semi-honest", "malicious"])
def test_the_sum_is_exactly_the_clear_counts(server):
    population = people(server=server)
    outcome = population.ask(whole(population))
    assert np.array_equal(outcome.counts, clear_counts(12, range(12)))
    assert outcome.survivors == tuple(range(12))
    assert population.refused == []


@pytest.mark.parametrize(
    ("stage", "server"),
    [(stage, "malicious") for stage in STAGES] + [(stage, "semi-honest") for stage in STAGES[:4]],
)
def test_users_may_drop_out_at_every_stage(stage, server):
    population = people(server=server)
    population.leaving = {3: stage, 7: stage}
    outcome = population.ask(whole(population))
    voted = stage in (Survivors, Endorsements)  # their votes had left, and count
    counted = range(12) if voted else [place for place in range(12) if place not in {3, 7}]
    assert outcome.survivors == tuple(counted)
    assert np.array_equal(outcome.counts, clear_counts(12, list(counted)))


def test_users_may_drop_out_at_different_stages():
    population = people(20, minimum=5, dropouts="0.25")
    population.leaving = {0: Announcement, 5: Neighbours, 11: Delivery, 19: Survivors}
    outcome = population.ask(whole(population))
    counted = [place for place in range(20) if place not in {0, 5, 11}]
    assert outcome.survivors == tuple(counted)
    assert np.array_equal(outcome.counts, clear_counts(20, counted))


@pytest.mark.parametrize("stage", STAGES, ids=lambda kind: kind.__name__.lower())
def test_too_many_dropouts_abort(stage):
    population = people()
    population.leaving = dict.fromkeys(range(7), stage)
    with pytest.raises(RoundAborted) as aborted:
        population.ask(whole(population))
    assert aborted.value.spent == (stage in (Delivery, Survivors, Endorsements))


def test_an_aborted_round_ends_a_clear_session_and_not_a_disguised_one():
    for policy, codes in ((CLEAR, ["already_spent"]), (DISGUISED, [])):
        population = people(policy=policy)
        population.inward = lambda _place, message: [] if kind_of(message) is Unmasking else [message]
        with pytest.raises(RoundAborted, match="answered") as aborted:
            population.ask(whole(population))
        assert aborted.value.spent
        assert [refusal.code for refusal in population.refusals()] == codes


@pytest.mark.parametrize("make", [people, on_a_circle])
def test_an_abort_before_votes_left_costs_nothing(make):
    population = make()
    population.inward = lambda _place, message: [] if kind_of(message) is Shares else [message]
    with pytest.raises(RoundAborted, match="sent shares") as aborted:
        population.ask(whole(population))
    assert not aborted.value.spent
    population.inward = lambda _place, message: [message]
    users = len(population.users)
    assert np.array_equal(population.ask(whole(population)).counts, clear_counts(users, range(users)))


def test_a_roster_below_the_minimum_is_refused_before_anything_leaves():
    population = Aggregation(codes_of(12), CLEAR, Parameters.of(12))
    with pytest.raises(QueryRefused, match="at least 20"):
        population.ask(whole(population))
    assert population.meter.sent.sum() == population.meter.received.sum() == 0
    announcement = server_of(population).advance()[0]
    with pytest.raises(QueryRefused, match="12 users are enrolled") as refused:
        population.users[0].receive(announcement)
    assert refused.value.refusals[0].code == "roster_too_small"


@pytest.mark.parametrize("stage", [RoundCall, Commitments, Neighbours, Delivery])
def test_the_graph_is_drawn_by_those_who_stay(stage):
    population = on_a_circle()
    called = []

    def listen(place, message):
        if kind_of(message) is RoundCall:
            called.append(place)
        if kind_of(message) is stage and not population.leaving:
            population.leaving = {place: stage}
        return [message]

    population.outward = listen
    outcome = population.ask(whole(population))
    (left,) = population.gone
    assert left not in outcome.survivors
    assert len(outcome.survivors) == 13
    assert np.array_equal(outcome.counts, clear_counts(14, list(outcome.survivors)))
    again = stage in (RoundCall, Commitments)  # a later committee may be unlucky with the same user
    assert len(called) >= 6 if again else len(called) == 3
    assert not again or left not in called[-3:]


def test_three_hundred_users_on_their_circle():
    population = Aggregation(codes_of(300), CLEAR, Parameters.of(300, server="semi-honest"))
    assert not population.terms.parameters.complete
    population.leaving = dict.fromkeys(range(0, 300, 20), Delivery)
    outcome = population.ask(whole(population))
    counted = [place for place in range(300) if place % 20]
    assert np.array_equal(outcome.counts, clear_counts(300, counted))


def test_a_session_keeps_its_graph():
    population = on_a_circle()
    first = population.ask(whole(population))
    second = population.ask(whole(population))
    assert second.graph is first.graph
    assert np.array_equal(first.counts, second.counts)


def test_masks_leave_nothing_of_the_vote():
    """The bytes of 144 masked votes of six counts fall evenly into sixteen classes; false alarm 1e-6."""
    from scipy.stats import chi2  # noqa: PLC0415

    seen = []
    for _ in range(12):
        population = people()
        population.inward = lambda _place, message: (
            (seen.append(message[-6:]) or [message]) if kind_of(message) is Vote else [message]
        )
        population.ask(whole(population))
    data = np.frombuffer(b"".join(seen), dtype=np.uint8)
    counts = np.bincount(data >> 4, minlength=16)  # coarse, so that every class expects 54
    statistic = ((counts - len(data) / 16) ** 2 / (len(data) / 16)).sum()
    assert len(data) == 12 * 12 * 6
    assert statistic < chi2.isf(1e-6, 15)


FAULTS = ("deliver", "lose", "twice", "cut", "longer", "flip", "replay")


def faulty(choices, history):
    """Return a wire that does to each message what the next choice says."""

    def wire(_place, message):
        fault, where = next(choices, ("deliver", 0))
        history.append(message)
        at = where % len(message)
        return {
            "deliver": [message],
            "lose": [],
            "twice": [message, message],
            "cut": [message[:at]],
            "longer": [message + b"\0"],
            "flip": [message[:at] + bytes([message[at] ^ (1 << where % 8)]) + message[at + 1 :]],
            "replay": [history[where % len(history)], message],
        }[fault]

    return wire


@given(
    st.lists(st.tuples(st.sampled_from(FAULTS), st.integers(0, 10_000)), max_size=12),
    st.integers(0, 90),
    st.sampled_from(["semi-honest", "malicious"]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
def test_whatever_happens_to_messages_counts_are_right_or_absent(faults, start, server, outward):
    population = people(9, minimum=4, dropouts="0.3", server=server)
    waiting = iter([("deliver", 0)] * start + faults)
    if outward:
        population.outward = faulty(waiting, [])
    else:
        population.inward = faulty(waiting, [])
    try:
        outcome = population.ask(whole(population))
    except RoundAborted:
        return
    assert np.array_equal(outcome.counts, clear_counts(9, list(outcome.survivors)))


@given(st.binary(max_size=80), st.sampled_from(list(KINDS.values())), st.sampled_from(STAGES))
@settings(max_examples=60, deadline=None)
def test_random_bytes_change_nothing(noise, kind, stage):
    population = people(7, minimum=3)
    server = server_of(population)
    until(population, server, stage)
    head = len(kind.TAG).to_bytes(4, "big") + kind.TAG + server.context.tag
    for data in (noise, head + noise):
        with pytest.raises((DecodingError, MessageRefused)):
            server.receive(0, data)
        if kind is Survivors and data is not noise:
            continue  # any bits may be a list of survivors
        with pytest.raises((DecodingError, MessageRefused)):
            population.users[0].receive(data)


def test_messages_out_of_turn_twice_or_from_others_are_refused():
    population = people()
    server = server_of(population)
    announcements = until(population, server, Announcement)
    advert = population.users[0].receive(announcements[0])
    with pytest.raises(MessageRefused, match="not signed by 'user 1'") as refused:
        server.receive(1, advert)
    assert refused.value.culprits == ("user 1",)
    server.receive(0, advert)
    with pytest.raises(MessageRefused, match="replied already"):
        server.receive(0, advert)
    for place in range(1, 12):
        server.receive(place, population.users[place].receive(announcements[place]))
    shown = server.advance()
    with pytest.raises(MessageRefused, match="out of sequence"):
        server.receive(0, advert)
    shares = population.users[0].receive(shown[0])
    with pytest.raises(MessageRefused, match="out of sequence"):
        population.users[0].receive(shown[0])
    stale = server_of(population, number=2)
    for place, message in stale.advance().items():
        stale.receive(place, population.users[place].receive(message))
    stale.advance()
    with pytest.raises(MessageRefused, match="a different round"):
        stale.receive(0, shares)
    with pytest.raises(MessageRefused, match="a different round"):
        population.users[0].receive(shown[0])


def test_the_graph_is_not_there_before_it_is_drawn():
    with pytest.raises(MessageRefused, match="not been drawn"):
        _ = server_of(on_a_circle()).graph
