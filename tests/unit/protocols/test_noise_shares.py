"""Secure sums with noise: two parties, colluders, replays, budgets, and the edge of the ring."""

import json
import math
import re

import numpy as np
import pytest
from scipy import stats

import masquerade as mq
from masquerade.channels.noise.sampler import NoiseSampler
from masquerade.core.errors import InputError, QueryRefused, RoundAborted
from masquerade.crypto.keys import SigningKey
from masquerade.people import MemoryLedger
from masquerade.protocols.noise_shares import SHARES, NoiseBudget, NoiseShares
from masquerade.protocols.secure_sum import LARGEST_PARTY, CountRequest, MaskedCounts, MaskedSum
from masquerade.protocols.wire.codec import tag_of
from masquerade.protocols.wire.session import Batch, LocalTransport
from masquerade.sources.parties.pooled import NoisyPool, pooling_party
from masquerade.testing import check_tally

STUDENTS = mq.data.students()
SCHEMA = mq.tally(STUDENTS).schema
POLICY = mq.Policy.clear(SCHEMA)
SCOPE = bytes(32)
PAIR = mq.Query(by=("exams", "pills"))
ALPHA = 1e-6


class Pool:
    """Parties that hold every m-th record, and their ledgers."""

    def __init__(self, terms, parties=3, ledgers=None, budget=None, **options):
        names = ["east", "north", "west", "south"][:parties]
        keys = {name: SigningKey() for name in names}
        public = {name: key.public for name, key in keys.items()}
        self.ledgers = ledgers or {name: MemoryLedger() for name in names}
        self.parties = {
            name: pooling_party(
                name,
                mq.tally(STUDENTS.iloc[i::parties], schema=POLICY),
                keys[name],
                public,
                noise=terms and NoiseShares(terms, self.ledgers[name], SCOPE, budget),
                **options,
            )
            for i, name in enumerate(names)
        }
        self.transport = LocalTransport({name: party.receive for name, party in self.parties.items()})
        self.terms = terms

    def sum(self, **options):
        return MaskedSum(tuple(self.parties), self.transport, POLICY, **({"noise": self.terms} | options))

    def source(self, **options):
        return NoisyPool(self.sum(), POLICY, **options)


@pytest.mark.parametrize(("parties", "colluders"), [(2, 1), (3, 1), (4, 0)])
def test_noisy_pool_keeps_the_promises_of_a_tally(parties, colluders):
    terms = mq.NoiseTerms(1, 40, contributors=parties, colluders=colluders)
    source = Pool(terms, parties).source()
    check_tally(source, truth=STUDENTS)
    assert source.n == 600
    [item] = source.guarantee.disclosures
    assert (item.epsilon, item.delta, source.guarantee.colluders) == (1.0, 1e-6, colluders)


def test_two_parties_are_refused_without_noise():
    with pytest.raises(InputError, match="at least 3 parties"):
        Pool(None, 2).sum(noise=None)


@pytest.mark.parametrize("rounds", [100, pytest.param(400, marks=pytest.mark.slow)])
def test_sums_have_the_variance_of_all_shares_and_colluders_leave_the_rest(monkeypatch, rounds):
    """Real protocol, rounds of 36 cells: false-alarm rate 1e-6 for each comparison.

    A missing share changes the variance by a third: almost three times what 100 rounds allow.
    """
    terms = mq.NoiseTerms(1, 2400, contributors=3, colluders=1)
    drawn = []
    draw = NoiseSampler.draw

    def watched(self, shape):
        result = draw(self, shape)
        drawn.append(result)
        return result

    monkeypatch.setattr(NoiseSampler, "draw", watched)
    pool = Pool(terms)
    masked = pool.sum()
    queries = [mq.Query(by=pair) for pair in (("exams", "pills"), ("year", "sleep"), ("exams", "year"))]
    exact = np.concatenate([t.values.ravel() for t in mq.tally(STUDENTS).answer(queries)]).astype(int)
    noise, secret = [], []
    for _ in range(rounds):
        drawn.clear()
        noise.append(masked.totals(queries).astype(np.int64) - exact)
        first = np.concatenate(drawn[: len(queries)])  # the first party asked colludes
        secret.append(noise[-1] - first)
    size = np.size(noise)
    bound = stats.norm.isf(ALPHA / 2) * math.sqrt(2 / size) * 1.05
    assert abs(np.var(noise) / terms.variance - 1) < bound
    assert abs(np.var(secret) / float(terms.stages[0].variance) - 1) < bound
    assert abs(np.mean(noise)) < stats.norm.isf(ALPHA / 2) * terms.deviation / math.sqrt(size)


def test_every_party_keeps_the_budget_itself():
    """A convener that forgets what it asked is refused by each party."""
    masked = Pool(mq.NoiseTerms(1, 2, contributors=3, colluders=1)).sum()
    for _ in range(2):
        masked.totals([PAIR])
    with pytest.raises(QueryRefused, match="0 of 2 are left"):
        masked.totals([PAIR])


def test_a_repeated_request_gets_the_same_bytes_and_a_second_draw_is_refused():
    pool = Pool(mq.NoiseTerms(1, 5, contributors=3, colluders=1))
    masked = pool.sum()
    masked.totals([PAIR])
    request = CountRequest(masked.session, 1, Batch((PAIR,))).encode()
    party = pool.parties["east"]
    assert party.receive(request) == party.receive(request)
    shares = NoiseShares(pool.terms, pool.ledgers["east"], SCOPE)
    assert shares.tables_spent == 1
    with pytest.raises(QueryRefused, match="drawn before"):
        shares.draw(masked.session + (1).to_bytes(8, "big"), [PAIR], SCHEMA)
    assert shares.tables_spent == 1


def test_a_restarted_party_has_spent_its_tables():
    """Keys of a session are in memory only: after a restart a new session starts with the same ledger."""
    terms = mq.NoiseTerms(1, 2, contributors=3, colluders=1)
    first = Pool(terms)
    first.source().answer([PAIR])
    again = Pool(terms, ledgers=first.ledgers).sum()
    assert again.totals([mq.Query()]).tolist() == [600]  # the number of records is public
    again.totals([mq.Query(by="year")])
    with pytest.raises(QueryRefused, match="0 of 2 are left"):
        again.totals([mq.Query(by="sleep")])


def test_tables_are_spent_before_noise_is_drawn(monkeypatch):
    pool = Pool(mq.NoiseTerms(1, 3, contributors=3, colluders=1))
    source = pool.source()

    def fail(*_):
        raise RuntimeError("killed")

    monkeypatch.setattr(NoiseSampler, "draw", fail)
    with pytest.raises(Exception, match="killed"):
        source.answer([PAIR])
    assert NoiseShares(pool.terms, pool.ledgers["east"], SCOPE).tables_spent == 1


def test_agreements_and_rosters_must_match():
    terms = mq.NoiseTerms(1, 3, contributors=3, colluders=1)
    with pytest.raises(InputError, match="agreed on for 3 parties, and the pool has 2"):
        Pool(terms, 2).sum()
    weaker = mq.NoiseTerms(3, 3, contributors=3, colluders=1)
    with pytest.raises((InputError, RoundAborted)):
        Pool(terms).sum(noise=weaker)
    with pytest.raises((InputError, RoundAborted)):
        Pool(terms).sum(noise=None)
    with pytest.raises((InputError, RoundAborted), match="differs by"):
        Pool(terms, earlier=[["east", "north"]]).sum()


def test_a_budget_over_sessions_is_kept():
    """Two sessions of ε = 1 fit into ε = 1.5, by the accountant; a third does not."""
    ledger, budget = MemoryLedger(), NoiseBudget(1.5, 1e-6)
    terms = mq.NoiseTerms(1, 5, contributors=3, colluders=1)
    queries = [mq.Query(by=pair) for pair in (("exams", "pills"), ("year", "sleep"), ("exams", "year"))]
    queries += [mq.Query(by=("pills", "year")), mq.Query(by=("pills", "sleep"))]
    for number in range(2):
        NoiseShares(terms, ledger, bytes([number]) * 32, budget).draw(bytes(24), queries, SCHEMA)
    third = NoiseShares(terms, ledger, bytes([2]) * 32, budget)
    with pytest.raises(QueryRefused, match="budget of noise over all sessions"):
        third.draw(bytes(24), queries, SCHEMA)
    assert third.tables_spent == 0


def test_negative_sums_open_and_impossible_ones_abort():
    """Signed sums up to the size of all parties open; beyond, the round is aborted."""
    terms = mq.NoiseTerms(1, 400, contributors=3, colluders=1)
    pool = Pool(terms)
    masked = pool.sum()
    rare = mq.Query(by=list(SCHEMA))
    totals = np.concatenate([masked.totals([rare]).astype(np.int64) for _ in range(20)])
    assert totals.min() < 0  # 480 cells of about 25 people, noise of 150: fails by chance below 1e-30

    def shifted(by):
        """Return the sum of a pool whose last party adds a number to every cell."""
        other = Pool(terms)
        receive = other.parties["west"].receive

        def answer(message):
            reply = receive(message)
            if tag_of(message) != CountRequest.TAG:
                return reply
            cells = MaskedCounts.decode(reply)
            return MaskedCounts(cells.session, cells.round, cells.cells + np.uint64(by)).encode()

        own = {name: party.receive for name, party in other.parties.items()}
        other.transport = LocalTransport({**own, "west": answer})
        return other.sum().totals([PAIR]).astype(np.int64)

    assert shifted(2 * LARGEST_PARTY).min() > LARGEST_PARTY
    assert shifted(2**64 - 2 * LARGEST_PARTY).max() < -LARGEST_PARTY
    for by in (4 * LARGEST_PARTY, 2**64 - 4 * LARGEST_PARTY, 2**63):
        with pytest.raises(RoundAborted, match="larger than the parties' records allow"):
            shifted(by)


def test_disguised_records_are_pooled_without_noise():
    policy = mq.data.students_policy()
    records = mq.tally(mq.simulate(STUDENTS, policy, seed=1), policy)
    terms = mq.NoiseTerms(1, 3, contributors=3, colluders=1)
    key, shares = SigningKey(), NoiseShares(terms, MemoryLedger(), SCOPE)
    with pytest.raises(InputError, match="clear records"):
        pooling_party("a", records, key, {"a": key.public}, noise=shares)


def test_stages_and_scopes_are_checked():
    with pytest.raises(InputError, match="one stage"):
        NoiseShares(mq.NoiseTerms(1, [(3, 0.5), (3, 0.5)]), MemoryLedger(), SCOPE)
    with pytest.raises(InputError, match="32 bytes"):
        NoiseShares(mq.NoiseTerms(1, 3), MemoryLedger(), b"")


def test_learners_run_on_two_parties():
    source = Pool(mq.NoiseTerms(1, 3, contributors=2, colluders=1), 2).source()
    assert mq.learn.naive_bayes(source, "pills").summary()
    assert source.tables_spent == 3


def test_further_draws_of_a_pool_are_spent_by_every_party():
    pool = Pool(mq.NoiseTerms(1, 12, contributors=3, colluders=1))
    source = pool.source()
    structure = mq.ask_tree(source)
    assert sum(len(parents) for parents in structure.values()) <= 3
    links = sum(len(parents) for parents in structure.values())
    spent = 6 + (6 // links * links if links else 0)
    assert source.tables_spent == spent
    for ledger in pool.ledgers.values():
        assert sum(json.loads(entry)["tables"] for entry in ledger.values(SHARES)) == spent


def test_shares_are_in_no_log_and_no_text(monkeypatch, caplog):
    """All shares are one long number here, so that it, or the sum of three, would be seen anywhere."""
    monkeypatch.setattr(NoiseSampler, "draw", lambda _, n: np.full(n, 7_654_321))
    caplog.set_level(0)
    pool = Pool(mq.NoiseTerms(1, 3, contributors=3, colluders=1))
    source = pool.source()
    source.answer([PAIR])
    shown = [record.getMessage() for record in caplog.records]
    shown += [repr(one) for one in (source, *pool.parties.values(), *pool.ledgers.values())]
    shown += [str(entry) for ledger in pool.ledgers.values() for entry in ledger.values(SHARES)]
    assert not any(
        re.search(r"7654\d{3}|2296\d{4}", text.replace(",", "").replace("_", "")) for text in shown
    )
