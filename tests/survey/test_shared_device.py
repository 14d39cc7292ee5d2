"""The page on a device that others use, too, and before a collector that wants a second draw."""

from __future__ import annotations

import json
import time
from contextlib import suppress

import pytest
from playwright.sync_api import Error, expect
from tests.survey.browser import FLAGS, PATIENCE, PHONE, Visit, running
from tests.survey.programs import chromium
from tests.survey.world import collecting

LOADED = "document.documentElement.dataset.left !== 'here' && document.querySelector('h1') !== null"
ANSWERED = "This survey has already been answered on this device."


@pytest.fixture(scope="module")
def machine():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with collecting(tmp_path_factory.mktemp("shared") / "work") as found:
        yield found


@pytest.fixture
def context(machine):
    made = machine[1].new_context(**PHONE, service_workers="block")  # requests are answered by the test
    yield made
    made.close()


@pytest.fixture
def remembering(machine):
    """Give a browser that keeps whole pages for the back button, as people's browsers do."""
    browser = machine[0].chromium.launch(
        executable_path=chromium(),
        args=FLAGS,
        timeout=PATIENCE,
        ignore_default_args=["--disable-back-forward-cache"],
    )
    made = browser.new_context(**PHONE)
    yield made
    browser.close()


def through(one):
    return one.begin().answer("30 to 49").answer("Yes").answer("No").answer("None").sees("Your answers")


def back(one, url):
    """Go to another page and come back, as whoever sits down next does; tell whether the page was kept."""
    one.page.evaluate("document.documentElement.dataset.left = 'here'")
    one.page.evaluate(
        "addEventListener('pageshow', (event) => { if (event.persisted) sessionStorage.kept = 1; })"
    )
    one.page.goto(url + "/manifest.json")
    one.page.go_back(wait_until="commit")
    until = time.monotonic() + PATIENCE / 1000
    while time.monotonic() < until:
        with suppress(Error):  # the page is being loaded
            if one.page.evaluate(LOADED):
                break
        one.page.wait_for_timeout(50)
    return one.page.evaluate("sessionStorage.kept") == "1"


def test_the_back_button_brings_no_answer_back(remembering, world):
    """In the middle, before sending and after it: answers and the withdrawal code had been there again."""
    _, url, _ = world
    one = Visit(remembering, url + "/")
    one.begin().answer("30 to 49")
    one.page.get_by_role("radio", name="Yes", exact=True).check()
    kept = [back(one, url)]
    one.sees("Health at work")
    through(one)
    kept.append(back(one, url))
    one.sees("Health at work")
    through(one).send().sees("Sent")
    code = one.page.locator("code").inner_text()
    kept.append(back(one, url))
    one.sees("Health at work").page.get_by_text(ANSWERED).wait_for()
    assert code not in one.page.content()
    assert one.page.get_by_role("img").count() == 0
    assert any(kept)  # the browser did keep the page: otherwise nothing is shown here


def answering(reply):
    """Return who answers every request in the collector's place."""
    return lambda route: route.fulfill(**reply)


@pytest.mark.parametrize(
    ("status", "told"), [(400, "does not belong to this survey"), (409, "already been used"), (410, "closed")]
)
def test_a_collector_that_refuses_gets_no_second_draw(context, world, status, told):
    """It has the first report, whatever it answers: before, whoever tried again drew again."""
    _, url, _ = world
    context.route("**/v1/reports", answering({"status": status, "body": "<h1>no</h1>"}))
    one = Visit(context, url + "/")
    through(one).send().sees(told)
    assert len(one.posted()) == 1
    for _ in range(3):
        one.page.reload()
        one.sees("Health at work").page.get_by_text(told).wait_for()
        assert one.page.get_by_role("button", name="Begin", exact=True).count() == 0
    assert len(one.posted()) == 1
    assert list(one.kept()) == ["mark"]


def test_a_collector_that_never_answers_gets_no_second_draw(context, world):
    _, url, _ = world
    held = []
    context.route("**/v1/reports", lambda route: held.append(route))  # noqa: PLW0108
    one = Visit(context, url + "/")

    def arrived(number):
        until = time.monotonic() + PATIENCE / 1000
        while len(held) < number and time.monotonic() < until:
            one.page.wait_for_timeout(20)
        return len(held) >= number

    through(one).send().sees("Sending")
    assert arrived(1)
    for _ in range(3):
        one.page.reload()
        one.sees("Health at work").page.get_by_text(ANSWERED).wait_for()
        one.page.get_by_text("1 waiting on this device").wait_for()
        assert one.page.get_by_role("button", name="Begin", exact=True).count() == 0
    assert arrived(3)
    assert len({route.request.post_data for route in held}) == 1  # the same report, byte for byte


def test_a_second_tab_does_not_draw_again(context, world):
    collector, url, _ = world
    before = collector.store.counts()["reports"]
    tabs = [Visit(context, url + "/") for _ in range(2)]
    for one in tabs:
        through(one)
    tabs[0].send().sees("Sent")
    tabs[1].send().sees("Health at work").page.get_by_text(ANSWERED).wait_for()
    assert collector.store.counts()["reports"] == before + 1
    assert tabs[1].posted() == []
    # for another person it does, when somebody says so
    tabs[1].page.get_by_role("button", name="Answer for another person").click()
    through(tabs[1]).send().sees("Sent")
    assert collector.store.counts()["reports"] == before + 2


def test_two_clicks_send_once(machine, tmp_path):
    """A panel's key takes a moment to derive: before, a second click in it sent a second report."""
    with collecting(tmp_path / "work", panel=True) as (collector, url, _):
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/")
        one.page.get_by_label("I have written it down").check()
        through(one)
        one.page.evaluate(
            """() => { const button = [...document.querySelectorAll("button.main")].at(-1);
              button.click(); button.click(); }"""
        )
        one.sees("Sent")
        expect(one.page.locator("#queue")).to_be_empty()
        assert len(one.posted()) == 1
        assert collector.store.counts()["reports"] == 1
        context.close()


def test_odd_replies_of_a_collector_end_in_words(machine, tmp_path):
    """Redirects, HTML, numbers, endless lists: the page says that there is no token, and sends no report."""
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        odd = [
            {"status": 200, "body": "<script>document.title = 'owned'</script>", "content_type": "text/html"},
            {"status": 200, "body": "null"},
            {"status": 200, "body": "[1, 2]"},
            {"status": 200, "body": json.dumps({"evaluated": {"length": 64}, "proof": 7})},
            {"status": 200, "body": json.dumps({"evaluated": "00" * 32, "proof": "00" * 64})},
            {"status": 200, "body": json.dumps({"evaluated": "zz" * 32, "proof": "ff" * 64})},
            {"status": 200, "body": json.dumps({"evaluated": "e2" * 10**6, "proof": ""})},
            {"status": 307, "headers": {"location": f"{url}/v1/reports"}},
            {"status": 302, "headers": {"location": "http://127.0.0.1:9/"}},
            {"status": 200, "body": ""},
        ]
        for reply in odd:
            context = machine[1].new_context(**PHONE, service_workers="block")
            context.route("**/v1/token", answering(reply))
            one = Visit(context, f"{url}/#{'a' * 24}").begin()
            expect(one.page.get_by_role("alert")).to_have_text(
                "Your invitation could not be used. There is no connection, or the server does not belong to "
                "this page. None of your answers was sent."
            )
            assert one.page.title() == "Health at work"
            assert one.problems == []
            assert [request.url for request in one.requests if ":9/" in request.url] == []
            context.close()
        assert collector.store.counts()["reports"] == 0
