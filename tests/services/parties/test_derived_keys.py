"""Sessions whose parties have no common key: records are linked in rounds by keys derived from fields."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from tests.services.parties.deployments import DeploymentPlan, LearningGoal, deployed

import masquerade as mq
from masquerade.core.errors import InputError
from masquerade.services.common.release_ledger import KEYS
from masquerade.services.parties.outflow_plan import plan_outflows
from masquerade.services.parties.session import JointSchema, LinkErrorSettings, SessionSpec

FIRST = ["Ana", "Robert", "José", "Eva", "Ida", "Carl"]
LAST = ["Müller", "Meyer", "Peña", "Roth", "Berg"]
LINK_BY = [["first", "last", "born"], ["sound(first)", "sound(last)", "born"], ["last", "year(born)"]]
GOAL = LearningGoal(model="tables", tables=[["smoker", "sick"]])


def people():
    """Return 30 people whose names and birthdays are different."""
    rows = [
        (first, last, f"19{50 + 7 * i % 40}-0{1 + j}-1{i}")
        for i, first in enumerate(FIRST)
        for j, last in enumerate(LAST)
    ]
    frame = pd.DataFrame(rows, columns=["first", "last", "born"])
    frame["smoker"] = ["yes" if i % 3 == 0 else "no" for i in range(len(frame))]
    frame["sick"] = ["yes" if i % 4 < 2 else "no" for i in range(len(frame))]
    return frame


def plan_and_truth():
    """Return records with errors at the registry, and the table of the people whom both parties have."""
    whole = people()
    north = whole.iloc[:26].assign(person=[f"N{i}" for i in range(26)])
    registry = whole.iloc[4:].copy()
    registry.loc[[6, 7], "last"] = ["Maier", "Penya"]  # equal by sound; Meyer and Peña before
    registry["born"] = ["{2}.{1}.{0}".format(*day.split("-")) for day in registry["born"]]
    registry.loc[9, "born"] = "1.1." + registry.loc[9, "born"][-4:]  # the year is right
    registry = registry.sample(frac=1, random_state=3).assign(id=[f"R{i}" for i in range(26)])
    plan = DeploymentPlan(
        "revealed-vertical-counts",
        {
            "north": [north[["person", "first", "last", "born", "smoker"]]],
            "registry": [
                registry.rename(columns={"id": "person", "last": "family"})[
                    ["person", "first", "family", "born", "sick"]
                ]
            ],
        },
        {name: mq.Policy.clear(mq.Schema({it: ["no", "yes"]})) for name, it in
         (("north", "smoker"), ("registry", "sick"))},
        "person",
        GOAL,
        "intersection",
        terms={"link_by": LINK_BY},
    )  # fmt: skip
    both = whole.iloc[4:26]
    return plan, pd.crosstab(both["smoker"], both["sick"])


def plan_of_three():
    """Return a plan with an insurer that has all people but two, and the records that all three have."""
    plan, _ = plan_and_truth()
    whole = people()
    whole["paid"] = ["yes" if i % 5 < 2 else "no" for i in range(len(whole))]
    common = whole.iloc[4:26]
    insurer = whole.iloc[2:].copy()
    insurer.loc[8, "first"] = "Dora"  # the other two parties find this person by name, the insurer does not
    insurer = insurer.sample(frac=1, random_state=5).assign(person=[f"I{i}" for i in range(len(insurer))])
    plan = replace(
        plan,
        frames=dict(plan.frames, insurer=[insurer[["person", "first", "last", "born", "paid"]]]),
        policies=dict(plan.policies, insurer=mq.Policy.clear(mq.Schema({"paid": ["no", "yes"]}))),
        goal=LearningGoal(model="tables", tables=[["smoker", "sick", "paid"]]),
    )
    return plan, common


def fields(last):
    data = {"files": ["records.parquet"], "policy": "policy.yaml", "key": "person"}
    columns = {"first": "first", "last": last, "born": "born"}
    return {"data": data | {"link_fields": columns, "link_dates": ["born"]}}


def test_records_with_errors_are_linked_and_each_round_is_in_the_ledger(tmp_path):
    plan, truth = plan_and_truth()
    changed = {"north": fields("last"), "registry": fields("family")}
    with deployed(tmp_path, plan, changed=changed) as deployment:
        model = deployment.done()
        ledgers = {name: deployment.ledger(name) for name in plan.frames}
        settings, spec = deployment.settings("registry"), deployment.spec
    [table] = model["tables"]
    assert table["n"] == truth.to_numpy().sum() == 22
    assert np.array_equal(table["values"], truth.to_numpy())
    planned = {item.kind for item in plan_outflows(spec, settings).items}
    for released in ledgers.values():
        lines = [release.kind for release in released if release.variables == KEYS]
        shown = [line for line in lines if line.startswith("linked by")]
        assert [line.rpartition(", ")[2] for line in shown] == ["19 match", "2 match", "1 match"]
        assert shown[0] == "linked by first + last + born: 26 keys, 19 match"
        assert shown[1].startswith("linked by sound(first) + sound(last) + born: ")
        assert {line for line in lines if line not in shown} <= planned


def test_wrong_keys_and_missing_fields_are_refused(tmp_path):
    plan, _ = plan_and_truth()
    with (
        pytest.raises(InputError, match="which is not a field"),
        deployed(tmp_path, plan, changed={"north": fields("last")}),
    ):
        pass
    text = {
        "session": "one", "protocol": "revealed-vertical-counts", "parties": ["north", "registry"],
        "convener": "university", "helper": "dealer", "linking": "intersection", "learn": GOAL.model_dump(),
    }  # fmt: skip
    for wrong, told in (
        ({"link_by": [["first"], ["first"]]}, "differs from the others"),
        ({"link_by": [["first"]] * 9}, "from 1 to 8"),
        ({"link_by": [["first()"]]}, "is not a field"),
        ({"link_by": [["first"]], "linking": "keyed"}, "needs linking: intersection"),
    ):
        with pytest.raises(ValidationError, match=told):
            SessionSpec.model_validate(text | wrong)
    plain = SessionSpec.model_validate(text)
    assert SessionSpec.model_validate(text | {"link_by": []}).digest == plain.digest
    assert SessionSpec.model_validate(text | {"link_by": LINK_BY}).digest != plain.digest


def test_three_parties_link_in_rounds_after_one_is_killed_in_a_later_round(tmp_path):
    plan, common = plan_of_three()
    changed = {"north": fields("last"), "registry": fields("family"), "insurer": fields("last")}
    with deployed(tmp_path, plan, changed=changed) as deployment:
        with deployment.halting("registry", "linking-2", 1):
            status = deployment.run()
        assert status["state"] == "interrupted"
        assert "'registry'" in status["reason"]
        before = {name: deployment.ledger(name) for name in plan.frames}
        masks = [body for body, _ in deployment.replies("registry", "linking")]
        deployment.start("registry")
        [table] = deployment.done()["tables"]
        ledgers = {name: deployment.ledger(name) for name in plan.frames}
        again = [body for body, _ in deployment.replies("registry", "linking")][len(masks) :]
    assert table["n"] == len(common) == 22
    counts = common.groupby(["smoker", "sick", "paid"]).size()
    for at, count in np.ndenumerate(np.array(table["values"])):
        assert count == counts.get(tuple("yes" if code else "no" for code in at), 0)
    # a round that was cut is linked under other masks, and its numbers are in the ledger once a run
    assert not set(masks) & set(again)
    for name, released in ledgers.items():
        assert released[: len(before[name])] == before[name]
        rounds = [it.kind.rpartition(", ")[2] for it in released if it.kind.startswith("linked by")]
        assert rounds[-3:] == ["18 match", "2 match", "2 match"], rounds
        assert rounds[:-3] in ([], ["18 match"])


MARGIN = {"of": ["sick"], "shares": [0.6, 0.4]}


def test_tables_are_corrected_for_the_links_that_the_text_says_are_wrong(tmp_path):
    """A quarter of the registry's records have another person's key: naive association is too small."""
    rng, n = np.random.default_rng(4), 400
    smoker = rng.random(n) < 0.5
    sick = rng.random(n) < np.where(smoker, 0.7, 0.1)
    frame = pd.DataFrame({"person": np.arange(n), "born": [f"{1900 + i}-01-01" for i in range(n)]})
    frame["smoker"], frame["sick"] = np.where(smoker, "yes", "no"), np.where(sick, "yes", "no")
    wrong = frame.copy()
    moved = rng.permutation(n)[: n // 4]
    wrong.loc[moved, "sick"] = frame.loc[np.roll(moved, 1), "sick"].to_numpy()
    share = float(sick.mean())
    error = {
        "other": "registry", "right": 0.75, "found": 0.75, "checked": 200,
        "margins": [{"of": ["sick"], "shares": [1 - share, share]}],
    }  # fmt: skip
    plan = DeploymentPlan(
        "revealed-vertical-counts",
        {"north": [frame[["person", "born", "smoker"]]], "registry": [wrong[["person", "born", "sick"]]]},
        plan_and_truth()[0].policies,
        "person",
        LearningGoal(model="tables", tables=[["smoker", "sick"], ["smoker"]]),
        "intersection",
        terms={"link_by": [["born"]], "link_error": error},
    )
    own = {"data": fields("born")["data"] | {"link_fields": {"born": "born"}}}
    with deployed(tmp_path, plan, changed={"north": own, "registry": own}) as deployment:
        found, margin = deployment.done()["tables"]
    naive = pd.crosstab(frame["smoker"], wrong["sick"]).to_numpy()
    truth = pd.crosstab(frame["smoker"], frame["sick"]).to_numpy()
    shares = np.array([1 - share, share])
    by_hand = (naive - 0.25 * naive.sum(axis=1, keepdims=True) * shares) / 0.75
    assert np.allclose(found["values"], by_hand, atol=1e-9)
    assert np.allclose(margin["values"], naive.sum(axis=1), atol=1e-9)
    # what a permutation of 100 records leaves: a standard deviation of at most 10/2/.75 records in a cell
    assert np.abs(np.array(found["values"]) - truth).max() < 5.5 * 10 / 2 / 0.75
    risk = [float(cells[1, 1] / cells[1].sum() - cells[0, 1] / cells[0].sum()) for cells in (naive, truth)]
    corrected = np.array(found["values"])
    difference = corrected[1, 1] / corrected[1].sum() - corrected[0, 1] / corrected[0].sum()
    assert risk[0] < risk[1] - 0.03
    assert abs(difference - risk[1]) < abs(risk[0] - risk[1])


def test_corrections_of_links_are_part_of_the_text_and_checked_before_data_leaves():
    text = {
        "session": "one", "protocol": "revealed-vertical-counts", "parties": ["north", "registry"],
        "convener": "university", "helper": "dealer", "linking": "intersection", "learn": GOAL.model_dump(),
    }  # fmt: skip
    error = {"other": "registry", "right": [0.9, 0.8], "by": "smoker", "margins": [MARGIN]}
    policies = plan_and_truth()[0].policies
    joint = JointSchema(policies)
    spec = SessionSpec.model_validate(text | {"link_error": error})
    spec.check(joint)
    plain = SessionSpec.model_validate(text)
    assert SessionSpec.model_validate(text | {"link_error": None}).digest == plain.digest
    digests = {plain.digest, spec.digest}
    others = {
        "right": [0.9, 0.7], "found": 0.5, "by": None, "checked": 9, "planted": 9, "other": "north",
        "margins": [MARGIN | {"shares": [0.5, 0.5]}],
    }  # fmt: skip
    assert set(others) == set(LinkErrorSettings.model_fields)
    for field, value in others.items():
        digests.add(SessionSpec.model_validate(text | {"link_error": error | {field: value}}).digest)
    assert len(digests) == 2 + len(others)
    for wrong, told in (
        ({"right": 1.5, "by": None}, "above 0 and at most 1"),
        ({"right": [0.9]}, "for each category"),
        ({"by": None}, "for each category"),
        ({"other": "north"}, "must be variables of 'north'"),
        ({"by": "sick"}, "must be variables of 'registry'"),
        ({"margins": [MARGIN | {"shares": [1.0]}]}, "has 2 shares"),
        ({"margins": [MARGIN | {"shares": [0.6, 0.6]}]}, "sum 1"),
        ({"margins": [MARGIN | {"of": ["age"]}]}, "age"),
        ({"checked": 0}, "at least 1"),
    ):
        with pytest.raises(InputError, match=told):
            SessionSpec.model_validate(text | {"link_error": error | wrong}).check(joint)
    lacking = text | {"learn": LearningGoal(model="tables", tables=[["sick"]]).model_dump()}
    with pytest.raises(InputError, match="lacks it"):
        SessionSpec.model_validate(lacking | {"link_error": error}).check(joint)
    for changed, told in (
        ({"parties": ["north", "south", "registry"]}, "between two parties"),
        ({"link_error": error | {"other": "south"}}, "'south' is not a party"),
        (
            {"learn": {"model": "network", "structure": {"sick": ["smoker"], "smoker": []}}},
            "known in advance",
        ),
    ):
        with pytest.raises(ValidationError, match=told):
            SessionSpec.model_validate(text | {"link_error": error} | changed)
