"""Any cell at any party, no miner: what a party sees of everybody, and tables of all cells in law."""

import os

import numpy as np
import pytest
from scipy.stats import chi2
from tests.unit.protocols.vertical.sites import SESSION, block, carried, pseudonyms

import masquerade as mq
from masquerade.core.errors import InputError, RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.data.example_networks import eleven_nodes, eleven_nodes_policy
from masquerade.protocols.vertical.disguised_cells import Site, restrict_to_variables
from masquerade.sources.parties.own_tables import OwnTablesOfStrata, Stratum, count_reports, foreign
from masquerade.sources.parties.scattered_cells import ScatteredCells

POLICY = restrict_to_variables(eleven_nodes_policy(), tuple("ATEXS"))

N, RUNS = 600, 30
TABLES = (("A", "E"), ("A", "T"), ("E", "X"), ("E", "S", "T"))
HELD = {"north": tuple("ATE"), "south": tuple("AEXS")}
POLICIES = {party: restrict_to_variables(POLICY, names) for party, names in HELD.items()}
CROSSING = foreign(TABLES, HELD)


def sites(people, listed, *, first=N // 2, stray=0):
    """Return two parties: north has T of all, A of the first, E of the rest; south has X, S and what is left.

    Of so many `stray` people more north has A as well as E.
    """
    a, e = range(first + stray), range(first, len(people))
    rest_a, rest_e = range(first + stray, len(people)), range(first)

    def some(names, rows):
        return block(people.iloc[list(rows)][list(names)], [listed[row] for row in rows], POLICY)

    held = {
        "north": [some("T", range(len(people))), some("A", a), some("E", e)],
        "south": [some("XS", range(len(people))), some("A", rest_a), some("E", rest_e)],
    }
    return {party: Site(party, POLICIES[party], blocks, SESSION) for party, blocks in held.items()}


def seen(parties, *, least=20):
    """Return what each party sees."""
    return {
        party: ScatteredCells(site, POLICIES, CROSSING, carried(parties), least=least)
        for party, site in parties.items()
    }


def tables_of(views, policies=POLICIES):
    """Return the source of whoever convenes."""
    return OwnTablesOfStrata(
        policies,
        CROSSING,
        lambda party: [Stratum(names, records.n) for names, records in views[party].strata.items()],
        lambda party, tables: [
            [count_reports(records, [names])[0] for records in views[party].strata.values()]
            for names in tables
        ],
        Guarantee(()),
    )


def test_tables_are_off_the_joined_cells_by_their_errors():
    """Squares of z add up to chi-square, one for a cell of every table; beyond both ends with chance 1e-6."""
    people = eleven_nodes().sample(N, seed=1)[list(POLICY.schema)]
    queries = [mq.Query(by=names) for names in TABLES]
    exact = mq.tally(people, schema=POLICY.schema).answer(queries)
    miner = mq.tally(mq.simulate(people, POLICY, 1), POLICY).answer(queries)
    z, errors = [], []
    for _ in range(RUNS):
        source = tables_of(seen(sites(people, pseudonyms(N))))
        for table, clear in zip(source.answer(queries), exact, strict=True):
            assert table.n == N
            assert np.isclose(table.total, N)
            z.append((table.values - clear.values).ravel()[0] / table.stderr("given_records").ravel()[0])
        errors.append([table.stderr("given_records").ravel()[0] for table in source.answer(queries)])
    total, many = np.square(z).sum(), len(z)
    low, high = chi2.ppf([5e-7, 1 - 5e-7], many / len(TABLES)) * len(TABLES)  # tables of a run share reports
    assert low < total < high, (total / many) ** 0.5
    with_miner = [table.stderr("given_records").ravel()[0] for table in miner]
    assert np.all(np.mean(errors, axis=0) < with_miner)  # own cells are counted as they are


def test_clear_cells_make_the_joined_table():
    people = eleven_nodes().sample(200, seed=2)[list(POLICY.schema)]
    open_policies = {party: policy.without_channels() for party, policy in POLICIES.items()}
    parties = {
        party: Site(party, open_policies[party], site.cells, SESSION)
        for party, site in sites(people, pseudonyms(200), first=90).items()
    }
    views = {
        party: ScatteredCells(site, open_policies, CROSSING, carried(parties), least=20)
        for party, site in parties.items()
    }
    queries = [mq.Query(by=names) for names in TABLES]
    clear = mq.tally(people, schema=POLICY.schema).answer(queries)
    for table, exact in zip(tables_of(views, open_policies).answer(queries), clear, strict=True):
        assert np.allclose(table.values, exact.values, atol=1e-9)


def test_people_are_told_apart_by_what_is_held_of_them_unless_they_are_few():
    people = eleven_nodes().sample(N, seed=3)[list(POLICY.schema)]
    listed = [os.urandom(16) for _ in range(N)]
    parted = seen(sites(people, listed))["north"].strata
    assert {names: records.n for names, records in parted.items()} == {("A",): N // 2, ("E",): N // 2}
    assert not parted["A",].policy.group("A").disguised
    assert parted["A",].policy.group("E").disguised
    few = seen(sites(people, listed, stray=5))["north"].strata
    # five of whom north has both would be counted apart, so all of the smaller stratum beside is reported
    assert {names: records.n for names, records in few.items()} == {("A",): N // 2, (): N // 2}
    assert all(records.n >= 20 for records in few.values())
    alone = seen(sites(people.iloc[:30], listed[:30], first=15))["north"].strata
    assert {names: records.n for names, records in alone.items()} == {(): 30}
    assert all(alone[()].policy.group(name).disguised for name in "AE")


def test_a_cell_that_two_hold_is_refused():
    people = eleven_nodes().sample(60, seed=4)[list(POLICY.schema)]
    listed = pseudonyms(60)
    parties = sites(people, listed, first=30)
    twice = block(people[["A"]], listed, POLICY)
    parties["south"] = Site("south", POLICIES["south"], [*parties["south"].cells[:1], twice], SESSION)
    with pytest.raises(InputError, match="sent twice"):
        seen(parties)


@pytest.mark.parametrize(
    "told", [[], [(("A",), 300), (("A",), 300)], [(("T",), 600)], [((), 0)], [(("Z",), 600)]]
)
def test_strata_that_are_none_name_whoever_spoke_of_them(told):
    source = OwnTablesOfStrata(
        POLICIES, CROSSING, lambda _: [Stratum(*it) for it in told], lambda *_: [], Guarantee(())
    )
    with pytest.raises(RoundAborted, match="sent invalid strata") as refused:
        source.answer([mq.Query(by=("A", "T"))])
    assert refused.value.culprits == ("north",)
