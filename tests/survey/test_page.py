"""The page in a real browser: every path, on a phone and by keyboard; what leaves, and what stays."""

from __future__ import annotations

import json
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import segno
from playwright.sync_api import Error
from scipy.stats import chisquare
from tests.statistical.checks import ALPHA
from tests.survey import respondents, vectors
from tests.survey.browser import FLAGS, PATIENCE, PHONE, Visit, running
from tests.survey.programs import chromium
from tests.survey.world import collecting, matrix_of

from masquerade.crypto import oprf
from masquerade.survey.collector.store import Report

PLAIN = {"title": "T", "contact": "C", "consent": "D"}


@pytest.fixture(scope="module")
def machine():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with collecting(tmp_path_factory.mktemp("page") / "work") as found:
        yield found


@pytest.fixture
def visit(machine, world):
    contexts = []

    def visiting(url=None, **more):
        contexts.append(machine[1].new_context(**PHONE | more))
        return Visit(contexts[-1], world[1] + "/" if url is None else url)

    yield visiting
    for context in contexts:
        context.close()


def through(one):
    return one.begin().answer("30 to 49").answer("Yes").answer("No").answer("None")


def test_every_screen_on_a_phone(visit, world):
    collector, _, _ = world
    before = collector.store.counts()["reports"]
    one = visit()
    page = one.sees("Health at work").accessible().page
    page.get_by_text("right in at most 50 of 100 cases").wait_for()
    team = page.get_by_role("row").filter(has_text="The research team").get_by_role("cell").first
    assert team.inner_text().split("\n")[0] == "those listed above"  # age is
    assert team.locator("p").nth(1).inner_text() == "the others: not for certain"
    clear = page.locator(".note").first.inner_text()
    assert clear.startswith("These answers are not disguised. They are sent exactly as you give them:")
    assert "How old are you?" in clear
    page.get_by_text("Check this page").click()
    page.get_by_role("button", name="Run the check").click()
    page.get_by_text("test values, 0 wrong").wait_for()
    page.get_by_role("combobox", name="Language").select_option("de")
    one.sees("Gesundheit bei der Arbeit")
    assert page.evaluate("document.documentElement.lang") == "de"
    page.get_by_role("combobox", name="Sprache").select_option("en")
    one.begin().sees("How old are you")
    page.get_by_role("button", name="Next").click()  # nothing chosen
    page.get_by_role("alert").get_by_text("Please choose an answer.").wait_for()
    page.get_by_text("not disguised").wait_for()
    top = "(css) => document.querySelector(css).getBoundingClientRect().top"
    assert page.evaluate(top, "form .note") < page.evaluate(top, "[name=answer]")
    one.answer("30 to 49").sees("medicines")
    page.get_by_role("radio", name="Yes", exact=True).check()
    page.get_by_text("answers to 3 questions are disguised together. In 19 of 30").wait_for()
    page.get_by_text("is then right in at most 50 of 100 cases").wait_for()
    label = page.get_by_role("img").get_attribute("aria-label")
    assert "your answers: 19 of 30; other answers: 11 of 30" in label
    one.accessible()
    page.get_by_role("button", name="Next").click()
    one.sees("anyone at work know")
    page.get_by_role("button", name="Back").click()
    one.sees("medicines").answer("No").sees("nights")  # what does not apply is skipped
    page.get_by_role("button", name="Back").click()
    one.answer("Yes").answer("Yes")
    page.get_by_role("radio", name="One to three").check()
    page.get_by_text("In 19 of 30 cases they are sent unchanged").wait_for()
    page.get_by_role("button", name="Next").click()
    one.sees("Your answers").accessible()
    page.get_by_role("button", name="Change: How old are you?").click()
    one.sees("How old").answer("Under 30").answer("Yes").answer("Yes").answer("One to three").sees(
        "Your answers"
    )
    assert one.posted() == []  # nothing has left so far
    one.send().sees("Sent. Thank you.").accessible()
    [body] = one.posted()
    sent = json.loads(body)
    assert len(body) == collector._size
    assert collector.store.counts()["reports"] == before + 1
    for text, code, labels in (
        ("medicines", sent["reports"][1], ("Yes", "No")),
        ("How old", 0, ("Under 30",)),
    ):
        row = page.get_by_role("row").filter(has_text=text)
        assert row.get_by_role("cell").inner_text().strip() == labels[code]
    # what stays is a mark, and the answers are gone
    assert one.kept() == {"mark": "true"}
    assert page.evaluate("[localStorage.length, sessionStorage.length, document.cookie]") == [0, 0, ""]
    code = page.locator("code").inner_text()
    page.reload()
    one.sees("Health at work")
    page.get_by_text("This survey has already been answered on this device.").wait_for()
    page.get_by_text("Two answers reveal more about you.").wait_for()
    # and it can be withdrawn
    page.get_by_text("Withdraw", exact=True).first.click()
    page.get_by_label("Withdrawal code").fill(code)
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_text("What you sent has been deleted.").wait_for()
    assert collector.store.counts()["reports"] == before
    assert one.problems == []
    hosts = {request.url.split("/")[2] for request in one.requests}
    assert hosts == {world[1].split("/")[2]}


def test_dark_and_without_motion(visit):
    one = visit(color_scheme="dark", reduced_motion="reduce")
    one.accessible()
    through(one).accessible().send().sees("Sent").accessible()
    hands = "[...document.querySelectorAll('.turn')].map((one) => getComputedStyle(one).animationName)"
    assert set(one.page.evaluate(hands)) == {"none"}


def test_by_keyboard_alone(visit):
    one = visit(viewport={"width": 900, "height": 700}, is_mobile=False, has_touch=False)
    page = one.page
    focused = "document.activeElement.textContent"
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate(focused) == "Begin":
            break
    page.keyboard.press("Enter")
    one.sees("How old")
    for keys in (["2", "Enter"], ["Tab", "ArrowDown", "Enter"], ["1", "Enter"]):
        assert (
            page.evaluate("document.activeElement.tagName") == "H1"
        )  # a screen reader begins with the question
        title = page.evaluate(focused)
        for key in keys:
            if key == "Enter":
                page.locator("input:checked").focus()
            page.keyboard.press(key)
        page.wait_for_function("(before) => document.querySelector('h1').textContent !== before", arg=title)
    while page.evaluate(focused) != "Send now":
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    one.sees("Sent")


def test_from_disk(visit, world, tmp_path):
    collector, _, _ = world
    collector.built.write(tmp_path)
    one = visit(f"file://{tmp_path}/survey.html")
    through(one).send().sees("Sent")
    [request] = [request for request in one.requests if request.method == "POST"]
    headers = request.all_headers()
    assert headers["origin"] == "null"
    assert not {"cookie", "referer", "authorization"} & headers.keys()


def test_no_other_host_can_be_reached_from_the_page(visit):
    one = visit()
    tried = """async () => {
      const found = [], away = 'http://127.0.0.1:9/';
      await fetch(away).catch(() => found.push('fetch'));
      await new Promise((ok) => {
        const image = new Image();
        image.onerror = () => { found.push('image'); ok(); };
        image.src = away;
      });
      await new Promise((ok) => {
        document.addEventListener('securitypolicyviolation', () => ok(), {once: true});
        const script = document.createElement('script');
        script.textContent = 'window.leaked = 1';
        document.body.append(script);
      });
      if (!window.leaked) found.push('script');
      return found; }"""
    assert one.page.evaluate(tried) == ["fetch", "image", "script"]
    assert not [request for request in one.requests if ":9/" in request.url and request.failure is None]


def test_without_a_connection_reports_wait_and_outlive_a_kill(machine, world, tmp_path):
    collector, url, _ = world
    before = collector.store.counts()["reports"]
    settings = {"executable_path": chromium(), "args": FLAGS, "timeout": PATIENCE, **PHONE}
    context = machine[0].chromium.launch_persistent_context(str(tmp_path), **settings)
    one = Visit(context, url + "/")
    one.page.wait_for_function("navigator.serviceWorker.ready.then(() => true)")
    context.set_offline(True)
    one.page.reload()  # the service worker has the page
    through(one.sees("Health at work")).send().sees("Stored until there is a connection").accessible()
    one.page.get_by_text("1 waiting on this device").first.wait_for()
    assert (
        one.page.get_by_text("What was sent", exact=True).count() == 0
    )  # what was drawn is shown when it has left
    [name] = [name for name in one.kept() if name.startswith("queue")]
    entry = json.loads(one.kept()[name])
    assert set(entry) == {"policy", "id", "mode", "reports", "token"}
    for pid in children(str(tmp_path)):
        with suppress(ProcessLookupError):  # one that ended with another
            os.kill(pid, signal.SIGKILL)
    with suppress(Error):  # closing says so when it noticed the kill first
        context.close()
    again = machine[0].chromium.launch_persistent_context(str(tmp_path), **settings)
    two = Visit(again, url + "/")
    until = time.monotonic() + PATIENCE / 1000
    while two.kept() != {"mark": "true"} and time.monotonic() < until:
        time.sleep(0.05)
    assert two.kept() == {"mark": "true"}  # the page has heard that the report arrived
    two.page.wait_for_function("document.getElementById('queue').textContent === ''")
    assert collector.store.counts()["reports"] == before + 1
    assert [codes for *_, codes in collector.store.reports()].count(tuple(entry["reports"])) >= 1
    again.close()


def children(mark):
    """Return the processes that were started with a profile."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with suppress(OSError):
                if f"--user-data-dir={mark}".encode() in (place / "cmdline").read_bytes():
                    found.append(int(place.name))
    return found


def test_chromium_meets_the_vectors_of_python(visit, tmp_path):
    made = vectors.made()
    (tmp_path / "vectors.json").write_text(json.dumps(made))
    one = visit()
    one.page.get_by_text("Check this page").click()
    one.page.get_by_label("More test values").set_input_files(tmp_path / "vectors.json")
    one.page.get_by_role("button", name="Run the check").click()
    shown = one.page.get_by_text("test values,")
    shown.wait_for()
    number = int(shown.inner_text().split()[0].replace(",", ""))
    assert f"{number:,} test values, 0 wrong" in shown.inner_text()
    assert number >= sum(len(row["words"]) for draw in made["draws"] for row in draw["rows"])
    meet = Path(__file__).with_name("meet.mjs").read_text().replace("export ", "")
    told = one.page.evaluate(f"async (text) => {{ {meet}\nreturn meet(text); }}", json.dumps(made))
    assert told == {"met": vectors.count(made), "missed": 0}


def test_respondents_leave_no_answer_and_give_unbiased_shares(machine, tmp_path):
    respondents.judge(respondents.study(machine[1], tmp_path / "work", people=3, inside=100))


def test_two_hundred_respondents_and_ten_thousand_were_kept_on_file():
    kept = json.loads(respondents.KEPT.read_text(encoding="utf-8"))
    assert kept["people_in_fresh_contexts"] >= 200
    assert kept["people_inside_one_page"] >= 10_000
    respondents.judge(kept)
    told = kept["mutual_information"]
    found, error, own = (f"{told[name]:.3f}" for name in ("found", "stderr", "of_the_channels"))
    page = (Path(__file__).parents[2] / "docs" / "threat-model.md").read_text(encoding="utf-8")
    assert f"{found} nats (±{error}) of the truth, the channels {own}." in " ".join(page.split())


def test_ten_thousand_draws_of_the_page_are_the_channel_s(visit, world):
    """Of every truth of every question: no more is told about it than its channel tells."""
    one, policy = visit(), world[0].survey.policy
    drawn = one.page.evaluate(
        """async (n) => { const found = [], m = masquerade;
          for (let i = 0; i < n; i++) { const codes = {age: 0, pills: i % 2, told: 1, nights: i % 3};
            found.push(await m.disguise(m.survey.mechanism, codes)); }
          return found; }""",
        10_000,
    )
    place = list(policy.observed)
    for name, truths in (("pills", 2), ("nights", 3)):
        matrix = matrix_of(policy, name)
        for code in range(truths):
            counts = np.bincount([row[place.index(name)] for row in drawn[code::truths]], minlength=truths)
            assert chisquare(counts, matrix[code] * counts.sum()).pvalue > ALPHA


def test_a_block_is_dealt_once_and_only_its_questions_are_asked(machine, tmp_path):
    names = "abcde"
    policy = {
        "masquerade": 1,
        "variables": {name: {"categories": ["yes", "no"]} for name in names},
        "blocks": [{"variables": list(names), "k": 2, "gamma": 3}],
    }
    questions = [
        {"variable": name, "text": f"Question {name}", "answers": {"yes": "Yes", "no": "No"}}
        for name in names
    ]
    with collecting(
        tmp_path / "work", policy=policy, questions=questions, languages=["en"], **PLAIN,
        order="random",
    ) as (collector, url, _):  # fmt: skip
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/").begin().sees("Question [a-e]")
        dealt = one.kept()["blocks"]
        one.page.reload()
        one.begin().sees("Question [a-e]")
        assert one.kept()["blocks"] == dealt
        one.page.get_by_text("Question 1 of 2").wait_for()
        one.page.get_by_text("picked by chance. Your answers are disguised together").wait_for()
        asked = {one.page.get_by_role("heading", level=1).inner_text()}
        one.answer("Yes").page.get_by_text("Question 2 of 2").wait_for()
        asked.add(one.page.get_by_role("heading", level=1).inner_text())
        one.answer("No").send().sees("Sent")
        [(_, _, codes)] = collector.store.reports()
        response = collector.survey.policy.groups[0].response
        assert asked == {f"Question {names[i]}" for i in response.by_cells[codes[0]]}
        assert one.kept() == {"mark": "true"}
        context.close()


def test_who_would_rather_not_say_is_disguised_and_nobody_can_choose_not_asked(machine, tmp_path):
    channel = {"kind": "for_gamma", "gamma": 4}
    policy = {
        "masquerade": 1,
        "variables": {
            "drugs": {"categories": ["yes", "no", "refused"], "missing": "refused", "channel": channel},
            "often": {
                "categories": ["daily", "rarely", "refused", "not asked"],
                "missing": ["refused", "not asked"],
                "channel": channel,
            },
        },
    }
    questions = [
        {"variable": "drugs", "text": "Drugs", "answers": {"yes": "Yes", "no": "No"}},
        {"variable": "often", "text": "How often", "show_if": {"drugs": ["yes"]}, "not_asked": "not asked"},
    ]
    with collecting(tmp_path / "work", policy=policy, questions=questions, languages=["en"], **PLAIN) as (
        collector,
        url,
        _,
    ):
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/").begin().sees("Drugs").answer("Yes").sees("How often")
        offered = one.page.locator("label.choice").all_inner_texts()
        assert offered == ["daily", "rarely", "I would rather not say"]
        one.answer("I would rather not say").send().sees("Sent")
        [(_, _, codes)] = collector.store.reports()
        assert len(codes) == 2
        context.close()


def test_a_panel_draws_alike_from_its_code_and_keeps_none(machine, tmp_path):
    with collecting(tmp_path / "work", panel=True) as (_, url, _):

        def wave(code=None, answer="Yes"):
            context = machine[1].new_context(**PHONE)
            one = Visit(context, url + "/")
            shown = one.page.locator("code").inner_text()
            if code is None:
                one.accessible()
                assert one.page.get_by_role("img", name="as a QR code").locator("path").get_attribute(
                    "d"
                ) == squares(shown)
                one.page.get_by_role("button", name="Begin").click()  # not written down yet
                one.page.get_by_role("alert").get_by_text("Write this code down").wait_for()
                one.page.get_by_label("I have written it down").check()
            else:
                one.page.get_by_text("I have a code from an earlier time").click()
                one.page.get_by_role("textbox", name="Recovery code").fill(code)
            one.begin().answer("30 to 49").answer(answer)
            if answer == "Yes":
                one.answer("No")
            one.answer("None").send().sees("Sent")
            assert one.kept() == {"mark": "true"}
            assert code is None or "".join(one.posted()).count(code.split()[0]) == 0
            context.close()
            return shown, json.loads(one.posted()[-1])["reports"]

        code, first = wave()
        assert len(code.split()) == 9
        assert wave(code.upper().replace(" ", "-"))[1] == first
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/")
        one.page.get_by_text("I have a code from an earlier time").click()
        one.page.get_by_role("textbox", name="Recovery code").fill(
            code[:-1] + ("b" if code[-1] != "b" else "d")
        )
        one.page.get_by_role("button", name="Begin").click()
        one.page.get_by_role("alert").get_by_text("not a recovery code").wait_for()
        context.close()


def squares(text):
    """Return the path that draws a text's QR code, as segno makes it."""
    code = segno.make_qr(text, error="l", version=3, mask=0, mode="byte", boost_error=False)
    dark = ((x, y) for y, row in enumerate(code.matrix) for x, on in enumerate(row) if on)
    return "".join(f"M{x} {y}h1v1h-1z" for x, y in dark)


def test_an_invitation_admits_once_and_is_nowhere_afterwards(machine, tmp_path):
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        [code, other] = collector.store.invite(2)
        context = machine[1].new_context(**PHONE)
        one = Visit(context, f"{url}/#{code}")
        one.begin().sees("How old")
        assert "#" not in one.page.url
        one.page.reload()  # the token was kept
        through(one).send().sees("Sent")
        assert one.kept() == {"mark": "true"}
        [asked, sent] = [json.loads(body) for body in one.posted()]
        assert asked["invitation"] == code
        assert code not in json.dumps(sent)
        assert asked["blinded"] not in json.dumps(sent)
        assert len({len(body) for body in one.posted()}) == 1
        assert all(code not in request.url for request in one.requests[1:])
        context.close()
        for invitation, told in (
            (code, "already been used"),
            ("unknown", "invitation is unknown"),
            ("", "You need an invitation"),
        ):
            context = machine[1].new_context(**PHONE)
            two = Visit(context, f"{url}/#{invitation}").begin()
            two.page.get_by_role("alert").get_by_text(told).wait_for()
            context.close()
        assert collector.store.counts() | {"reports": 1, "begun": 1} == collector.store.counts()
        # a collector that signs with another key, to know its people again, is found out
        collector.key = oprf.ServerKey(oprf.random_key().secret, collector.key.public)
        context = machine[1].new_context(**PHONE)
        two = Visit(context, f"{url}/#{other}").begin()
        two.page.get_by_role("alert").get_by_text("server does not belong to this page").wait_for()
        context.close()


def test_own_spinners_and_the_team(machine, tmp_path):
    policy = {
        "masquerade": 1,
        "variables": {"pills": {"categories": ["yes", "no"], "channel": {"kind": "binary", "p": 0.25}}},
    }
    questions = [{"variable": "pills", "text": "Pills?", "answers": {"yes": "Yes", "no": "No"}}]
    with collecting(
        tmp_path / "work",
        policy=policy,
        questions=questions,
        languages=["en", "de", "fr", "es"],
        own_chance=True,
        **PLAIN,
    ) as (collector, url, _):
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/").sees("T")
        begin = {"de": "Beginnen", "fr": "Commencer", "es": "Empezar", "en": "Begin"}
        for language, label in begin.items():
            one.page.locator("header select").select_option(language)
            one.page.get_by_role("button", name=label, exact=True).wait_for()
            assert one.page.evaluate("document.documentElement.lang") == language
            one.accessible()
        one.page.get_by_label("Where chance comes from").select_option("2")
        one.begin().page.get_by_text("mark here only what the sheet says").wait_for()
        one.accessible().answer("No").send().sees("Sent")
        assert [(mode, codes) for _, mode, codes in collector.store.reports()] == [(2, (1,))]
        for _ in range(60):
            collector.store.add(Report(os.urandom(16), collector.survey.policy.id, 0, (0,)))
        token = collector.settings.team_token.read_text().strip()
        collector.publish()
        published = json.loads(collector.publication.figures_json)["reports"]
        assert 50 < published <= 60  # the dice's report waits for nine others
        team = Visit(context, f"{url}/team#{token}")
        team.page.get_by_text(f"{published} reports", exact=True).wait_for()
        team.page.get_by_text("numbers change by 10 reports or more").wait_for()
        team.page.get_by_text("unlikely under this policy").wait_for()
        team.accessible()
        collector.store.end()
        collector.publish()
        team.page.get_by_text("61 reports", exact=True).wait_for()
        team.page.get_by_text("unlikely under this policy").wait_for()
        team.accessible()
        Visit(context, f"{url}/team#wrong").page.get_by_text("not the team's").wait_for()
        context.close()
