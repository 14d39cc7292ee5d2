"""Rules of a consent: a party refuses counts that would give cells away, in whichever session."""

import json
import os
import re

import pytest
import yaml
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    Deployment,
    LearningGoal,
    people,
    split_columns,
    split_rows,
)
from tests.services.parties.test_failures import backed_up, restored
from tests.services.parties.test_same_people import Saying

import masquerade as mq
from masquerade.cli.settings_files import rules_of_consents
from masquerade.core.errors import InputError, RoundAborted
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.services.common.settings import load
from masquerade.services.parties import messages as say
from masquerade.services.parties.local_data import check_records
from masquerade.services.parties.settings import PartySettings, consent_values

PARTIES = ("north", "south", "registry")


def with_sessions(deployment, tables, rules):
    """Make parties consent to one session per list of tables, with the given rules if any."""
    specs = {
        name: deployment.spec.model_copy(
            update={"session": name, "learn": LearningGoal(model="tables", tables=tuple(map(tuple, asked)))}
        )
        for name, asked in tables.items()
    }
    for party in PARTIES:
        values = yaml.safe_load(deployment.files[party].read_text())
        (consent,) = values["consents"]
        ruled = {"rules": rules[party]} if party in rules else {}
        values["consents"] = [{**consent, **ruled, **consent_values(spec)} for spec in specs.values()]
        deployment.files[party].write_text(yaml.safe_dump(values))
    return specs


def totals(deployment, spec, queries):
    """Ask the parties of a session themselves, as a convener may who does not keep to what it learns."""
    for party in PARTIES:
        offer = say.Begin(spec=spec, epoch=os.urandom(16).hex())
        deployment.say(MINER, party, "begin", say.encode(offer), session=spec.session)
    return MaskedSum(PARTIES, Saying(deployment, "pooling", spec.session), CLEAR).totals(queries)


def test_rules_hold_over_sessions_restarts_and_restores(tmp_path):
    plan = split_rows(people(900), CLEAR, PARTIES, LearningGoal(model="tables", tables=(("A",),)), seed=1)
    deployment = Deployment(tmp_path / "nodes", plan)
    rules = {"most_variables": 2, "impossible": [{"T": 1, "E": 2}, {"L": 1, "E": 2}]}
    tables = {
        "one": [["A"], ["S", "L"]],
        "two": [["T", "S"]],
        "three": [["S", "L", "B"]],
        "four": [["X", "D"]],
    }
    specs = with_sessions(deployment, tables, {"north": rules})
    try:
        deployment.start()
        status = deployment.run(specs["one"])
        assert status["state"] == "interrupted"
        # who has L has E: a table of S and L has a cell of S, L and E
        assert re.search(
            r"Party 'north' refused: The table of S, L determines, .* a cell of S × L × E, which must stay "
            r"undetermined whatever the counts\. Query without S or L\.",
            status["reason"].replace("E × S × L", "S × L × E").replace("S × E × L", "S × L × E"),
        ), status["reason"]
        assert {release.variables for release in deployment.ledger("north")} == {()}  # how many there are
        assert deployment.run(specs["four"])["state"] == "done"
        assert "shows cells of" in deployment.run(specs["three"])["reason"]
        answered = deployment.nodes["north"].party.store.answered.entries()
        assert [(it.recipient, it.purpose, it.queries) for it in answered] == [
            (MINER, "one", (mq.Query(),)),
            (MINER, "four", (mq.Query(by=("X", "D")),)),
        ]
        # south has no rules, and knows all the same what it answered
        assert deployment.nodes["south"].party.store.answered.entries()[-1].purpose == "three"
        deployment.stop("north")
        backed_up(deployment, "north", tmp_path / "backup")
        deployment.start("north")
        assert deployment.nodes["north"].party.store.answered.entries() == answered
        deployment.stop("north")
        restored(deployment, "north", tmp_path / "backup")
        deployment.start("north")
        with pytest.raises(RoundAborted, match="restored from a backup"):
            totals(deployment, specs["two"], [mq.Query(by="T")])
        with deployment.operator("north") as operator:
            operator.ask("restored", {"words": operator.ask("restored", {})["words"]})
        with pytest.raises(RoundAborted, match="must stay undetermined"):
            totals(deployment, specs["two"], [mq.Query(by=("T", "S"))])
    finally:
        deployment.stop()


def test_a_tracker_over_two_sessions_is_refused(tmp_path):
    """Each question is about many people of north; the difference is about few, and refused."""
    frame = people(300).assign(A=1, S=2)
    plan = split_rows(frame, CLEAR, PARTIES, LearningGoal(model="tables", tables=(("A",),)), seed=1)
    north = plan.frames["north"][0]
    north.loc[north.index[:2], "S"] = 1
    deployment = Deployment(tmp_path / "nodes", plan)
    wrong_rules_are_refused(deployment.files["north"])
    profiles_are_written_out(deployment.files["north"])
    rules = {"profile": "datashield", "data_dependent": {"least_people": 5}}
    specs = with_sessions(deployment, {"one": [["A"]], "two": [["A", "S"]]}, {"north": rules})
    try:
        deployment.start()
        assert totals(deployment, specs["one"], [mq.Query(where={"A": 1})]).tolist() == [len(frame)]
        with pytest.raises(RoundAborted, match=r"a set of fewer than 5 people\. Query fewer variables"):
            totals(deployment, specs["two"], [mq.Query(where={"A": 1, "S": 2})])
        # a count of all, and of all but a few, as a condition selects them
        assert totals(deployment, specs["one"], [mq.Query(by="A")]).sum() == len(frame)
        with pytest.raises(RoundAborted, match=r"a set of fewer than 5 people"):
            totals(deployment, specs["two"], [mq.Query(by="A", where={"S": 2})])
    finally:
        deployment.stop()


def profiles_are_written_out(file):
    """A profile expands into keys that a steward sees; exact counts without rules are warned of."""
    values = yaml.safe_load(file.read_text())
    (consent,) = values["consents"]
    ruled = {"rules": {"profile": "acro", "data_dependent": {"least_people": 12}}}
    file.write_text(yaml.safe_dump({**values, "consents": [{**consent, **ruled}]}))
    rules, warnings = rules_of_consents(load(file, PartySettings, environment={}))
    assert json.loads(rules["example"]) == {
        "data_dependent": {"least_people": 12, "show_empty": False, "least_width": 0},
        "least_dof": 10,
    }
    assert warnings == []
    file.write_text(yaml.safe_dump(values))
    rules, warnings = rules_of_consents(load(file, PartySettings, environment={}))
    assert rules == {}
    assert len(warnings) == 1
    assert "states no rules, and its counts are exact" in warnings[0]


def wrong_rules_are_refused(file):
    """Rules that cannot hold are refused when a node's file is read."""
    values = yaml.safe_load(file.read_text())
    (consent,) = values["consents"]
    for changed, told in (
        ({"rules": {}}, "say what must stay undetermined"),
        ({"rules": {"protect": [[]]}}, "must list sets of variables"),
        ({"rules": {"most_variable": 2}}, "most_variable"),
        ({"rules": {"profile": "acor"}}, "profile"),
        ({"rules": {"profile": "acro", "dominance": {"p": 0.1}}}, "contributions to sums"),
        ({"rules": {"data_dependent": {"least_people": 0}}}, "least_people"),
        ({"rules": {"protect": [["A", "SS"]]}}, "session 'example': The rules protect 'SS'"),
        (
            {"rules": {"most_variables": 2, "impossible": [{"A": "maybe"}]}},
            "'maybe' is not a category of 'A'",
        ),
        (
            {"rules": {"most_variables": 2}, "protocol": "vertical-with-miner", "linking": "keyed"},
            "answers no tables of counts",
        ),
        (
            {"rules": {"data_dependent": {"least_people": 5}}, "protocol": "projection", "linking": "keyed"},
            "need the party's own counts",
        ),
    ):
        file.write_text(yaml.safe_dump({**values, "consents": [{**consent, **changed}]}))
        with pytest.raises(InputError, match=told):
            check_records(load(file, PartySettings, environment={}))
    file.write_text(yaml.safe_dump(values))


@pytest.mark.parametrize(
    ("protocol", "goal"),
    [
        ("vertical-without-miner", LearningGoal(model="tables", tables=(("E", "X"),))),
        ("arbitrary-without-miner", LearningGoal(model="tables", tables=(("E", "X"),))),
        ("vertical-without-miner", LearningGoal(model="network", structure={"E": (), "X": ("E",)})),
    ],
    ids=["tables", "cells anywhere", "parameters"],
)
def test_rules_hold_where_parties_count_for_themselves(protocol, goal, tmp_path):
    """Counts beside others' reports, and parameters that are such counts, are answers as any others."""
    owners = {"north": ("E",), "registry": ("X",)}
    plan = split_columns(
        people(60)[["E", "X"]],
        restrict_to_variables(CLEAR, ("E", "X")),
        owners,
        protocol,
        goal,
        seed=1,
        linking="keyed",
    )
    deployment = Deployment(tmp_path / "nodes", plan)
    values = yaml.safe_load(deployment.files["registry"].read_text())
    values["consents"][0]["rules"] = {"protect": [["E", "X"]]}
    deployment.files["registry"].write_text(yaml.safe_dump(values))
    try:
        deployment.start()
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "which must stay undetermined whatever the counts" in status["reason"], status["reason"]
        assert not [
            it for it in deployment.ledger("registry") if it.recipient == MINER and "X" in it.variables
        ]
        if protocol == "vertical-without-miner":  # else it is said first of whom a party holds what
            assert not [it for it in deployment.ledger("north") if it.recipient == "registry"]
    finally:
        deployment.stop()
