"""The first records of a case, each with a person of its own, counted by either protocol between people."""

from __future__ import annotations

from tests.conformance.cases import Case

from masquerade.learn.classifiers.prediction_rows import row_codes
from masquerade.simulation import people_from
from masquerade.simulation.aggregation import Aggregation
from masquerade.simulation.frequency import FrequencyMining
from masquerade.sources.people.aggregation import AggregationTally
from masquerade.sources.people.frequency import FrequencyTally

FEW = 4  # every count of every person takes a proof
SOME = 40


def by_frequency_mining(case: Case) -> tuple[FrequencyMining, FrequencyTally]:
    """Return people, and what a miner counts by the published protocol; their reports are the case's."""
    people = FrequencyMining(people_from(case.clear.iloc[:FEW], case.policy, seed=None), minimum=3)
    for user, codes in zip(people.users.values(), report_codes(case, FEW), strict=True):
        user._reports = dict(zip(case.policy.observed, codes, strict=True))
    return people, people.tally()


def by_aggregation(case: Case) -> tuple[Aggregation, AggregationTally]:
    """Return people, and what a server counts by secure aggregation; their reports are the case's."""
    schema = case.policy.schema
    clear = row_codes(case.clear.iloc[:SOME], schema, schema)
    people = Aggregation(clear, case.policy)
    for user, codes in zip(people.users, report_codes(case, SOME), strict=True):
        user._reports = dict(zip(case.policy.observed, codes, strict=True))
    return people, AggregationTally(people, case.policy)


def report_codes(case: Case, records: int) -> list[tuple[int, ...]]:
    """Return the first disguised records as codes of reports."""
    observed = case.policy.observed
    frame = case.disguised.iloc[:records]
    columns = [[observed[name].code(label) for label in frame[name]] for name in observed]
    return list(zip(*columns, strict=True))
