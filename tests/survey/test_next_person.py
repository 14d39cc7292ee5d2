"""People who use one device in sequence, withdraw, or type a code into the wrong field."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from playwright.sync_api import Error, expect
from tests.survey.browser import PATIENCE, PHONE, Visit, running
from tests.survey.world import collecting

from masquerade.survey import disguise_codes, panel_draws, panel_key

ANSWERED = "This survey has already been answered on this device."
CONSONANTS, VOWELS = "bdfghjklmnprstvz", "aiou"
CLICK = """(moment) => { setTimeout(() => [...document.querySelectorAll('button.main')].at(-1).click(),
  moment - Date.now()); }"""
STUCK = "crypto.getRandomValues = (array) => array.fill(7);"


@pytest.fixture(scope="module")
def machine():
    with running() as found:
        yield found


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    with collecting(tmp_path_factory.mktemp("next") / "work") as found:
        yield found


@pytest.fixture
def context(machine):
    made = machine[1].new_context(**PHONE, service_workers="block")  # requests are answered by the test
    yield made
    made.close()


def through(one):
    return one.begin().answer("30 to 49").answer("Yes").answer("No").answer("None").sees("Your answers")


def withdraw(one, code):
    one.page.get_by_text("Withdraw", exact=True).first.click()
    one.page.get_by_label("Withdrawal code").fill(code)
    one.page.get_by_role("button", name="Withdraw").click()
    return (
        one.page.locator("details").filter(has=one.page.get_by_label("Withdrawal code")).get_by_role("status")
    )


def bytes_of_words(text):
    """Return the bytes of a code that is written in words of five letters."""
    found = b""
    for word in text.split():
        number = 0
        for i, letter in enumerate(word):
            number = number * 4 + VOWELS.index(letter) if i % 2 else number * 16 + CONSONANTS.index(letter)
        found += number.to_bytes(2, "big")
    return found


def test_recovery_code_typed_as_a_withdrawal_code_does_not_leave_the_page(machine, tmp_path):
    """Both codes are words of five letters. Before, the page sent whichever was typed."""
    with collecting(tmp_path / "work", panel=True) as (collector, url, _):
        context = machine[1].new_context(**PHONE)
        one = Visit(context, url + "/")
        recovery = one.page.locator("code").inner_text()
        one.page.get_by_label("I have written it down").check()
        through(one).send().sees("Sent")
        report = json.loads(one.posted()[0])["reports"]
        # what the operator of a collector does with a recovery code: draw for every answer, and compare
        policy, secret = collector.survey.policy, bytes_of_words(recovery)[:16]
        draws = panel_draws(panel_key(secret, policy.id))
        grid = np.array(list(product([1], range(2), range(2), range(3))))
        drawn = disguise_codes(dict(zip(policy.schema, grid.T, strict=True)), policy, draws)
        rows = np.column_stack([drawn[name] for name in policy.observed])
        matching = grid[(rows == report).all(axis=1)].tolist()
        assert [1, 0, 1, 0] in matching  # what was answered: never left out,
        assert len(matching) < len(grid)  # and others are
        one.page.reload()
        before = len(one.posted())
        status = withdraw(one, recovery)
        expect(status).to_have_text("Nothing was sent with this code.")
        assert one.posted()[before:] == []
        context.close()


def test_back_to_the_start_leaves_no_answer_for_the_next_person(context, world):
    """Before, the next person who pressed Begin found the answers of the last one chosen."""
    _, url, _ = world
    one = Visit(context, url + "/")
    one.begin().answer("30 to 49").sees("medicines")
    for title in ("How old", "Health at work"):
        one.page.get_by_role("button", name="Back", exact=True).click()
        one.sees(title)
    one.begin().sees("How old")
    assert one.page.locator("input:checked").count() == 0


def test_back_to_the_start_does_not_show_a_recovery_code_that_was_typed(machine, tmp_path):
    with collecting(tmp_path / "work", panel=True) as (_, url, _):
        context = machine[1].new_context(**PHONE)
        one, two = Visit(context, url + "/"), Visit(context, url + "/")
        code = one.page.locator("code").inner_text()
        two.page.get_by_text("I have a code from an earlier time").click()
        two.page.get_by_role("textbox", name="Recovery code").fill(code)
        two.begin().sees("How old").page.get_by_role("button", name="Back", exact=True).click()
        two.sees("Health at work")
        expect(two.page.locator("code")).not_to_be_empty()
        assert code not in two.page.content()
        context.close()


def open_link(one, url):
    """Open a link in the tab that shows the page already, as somebody who pastes it does."""
    one.page.evaluate("document.documentElement.dataset.left = 'here'")
    with suppress(Error):  # the page is loaded again in the middle
        one.page.goto(url, wait_until="commit")
    expect(one.page.locator("h1").first).to_be_attached(timeout=PATIENCE)


def test_next_persons_link_in_the_same_tab_shows_no_answer_and_takes_its_own_token(machine, tmp_path):
    """An address that differs after the # sign alone loads nothing: the last person's answers stayed."""
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        first, second = collector.store.invite(2)
        context = machine[1].new_context(**PHONE, service_workers="block")
        one = Visit(context, f"{url}/#{first}")
        one.begin().answer("30 to 49").answer("Yes").sees("anyone at work")
        open_link(one, f"{url}/#{second}")
        one.sees("Health at work")
        assert one.page.evaluate("document.documentElement.dataset.left") is None
        through(one).send().sees("Sent")
        asked = [json.loads(body).get("invitation") for body in one.posted()]
        assert asked == [first, second, None]
        # and the first person can still answer, with the token that this browser got for the invitation
        two = Visit(context, f"{url}/#{first}")
        two.page.get_by_role("button", name="Answer for another person").click()
        through(two).send().sees("Sent")
        assert [json.loads(body).get("invitation") for body in two.posted()] == [None]
        assert collector.store.counts() | {"reports": 2, "begun": 2} == collector.store.counts()
        assert two.kept() == {"mark": "true"}
        assert two.page.evaluate("history.state") is None
        context.close()


def test_token_that_was_left_behind_admits_nobody_without_the_invitation(machine, tmp_path):
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        [code] = collector.store.invite(1)
        context = machine[1].new_context(**PHONE, service_workers="block")
        one = Visit(context, f"{url}/#{code}").begin().sees("How old")
        one.page.close()
        two = Visit(context, url + "/").begin()
        two.page.get_by_role("alert").get_by_text("You need an invitation").wait_for()
        assert two.posted() == []
        context.close()


def test_report_that_waits_is_withdrawn_before_it_leaves(context, world):
    """Before: "There is no report with this code", and the report left as soon as there was a connection."""
    collector, url, _ = world
    before = collector.store.counts()["reports"]
    context.route("**/v1/reports", lambda route: route.abort())
    one = Visit(context, url + "/")
    through(one).send().sees("Stored until there is a connection")
    code = one.page.locator("code").inner_text()
    two = Visit(context, url + "/")
    expect(withdraw(two, code)).to_have_text("What you sent has been deleted.")
    context.unroute("**/v1/reports")
    one.sees("What you sent has been deleted")
    two.page.reload()
    two.page.get_by_text("What you sent has been deleted.").first.wait_for()
    expect(two.page.locator("#queue")).to_be_empty()
    assert two.kept() == {"mark": '"withdrawn"'}
    assert collector.store.counts()["reports"] == before


def test_withdrawal_without_a_connection_keeps_the_report_here_from_leaving(context, world):
    collector, url, _ = world
    before = collector.store.counts()["reports"]
    context.route("**/v1/*", lambda route: route.abort())
    one = Visit(context, url + "/")
    through(one).send().sees("Stored until there is a connection")
    two = Visit(context, url + "/")
    status = withdraw(two, one.page.locator("code").inner_text())
    expect(status).to_contain_text("There is no connection")
    context.unroute("**/v1/*")
    two.page.reload()
    two.sees("Health at work")
    assert two.kept() == {"mark": '"withdrawn"'}
    assert collector.store.counts()["reports"] == before


def test_report_that_a_busy_collector_did_not_take_is_sent_again(context, world):
    """Before, it stayed in the browser until somebody loaded the page again, which nobody has to."""
    collector, url, _ = world
    before = collector.store.counts()["reports"]
    context.route("**/v1/reports", lambda route: route.fulfill(status=503))
    context.clock.install()
    one = Visit(context, url + "/")
    through(one).send().sees("Stored until there is a connection")
    context.unroute("**/v1/reports")
    one.page.clock.run_for(61_000)
    one.sees("Sent")
    assert len(set(one.posted())) == 1
    assert collector.store.counts()["reports"] == before + 1


def test_withdrawal_after_the_end_is_not_called_unknown(context, world):
    _, url, _ = world
    context.route("**/v1/withdraw", lambda route: route.fulfill(status=410))
    one = Visit(context, url + "/")
    expect(withdraw(one, "babab " * 5)).to_have_text("the survey is closed.")


def test_withdrawal_does_not_lead_to_a_second_draw_unawares(context, world):
    """A collector that keeps what was withdrawn would have two draws of one answer."""
    _, url, _ = world
    one = Visit(context, url + "/")
    through(one).send().sees("Sent")
    code = one.page.locator("code").inner_text()
    one.page.reload()
    expect(withdraw(one, code)).to_have_text("What you sent has been deleted.")
    one.page.reload()
    one.sees("Health at work")
    one.page.get_by_role("button", name="Answer for another person").wait_for()
    assert one.page.get_by_role("button", name="Begin", exact=True).count() == 0


@pytest.mark.parametrize("pairs", [2, pytest.param(8, marks=pytest.mark.slow)])
def test_two_tabs_that_send_together_draw_once(machine, world, pairs):
    """Before, four of eight such pairs sent two reports: each tab looked before the other had drawn."""
    collector, url, _ = world
    for _ in range(pairs):
        before, pair = collector.store.counts()["reports"], machine[1].new_context(**PHONE)
        tabs = [Visit(pair, url + "/") for _ in range(2)]
        for one in tabs:
            through(one)
        moment = tabs[0].page.evaluate("Date.now() + 500")
        for one in tabs:
            one.page.evaluate(CLICK, moment)
        for one in tabs:
            one.sees("Sent|Health at work")
        assert collector.store.counts()["reports"] == before + 1
        pair.close()


def test_invitation_is_not_sent_again_for_another_person(machine, tmp_path):
    """Right after a report, a second request with the same invitation would join the two in time."""
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        context = machine[1].new_context(**PHONE, service_workers="block")
        one = Visit(context, f"{url}/#{collector.store.invite(1)[0]}")
        through(one).send().sees("Sent")
        one.page.get_by_role("button", name="Clear this screen").click()
        one.page.get_by_role("button", name="Answer for another person").click()
        one.begin().page.get_by_role("alert").get_by_text("You need an invitation").wait_for()
        assert len(one.posted()) == 2
        context.close()


def test_print_of_what_was_sent_has_the_code_and_no_answer(context, world):
    _, url, _ = world
    one = Visit(context, url + "/")
    through(one).send().sees("Sent")
    expect(one.page.get_by_role("img").first).to_be_visible()
    one.page.emulate_media(media="print")
    expect(one.page.locator("code")).to_be_visible()
    assert one.page.locator("svg").count() > 0
    assert one.page.locator("svg:visible").count() == 0


def test_what_was_sent_can_be_cleared_from_the_screen(context, world):
    """The spinners beside what was sent show the answers themselves."""
    _, url, _ = world
    one = Visit(context, url + "/")
    through(one).send().sees("Sent")
    labels = one.page.get_by_role("img").evaluate_all("(all) => all.map((one) => one.ariaLabel)")
    assert any("The spinner for “your answers”" in label for label in labels)
    one.page.get_by_role("button", name="Clear this screen").click()
    one.sees("Health at work").page.get_by_text(ANSWERED).wait_for()
    assert one.page.get_by_role("img").count() == 0
    assert one.page.locator("code").count() == 0


def test_generator_that_repeats_itself_draws_nothing(context, world):
    """A browser, or an extension in it, whose random numbers are always the same."""
    _, url, _ = world
    one = Visit(context, url + "/")
    one.begin().sees("How old")
    drawing = "masquerade.draw([[0, '1'], [1, '3']], masquerade.freshWords)"
    one.page.evaluate(f"async () => {{ {STUCK} await {drawing}.catch(() => 0); }}")
    with pytest.raises(Error, match="repeats itself"):
        one.page.evaluate(drawing)
    one.answer("30 to 49").answer("Yes").answer("No").answer("None").send().sees("random numbers")
    assert one.posted() == []
    assert list(one.kept()) == ["blocks"]
    context.add_init_script(STUCK)
    two = Visit(context, url + "/").begin()
    two.page.get_by_role("alert").get_by_text("random numbers").wait_for()
    assert two.posted() == []


def test_requests_do_not_tell_the_languages_of_the_browser(machine, tmp_path):
    """Rare languages would join the request for a token, which names an invitation, with the report."""
    with collecting(tmp_path / "work", invited=True) as (collector, url, _):
        context = machine[1].new_context(**PHONE | {"locale": "br-FR"}, service_workers="block")
        one = Visit(context, f"{url}/#{collector.store.invite(1)[0]}")
        through(one).send().sees("Sent")
        told = [request.all_headers() for request in one.requests if request.method == "POST"]
        assert len(told) == 2
        assert {headers["accept-language"] for headers in told} == {"*"}
        assert "br-FR" in one.requests[0].all_headers()["accept-language"]  # the page's own request does
        context.close()


def test_page_is_kept_from_translation_services(context, world):
    """A browser that translates sends what is on the screen, chosen answers and codes, to its maker."""
    _, url, _ = world
    one = Visit(context, url + "/")
    assert "notranslate" in one.page.locator("meta[name=google]").get_attribute("content")
    for step in (lambda: through(one), lambda: one.send().sees("Sent")):
        step()
        assert one.page.evaluate("[...document.querySelectorAll('*')].every((one) => one.translate !== true)")
