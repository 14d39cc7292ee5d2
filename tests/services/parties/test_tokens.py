"""Nodes that know each other by bearer tokens: without certificates on one machine, or beside them."""

import pytest
import yaml
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    OWNERS,
    Deployment,
    LearningGoal,
    clear_counts,
    deployed,
    people,
    split_rows,
)

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto import certificates
from masquerade.crypto.keys import new_token, token_digest
from masquerade.data.example_networks import eleven_nodes
from masquerade.services.common.client import Operator
from masquerade.services.common.problems import NotAdmitted

GOAL = LearningGoal(model="tables", tables=(("A", "S"), ("T",)))


def with_tokens(deployment):
    """Take certificates away, and give every pair of nodes a token for each direction."""
    made = {(a, b): new_token() for a in deployment.files for b in deployment.files}
    for name, file in deployment.files.items():
        values = yaml.safe_load(file.read_text())
        del values["tls"]
        write_whole(file.parent / "operator.token", made[name, name], private=True)
        values["operator_token"] = "operator.token"  # noqa: S105  (the name of a file)
        for peer, facts in values["peers"].items():
            write_whole(file.parent / f"{peer}.token", made[name, peer], private=True)
            facts |= {
                "url": facts["url"].replace("https", "http"),
                "fingerprints": [],
                "token_file": f"{peer}.token",
                "token_digest": token_digest(made[peer, name]),
            }
        file.write_text(yaml.safe_dump(values))


@pytest.fixture
def deployment(tmp_path):
    plan = split_rows(people(120), mq.Policy.clear(eleven_nodes().schema), tuple(OWNERS), GOAL, seed=3)
    made = Deployment(tmp_path / "nodes", plan)
    with_tokens(made)
    yield made
    made.stop()


def test_a_session_between_nodes_with_tokens(deployment):
    deployment.start()
    deployment.done()
    with Operator(deployment.settings(MINER)) as operator:
        tables = operator.ask("model", {"session": "example"})["tables"]
    everybody = people(120)
    assert tables[0]["values"] == clear_counts(everybody, ("A", "S")).tolist()
    assert tables[1]["values"] == clear_counts(everybody, ("T",)).tolist()


def test_a_wrong_token_is_refused_and_nothing_begins(deployment):
    file = deployment.files[MINER]
    write_whole(file.parent / "south.token", new_token(), private=True)
    deployment.start()
    status = deployment.run()
    assert status["state"] == "interrupted"
    assert "token" in status["reason"]
    assert deployment.ledger("south") == []
    write_whole(file.parent / "operator.token", new_token(), private=True)
    with Operator(deployment.settings(MINER)) as operator, pytest.raises(NotAdmitted):
        operator.ask("status", {})


def test_the_operator_is_told_to_restart_a_node_whose_certificate_was_replaced(tmp_path):
    plan = split_rows(people(60), CLEAR, ("north", "south", "registry"), GOAL, seed=5)
    with deployed(tmp_path, plan) as deployment:
        certificates.rotate(deployment.folder / "tls", MINER)
        with deployment.operator() as operator, pytest.raises(NotAdmitted, match="restart it"):
            operator.ask("status", {})
        deployment.stop(MINER)
        deployment.start(MINER)
        with deployment.operator() as operator:
            assert operator.ask("status", {}) == {"sessions": []}


def test_a_node_needs_some_credentials(deployment):
    file = deployment.files[MINER]
    values = yaml.safe_load(file.read_text())
    del values["operator_token"]
    file.write_text(yaml.safe_dump(values))
    with pytest.raises(InputError, match="needs tls, or an operator_token"):
        deployment.settings(MINER)
