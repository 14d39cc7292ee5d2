"""A party adds up what its sessions reveal about a person, says it before consent, and keeps its limit."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
import yaml
from tests.e2e.test_cli_app import ok, run
from tests.services.parties.deployments import (
    MINER,
    OWNERS,
    TABLE_1,
    LearningGoal,
    deployed,
    people,
    split_columns,
)

import masquerade as mq
from masquerade.channels.privacy_level import DEFAULT_LIMIT, PrivacyLimit
from masquerade.core.errors import QueryRefused
from masquerade.services.common.release_ledger import KEYS, Release
from masquerade.services.parties.kinds import Outflow
from masquerade.services.parties.person_limit import session_total
from masquerade.services.parties.session import SessionSpec

GOAL = LearningGoal(model="network", structure={"A": [], "E": ["A"], "X": ["E"]})
BEYOND = "would reveal more about a person than this node's limit"


def second_wave(deployment, **told):
    """Let north disguise under another policy, and everybody consent to a second session.

    `told` goes into north's consent.
    """
    spec = deployment.spec.model_copy(update={"session": "second"})
    deployment.stop(*OWNERS)
    deployment.consent_to(spec)
    file = deployment.files["north"]
    policy = file.parent / "policy.yaml"
    policy.write_text(policy.read_text().replace("3/4", "37/50").replace("1/4", "13/50"))
    values = yaml.safe_load(file.read_text())
    values["consents"][0] |= told
    file.write_text(yaml.safe_dump(values))
    (deployment.folder / "second.yaml").write_text(
        yaml.safe_dump({"masquerade": 1, **spec.model_dump(mode="json", exclude_defaults=True)})
    )
    deployment.start(*OWNERS)
    return spec


def drawn(deployment):
    return {(it.draw, it.variables, it.gamma) for it in deployment.ledger("north") if it.policy and it.gamma}


def test_a_second_draw_beyond_the_limit_is_refused_before_anything_leaves(tmp_path):
    """The attack: γ = 12, which is within 5%:50%, a second time under a slightly different policy."""
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-with-miner", GOAL, seed=2, linking="keyed")
    with deployed(tmp_path, plan) as deployment:
        deployment.done()
        before = drawn(deployment)
        assert {(names, gamma) for _, names, gamma in before} == {(("A",), 3), (("E",), 4)}
        spec = second_wave(deployment)
        status = deployment.run(spec)
        assert status["state"] == "interrupted"
        assert BEYOND in status["reason"]
        assert "136" not in status["reason"]  # the convener learns no figure of what was released before
        assert drawn(deployment) == before

        session, node = deployment.folder / "second.yaml", deployment.files["north"]
        shown = json.loads(ok("session", "plan", session, "--node", node, "--json").stdout)["person"]
        assert shown["gamma"] == pytest.approx(12 * 4 * 0.74 / 0.26)  # 3 · 4 and 74/26 · 4
        assert (shown["is_within"], shown["needs_clear_accepted"]) == (False, True)
        told = " ".join(ok("session", "plan", session, "--node", node).stdout.split())
        assert told.startswith("Someone who thought it 5% likely can think it at most 87.8% likely")
        assert "This is beyond the limit for one person" in told
        consent = ok("session", "consent", session, "--node", node).stdout
        assert "# Someone who thought it 5% likely can think it at most 87.8% likely" in consent
        assert "# The session is refused unless the consent says 'clear: accepted'." in consent
        assert "clear" not in yaml.safe_load(consent)[0]

        deployment.stop("north")
        values = yaml.safe_load(node.read_text())
        values["consents"][0]["clear"] = "accepted"
        node.write_text(yaml.safe_dump(values))
        deployment.start("north")
        assert deployment.run(spec)["state"] == "done"
        assert len(drawn(deployment)) == 2 * len(before)
        notes = deployment.nodes["north"].state.notes
        assert json.loads(notes.get("people", "second"))["exact"]  # above the limit it counts as clear


def test_a_party_may_state_a_limit_of_its_own(tmp_path):
    plan = split_columns(people(60), TABLE_1, OWNERS, "vertical-with-miner", GOAL, seed=2, linking="keyed")
    with deployed(tmp_path, plan, changed={"north": {"limit": "gamma=11"}}) as deployment:
        status = deployment.run()
        assert status["state"] == "interrupted"
        assert BEYOND in status["reason"]
        assert deployment.ledger("north") == []
        deployment.stop("north")
        file = deployment.files["north"]
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"limit": "gamma=12"}))
        deployment.start("north")
        deployment.done()
        said = run("config", "check", file, "--kind", "party")
        assert said.exit_code == 0, said.output
        file.write_text(yaml.safe_dump(yaml.safe_load(file.read_text()) | {"limit": "much"}))
        assert "limit" in run("config", "check", file, "--kind", "party").stderr


POLICY = mq.Policy.from_dict(
    {
        "masquerade": 1,
        "variables": {
            **{name: {"categories": [0, 1], "channel": {"kind": "binary", "p": "0.1"}} for name in "ab"},
            "c": {"categories": [0, 1]},
        },
    }
)
SPEC = SessionSpec.model_validate(
    {
        "session": "s", "protocol": "vertical-with-miner", "parties": ["north", "south"], "convener": MINER,
        "linking": "keyed", "learn": {"model": "network", "structure": {"a": []}},
    }
)  # fmt: skip


def left(name="a", gamma=Fraction(9), draw="memo:p", **changes):
    made = Release("s", "vertical-with-miner", MINER, "disguised values", (name,), 9, "p", gamma, None, draw)
    return replace(made, **changes)


def sends(name="a", gamma=Fraction(9), policy="p", kind="disguised values"):
    return MINER, Outflow(kind, (name,), gamma, policy)


def total(before, planned, limit=DEFAULT_LIMIT, draw="memo:p"):
    return session_total(before, planned, POLICY, draw=draw, limit=limit)


def test_the_same_reports_again_add_nothing_and_new_ones_multiply():
    again = total([left()], [sends()])
    assert (again.total.bound, again.adds, again.needs_clear) == (9, False, False)
    more = total([left()], [sends("b")])
    assert (more.total.bound, more.adds, more.is_beyond) == (81, True, True)
    other = total([left(draw="memo:earlier")], [sends()])
    assert (other.total.bound, other.is_beyond) == (81, True)
    counted = total([left()], [sends(kind="counts under masks, of disguised values")])
    assert counted.total.bound == 9  # the same reports, whether sent or counted
    assert not total([left()], [sends("b")], PrivacyLimit.parse({"gamma": 81})).is_beyond
    with pytest.raises(QueryRefused, match=BEYOND):
        more.check(SPEC, is_clear_accepted=False)
    more.check(SPEC, is_clear_accepted=True)


def test_what_is_beyond_already_may_be_repeated_but_nothing_new_may_leave():
    spent = [left(draw="memo:x"), left(draw="memo:y"), left()]
    assert not total(spent, [sends()]).needs_clear
    assert total(spent, [sends("b")]).needs_clear


def test_exact_results_about_what_the_policy_disguises_need_to_be_accepted():
    exact = total([], [sends("a", None, None, "exact counts"), sends("c", None, None, "exact counts")])
    assert (exact.exact, exact.needs_clear, exact.total.clear) == (("a",), True, ("a", "c"))
    assert "results of this session about them are exact" in " ".join(exact.lines())
    clear = total([], [sends("c", None, None, "exact counts")])
    assert not clear.needs_clear  # the policy leaves it in clear
    masked = total([], [sends("a", Fraction(1), None, "columns under masks")])
    assert (masked.total.bound, masked.needs_clear) == (1, False)
    linked = total([], [(MINER, Outflow("pseudonyms", KEYS, None))])
    assert (linked.total.bound, linked.needs_clear) == (1, False)


def test_missing_answers_that_are_sent_in_clear_are_said_first():
    channel = {"kind": "for_gamma", "gamma": 9}
    refusing = {"categories": [0, 1, "refused"], "missing": "refused", "channel": channel}
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "a": refusing | {"clear_missing": "accepted"},
                "b": {"categories": [0, 1], "channel": channel},
            },
        }
    )
    found = session_total([], [sends("a")], policy, draw="memo:p", limit=DEFAULT_LIMIT)
    first, person, *_ = found.lines()
    assert first.startswith("Sent in clear: whether a is missing.")
    assert person.startswith("Someone who thought it 5% likely")
    assert found.to_dict()["missing_in_clear"] == ["a"]
    other = session_total([], [sends("b")], policy, draw="memo:p", limit=DEFAULT_LIMIT)
    assert other.lines()[0].startswith("Someone who thought it 5% likely")


def test_noise_of_sums_counts_in_a_session():
    """ε of noisy sums adds to the γ of reports; their δ was accepted with the noise, and is shown."""
    noisy = left("c", Fraction(1), None, kind="sum with noise", epsilon=Fraction(1, 2))
    assert not total([noisy], [sends()]).needs_clear  # 9 · e^½ = 14.8
    assert total([noisy, noisy], [sends()]).is_beyond  # 9 · e = 24.5
    with_delta = total([replace(noisy, delta=Fraction(1, 10**6))], [sends()])
    assert not with_delta.is_beyond
    assert "With noise: except with probability δ = 1e-06." in with_delta.lines()


def test_noise_above_the_limit_is_refused_like_reports():
    """A session with noise of ε = 3 is beyond 5%:50%, which is ε = 2.94; one of ε = 2.9 is not."""

    def session(epsilon):
        bounds = (Fraction(epsilon), Fraction(1, 10**6))
        return total([], [(MINER, Outflow("sums with noise", ("c",), Fraction(1), None, *bounds))])

    assert session("3").is_beyond
    assert "The session is refused unless the consent says 'clear: accepted'." in session("3").lines()
    assert not session("2.9").needs_clear
    assert not any("beyond" in line for line in session("2.9").lines())


def test_reports_of_strata_are_bounded_by_the_record():
    """γ by group is the largest over strata: their product, 81, would be above the record's own γ of 18."""
    nine, two = {"kind": "binary", "p": "0.1"}, {"kind": "binary", "p": "1/3"}
    names = ("a", "b")
    policy = mq.Policy.from_dict(
        {
            "masquerade": 1,
            "variables": {
                "s": {"categories": ["x", "y"]},
                **{name: {"categories": [0, 1], "channel": nine} for name in names},
            },
            "strata": {"by": "s", "channels": {"x": {"b": two}, "y": {"a": two}}},
        }
    )
    assert policy.record_gamma == 18
    planned = [sends("a"), sends("b"), sends("s", None)]
    found = session_total([], planned, policy, draw="m:p", limit=DEFAULT_LIMIT)
    assert (found.total.bound, found.needs_clear, found.total.clear) == (18, False, ("s",))
