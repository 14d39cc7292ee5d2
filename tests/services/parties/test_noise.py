"""Sessions with noise: two hospitals, ledgers, budgets over sessions, consents, and a restored state."""

import shutil
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import yaml
from pydantic import ValidationError
from tests.services.parties.deployments import (
    CLEAR,
    Deployment,
    LearningGoal,
    deployed,
    people,
    split_rows,
    started,
)

import masquerade as mq
from masquerade.protocols.noise_shares import SHARES
from masquerade.services.common.ledger_totals import person_total
from masquerade.services.common.state import peek_claims
from masquerade.services.parties.session import SessionSpec

TABLES = (("A",), ("A", "T"), ("S", "L"))
NOISE = {"epsilon": 1.0, "tables": 2, "colluders": 1}
TWO = ("north", "south")


def plan(parties=TWO, noise=NOISE, n=3000):
    goal = LearningGoal(model="tables", tables=TABLES)
    return replace(split_rows(people(n), CLEAR, parties, goal, seed=1), terms={"noise": noise})


def spec(**values):
    whole = {
        "session": "example",
        "protocol": "pooled-counts",
        "parties": TWO,
        "convener": "university",
        "learn": {"model": "tables", "tables": TABLES},
        "noise": NOISE,
    }
    return SessionSpec.model_validate(whole | values)


def test_two_hospitals_pool_with_noise(tmp_path):
    """Cells are within 8 standard deviations of the truth (false-alarm rate below 1e-12)."""
    with deployed(tmp_path, plan()) as deployment:
        model = deployment.done()
        terms = mq.NoiseTerms(1, 2, contributors=2, colluders=1)
        exact = mq.tally(people(3000)).answer([mq.Query(by=names) for names in TABLES])
        for table, true in zip(model["tables"], exact, strict=True):
            assert table["n"] == 3000
            gap = np.abs(np.array(table["values"]) - true.values)
            assert gap.max() > 0
            assert gap.max() < 8 * terms.deviation * np.sqrt(true.values.size)
        for name in TWO:
            releases = deployment.ledger(name)
            noisy = [one for one in releases if one.epsilon is not None]
            assert noisy
            assert {(one.epsilon, one.delta, one.gamma) for one in noisy} == {
                (Fraction(1), Fraction(1, 10**6), Fraction(1))
            }
            total = person_total(releases)
            assert (total.epsilon, total.delta) == (
                1,
                Fraction(1, 10**6),
            )  # counted once, whatever the rounds
            assert len(peek_claims(deployment.settings(name).state, SHARES)) == len(noisy)


def test_a_budget_holds_over_sessions_and_restarts(tmp_path):
    """A second session fits into ε = 2; the third is refused, also after a restart."""
    deployment = Deployment(tmp_path / "nodes", plan(noise=NOISE | {"epsilon": 0.9}))
    others = [deployment.spec.model_copy(update={"session": name}) for name in ("second", "third")]
    deployment.consent_to(deployment.spec, *others, budget={"epsilon": 2.0, "delta": 1e-6})
    with started(deployment):
        assert deployment.run()["state"] == "done"
        deployment.stop(*TWO)
        deployment.start(*TWO)
        assert deployment.run(others[0])["state"] == "done"
        status = deployment.run(others[1])
        assert status["state"] == "interrupted"
        assert "budget of noise over all sessions" in status["reason"]


def test_an_interrupted_session_has_spent_its_tables(tmp_path):
    """The convener starts again with new keys: each party answers no more tables than agreed in all."""
    deployment = Deployment(tmp_path / "nodes", plan(noise=NOISE))
    with started(deployment):
        with deployment.halting("south", "pooling", after=4):
            assert deployment.run()["state"] != "done"
        deployment.start("south")
        for _ in range(4):
            deployment.run()
        for name in TWO:
            claims = peek_claims(deployment.settings(name).state, SHARES)
            assert sum(yaml.safe_load(value)["tables"] for value in claims) <= 2


def test_a_restored_party_draws_no_noise(tmp_path):
    deployment = Deployment(tmp_path / "nodes", plan())
    second = deployment.spec.model_copy(update={"session": "second"})
    deployment.consent_to(deployment.spec, second)
    with started(deployment):
        assert deployment.run()["state"] == "done"
        deployment.stop("north")
        state = deployment.settings("north").state
        shutil.move(state, tmp_path / "before")
        shutil.copytree(tmp_path / "before", state)
        before = peek_claims(state, SHARES)
        deployment.start("north")
        status = deployment.run(second)
        assert status["state"] == "interrupted"
        assert "restored" in status["reason"]
        assert peek_claims(state, SHARES) == before


def test_a_consent_repeats_the_noise(tmp_path):
    deployment = Deployment(tmp_path / "nodes", plan())
    weaker = deployment.spec.model_copy(
        update={"noise": deployment.spec.noise.model_copy(update={"epsilon": 3.0})}
    )
    with started(deployment):
        status = deployment.run(weaker)
        assert status["state"] == "interrupted"
        assert "differs in noise" in status["reason"]
        assert deployment.ledger("north") == []


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"noise": None}, "at least 3 parties"),
        ({"noise": NOISE | {"colluders": 2}}, "at most 1 may collude"),
        ({"noise": NOISE | {"delta": 1e-12}}, "'delta' of noise"),
        ({"parties": ("north",)}, "at least 2 parties"),
        ({"protocol": "vertical-with-miner", "linking": "intersection"}, "noise is for pooled-counts"),
    ],
)
def test_sessions_that_cannot_keep_their_promise_are_refused(values, text):
    with pytest.raises(ValidationError, match=text):
        spec(**values)


def test_a_session_without_noise_keeps_its_digest():
    plain = spec(noise=None, parties=("north", "south", "east"))
    assert "noise" not in plain.model_dump(exclude_defaults=True)
    assert plain.digest != spec(parties=("north", "south", "east")).digest


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"rules": {"data_dependent": {"least_people": 5}}}, "read exact counts"),
        ({"noise": None, "parties": ["north", "south", "east"], "budget": {"epsilon": 1}}, "adds no noise"),
    ],
)
def test_consents_that_contradict_noise_are_refused(more, text):
    from masquerade.services.parties.settings import SessionConsent, consent_values  # noqa: PLC0415

    values = consent_values(spec(), ["A"]) | more
    with pytest.raises(ValidationError, match=text):
        SessionConsent.model_validate(values)
