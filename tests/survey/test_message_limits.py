"""The limit of messages from one address: what callers who share it learn of each other."""

from __future__ import annotations

import secrets
from types import SimpleNamespace

import pytest

from masquerade.survey.collector.collector import BrowserMiddleware

MOST = 60
TRIES = 1000
# a caller who knows the limits guesses right in 1/2 + 1 / (2 * 31) of all tries; by Hoeffding's inequality
# 0.6 or more of 1,000 have a probability below 1e-6
LIMIT = 0.6


@pytest.fixture(autouse=True)
def _one_minute(monkeypatch):
    """Let no minute end within a try."""
    clock = SimpleNamespace(monotonic=lambda: 61.0)
    monkeypatch.setattr("masquerade.survey.collector.collector.time", clock)


async def take(_scope, _receive, send):
    """Answer every message."""
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body"})


class Messages:
    """Messages to a collector of its own, each of which comes from an address."""

    def __init__(self, per_minute=MOST):
        self.middleware, self.status = BrowserMiddleware(take, per_minute=per_minute, secured=False), 0

    async def _keep(self, part):
        self.status = part.get("status", self.status)

    def send(self, address="127.0.0.1"):
        """Return the status of a message."""
        scope = {
            "type": "http",
            "path": "/v1/reports",
            "method": "POST",
            "headers": [],
            "client": (address, 1),
        }
        _run(self.middleware(scope, None, self._keep))
        return self.status

    def count_until_refused(self, address="127.0.0.1"):
        """Return the number of messages that are taken."""
        return next(number for number in range(10 * MOST) if self.send(address) == 429)


def _run(coroutine):
    """Run a coroutine that waits for nothing."""
    with pytest.raises(StopIteration):
        coroutine.send(None)


def guess(taken):
    """Return the number of messages that another caller sent, 0 or 1, as well as can be told."""
    if taken == MOST:
        return 0
    return 1 if taken == MOST - MOST // 2 - 1 else secrets.randbelow(2)


def right_guesses(draws):
    """Return how often a caller is right about whether another one has sent a message."""
    right = 0
    for _ in range(TRIES):
        messages, others = Messages(), secrets.randbelow(2)
        if not draws:
            messages.middleware._draw_reduction = lambda _name: 0
        for _ in range(others):
            messages.send()
        taken = messages.count_until_refused()
        right += (guess(taken) if draws else MOST - taken) == others
    return right / TRIES


def test_callers_of_one_address_do_not_count_each_other_by_its_limit():
    assert right_guesses(draws=False) == 1  # the limit as it was
    assert right_guesses(draws=True) < LIMIT


def test_limits_are_from_half_of_the_setting_to_all_of_it():
    taken = [Messages(4).count_until_refused() for _ in range(200)]
    assert set(taken) == {2, 3, 4}  # one of them is missing with a probability of 3 * (2 / 3)^200
    assert Messages(1).count_until_refused() == 1


def test_addresses_of_one_network_share_a_limit():
    """Before, each of the 2^64 addresses of a network had a limit of its own."""
    messages = Messages()
    statuses = [messages.send(f"2001:db8::{number:x}") for number in range(2 * MOST)]
    assert statuses[-1] == 429
    assert messages.send("2001:db8:0:1::1") == 200
