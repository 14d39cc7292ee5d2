"""A convener that keeps parties busy: what costs much comes after what shows that it is due."""

import os

import pytest
from tests.services.parties.deployments import (
    MINER,
    OWNERS,
    SESSION,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
)
from tests.services.parties.test_hostile_conveners import begin
from tests.services.parties.test_same_people import linked

from masquerade.channels.policy import Policy
from masquerade.core.errors import RoundAborted
from masquerade.services.common.problems import TooLarge
from masquerade.services.parties import messages as say
from masquerade.services.parties.session import JointSchema

STRUCTURE = {"A": (), "T": ("A",), "E": ("T", "L"), "L": ("S",), "S": ()}
GOAL = LearningGoal(model="network", structure=STRUCTURE)


def test_a_convener_stops_a_party_with_policies_that_nobody_signed(tmp_path, monkeypatch):
    """Before, they were built first: a composition of 2,000 categories took a core for minutes."""
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-without-miner", GOAL, seed=2, linking="keyed")
    epoch, built, build = os.urandom(16), [], Policy.from_dict
    with deployed(tmp_path, plan) as deployment:
        told = begin(deployment, epoch)
        monkeypatch.setattr(Policy, "from_dict", lambda values: (built.append(1), build(values))[1])
        policies = {party: it.policy for party, it in told.items()}
        costly = policies | {"north": policies["south"]}
        signatures = {party: it.signature for party, it in told.items()}
        message = say.Arrange(epoch=epoch.hex(), policies=costly, signatures=signatures)
        with pytest.raises(RoundAborted, match="is not signed by it"):
            deployment.say(MINER, "south", "arrange", say.encode(message))
        assert built == []
        with pytest.raises(TooLarge, match="at most 1,048,576 bytes"):
            deployment.say(MINER, "south", "arrange", b" " * (1 << 20) + say.encode(message))
        JointSchema.from_dict(costly)
        assert len(built) == sum(map(bool, costly.values())) == 2  # what it would have built


def test_a_convener_lets_parties_wait_for_each_other(tmp_path):
    """Before, two parties that were told to learn at once waited for each other's lock until all retries."""
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-without-miner", GOAL, seed=2)
    with deployed(tmp_path, plan) as deployment:
        epoch, _, _ = linked(deployment)
        south = deployment.nodes["south"].party._require_open(SESSION)
        message = say.encode(say.Learn(epoch=epoch.hex(), structure=STRUCTURE))
        south.learning = True  # as it is while it asks others
        with pytest.raises(RoundAborted, match="let one party learn at a time") as refused:
            deployment.say(MINER, "north", "learn", message)
        assert refused.value.culprits == (MINER,)
        south.learning = False
        deployment.say(MINER, "north", "learn", message)
