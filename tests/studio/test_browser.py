"""The studio in a real browser: from an empty folder and a CSV to an audit, by mouse and by keyboard."""

import re
import signal

import pytest
from playwright.sync_api import expect
from tests.studio.browsing import DESKTOP, PEOPLE, PHONE, Keyboard, Mouse, Server, entered, settled
from tests.studio.pictures import PLACES, people
from tests.survey.browser import running

pytest.importorskip("fastapi")

KINDS = {"mouse": Mouse, "keyboard": Keyboard}


@pytest.fixture(scope="module")
def browser():
    with running() as (_, found):
        yield found


@pytest.fixture(params=KINDS)
def walked(request, browser, tmp_path):
    """Yield somebody at the studio of an empty folder and a file, their one kind of hand, and the folder."""
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    visit = entered(browser, server, DESKTOP)
    yield visit, KINDS[request.param](visit), tmp_path
    visit.context.close()
    server.close()


def test_from_a_csv_to_an_audit(walked):
    visit, hand, folder = walked
    page = visit.page

    def looked_at():
        settled(visit)
        if isinstance(hand, Mouse):  # the screens are the same for both
            visit.accessible()

    hand.press("button", "people.csv")
    expect(page.get_by_role("heading", name="Variables")).to_be_visible()
    looked_at()

    hand.press("link", "Policy")
    expect(page.get_by_role("heading", level=1)).to_have_text("Policy")
    slider = page.get_by_role("slider", name="Protection of smoker")
    hand.slide(slider)
    words = f"{slider.get_attribute('aria-valuetext')}."
    assert words != "γ = 3."
    expect(page.locator("#w1 strong")).to_have_text(words)  # before anything is set
    hand.use(page.locator("#v1").get_by_role("button", name="Set", exact=True))
    expect(page.get_by_role("button", name="Undo")).to_have_attribute("title", re.compile("smoker: gamma"))
    expect(page.locator("#w1 strong")).to_have_text(words)
    looked_at()
    hand.press("button", "Undo")
    expect(page.locator("#w1 strong")).to_have_text("γ = 3.")
    hand.press("button", "Redo")
    expect(page.locator("#w1 strong")).to_have_text(words)

    hand.press("link", "Release")
    hand.press("button", "Disguise")
    expect(page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
    looked_at()

    hand.press("link", "Estimate")
    hand.press("checkbox", "smoker")
    hand.press("button", "Estimate")
    expect(page.locator("data[data-at='0.cells.0.lower']")).to_have_count(1)
    looked_at()
    figures = page.locator("#result table").inner_text()

    hand.press("link", "Learn")
    hand.press("button", "Learn")
    expect(page.locator("#result figure svg")).to_be_visible()
    looked_at()
    hand.use(page.locator("#result svg a").first)
    expect(page.locator("#link")).to_contain_text("it is found with a chance of 80%")
    looked_at()

    hand.press("link", "Trade-off")
    expect(page.locator("#result figure svg")).to_be_visible()
    looked_at()

    hand.press("link", "Audit")
    hand.press("button", "Prove the policy")
    expect(page.locator("#result")).to_contain_text("No claim is contradicted.")
    looked_at()

    for _ in range(9):  # the back button leads to the figures as they were
        if "estimate?" in page.url:
            break
        page.go_back()
    expect(page.locator("#result table")).to_have_text(re.compile("count"))
    assert page.locator("#result table").inner_text() == figures
    page.reload()
    assert page.locator("#result table").inner_text() == figures

    inside = (page.url.rpartition("/")[0], "file:")
    assert not [request.url for request in visit.requests if not request.url.startswith(inside)]
    assert not visit.problems
    assert len(list((folder / "project" / "releases").glob("1/disguised.csv"))) == 1


def test_two_tabs_a_phone_and_a_kill_lose_nothing(browser, tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    first, second = (entered(browser, server, kind) for kind in (DESKTOP, PHONE))
    first.page.get_by_role("button", name="people.csv").click()
    expect(first.page.get_by_role("heading", name="Variables")).to_be_visible()
    for visit in (first, second):  # both show the policy before either changes it
        visit.page.goto(visit.page.url.partition("/data")[0] + "/policy")
    for visit, part in ((first, "#v1"), (second, "#v2")):
        visit.page.locator(part).get_by_role("button", name="Release in clear").click()
        expect(visit.page.locator(part)).to_contain_text("Released in clear:")
    expect(second.page.locator("#v1")).to_contain_text("Released in clear:")  # nothing of the other is lost
    settled(second).accessible()
    for _ in range(2):
        second.page.get_by_role("button", name="Undo").click()
    expect(second.page.locator("#v1 .danger")).to_have_count(0)

    base = first.page.url.rpartition("/")[0]
    first.page.goto(f"{base}/release")
    first.page.get_by_role("button", name="Disguise").click()
    expect(first.page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
    asked = "estimate?do=count&by=smoker"
    first.page.goto(f"{base}/{asked}")
    expect(first.page.locator("#result table")).to_be_visible()
    settled(first)
    figures = first.page.locator("#result table").inner_text()
    second.page.goto(f"{base}/{asked}")
    settled(second).accessible()
    assert second.page.locator("#result table").inner_text() == figures
    before = (tmp_path / "project" / "steps.json").read_bytes()
    server.close(signal.SIGKILL)

    again = Server(tmp_path)
    try:
        back = entered(browser, again, DESKTOP)
        back.page.goto(back.page.url.rpartition("/")[0] + "/" + asked)
        assert settled(back).page.locator("#result table").inner_text() == figures
        assert (tmp_path / "project" / "steps.json").read_bytes() == before
    finally:
        again.close()
    for visit in (first, second, back):
        visit.context.close()


def test_every_screen_is_accessible_on_a_phone_in_the_dark(browser, tmp_path):
    people(tmp_path)
    server = Server(tmp_path)
    visit = entered(browser, server, PHONE | {"color_scheme": "dark"})
    try:
        page, base = visit.page, visit.page.url.rpartition("/")[0]
        page.get_by_role("button", name="people.csv").click()
        expect(page.get_by_role("heading", name="Variables")).to_be_visible()
        page.goto(f"{base}/release")
        page.get_by_role("button", name="Disguise").click()
        expect(page.get_by_role("heading", name="Released", exact=True)).to_be_visible()
        for place in PLACES.values():
            page.goto(f"{base}/{place}")
            settled(visit).accessible()
            assert page.get_by_role("alert").count() == 0, place
        assert not visit.problems
    finally:
        visit.context.close()
        server.close()
