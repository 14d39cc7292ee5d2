"""Counts of people under a policy with dealt blocks, by all three protocols: what devices draw is counted."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from tests.services.counting.world import LONG, World, until

import masquerade as mq
from masquerade.protocols.people.reports import reports_of
from masquerade.services.counting.person_file import PersonFile

PEOPLE = 10
LABELS = {"smoker": ["yes", "no"], "region": ["north", "south"], "illness": ["asthma", "none"]}
POLICY = {
    "masquerade": 1,
    "limit": {"breach": "5%:50%"},
    "variables": {name: {"categories": labels} for name, labels in LABELS.items()},
    "blocks": [{"variables": list(LABELS), "k": 2, "gamma": 19}],
}


def drawn(world, policy):
    """Return the reports that the library draws from the secrets in people's files, as a source."""
    reports = []
    for name, record in zip(world.names, world.records, strict=True):
        person = PersonFile(world.people[name])
        codes = {one: policy.schema[one].code(label) for one, label in record.items()}
        reports.append(reports_of(codes, policy, name, person.ledger))
        person.close()
    frame = pd.DataFrame(
        {
            column.name: [column.categories[report[column.name]] for report in reports]
            for column in policy.observed.variables
        }
    )
    return mq.tally(frame, policy)


@pytest.mark.parametrize(
    "protocol", ["frequency", "aggregation", pytest.param("mix", marks=pytest.mark.slow)]
)
def test_reports_of_blocks_are_counted(protocol, tmp_path):
    world = World(tmp_path, protocol, PEOPLE, policy=POLICY, minimum=3, patience=LONG)
    try:
        world.serve("miner", *(role for role in world.files if role.startswith("leader")))
        world.enrol()
        world.start_threads()
        if protocol == "mix":
            until(lambda: world.status()["sent"] == PEOPLE, "everybody's record")
            world.close()
        policy = mq.Policy.from_dict(POLICY)
        asked = [mq.Query(by=("smoker", "illness")), mq.Query(by=("region",))]
        found = world.source().answer(asked)
        due = drawn(world, policy).answer(asked)
        for ours, theirs in zip(found, due, strict=True):
            np.testing.assert_allclose(ours.values, theirs.values, atol=1e-9)
    finally:
        world.end()
