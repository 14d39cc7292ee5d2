"""Sessions whose parties have no common key: records are linked in rounds by keys derived from fields."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

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
        ({"other": "north"}, "'smoker' belongs to 'north', whose values may be wrong"),
        ({"other": "north", "by": None, "right": 0.9}, "must be variables of 'north'"),
        ({"by": "sick"}, "belongs to 'registry', whose values may be wrong"),
        ({"margins": [MARGIN | {"shares": [1.0]}]}, "needs 2 shares"),
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
        ({"linking": None}, "that have different columns"),
        ({"link_error": error | {"other": "south"}}, "'south' is not a party"),
        ({"link_error": error | {"other": []}}, "must name a party"),
        ({"link_error": error | {"other": ["registry", "registry"]}}, "several different parties"),
        ({"link_error": [error, error]}, "two entries have the same parties"),
        ({"link_error": error | {"other": ["north", "registry"]}}, "one party must have right values"),
        ({"link_error": []}, "must name a party"),
        (
            {"learn": {"model": "network", "structure": {"sick": ["smoker"], "smoker": []}}},
            "known in advance",
        ),
    ):
        with pytest.raises(ValidationError, match=told):
            SessionSpec.model_validate(text | {"link_error": error} | changed)


# --- link errors among three parties ------------------------------------------------------------------------

YES_NO = ["no", "yes"]
RIGHT_LINKS = {"registry": 0.85, "insurer": 0.8, "both": 0.9}


def three_files(rng, n, risk=(0.2, 0.7)):
    """Return true records of three parties, and the records that wrong keys show.

    The registry and the insurer have wrong keys of their own, and some records of north have the key of a
    different person, whom both show then.
    """
    smoker = rng.random(n) < 0.4
    sick = rng.random(n) < np.where(smoker, risk[1], risk[0])
    paid = rng.random(n) < np.where(smoker, 0.6, 0.3) + 0.2 * sick
    truth = pd.DataFrame({"smoker": smoker, "sick": sick, "paid": paid})
    shown = truth.copy()
    for columns, entry in ((["sick", "paid"], "both"), (["sick"], "registry"), (["paid"], "insurer")):
        moved = np.flatnonzero(rng.random(n) >= RIGHT_LINKS[entry])
        shown.loc[moved, columns] = truth.loc[rng.integers(0, n, len(moved)), columns].to_numpy()
    return tuple(frame.replace({True: "yes", False: "no"}).infer_objects() for frame in (truth, shown))


def three_errors(truth, rights=RIGHT_LINKS, checked=None):
    """Return the entries of link_error for the three sources of wrong links."""
    shares = {
        names: [
            float((truth[list(names)] == list(cell)).all(axis=1).mean())
            for cell in product(YES_NO, repeat=len(names))
        ]
        for names in (("sick",), ("paid",), ("sick", "paid"))
    }
    others = {"registry": [("sick",)], "insurer": [("paid",)], "both": [*shares]}
    return [
        {
            "other": ["registry", "insurer"] if entry == "both" else entry,
            "right": rights[entry],
            "found": rights[entry],  # all people are linked
            "margins": [{"of": list(names), "shares": shares[names]} for names in margins],
            **({} if checked is None else {"checked": checked}),
        }
        for entry, margins in others.items()
    ]


THREE_OWNERS = {"north": "smoker", "registry": "sick", "insurer": "paid"}
THREE_SCHEMA = mq.Schema(dict.fromkeys(("smoker", "sick", "paid"), YES_NO))


def three_spec(errors, **changed):
    """Return the text and the policies of a session of three parties with errors of links."""
    text = {
        "session": "one", "protocol": "revealed-vertical-counts", "parties": [*THREE_OWNERS],
        "convener": "university", "helper": "dealer", "linking": "intersection",
        "learn": {"model": "tables", "tables": [["smoker", "sick", "paid"]]}, "link_error": errors,
    }  # fmt: skip
    policies = {party: mq.Policy.clear(mq.Schema({name: YES_NO})) for party, name in THREE_OWNERS.items()}
    return SessionSpec.model_validate(text | changed), JointSchema(policies)


def cells(frame):
    """Return the table of smoker, sick and paid."""
    codes = [(frame[name] == "yes").astype(int) for name in ("smoker", "sick", "paid")]
    return np.bincount(np.ravel_multi_index(codes, (2, 2, 2)), minlength=8).reshape(2, 2, 2)


def test_three_parties_learn_a_table_corrected_for_the_wrong_links_of_each(tmp_path):
    """The model of the session is the correction by hand of the exact table of linked records."""
    truth, shown = three_files(np.random.default_rng(6), 300)
    born = pd.DataFrame({"person": np.arange(300), "born": [f"{1600 + i}-01-01" for i in range(300)]})
    errors = three_errors(truth, checked=150)
    plan = DeploymentPlan(
        "revealed-vertical-counts",
        {party: [born.assign(**{name: shown[name]})] for party, name in THREE_OWNERS.items()},
        {party: mq.Policy.clear(mq.Schema({name: YES_NO})) for party, name in THREE_OWNERS.items()},
        "person",
        LearningGoal(model="tables", tables=[["smoker", "sick", "paid"], ["smoker", "paid"]]),
        "intersection",
        terms={"link_by": [["born"]], "link_error": errors},
    )
    own = {"data": fields("born")["data"] | {"link_fields": {"born": "born"}}}
    with deployed(tmp_path, plan, changed=dict.fromkeys(THREE_OWNERS, own)) as deployment:
        found, margin = deployment.done()["tables"]
    # by hand: each source of errors mixes the cells of its variables with their margin
    mixtures = []
    for entry, axes in (("registry", (1,)), ("insurer", (2,)), ("both", (1, 2))):
        share = np.array(
            next(it["shares"] for it in errors[len(mixtures)]["margins"] if len(it["of"]) == len(axes))
        )
        mixed = RIGHT_LINKS[entry] * np.eye(len(share)) + (1 - RIGHT_LINKS[entry]) * np.outer(
            share, np.ones(len(share))
        )
        mixtures.append(mixed)
    forward = np.kron(mixtures[0], mixtures[1]) @ mixtures[2]
    table = cells(shown).reshape(2, 4)
    by_hand = np.linalg.solve(forward, table.T).T.reshape(2, 2, 2)
    assert np.allclose(found["values"], by_hand, atol=1e-8)
    assert np.allclose(margin["values"], by_hand.sum(axis=1), atol=1e-8)
    assert np.abs(by_hand - cells(shown)).max() > 5


def corrected(shown, errors):
    """Return the table of a session's text with these errors, from the records that links show."""
    spec, joint = three_spec(errors)
    spec.check(joint)
    source = spec.correct_links(mq.tally(shown, schema=THREE_SCHEMA), joint)
    [table] = source.answer([mq.Query(by=("smoker", "sick", "paid"))])
    return table


def interaction(values):
    """Return P(sick and paid | smoker) − P(sick and paid | others), and its slopes in the cells."""
    sums = values.sum(axis=(1, 2))
    shares = values[:, 1, 1] / sums
    slopes = np.zeros(values.shape)
    for group, sign in ((0, -1), (1, 1)):
        slopes[group] -= sign * shares[group] / sums[group]
        slopes[group, 1, 1] += sign / sums[group]
    return shares[1] - shares[0], slopes


def test_intervals_of_three_parties_include_the_error_of_checked_links():
    """Coverage over 100 runs of 3,000 people, with 150 checked links for each source of errors.

    At least 95 − 5·√4.75 of 100: false alarms below 1e-6. Rates taken as known are covered less often, and
    the table without a correction hardly ever.
    """
    rng, runs, n, m = np.random.default_rng(14), 100, 3000, 150
    chances = [0.6 * 0.2 * 0.5, 0.4 * 0.7 * 0.8]
    true = chances[1] / 0.4 - chances[0] / 0.6
    hits, estimates = np.zeros(3), []
    for _ in range(runs):
        truth, shown = three_files(rng, n)
        rights = {entry: float(rng.binomial(m, share) / m) for entry, share in RIGHT_LINKS.items()}
        for place, errors in enumerate(
            (
                three_errors(truth, rights, m),
                three_errors(truth, rights),
                three_errors(truth, dict.fromkeys(rights, 1.0)),
            )
        ):
            table = corrected(shown, errors)
            value, slopes = interaction(table.values)
            hits[place] += abs(value - true) < 1.96 * np.sqrt(table.covariance.quadratic(slopes))
            if place == 0:
                estimates.append(value)
    assert hits[0] > 0.95 * runs - 5 * np.sqrt(0.95 * 0.05 * runs)
    assert hits[1] < hits[0]
    assert hits[2] < 0.1 * runs
    assert abs(np.mean(estimates) - true) < 5 * np.std(estimates) / np.sqrt(runs)


def test_wrong_links_that_two_parties_share_cannot_be_stated_as_two():
    """Stating the share of both parties' wrong links twice, as if they were independent, leaves a bias."""
    rng = np.random.default_rng(3)
    truth, shown = three_files(rng, 40_000)
    rights = {entry: RIGHT_LINKS[entry] * RIGHT_LINKS["both"] for entry in ("registry", "insurer")}
    apart = three_errors(truth, {**rights, "both": 1.0})[:2]
    together = corrected(shown, three_errors(truth)).values
    split = corrected(shown, apart).values
    exact = cells(truth)
    noise = 5 * np.sqrt(40_000) / 2 / np.prod([*RIGHT_LINKS.values()])  # false alarms below 1e-6
    assert np.abs(together - exact).max() < noise
    assert np.abs(split - exact).max() > 2 * np.abs(together - exact).max()


def test_errors_of_three_parties_are_checked_and_part_of_the_digest():
    truth, _ = three_files(np.random.default_rng(1), 500)
    errors = three_errors(truth)
    spec, joint = three_spec(errors)
    spec.check(joint)
    assert [error.others for error in spec.link_errors] == [
        ("registry",), ("insurer",), ("registry", "insurer"),
    ]  # fmt: skip
    shuffled, _ = three_spec(errors[::-1])
    assert [error.others for error in shuffled.link_errors][-1] == ("registry", "insurer")
    one, _ = three_spec(errors[0])
    listed, _ = three_spec(errors[:1])
    digests = {it.digest for it in (spec, shuffled, one, listed, three_spec(None)[0])}
    assert len(digests) == 5
    by_other = errors[0] | {"by": "paid", "right": [0.9, 0.8]}
    wrong, joint = three_spec([by_other, errors[1]])
    with pytest.raises(InputError, match="'paid' belongs to 'insurer', whose values may be wrong"):
        wrong.check(joint)
    three_spec([by_other])[0].check(joint)  # the insurer's links are right here
    lacking = errors[2] | {"margins": errors[2]["margins"][:1]}
    with pytest.raises(InputError, match="states no margin of sick, paid"):
        three_spec([lacking])[0].check(joint)
