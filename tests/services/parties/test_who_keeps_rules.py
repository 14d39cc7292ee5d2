"""Rules are taken where a party itself sees what it answers and can refuse it, and refused elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import yaml
from tests.services.parties.deployments import (
    CLEAR,
    MINER,
    Deployment,
    LearningGoal,
    people,
    split_columns,
    started,
)
from tests.unit.protocols.vertical.scalar_products.parties import roles, session

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.protocols.vertical.columns import ColumnPart, Products
from masquerade.protocols.vertical.disguised_cells import restrict_to_variables
from masquerade.services.common.settings import load
from masquerade.services.parties import kinds
from masquerade.services.parties.example import two_hospitals_and_a_registry, write_deployment
from masquerade.services.parties.kinds.base import Role, SessionKind, no_tables
from masquerade.services.parties.kinds.hidden_computation import ComputationRole
from masquerade.services.parties.kinds.two_party_products import CountsOfTwo
from masquerade.services.parties.session import SessionSpec
from masquerade.services.parties.settings import PartySettings, RulesSettings, SessionConsent, consent_values

PAGE = Path("docs/howto/two-hospitals-and-a-registry.md")
RULES = {"most_variables": 2}
# decided by the protocol of each kind; a new kind is decided here
KEPT = {
    "pooled-counts": True,
    "vertical-with-miner": None,  # answers no tables
    "vertical-without-miner": True,
    "arbitrary-with-miner": None,
    "arbitrary-without-miner": True,
    "revealed-vertical-counts": True,  # if the convener is not a party
    "revealed-counts-of-two": False,
    "projection": True,
    "hidden-structure": True,  # of counts that open
    "hidden-k-means": None,
    "hidden-tree": None,
}


def answers_tables(kind):
    """Return True if messages of a kind ask for tables, parties count for others, or counts open."""
    asked = [
        type(role).tables is not Role.tables
        or type(role).questions is not Role.questions
        or any(step.tables is not no_tables for step in role.steps)
        for role in kind.roles
        if not isinstance(role, ComputationRole)  # its program is what all agreed on
    ]
    return any(asked) or type(kind).learner is not SessionKind.learner or kind.name == "hidden-structure"


@pytest.mark.parametrize("name", kinds.BUILT_IN)
def test_a_kind_that_answers_tables_states_who_keeps_rules(name):
    kind = kinds.find(name)
    stated = kind.rules_unkept != SessionKind.rules_unkept
    assert kind.answers_tables == answers_tables(kind) == (KEPT[name] is not None)
    assert bool(kind.rules_kept) == (KEPT[name] is True)
    assert stated == (KEPT[name] is False)


def consented(name, folder):
    """Return the session of an example, and a party's consent to it with rules."""
    write_deployment(folder, two_hospitals_and_a_registry(name, 40))
    spec = load(folder / "session.yaml", SessionSpec, environment={})
    if name == "hidden-structure":
        spec = spec.model_copy(update={"open_counts": ("A",)})
    return spec, consent_values(spec, ["A"]) | {"rules": RULES}


@pytest.mark.parametrize("name", kinds.BUILT_IN)
def test_rules_are_refused_where_nobody_keeps_them(name, tmp_path):
    _, values = consented(name, tmp_path / "try")
    if KEPT[name]:
        assert SessionConsent.model_validate(values).rules is not None
        return
    told = "answers no tables of counts" if KEPT[name] is None else "no party can enforce them"
    with pytest.raises(ValueError, match=told):
        SessionConsent.model_validate(values)


def test_a_kind_of_another_package_that_says_nothing_takes_no_rules(tmp_path):
    class Unstated(CountsOfTwo):
        rules_unkept = SessionKind.rules_unkept

    _, values = consented("revealed-counts-of-two", tmp_path / "try")
    text = SessionConsent.model_validate({**values, "rules": None})
    assert "does not state how" in Unstated().rules_problem(text)


def test_the_page_lists_who_keeps_rules_of_each_kind():
    """A row for each kind; whether it says yes is what the settings say."""
    rows = re.findall(r"^\| `([a-z-]+)` \| (yes|no)\b", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert dict(rows) == {name: "yes" if KEPT[name] else "no" for name in kinds.BUILT_IN}
    assert len(rows) == len(kinds.BUILT_IN)


# revealed-counts-of-two: a party decrypts masked sums

TWO = {"north": ("A",), "south": ("S",)}


def of_two(folder):
    """Two parties, of which south protects each cell of both variables."""
    goal = LearningGoal(model="tables", tables=(("A", "S"),))
    frame, policy = people(40)[["A", "S"]], restrict_to_variables(CLEAR, ("A", "S"))
    plan = split_columns(frame, policy, TWO, "revealed-counts-of-two", goal, seed=1, linking="keyed")
    deployment = Deployment(folder, plan)
    values = yaml.safe_load(deployment.files["south"].read_text())
    values["consents"][0]["rules"] = {"protect": [["A", "S"]]}
    deployment.files["south"].write_text(yaml.safe_dump(values))
    return deployment, frame


def test_a_convener_that_does_not_propose_gets_a_protected_cell_by_decryption(tmp_path, monkeypatch):
    """The attack, on rules that are taken: who decrypts cannot see that the sum is the protected one."""
    monkeypatch.setattr(CountsOfTwo, "rules_kept", "as if they were")
    honest, frame = of_two(tmp_path / "honest")
    with started(honest):
        status = honest.run()
        assert status["state"] == "interrupted"
        assert "must stay undetermined" in status["reason"]
    deployment, frame = of_two(tmp_path / "hostile")
    monkeypatch.setattr(Products, "propose", lambda *_: None)
    with started(deployment):
        model = deployment.done()
    (table,) = model["tables"]
    cells = np.array(table["values"]).reshape(2, 2)
    due = frame.groupby(["A", "S"], observed=False).size().to_numpy().reshape(2, 2)
    np.testing.assert_array_equal(cells, due)  # every protected cell, exactly


def test_rules_for_counts_of_two_are_refused(tmp_path):
    deployment, _ = of_two(tmp_path / "nodes")
    with pytest.raises(
        InputError, match=r"rules: no party can enforce them in a session of revealed-counts-of-two: a party"
    ):
        load(deployment.files["south"], PartySettings, environment={})


# revealed-vertical-counts: who convenes and is a party multiplies with what it likes


def test_a_party_that_convenes_reads_a_column_off_an_allowed_table():
    """The attack: north asks for the allowed table of a and b, with powers of two in its column of a."""
    n, generator = 40, np.random.default_rng(1)
    schema = mq.Schema({"a": [0, 1], "b": [0, 1]})
    codes = {name: generator.integers(0, 2, n).astype(np.uint8) for name in schema}
    owners = {"north": ("a",), "south": ("b",)}
    parties = roles(owners, codes, schema)
    weights = np.uint64(1) << np.arange(n, dtype=np.uint64)
    own = parties["north"]._own
    parties["north"]._own = type("Weighed", (), {"__getattr__": lambda _, name: getattr(own, name)})()
    parties["north"]._own.indicators = lambda _names: weights[None, :]
    products, _ = session(parties, owners, schema, n)
    (word,) = (
        products._inner(tuple(ColumnPart(party, names) for party, names in owners.items())).ravel().tolist()
    )
    assert [word >> row & 1 for row in range(n)] == codes["b"].tolist()


def test_rules_are_refused_where_a_party_convenes_products(tmp_path):
    spec, values = consented("revealed-vertical-counts", tmp_path / "try")
    assert spec.convener not in spec.parties
    with pytest.raises(ValueError, match="no party can enforce them if a party convenes"):
        SessionConsent.model_validate({**values, "linking": "keyed", "convener": "north"})


# without a miner: what a party sends, others count


def reports_cross(folder):
    """North protects cells of E and X; registry, who has no rules, is to learn X beside reports of E."""
    owners = {"north": ("E",), "registry": ("X",)}
    goal = LearningGoal(model="network", structure={"E": (), "X": ("E",)})
    frame, policy = people(60)[["E", "X"]], restrict_to_variables(CLEAR, ("E", "X"))
    plan = split_columns(frame, policy, owners, "vertical-without-miner", goal, seed=1, linking="keyed")
    deployment = Deployment(folder, plan)
    values = yaml.safe_load(deployment.files["north"].read_text())
    values["consents"][0]["rules"] = {"protect": [["E", "X"]]}
    deployment.files["north"].write_text(yaml.safe_dump(values))
    return deployment


def test_what_a_party_protects_is_counted_by_another_with_its_reports(tmp_path, monkeypatch):
    """The attack: north would refuse the table, and is never asked for it."""
    monkeypatch.setattr(RulesSettings, "shows", lambda *_: False)
    with started(reports_cross(tmp_path / "nodes")) as deployment:
        model = mq.learn.BayesianNetwork.from_dict(deployment.done())
        assert model.structure["X"] == ("E",)
        assert [it.variables for it in deployment.ledger("north") if it.recipient == "registry"]


def test_reports_are_not_sent_to_who_could_put_together_what_is_protected(tmp_path):
    with started(reports_cross(tmp_path / "nodes")) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert "could combine reports of E with other variables, and their combination" in status["reason"]
        assert not [it for it in deployment.ledger("north") if it.recipient == "registry"]
        assert not [it for it in deployment.ledger("registry") if it.recipient == MINER and it.variables]


@pytest.mark.parametrize(
    ("rules", "sent", "seen", "shown"),
    [
        ({"protect": (("a", "b"),)}, ["a"], ["b"], True),
        ({"protect": (("a", "b"),)}, ["a"], ["c"], False),
        ({"protect": (("a", "b"),)}, ["a", "b"], [], True),
        ({"protect": (("c", "b"),)}, ["a"], ["b", "c"], False),  # not this party's to protect
        ({"protect": (("a", "b", "c"),)}, ["a"], ["b"], False),
        ({"most_variables": 2}, ["a"], ["b"], False),
        ({"most_variables": 2}, ["a"], ["b", "c"], True),
    ],
)
def test_what_reports_show_beside_what_is_there(rules, sent, seen, shown):
    assert RulesSettings(**rules).shows(sent, seen) is shown
