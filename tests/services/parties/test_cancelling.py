"""Sessions can be cancelled: by the convener for all members, by a party's operator for that party."""

import threading

import pytest
from tests.services.parties.deployments import (
    OWNERS,
    SECONDS,
    SESSION,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
    waited,
)

from masquerade.core.errors import InputError
from masquerade.data.example_networks import ELEVEN_NODES

GOAL = LearningGoal(model="network", structure=ELEVEN_NODES)


class Held:
    """The first message of a role at a node, which is not answered before it is let go."""

    def __init__(self, deployment, name, role):
        self.came, self.go = threading.Event(), threading.Event()
        node = deployment.nodes[name]
        self._answer, self._role, node.answer = node.answer, role, self._held

    def _held(self, call):
        if call.place.endswith(self._role) and not self.came.is_set():
            self.came.set()
            assert self.go.wait(SECONDS)
        return self._answer(call)


def test_a_session_that_is_cancelled_stops_at_the_next_message(tmp_path):
    """A party that learns asks others one after the other; once its convener cancels, it asks nobody more."""
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-without-miner", GOAL, seed=2)
    with deployed(tmp_path, plan) as deployment, deployment.operator() as operator:
        held = Held(deployment, "south", "cells")  # north learns, and asks south
        operator.ask("create", {"spec": deployment.spec.model_dump(mode="json")})
        operator.ask("run", {"session": SESSION})
        assert held.came.wait(SECONDS)
        learning = deployment.nodes["north"].party._open[SESSION]
        assert learning.learning
        operator.ask("cancel", {"session": SESSION})
        assert learning.cancelled
        before = {name: len(deployment.replies(name, "cells")) for name in OWNERS}
        held.go.set()
        status = waited(operator, SESSION)
        assert (status["state"], status["reason"]) == ("cancelled", "its operator cancelled it")
        asked = {name: len(deployment.replies(name, "cells")) - before[name] for name in OWNERS}
        assert sum(asked.values()) <= 1  # the one that was being answered
        for name in OWNERS:
            assert not deployment.nodes[name].party._open
            assert not any("/" in note for note in deployment.begun(name))
        assert "parameters of own nodes" not in {item.kind for item in deployment.ledger("north")}
        # the convener may run it again, and it completes
        assert len(deployment.done()["nodes"]) == len(ELEVEN_NODES)
        with pytest.raises(InputError, match="nothing to cancel"):
            operator.ask("cancel", {"session": SESSION})


def test_a_party_withdraws_for_good(tmp_path):
    goal = LearningGoal(model="tables", tables=(("S", "T"),))
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-with-miner", goal, seed=2)
    with deployed(tmp_path, plan) as deployment, deployment.operator("south") as south:
        with pytest.raises(InputError, match="no session 'other'"):
            south.ask("cancel", {"session": "other"})
        held = Held(deployment, "south", "cells")
        with deployment.operator() as operator:
            operator.ask("create", {"spec": deployment.spec.model_dump(mode="json")})
            operator.ask("run", {"session": SESSION})
            assert held.came.wait(SECONDS)
            south.ask("cancel", {"session": SESSION})
            held.go.set()
            status = waited(operator, SESSION)
        assert status["state"] == "interrupted"
        assert "was cancelled here by this node's operator" in status["reason"]
        assert not any(item.policy for item in deployment.ledger("south"))  # nothing was answered
        deployment.stop("south")
        deployment.start("south")
        status = deployment.run()
        assert "this node's operator has cancelled it" in status["reason"]
