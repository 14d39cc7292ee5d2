"""Tables that parties count for themselves, without a miner: who counts, what crosses, how far off."""

import numpy as np
import pytest
from scipy.stats import chi2

import masquerade as mq
from masquerade.core.errors import RoundAborted
from masquerade.core.guarantee import Guarantee
from masquerade.data.example_networks import eleven_nodes, eleven_nodes_policy
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.sources.parties.own_tables import OwnTables, count_reports, foreign, view_of, who_counts

OWNERS = {"north": ("A", "T", "E"), "south": ("S", "L", "B", "D"), "registry": ("X", "C", "F", "G")}
POLICY = eleven_nodes_policy()
POLICIES = {party: restrict_to_variables(POLICY, names) for party, names in OWNERS.items()}
EVERYTHING = {(a, b): OWNERS[a] for a in OWNERS for b in OWNERS if a != b}
NOBODY = Guarantee(())
RUNS, PEOPLE = 60, 500
TABLES = (("E", "X"), ("E", "B"), ("A", "D"), ("E", "B", "D"), ("C", "D"))


def views(people, seed):
    """Return what every party sees of some people: own columns as they are, the one disguise of others'."""
    reports = mq.simulate(people[list(POLICY.schema)], POLICY, seed=seed)
    found = {}
    for party, own in OWNERS.items():
        policy = view_of(party, POLICIES, EVERYTHING)
        columns = {name: (people if name in own else reports)[name] for name in policy.observed}
        found[party] = mq.tally(type(people)(columns), policy)
    return found, mq.tally(reports, POLICY)


def test_a_table_is_counted_where_most_of_it_lies_and_nothing_else_crosses():
    assert who_counts(("E", "X", "C"), OWNERS) == "registry"
    assert who_counts(("E", "X"), OWNERS) == "registry"  # of a class and a feature, the feature's owner
    assert who_counts(("X", "E"), OWNERS) == "north"
    assert who_counts((), OWNERS) in OWNERS
    assert foreign([("E", "X"), ("E", "B"), ("E",), ("E", "C")], OWNERS) == {
        ("north", "registry"): ("E",),
        ("north", "south"): ("E",),
    }


def test_tables_are_off_by_their_errors_with_a_miner_and_by_less_without():
    """Squares of z add up to chi-square, one for a cell of every table; beyond both ends with chance 1e-6."""
    people = eleven_nodes().sample(PEOPLE, seed=1)
    truth = mq.tally(people, schema=POLICY.schema)
    queries = [mq.Query(by=names) for names in TABLES]
    clear = truth.answer(queries)
    z, errors = {"own": [], "miner": []}, {"own": [], "miner": []}
    for seed in range(RUNS):
        seen, miner = views(people, seed)
        own = OwnTables(
            POLICIES,
            EVERYTHING,
            PEOPLE,
            lambda party, tables, s=seen: count_reports(s[party], tables),
            NOBODY,
        )
        for way, source in (("own", own), ("miner", miner)):
            for table, exact in zip(source.answer(queries), clear, strict=True):
                stderr = table.stderr("given_records").ravel()[0]
                z[way].append((table.values - exact.values).ravel()[0] / stderr)
                errors[way].append(stderr)
    for way, found in z.items():
        total, many = np.square(found).sum(), len(found)
        # tables of one run share reports, so they do not vary independently: five runs' worth for each
        low, high = chi2.ppf([5e-7, 1 - 5e-7], many / len(TABLES)) * len(TABLES)
        assert low < total < high, (way, (total / many) ** 0.5)
    assert np.mean(errors["own"]) < np.mean(errors["miner"])


@pytest.mark.parametrize(
    "wrong", [lambda cells: cells[1:], lambda cells: [cells[0] + 1, *cells[1:]], lambda _: []]
)
def test_a_party_that_counts_something_else_is_named(wrong):
    people = eleven_nodes().sample(50, seed=1)
    seen, _ = views(people, 1)
    source = OwnTables(
        POLICIES,
        EVERYTHING,
        50,
        lambda party, tables: [wrong(it) for it in count_reports(seen[party], tables)],
        NOBODY,
    )
    with pytest.raises(RoundAborted, match="'registry' sent an invalid table") as refused:
        source.answer([mq.Query(by=("E", "X"))])
    assert refused.value.culprits == ("registry",)
