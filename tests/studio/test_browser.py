"""The studio in a real browser: from an empty folder and a CSV to a release, an estimate, a network, an audit."""

import re
import signal
import subprocess
import sys

import pytest
from playwright.sync_api import expect
from tests.survey.browser import PATIENCE, Visit, running

pytest.importorskip("fastapi")
pytest.importorskip("playwright")

DESKTOP = {"viewport": {"width": 1180, "height": 900}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "locale": "en-GB"}
PEOPLE = "smoker,region\n" + "yes,north\nno,north\nno,south\nno,south\n" * 300


class Server:
    """`masquerade studio` as a user starts it."""

    def __init__(self, folder):
        code = "from masquerade.cli import main; main()"
        argv = [sys.executable, "-c", code, "studio", "project", "--no-browser"]
        self.process = subprocess.Popen(argv, cwd=folder, stderr=subprocess.PIPE, text=True)  # noqa: S603
        line = ""
        while "open.html" not in line:
            line = self.process.stderr.readline()
            assert line, "the studio ended"
        self.file = re.search(r"open (\S+open\.html)", line)[1]

    def close(self, number=signal.SIGINT):
        self.process.send_signal(number)
        self.process.wait(PATIENCE / 1000)
        self.process.stderr.close()


def entered(browser, server, kind):
    visit = Visit(browser.new_context(**kind), f"file://{server.file}")
    visit.page.wait_for_url("**/data")
    return visit


def settled(visit):
    """Wait until nothing on the page is being worked on: it loads itself anew when a job is over."""
    visit.page.locator("main").wait_for()
    expect(visit.page.locator("[data-job]")).to_have_count(0, timeout=PATIENCE)
    return visit


def key_to(page, locator):
    """Walk to something by the keyboard alone."""
    for _ in range(200):
        page.keyboard.press("Tab")
        if locator.evaluate("(element) => element === document.activeElement"):
            return
    raise AssertionError("the keyboard does not reach it")


def test_from_a_csv_to_an_audit_by_mouse_by_keyboard_and_after_a_kill(tmp_path):
    (tmp_path / "people.csv").write_text(PEOPLE, encoding="utf-8")
    server = Server(tmp_path)
    with running() as (_, browser):
        visit = entered(browser, server, DESKTOP)
        page = visit.page
        page.get_by_role("button", name="people.csv").click()
        page.wait_for_load_state()
        settled(visit)
        page.get_by_role("heading", name="Variables").wait_for()
        visit.accessible()

        page.get_by_role("link", name="Policy", exact=True).click()
        slider = page.get_by_role("slider", name="Protection of smoker")
        before = page.locator("#w1").inner_text()
        slider.focus()
        page.keyboard.press("ArrowRight")
        expect(page.locator("#w1")).not_to_have_text(before, timeout=PATIENCE)
        expect(page.locator("#w1")).to_contain_text("γ = 3.5", timeout=PATIENCE)
        page.locator("#v1").get_by_role("button", name="Set", exact=True).click()
        page.wait_for_url("**/policy")
        assert "γ = 3.5" in page.locator("#w1").inner_text()
        visit.accessible()
        page.get_by_role("button", name="Undo").click()
        expect(page.locator("#w1")).to_contain_text("γ = 3.", timeout=PATIENCE)

        release = page.get_by_role("link", name="Release", exact=True)
        key_to(page, release)  # from here on without the mouse
        page.keyboard.press("Enter")
        page.wait_for_url("**/release")
        key_to(page, page.get_by_role("button", name="Disguise"))
        page.keyboard.press("Enter")
        page.wait_for_url("**/release?made=*")
        settled(visit)
        page.get_by_role("heading", name="Released", exact=True).wait_for()
        visit.accessible()
        key_to(page, page.get_by_role("link", name="Estimate", exact=True))
        page.keyboard.press("Enter")
        page.wait_for_url("**/estimate")
        key_to(page, page.get_by_role("checkbox", name="smoker"))
        page.keyboard.press("Space")
        key_to(page, page.get_by_role("button", name="Estimate", exact=True))
        page.keyboard.press("Enter")
        page.wait_for_url("**/estimate?*")
        settled(visit)
        assert page.locator("data[data-at='0.cells.0.lower']").count() == 1
        visit.accessible()
        asked = page.url
        figures = page.locator("#result table").inner_text()

        base = asked.partition("estimate")[0]
        for place in ("learn?do=structure", "trade-off", "audit?do=policy"):
            page.goto(base + place)
            settled(visit)
            page.locator("#result").wait_for()
            visit.accessible()
        page.goto(asked)
        page.go_back()
        page.go_forward()
        assert page.locator("#result table").inner_text() == figures

        phone = entered(browser, server, PHONE)
        for place in ("data", "policy", "learn?do=structure", asked.rpartition("/")[2]):
            phone.page.goto(base + place)
            settled(phone).accessible()
        assert all(request.url.startswith((base, "file:")) for request in [*visit.requests, *phone.requests])
        assert not visit.problems
        assert not phone.problems

        server.close(signal.SIGKILL)
        again = Server(tmp_path)
        try:
            back = entered(browser, again, DESKTOP)
            back.page.goto(back.page.url.rpartition("/")[0] + "/" + asked.rpartition("/")[2])
            assert settled(back).page.locator("#result table").inner_text() == figures
        finally:
            again.close()
