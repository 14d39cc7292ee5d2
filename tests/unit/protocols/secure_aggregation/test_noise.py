"""Secure aggregation with noise: variance, one draw a round, budgets over sessions, ring, refusals."""

import os
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.unit.protocols.secure_aggregation.people import (
    CIRCLE,
    CLEAR,
    DISGUISED,
    again,
    codes_of,
    on_a_circle,
    server_of,
    until,
    whole,
)

import masquerade as mq
from masquerade.channels.noise.sampler import NoiseSampler
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.people import FileLedger, MemoryLedger, NoisyPeople, Parameters, SumNoise
from masquerade.protocols.noise_shares import SHARES
from masquerade.protocols.people.questions import Question
from masquerade.protocols.secure_aggregation.agreement import QuestionBatch, RoundContext
from masquerade.protocols.secure_aggregation.masks import ring
from masquerade.protocols.secure_aggregation.message_sizes import most_traffic
from masquerade.protocols.secure_aggregation.messages import (
    NONCE_SIZE,
    Announcement,
    Delivery,
    MessageRefused,
)
from masquerade.simulation.aggregation import Aggregation
from masquerade.testing import check_tally

ALPHA = 1e-6
NOISE = SumNoise(epsilon=3, tables=6)
CELLS = 1500
WIDE = mq.Policy.clear(mq.Schema({"cell": list(range(CELLS))}))


def noisy(tables=6, epsilon=3.0, **changes):
    return on_a_circle(noise=SumNoise(epsilon, tables), **changes)


def is_variance(values, variance):
    """Return True unless a χ² test refuses the variance; false-alarm rate 1e-6 for sums close to normal."""
    statistic = float((np.asarray(values, dtype=float) ** 2).sum() / variance)
    low, high = stats.chi2.ppf([ALPHA / 2, 1 - ALPHA / 2], len(values))
    return low <= statistic <= high


def test_sums_carry_the_noise_of_all_users_and_colluders_leave_what_was_promised(monkeypatch):
    drawn, draw = [], NoiseSampler.draw

    def watched(sampler, shape):
        drawn.append(draw(sampler, shape))
        return drawn[-1]

    monkeypatch.setattr(NoiseSampler, "draw", watched)
    users = CIRCLE.users
    codes = {"cell": np.arange(users) * 7}
    population = Aggregation(codes, WIDE, replace(CIRCLE, noise=SumNoise(1, 9)))
    batch = QuestionBatch((Question(("cell",)),), population.terms.sizes)
    outcome = population.ask(batch)
    errors = outcome.counts - np.bincount(codes["cell"], minlength=CELLS)
    assert len(drawn) == users
    assert np.array_equal(errors, np.sum(drawn, axis=0))  # negative sums came through the ring
    terms = population.terms.noise
    assert (terms.contributors, terms.honest) == (3, 2)
    [stage] = terms.stages
    assert is_variance(errors, float(terms.total_variance(stage, users)))
    # what one colluder knows is subtracted; the shares of two honest users are what the accountant counted
    assert is_variance(drawn[0] + drawn[1], float(stage.variance))


def test_noisy_people_keeps_the_promises_of_a_tally():
    people = Parameters.of(40, noise=SumNoise(epsilon=5, tables=40), dropouts="0.1")
    codes = codes_of(40)
    frame = pd.DataFrame({"a": np.array(["x", "y"])[codes["a"]], "b": np.array([1, 2, 3])[codes["b"]]})
    source = NoisyPeople(Aggregation(codes, CLEAR, people), CLEAR)
    [item] = source.guarantee.disclosures
    assert (item.role, item.epsilon, item.delta) == ("miner", 5.0, 1e-6)
    assert any("verified" in line for line in source.guarantee.assumptions)
    check_tally(source, truth=frame)
    shares = mq.stats.shares(source, "a").to_frame()
    assert np.all(shares["upper"] > shares["lower"])


def test_tables_of_people_who_stayed_are_consistent_and_later_ones_kept_apart():
    population = noisy(tables=4)
    source = NoisyPeople(population, CLEAR)
    [both, one] = source.answer([mq.Query(by=("a", "b")), mq.Query(by="a")])
    assert source.tables_spent == 1  # one table covers both
    assert np.allclose(both.values.sum(axis=1), one.values)
    assert source.answer([mq.Query(by="b", where={"a": "x"})])[0].n == 14
    assert source.tables_spent == 1
    population.leaving = {3: Announcement}
    source._groups.clear()  # a client that has not seen the first table asks again
    [later] = source.answer([mq.Query(by=("a", "b"))])
    assert (later.n, source.tables_spent, source.rounds_held) == (13, 2, 2)


def test_table_after_the_last_is_refused_by_source_and_by_every_user():
    population = noisy(tables=2)
    source = NoisyPeople(population, CLEAR)
    source.answer([mq.Query(by=("a", "b"))])
    source._groups.clear()
    source.answer([mq.Query(by="a")])
    source._groups.clear()
    with pytest.raises(QueryRefused, match="0 of 2 are left") as told:
        source.answer([mq.Query(by="b")])
    assert told.value.refusals[0].code == "budget_spent"
    # a server that asks all the same, in a new session, gets no keys from anybody
    server = server_of(population, number=1)
    for place, message in server.advance().items():
        with pytest.raises(QueryRefused, match="0 of 2 are left"):
            population.users[place].receive(message)


def test_noise_is_drawn_once_after_kills_replays_and_twins(tmp_path):
    population = noisy(tables=3)
    ledger = FileLedger(tmp_path / "ledger")
    population.users[0] = again(population, 0, ledger)
    server = server_of(population)
    announcement = until(population, server, Announcement)[0]
    for place, user in enumerate(population.users):
        server.receive(place, user.receive(announcement))
    delivery = until(population, server, Delivery)[0]
    first = population.users[0].receive(delivery)
    assert len(ledger.values(SHARES)) == 1
    with pytest.raises(MessageRefused, match="out of sequence"):  # a replay is not answered with another draw
        population.users[0].receive(delivery)
    server.receive(0, first)
    ledger.close()
    restarted = again(population, 0, FileLedger(tmp_path / "ledger"))
    with pytest.raises(QueryRefused, match="was sent already"):
        restarted.receive(announcement)
    # a server that lies about the number of the round cannot have the table again either: it is spent
    spent = restarted._noise.tables_spent
    assert spent == 1
    context = population.users[0]._round.context
    name = context.session + context.round.to_bytes(4, "big")
    with pytest.raises(QueryRefused, match="drawn before"):
        restarted._noise.draw_cells(name, (mq.Query(by="a"),), [2])
    assert restarted._noise.tables_spent == spent


@pytest.mark.parametrize("when", ["after the claim", "after the draw"])
def test_user_killed_while_it_adds_noise_has_spent_its_tables(tmp_path, monkeypatch, when):
    """A process that ends in `_add_noise` leaves a ledger that allows no second draw."""
    population = noisy(tables=3)
    population.users[0] = again(population, 0, FileLedger(tmp_path / "ledger"))
    server = server_of(population)
    delivery = until(population, server, Delivery)[0]
    user, draw = population.users[0], NoiseSampler.draw

    def killed(sampler, shape):
        if when == "after the draw":
            draw(sampler, shape)
        raise KeyboardInterrupt

    monkeypatch.setattr(NoiseSampler, "draw", killed)
    with pytest.raises(KeyboardInterrupt):
        user.receive(delivery)
    monkeypatch.undo()
    twin = again(population, 0, FileLedger(tmp_path / "ledger"))
    assert twin._noise.tables_spent == 1
    later = until(population, server_of(population), Announcement)[0]
    with pytest.raises(QueryRefused, match="was sent already"):
        twin.receive(later)
    # the same user, still running, may not answer the same message again with other noise
    with pytest.raises(QueryRefused, match=r"voted or endorsed|drawn before"):
        user.receive(delivery)


def test_two_processes_of_a_user_cannot_both_spend_the_last_table(tmp_path):
    population = noisy(tables=1)
    one, two = (again(population, 0, FileLedger(tmp_path / "ledger"))._noise for _ in range(2))
    entries = two._entries()
    two._entries = lambda: entries  # it read the ledger before the other one wrote
    one.draw_cells(b"first", (mq.Query(by="a"),), [2])
    with pytest.raises(QueryRefused, match="drawn before"):
        two.draw_cells(b"second", (mq.Query(by="b"),), [3])


def test_too_few_survivors_open_nothing():
    population = noisy(minimum=13)
    population.leaving = {2: Delivery, 5: Delivery}
    with pytest.raises(RoundAborted, match="at least 13"):
        NoisyPeople(population, CLEAR).answer([mq.Query(by="a")])
    # users insist on it themselves, whatever the server says
    population = noisy(minimum=13, tables=3)
    server = server_of(population)
    server.terms = replace(population.terms, parameters=replace(population.terms.parameters, minimum=3))
    population.leaving = {2: Delivery, 5: Delivery}
    with pytest.raises(RoundAborted):
        population._run(server)
    assert any("survived, but at least 13" in reason for _, reason in population.refused)


def test_other_noise_than_stated_is_another_session():
    ours, theirs = noisy(), noisy(epsilon=2.0)
    roster = ours.terms.roster
    weaker = replace(ours.terms, parameters=replace(ours.terms.parameters, noise=SumNoise(10, 6)))
    nonce = os.urandom(NONCE_SIZE)
    batch = whole(ours)
    stated, claimed = (RoundContext.of(terms, nonce, 1, batch) for terms in (ours.terms, weaker))
    assert stated.session != claimed.session
    message = Announcement(claimed.tag, nonce, 1, batch.questions).encode(weaker)
    with pytest.raises(MessageRefused, match="another round"):
        ours.users[0].receive(message)
    assert roster.hash != theirs.terms.roster.hash
    without = replace(ours.terms.parameters, noise=None)
    assert without.encode() == CIRCLE.encode() != ours.terms.parameters.encode()


def test_ring_holds_noise_of_both_signs():
    few = Parameters.of(40, noise=SumNoise(1, 45))
    assert Parameters.of(40).width == 1
    terms = few.noise_terms
    spread = 12 * float(terms.total_variance(terms.stages[0], 40)) ** 0.5
    assert few.width == 2
    assert 2 * (40 + spread) < 256**few.width
    assert ring(2 * 127) == 1
    assert ring(2 * 128) == 2
    many = Parameters.of(1000, noise=SumNoise(1, 45))
    assert many.width == replace(many, noise=None).width == 2
    batch = QuestionBatch((Question(("cell",)),), {"cell": 1000})
    assert most_traffic(many, batch) == most_traffic(replace(many, noise=None), batch)


def test_minimum_is_all_but_the_dropouts_so_that_each_adds_little():
    parameters = Parameters.of(1000, noise=NOISE)
    assert (parameters.minimum, parameters.noise_terms.honest) == (950, 850)
    shares = parameters.noise_terms.shares(parameters.noise_terms.stages[0])
    whole_noise = parameters.noise_terms.stages[0].variance
    assert float(shares.variance * 850) == pytest.approx(float(whole_noise), rel=1e-9)
    with pytest.raises(InputError, match="at least 102"):
        Parameters.of(1000, noise=NOISE, minimum=100)


def test_noise_on_disguised_records_and_exact_tallies_of_noise_are_refused():
    with pytest.raises(InputError, match="choose either noise"):
        Aggregation(codes_of(14), DISGUISED, replace(CIRCLE, noise=NOISE))
    with pytest.raises(InputError, match="use NoisyPeople"):
        mq.people.AggregationTally(noisy(), CLEAR)
    with pytest.raises(InputError, match="did not agree to any noise"):
        NoisyPeople(on_a_circle(), CLEAR)
    for wrong in (SumNoise(0, 5), SumNoise(1, 0), SumNoise(1, 5, 1e-12)):
        with pytest.raises(InputError):
            Parameters.of(60, noise=wrong)


def test_lists_that_differ_by_one_are_allowed_because_each_sum_has_its_own_noise():
    population = noisy(tables=2)
    source = NoisyPeople(population, CLEAR)
    source.answer([mq.Query(by="a")])
    population.leaving = {1: Announcement}
    [table] = source.answer([mq.Query(by="b")])
    assert table.n == 13
    assert isinstance(population.ledgers[0], MemoryLedger)
    assert sum(len(ledger.values(SHARES)) for ledger in population.ledgers) == 14 + 13
