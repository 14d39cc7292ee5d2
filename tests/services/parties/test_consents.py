"""A consent is to a digest: what is learnt, from what and by whom; any other text is refused."""

from __future__ import annotations

import json
import os
import random

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from tests.e2e.test_cli_app import ok, run
from tests.services.parties.deployments import (
    CLEAR,
    HELPER,
    MINER,
    OWNERS,
    SESSION,
    LearningGoal,
    deployed,
    people,
    split_columns,
    split_rows,
)
from tests.services.parties.test_refusals import begin, standing

import masquerade as mq
from masquerade.core.errors import InputError, MasqueradeError, QueryRefused
from masquerade.learn import catalogue
from masquerade.protocols.secure_sum import MaskedSum
from masquerade.services.common.settings import load
from masquerade.services.parties import kinds
from masquerade.services.parties import messages as say
from masquerade.services.parties.example import two_hospitals_and_a_registry, write_deployment
from masquerade.services.parties.session import (
    ClusterTerms,
    LinkErrorSettings,
    MarginSettings,
    NoiseSettings,
    SessionSpec,
)
from masquerade.services.parties.settings import PartySettings, SessionConsent, consent_values

PARTIES = ("north", "south", "registry")
NETWORK = LearningGoal(model="network", structure={"A": (), "T": ("A",)})
TABLES = LearningGoal(model="tables", tables=(("A", "T", "E", "S", "L"),))


class Pooling:
    """The pooling role of the parties, as the convener reaches it."""

    def __init__(self, deployment):
        self._deployment = deployment

    def exchange(self, party, message):
        return self._deployment.say(MINER, party, "pooling", message)


@pytest.fixture(scope="module")
def pool(tmp_path_factory):
    """Three parties that consented to the parameters of a network of two variables."""
    plan = split_rows(people(90), CLEAR, PARTIES, NETWORK, seed=5)
    with deployed(tmp_path_factory.mktemp("pool"), plan) as deployment:
        yield deployment


def changed(deployment):
    """Return another session under the same name: a table of five variables instead of the network."""
    return deployment.spec.model_copy(update={"learn": TABLES})


def test_a_consent_to_a_name_alone_lets_a_convener_learn_tables(tmp_path, monkeypatch):
    """The attack: everything but the model is as agreed, and the convener chooses the model."""
    as_now = SessionConsent.differences
    monkeypatch.setattr(
        SessionConsent, "differences", lambda *given: [name for name in as_now(*given) if name != "spec"]
    )
    plan = split_rows(people(90), CLEAR, PARTIES, NETWORK, seed=5)
    with deployed(tmp_path, plan) as deployment:
        for party in PARTIES:
            offer = say.Begin(spec=changed(deployment), epoch=os.urandom(16).hex())
            assert json.loads(deployment.say(MINER, party, "begin", say.encode(offer)))["policy"]
        asked = [mq.Query(by=("A", "T", "E", "S", "L"))]
        table = MaskedSum(PARTIES, Pooling(deployment), CLEAR).totals(asked)
        assert np.sum(table) == 90  # of all people, in clear: nobody agreed to that


def test_tables_instead_of_the_agreed_network_are_refused(pool):
    spec = changed(pool)
    assert pool.settings("north").consent(SESSION).differences(spec) == ["spec"]  # nothing else shows it
    for party in PARTIES:
        before = standing(pool, party)
        with pytest.raises(QueryRefused, match="differs in spec"):
            pool.say(MINER, party, "begin", begin(spec))
        assert standing(pool, party) == before
    status = pool.run(spec.model_copy(update={"session": SESSION}))
    assert status["state"] == "interrupted"
    assert "differs in spec" in status["reason"]
    assert not [item for party in PARTIES for item in pool.ledger(party)]


# every field of a session's text, and another value of it
OTHER = {
    "masquerade": lambda _: 2,
    "session": lambda _: "another",
    "protocol": lambda _: "projection",
    "parties": lambda spec: spec.parties[:-1],
    "convener": lambda _: "south",
    "helper": lambda _: "registry",
    "linking": lambda _: "keyed",
    "link_by": lambda _: (("first", "born"),),
    "link_error": lambda _: LinkErrorSettings(
        other="south", right=0.9, margins=[MarginSettings(of=["A"], shares=[0.5, 0.5])]
    ),
    "hide_order": lambda spec: not spec.hide_order,
    "clusters": lambda _: ClusterTerms(steps=7),
    "open_counts": lambda _: ("A",),
    "learn": lambda _: TABLES,
    "policies": lambda _: {"north": "0" * 64},
    "noise": lambda _: NoiseSettings(epsilon=1, tables=9),
}


def test_every_field_of_a_session_has_another_value_here():
    assert set(OTHER) == set(SessionSpec.model_fields)


@pytest.mark.parametrize("field", SessionSpec.model_fields)
def test_a_session_with_one_field_changed_is_refused(field, pool):
    """By the digest alone, whatever else is compared; and at a party, where nothing changes."""
    spec = pool.spec.model_copy(update={field: OTHER[field](pool.spec)})
    assert spec.digest != pool.spec.digest
    assert "spec" in SessionConsent.model_validate(consent_values(pool.spec, ["A"])).differences(spec)
    before = standing(pool)
    for session in {SESSION, spec.session}:
        with pytest.raises(MasqueradeError):
            pool.say(MINER, "north", "begin", begin(spec), session=session)
    assert standing(pool) == before


def test_the_order_of_parties_is_part_of_what_is_agreed_on(pool):
    other = pool.spec.model_copy(update={"parties": pool.spec.parties[::-1]})
    assert pool.settings("north").consent(SESSION).differences(other) == ["spec"]


@pytest.mark.parametrize("field", ClusterTerms.model_fields)
def test_each_term_of_clusters_is_part_of_the_digest(field):
    spec = SessionSpec.model_validate(
        {
            "session": "s", "protocol": "hidden-k-means", "parties": ["north", "south"], "convener": MINER,
            "helper": HELPER, "linking": "keyed", "clusters": {},
            "learn": {"model": "k-means", "k": 1, "start": [[1]]},
        }
    )  # fmt: skip
    value = getattr(spec.clusters, field)
    other = spec.clusters.model_copy(update={field: (not value) if isinstance(value, bool) else value + 1})
    assert spec.model_copy(update={"clusters": other}).digest != spec.digest


@pytest.mark.parametrize(
    ("learner", "option"),
    [
        (name, option.name)
        for name in catalogue.names()
        for option in catalogue.learner(name).options
        if not option.for_summary
    ],
)
def test_each_option_of_each_learner_is_part_of_the_digest(learner, option, pool):
    """Seeds, starts, steps and candidates too: what a learner is told decides what it asks for."""
    digests = set()
    for value in (["one"], ["other"], None):
        goal = LearningGoal.model_construct(model=learner, **({option: value} if value else {}))
        digests.add(pool.spec.model_copy(update={"learn": goal}).digest)
    assert len(digests) == 3


def test_sessions_with_one_digest_have_one_text():
    """Random texts of few values, so that many nearly agree: no two that differ have the same digest."""
    generator, texts = random.Random(3), {}  # noqa: S311
    goals = [
        {"model": "tables", "tables": [["A"]]},
        {"model": "tables", "tables": [["A"], ["T"]]},
        {"model": "tables", "tables": [["A", "T"]]},
        {"model": "network", "structure": {"A": [], "T": ["A"]}},
        {"model": "network", "structure": {"A": ["T"], "T": []}},
        {"model": "structure", "order": ["A", "T"], "max_parents": 1},
        {"model": "structure", "order": ["T", "A"], "max_parents": 1},
        {"model": "rules", "min_support": 0.1},
        {"model": "rules", "min_support": 0.2},
    ]
    for _ in range(2000):
        values = {
            "session": generator.choice("st"),
            "protocol": generator.choice(["pooled-counts", "projection", "vertical-with-miner"]),
            "parties": generator.sample(PARTIES, generator.choice([2, 3])),
            "convener": generator.choice([MINER, "other"]),
            "linking": generator.choice([None, "keyed", "intersection"]),
            "policies": generator.choice([{}, {"north": "0" * 64}, {"north": "1" * 64}]),
            "learn": generator.choice(goals),
        }
        try:
            spec = SessionSpec.model_validate(values)
        except ValidationError:
            continue
        texts.setdefault(spec.digest, set()).add(json.dumps(spec.model_dump(mode="json"), sort_keys=True))
    assert len(texts) > 100
    assert {len(some) for some in texts.values()} == {1}


@pytest.mark.parametrize("protocol", kinds.BUILT_IN)
def test_generated_consents_name_the_digest_of_their_session(protocol, tmp_path):
    """Those of the example, and those that a command prints for each node of it; nobody else has one."""
    folder = tmp_path / "try"
    files = write_deployment(folder, two_hospitals_and_a_registry(protocol, 40))
    spec = load(folder / "session.yaml", SessionSpec, environment={})
    for node, file in files.items():
        values = yaml.safe_load(file.read_text())
        if node not in spec.members:
            assert "consents" not in values
            told = run("session", "consent", folder / "session.yaml", "--node", file)
            assert told.exit_code == 2
            assert "is neither a party nor the helper" in told.stderr
            continue
        (consent,) = values["consents"]
        assert consent["spec"] == spec.digest
        consent.pop("clear", None)  # of made-up people; no command accepts that for anybody
        printed = json.loads(
            ok("session", "consent", folder / "session.yaml", "--node", file, "--json").stdout
        )
        assert {**printed, "variables": set(printed.get("variables", ()))} == {
            **consent,
            "variables": set(consent.get("variables", ())),
        }
        # what is printed goes into the file as it is
        text = ok("session", "consent", folder / "session.yaml", "--node", file).stdout
        file.write_text(yaml.safe_dump({**values, "consents": yaml.safe_load(text)}))
        ok("config", "check", file, "--kind", file.stem)


def test_a_consent_without_a_digest_is_refused_and_the_command_says_which_one(pool, tmp_path):
    values = yaml.safe_load(pool.files["north"].read_text())
    del values["consents"][0]["spec"]
    file = pool.files["north"].with_name("unpinned.yaml")
    for empty in ({}, {"spec": None}):
        text = {**values, "consents": [values["consents"][0] | empty]}
        file.write_text(yaml.safe_dump(text))
        with pytest.raises(InputError, match="needs spec, the digest of what is learnt"):
            load(file, PartySettings, environment={})
    session = pool.folder / "session.yaml"
    printed = json.loads(ok("session", "consent", session, "--node", file, "--json").stdout)
    assert printed["spec"] == pool.spec.digest
    told = ok("session", "consent", session, "--node", file).stdout
    assert "# Learnt, and nothing else: " in told
    assert '"model": "network"' in told
    other = tmp_path / "other.yaml"
    other.write_text(session.read_text().replace("convener: university", "convener: outsider"))
    assert json.loads(ok("session", "consent", other, "--node", file, "--json").stdout)["spec"] != (
        pool.spec.digest
    )


def test_a_helper_refuses_another_text_too(tmp_path):
    plan = split_columns(people(40), CLEAR, OWNERS, "revealed-vertical-counts", NETWORK, seed=2)
    with deployed(tmp_path, plan) as deployment:
        before = standing(deployment, HELPER)
        with pytest.raises(QueryRefused, match="differs in spec"):
            deployment.say(MINER, HELPER, "begin", begin(changed(deployment)))
        assert standing(deployment, HELPER) == before
