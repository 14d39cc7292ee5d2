"""Surveys that deal units of questions: follow-ups, sheets, words and estimates, in a real browser."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from tests.statistical.checks import normal_bound
from tests.survey.browser import PHONE, Visit, running
from tests.survey.world import collecting

import masquerade as mq
from masquerade.sources.records import Records

YES = ["yes", "no"]
POLICY = {
    "masquerade": 1,
    "limit": {"breach": "5%:50%"},
    "variables": {
        "pills": {"categories": YES},
        "doses": {"categories": ["none", "few", "many"]},
        "sleep": {"categories": YES},
    },
    "blocks": [
        {
            "variables": [["pills", "doses"], "sleep"],
            "gamma": 19,
            "design": [{"variables": ["pills", "doses"], "weight": 2}, {"variables": ["sleep"], "weight": 1}],
        }
    ],
}
QUESTIONS = [
    {"variable": "pills", "text": "Pills?", "answers": {"yes": "Yes", "no": "No"}},
    {
        "variable": "doses",
        "text": "How many?",
        "answers": {"none": "None", "few": "Few", "many": "Many"},
        "show_if": {"pills": ["yes"]},
        "not_asked": "none",
    },
    {"variable": "sleep", "text": "Sleep well?", "answers": {"yes": "Yes", "no": "No"}},
]
PLAIN = {"title": "T", "contact": "C", "consent": "D", "languages": ["en"]}
PILLS, SLEEP = 0, 1  # the blocks


@pytest.fixture(scope="module")
def machine():
    with running() as found:
        yield found[1]


def visiting(machine, url, block, mode=0):
    """Visit until the page has dealt a certain block: 1 of 3 is the rarest, in 60 visits missed by 3e-11."""
    for _ in range(60):
        context = machine.new_context(**PHONE)
        one = Visit(context, url + "/")
        if mode:
            one.page.get_by_label("Where chance comes from").select_option(str(mode))
        one.begin().sees(".*")
        one.page.get_by_text("Question 1 of").wait_for()
        if list(json.loads(one.kept()["blocks"]).values()) == [block]:
            return one
        context.close()
    raise AssertionError("a block was never dealt")


def test_the_follow_up_of_a_dealt_question_is_asked_by_its_condition(machine, tmp_path):
    with collecting(tmp_path / "work", policy=POLICY, questions=QUESTIONS, **PLAIN) as (collector, url, _):
        context = machine.new_context(**PHONE)
        start = Visit(context, url + "/").sees("T").accessible()
        start.page.get_by_text("right in at most 50 of 100 cases").wait_for()
        assert start.page.get_by_text("not disguised").count() == 0
        assert start.page.locator(".views .good").count() == 3
        context.close()
        one = visiting(machine, url, PILLS).sees("Pills")
        one.page.get_by_text("In 19 of 24 cases they are sent unchanged").wait_for()
        one.accessible().answer("No").sees("Your answers")
        one.page.get_by_role("button", name="Back", exact=True).click()
        one.sees("Pills").answer("Yes").sees("How many").answer("Many").sees("Your answers").send().sees(
            "Sent"
        )
        [(_, _, (block, report))] = collector.store.reports()
        rows = [row.inner_text().split("\t")[:2] for row in one.page.locator("tbody tr").all()]
        pills, doses = divmod(report, 3)
        expected = [["Pills?", ["Yes", "No"][pills]], ["How many?", ["None", "Few", "Many"][doses]]]
        assert [[text.strip() for text in row] for row in rows] == expected
        assert block == PILLS
        hit = one.page.get_by_role("img").get_attribute("aria-label")
        assert "your answers: 19 of 24" in hit
        one.accessible().context.close()
        other = visiting(machine, url, SLEEP).sees("Sleep").answer("Yes").sees("Your answers")
        other.context.close()


def test_sheets_draw_for_a_dealt_question_and_its_follow_up(machine, tmp_path):
    with collecting(tmp_path / "work", policy=POLICY, questions=QUESTIONS, own_chance=True, **PLAIN) as (
        collector,
        url,
        _,
    ):
        printed = collector.built.files["sheets.html"].decode()
        assert "2 combinations" in printed
        assert "6 combinations" in printed
        assert "A (18 of 24)" in printed
        one = (
            visiting(machine, url, PILLS, mode=2)
            .sees("Answer these questions silently for yourself")
            .accessible()
        )
        one.page.get_by_text("If this does not apply to you: “None”").wait_for()
        one.page.get_by_text("use the sheet “6 combinations”").wait_for()
        one.answer("3: Yes · Many").sees("Your answers").accessible().send().sees("Sent")
        assert [(mode, codes) for _, mode, codes in collector.store.reports()] == [(2, (PILLS, 2))]
        assert one.page.locator("tbody").inner_text().split() == ["Pills?", "Yes", "How", "many?", "Many"]
        assert one.page.get_by_role("img").count() == 0  # the page has not seen what it would show
        one.context.close()


def test_sheets_draw_for_a_joint_channel(machine, tmp_path):
    policy = {key: value for key, value in POLICY.items() if key != "blocks"}
    policy["joint"] = [{"variables": ["pills", "doses"], "channel": {"kind": "for_gamma", "gamma": 19}}]
    policy |= {"clear": "accepted"}
    with collecting(tmp_path / "work", policy=policy, questions=QUESTIONS, own_chance=True, **PLAIN) as (
        collector,
        url,
        _,
    ):
        context = machine.new_context(**PHONE)
        one = Visit(context, url + "/")
        one.page.get_by_label("Where chance comes from").select_option("1")
        one.begin().sees("Answer these questions").answer("4: No · None").sees("Sleep").answer("No")
        one.sees("Your answers").send().sees("Sent")
        assert [(mode, codes) for _, mode, codes in collector.store.reports()] == [(1, (1, 0, 1))]
        context.close()


def test_a_weak_policy_is_never_beside_green(machine, tmp_path):
    policy = {
        "masquerade": 1,
        "variables": {
            one["variable"]: POLICY["variables"][one["variable"]]
            | {"channel": {"kind": "for_epsilon", "epsilon": 2}}
            for one in QUESTIONS
        },
    }
    asked = [{key: one[key] for key in ("variable", "text", "answers")} for one in QUESTIONS]
    with collecting(tmp_path / "work", policy=policy, questions=asked, **PLAIN) as (_, url, _):
        context = machine.new_context(**PHONE)
        one = Visit(context, url + "/").sees("T").accessible()
        one.page.get_by_text("This protects you less than the standard setting").wait_for()
        assert one.page.locator(".good").count() == 0
        assert one.page.get_by_text("not for certain, but they can guess them well", exact=True).count() == 3
        context.close()


def test_dealt_units_are_estimated_without_bias(machine, tmp_path):
    """20,000 draws by the page's own script; shares and pairs within the bound of false alarms 1e-6."""
    people = 20_000
    shares = {(0, 1): 0.2, (0, 2): 0.1, (0, 0): 0.05, (1, 0): 0.65}  # pills and doses; sleep hangs on pills
    truths = [
        (pills, doses, sleep)
        for (pills, doses), share in shares.items()
        for sleep, part in enumerate((0.3, 0.7) if pills == 0 else (0.6, 0.4))
        for _ in range(round(people * share * part))
    ]
    assert len(truths) == people
    wider = json.loads(json.dumps(POLICY))
    wider["blocks"][0]["design"].append({"variables": ["pills", "doses", "sleep"], "weight": 3})
    with collecting(tmp_path / "work", policy=wider, questions=QUESTIONS, **PLAIN) as (collector, url, _):
        context = machine.new_context(**PHONE)
        drawn = Visit(context, url + "/").page.evaluate(
            """async (truths) => { const found = [], m = masquerade;
              for (const [pills, doses, sleep] of truths)
                found.push(await m.disguise(m.survey.mechanism, {pills, doses, sleep}));
              return found; }""",
            truths,
        )
        context.close()
        policy = collector.survey.policy
    columns = {name: np.array(drawn, dtype=np.uint8)[:, i] for i, name in enumerate(policy.observed)}
    source = Records(columns, policy)
    tables = [("pills",), ("doses",), ("sleep",), ("pills", "doses"), ("pills", "sleep"), ("doses", "sleep")]
    scores = []
    names = list(policy.schema)
    for names_of, found in zip(tables, source.answer([mq.Query(by=table) for table in tables]), strict=True):
        sizes = [len(policy.schema[name]) for name in names_of]
        for cell in itertools.product(*map(range, sizes)):
            true = sum(
                all(t[names.index(n)] == c for n, c in zip(names_of, cell, strict=True)) for t in truths
            )
            scores.append((found.values[cell] - true) / found.stderr("given_records")[cell])
    assert np.abs(scores).max() <= normal_bound(len(scores))
