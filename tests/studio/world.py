"""A project with data, and a client that was let in."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from html import unescape
from urllib.parse import urlencode

import httpx

from masquerade.studio.project import Project
from masquerade.studio.server import Studio

PORT = 5559  # of the name that requests carry; nothing listens there
NUMBER = r'<data value="([^"]*)" data-at="([^"]*)"(?: data-command="([^"]*)")?>'
DEADLINE = 240  # seconds: a slow machine is no failure


class Visitor:
    """A browser without a window: one loop in a thread of its own, and the cookie."""

    def __init__(self, folder):
        self.studio = Studio(Project(folder), PORT)
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        transport = httpx.ASGITransport(app=self.studio.app)
        self.client = httpx.AsyncClient(transport=transport, timeout=DEADLINE)
        self.cookie = self.send("POST", "enter", content=self.token()).headers["set-cookie"].partition(";")[0]

    def token(self):
        return re.search(r"#([\w-]+)", self.studio.access.file.read_text(encoding="utf-8"))[1]

    def send(self, method, place, content=None, **headers):
        door = self.studio.access
        given = {"host": door.host, "origin": door.origin, "cookie": getattr(self, "cookie", "")} | headers
        given = {name: value for name, value in given.items() if value}
        url = f"{door.origin}{door.prefix}/{place}"
        coming = self.client.request(method, url, content=content, headers=given)
        answer = asyncio.run_coroutine_threadsafe(coming, self.loop).result(DEADLINE)
        self.client.cookies.clear()  # the only cookie is the one that is given
        return answer

    def page(self, place):
        """Return a page when nothing on it is being worked on any more."""
        until = time.monotonic() + DEADLINE
        while True:
            answer = self.send("GET", place)
            assert answer.status_code == 200, answer.text
            if "data-job" not in answer.text:
                return answer.text
            assert time.monotonic() < until
            time.sleep(0.05)

    def post(self, place, **fields):
        return self.send("POST", place, urlencode(fields, doseq=True))

    def close(self):
        if (worker := self.studio.engine._worker) is not None:
            worker.kill()  # idle by now; to end in order takes seconds
        self.studio.close()
        asyncio.run_coroutine_threadsafe(self.client.aclose(), self.loop).result(DEADLINE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


def steps_of(page):
    """Yield the command that a part of a page shows, and its numbers by where they stand in its JSON."""
    for part in page.split("data-step")[1:]:
        own = re.search(r'^[^>]*data-command="([^"]*)"|class="command">([^<]*)<', part)
        found = {}
        for value, at, command in re.findall(NUMBER, part):
            said = unescape(command or (own[1] or own[2] if own else ""))
            found.setdefault(said, []).append((unescape(at), float(value)))
        yield from found.items()


def found_at(values, place):
    """Return the value at a place such as 0.cells.3.count; names may hold points."""
    for key in range(len(place.split("."))):
        head, rest = ".".join(place.split(".")[: key + 1]), ".".join(place.split(".")[key + 1 :])
        if isinstance(values, list) and head.isdecimal():
            return found_at(values[int(head)], rest) if rest else values[int(head)]
        if isinstance(values, dict) and head in values:
            return found_at(values[head], rest) if rest else values[head]
    raise KeyError(place)
