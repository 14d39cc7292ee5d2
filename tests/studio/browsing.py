"""The studio as a user starts it, and two kinds of hands."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from typing import Any

from playwright.sync_api import expect
from tests.servers.machine import end_with_parent
from tests.survey.browser import PATIENCE, Visit

DESKTOP = {"viewport": {"width": 1180, "height": 900}, "locale": "en-GB"}
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "locale": "en-GB"}
PEOPLE = "smoker,region\n" + "yes,north\nyes,north\nno,north\nno,south\nno,south\n" * 300
MOST_TABS = 200


class Server:
    """`masquerade studio` in a folder."""

    def __init__(self, folder: Any) -> None:
        argv = [sys.executable, "-m", "masquerade", "studio", "project", "--no-browser"]
        self.process = subprocess.Popen(  # noqa: S603
            argv,
            cwd=folder,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=end_with_parent,  # noqa: PLW1509  (none is left behind by a test that fails)
        )
        assert self.process.stderr is not None
        line = ""
        while "open.html" not in line:
            line = self.process.stderr.readline()
            assert line, "the studio ended"
        self.file = re.search(r"open (\S+open\.html)", line)[1]  # type: ignore[index]

    def close(self, number: int = signal.SIGTERM) -> None:
        """End it, as a user or as a crash would."""
        self.process.send_signal(number)
        self.process.wait(PATIENCE / 1000)
        self.process.stderr.close()  # type: ignore[union-attr]


def entered(browser: Any, server: Server, kind: dict[str, Any]) -> Visit:
    """Open the file that the studio names."""
    visit = Visit(browser.new_context(**kind), f"file://{server.file}")
    visit.page.wait_for_url("**/data")
    return visit


def settled(visit: Visit) -> Visit:
    """Wait until nothing on the page is being worked on: it loads itself anew when a job is over."""
    visit.page.locator("footer").wait_for(state="attached")  # print hides it
    expect(visit.page.locator("[data-job]")).to_have_count(0)
    return visit


class Mouse:
    """A hand that only points and clicks."""

    def __init__(self, visit: Visit) -> None:
        self.page = visit.page

    def press(self, role: str, name: str) -> None:
        """Use what has this role and name."""
        self.use(self.page.get_by_role(role, name=name, exact=True))

    def use(self, locator: Any) -> None:
        """Click it; what is thin, where it is."""
        if locator.evaluate("(element) => element instanceof SVGElement"):
            locator.scroll_into_view_if_needed()
            box = locator.bounding_box()
            self.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        else:
            locator.click()

    def slide(self, locator: Any) -> None:
        """Click into the right part of a slider."""
        box = locator.bounding_box()
        locator.click(position={"x": 0.8 * box["width"], "y": box["height"] / 2})


class Keyboard:
    """A hand that only has keys."""

    def __init__(self, visit: Visit) -> None:
        self.page = visit.page

    def press(self, role: str, name: str) -> None:
        """Use what has this role and name."""
        locator = self.page.get_by_role(role, name=name, exact=True)
        self._walk_to(locator)
        self.page.keyboard.press("Space" if role in {"checkbox", "radio"} else "Enter")

    def use(self, locator: Any) -> None:
        """Walk to it, and press Enter."""
        self._walk_to(locator)
        self.page.keyboard.press("Enter")

    def slide(self, locator: Any) -> None:
        """Walk to a slider, and move it."""
        self._walk_to(locator)
        for _ in range(3):
            self.page.keyboard.press("ArrowRight")

    def _walk_to(self, locator: Any) -> None:
        locator.wait_for(state="attached")  # a link that stands upright has no width
        for _ in range(MOST_TABS):
            if locator.evaluate("(element) => element === document.activeElement"):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError("the keyboard does not reach it")
