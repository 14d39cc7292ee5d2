"""Services as they run: errors, retries, limits."""

from __future__ import annotations

import json
import socket
import ssl
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import httpx
import pytest
from tests.e2e.http_service import (
    PATIENCE,
    SECRET,
    START,
    TOKEN,
    Recorder,
    headers,
    plain,
    post,
    raw,
    transport,
)
from tests.services.background import background

from masquerade.core.errors import InputError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto.keys import token_digest
from masquerade.protocols.wire.session import ask
from masquerade.services.common import client
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.connections import listen
from masquerade.services.common.logs import Seldom
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.problems import (
    KeyReused,
    PartyUnreachable,
    ServiceFailed,
    TimedOut,
    TooLarge,
)
from masquerade.services.common.server import run
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits
from masquerade.services.common.state import State

# --- errors ------------------------------------------------------------------------------------------------


def test_errors_arrive_as_what_they_were_and_failures_without_details(capfd):
    with plain(Recorder(), limits=Limits(reply_bytes=4000)) as url, transport(url) as sending:
        with pytest.raises(QueryRefused) as refused:
            sending.exchange("north", b"x", place="refuse")
        assert refused.value.refusals == (Refusal("already_spent", "This was asked before."),)
        with pytest.raises(RoundAborted) as aborted:
            sending.exchange("north", b"x", place="abort")
        assert (aborted.value.spent, aborted.value.culprits) == (True, ("east",))
        with pytest.raises(ServiceFailed) as failed:
            sending.exchange("north", SECRET, place="fail")
        assert "smokes" not in str(failed.value)
        named = str(failed.value).split()[-1].removesuffix(".")
        with pytest.raises(TooLarge):
            sending.exchange("north", b"x", place="long")
        with pytest.raises(InputError, match="no party 'nort'"):
            sending.exchange("nort", b"x")
    text = capfd.readouterr().err
    assert "smokes" not in text
    (line,) = [line for line in text.splitlines() if named in line]
    assert '"error":"RuntimeError","at":"http_service.py:' in line


def test_a_reply_beyond_the_limit_is_not_read():
    with plain(Recorder()) as url, transport(url, limits=Limits(reply_bytes=1000)) as sending:
        with pytest.raises(TooLarge, match="longer than 1,000 bytes"):
            sending.exchange("north", b"x", place="long")
        sending.exchange("north", b"x")


def test_a_protocol_names_the_party_that_is_gone():
    free = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{free.getsockname()[1]}"
    free.close()

    class Empty:
        def encode(self):
            return b""

        @classmethod
        def decode(cls, content):
            return content

    with transport(url) as sending:
        with pytest.raises(
            PartyUnreachable, match=r"'north' at http.*1 try.*connection refused.*Check that it is running"
        ):
            sending.exchange("north", b"x")
        with pytest.raises(RoundAborted) as aborted:
            ask(sending, "north", Empty(), Empty, spent=False)
    assert aborted.value.culprits == ("north",)
    with (
        pytest.raises(InputError, match="must begin with https"),
        transport("http://192.0.2.1:80") as sending,
    ):
        sending.exchange("north", b"x")
    with (
        pytest.raises(InputError, match="no pinned fingerprint"),
        transport("https://192.0.2.1:80") as sending,
    ):
        sending.exchange("north", b"x")
    for url in (None, "", "ftp://x", "https://", "https://x:99999", "https://[x"):
        with pytest.raises(InputError, match="needs an address"), transport(url) as sending:
            sending.exchange("north", b"x")


# --- once and only once ------------------------------------------------------------------------------------


@pytest.fixture(params=["in memory", "on disk"])
def state(request, tmp_path):
    if request.param == "in memory":
        yield None
    else:
        with State.open(tmp_path / "state") as opened:
            yield opened


def test_the_same_key_brings_the_same_reply_and_another_body_is_refused(state):
    handler = Recorder()
    with plain(handler, state=state) as url:
        key = {"Idempotency-Key": "a-key-of-mine"}
        first, second = post(url, "echo", b"x", **key), post(url, "echo", b"x", **key)
        assert first.status_code == second.status_code == 200
        assert first.content == second.content == b"\0\1x"
        for place, body in (("echo", b"y"), ("other", b"x")):
            answer = post(url, place, body, **key)
            assert (answer.status_code, answer.json()["error"]) == (409, "key_reused")
        west = post(url, "echo", b"x", **key, Authorization="Bearer " + "w" * 20)
        assert west.content == b"\0\2x"  # keys of different peers have nothing to do with each other
        failures = [post(url, "fail", b"x", **{"Idempotency-Key": "another-key"}) for _ in range(2)]
        assert [each.status_code for each in failures] == [500, 500]
        assert len(handler.calls) == 3  # what failed may have done something: it is not done again
        assert post(url, "echo", b"x").content != post(url, "echo", b"x").content  # without a key
        with transport(url) as sending:
            kept = sending.exchange("north", b"m", key="kept-over-a-crash")
            assert sending.exchange("north", b"m", key="kept-over-a-crash") == kept
            assert sending.exchange("north", b"m") != kept
            with pytest.raises(KeyReused):
                sending.exchange("north", b"n", key="kept-over-a-crash")


def test_a_stored_reply_survives_the_process(tmp_path):
    key = {"Idempotency-Key": "a-key-of-mine"}
    handler = Recorder()
    with State.open(tmp_path / "state") as opened, plain(handler, state=opened) as url:
        first = post(url, "echo", b"x", **key)
    with State.open(tmp_path / "state") as opened, plain(handler, state=opened) as url:
        again = post(url, "echo", b"x", **key)
    assert again.content == first.content
    assert len(handler.calls) == 1


def test_a_reply_that_cannot_be_kept_is_not_sent():
    class Full:
        replies = None

        def find(self, *_):
            return None

        def keep(self, *_):
            raise OSError(28, "full")

    full = Full()
    full.replies = full
    with plain(Recorder(), state=full) as url:
        answer = post(url, "echo", SECRET, **{"Idempotency-Key": "a-key-of-mine"})
        assert answer.status_code == 500
        assert SECRET not in answer.content


def test_two_at_once_with_one_key_are_one(state):
    handler = Recorder()
    key = {"Idempotency-Key": "a-key-of-mine"}
    with plain(handler, state=state) as url, ThreadPoolExecutor(3) as pool:
        both = [pool.submit(post, url, "wait", b"x", **key) for _ in range(2)]
        assert handler.started.wait(PATIENCE)
        other = pool.submit(post, url, "wait", b"y", **key).result()
        assert (other.status_code, other.json()["error"]) == (409, "key_reused")
        time.sleep(0.1)
        handler.go.set()
        assert [each.result().content for each in both] == [b"\0\1x", b"\0\1x"]
    assert len(handler.calls) == 1


def test_what_takes_too_long_goes_on_and_its_reply_is_there_later():
    handler = Recorder()
    with plain(handler, limits=Limits(seconds=0.5, concurrency=1)) as url:
        key = {"Idempotency-Key": "a-key-of-mine"}
        late = post(url, "wait", b"x", **key)
        assert (late.status_code, late.json()["error"]) == (504, "timed_out")
        busy = post(url, "echo", b"y")  # the job still takes the only place
        assert (busy.status_code, busy.json()["error"], busy.headers["Retry-After"]) == (503, "busy", "1")
        handler.go.set()
        with transport(url, retries=5) as sending:
            assert sending.exchange("north", b"x", place="wait", key="a-key-of-mine") == b"\0\1x"
    assert len(handler.calls) == 1


def test_a_server_at_work_is_waited_for_but_not_for_ever():
    handler = Recorder()
    with plain(handler, limits=Limits(seconds=0.3)) as url, transport(url, retries=0) as sending:
        threading.Timer(0.8, handler.go.set).start()
        assert sending.exchange("north", b"x", place="wait") == b"\0\1x"
        handler.go.clear()
        with (
            transport(url, retries=0, patience=0.2) as hurried,
            pytest.raises(TimedOut, match=r"'north' is still at work after 0\.2 seconds"),
        ):
            hurried.exchange("north", b"y", place="wait")
        handler.go.set()
    assert [call.body for call in handler.calls] == [b"x", b"y"]


def test_a_caller_says_after_how_long_it_wants_to_hear_of_its_message():
    handler = Recorder()
    with plain(handler) as url:
        key = {"Idempotency-Key": "a-key-of-mine"}
        late = post(url, "wait", b"x", **key, **{"Masquerade-Wait": "0.01"})
        assert (late.status_code, late.json()["error"]) == (504, "timed_out")
        for wrong in ("soon", "-1", "1e3", "inf", ""):
            assert post(url, "wait", b"x", **key, **{"Masquerade-Wait": wrong}).status_code == 422
        handler.go.set()
        assert post(url, "wait", b"x", **key).content == b"\0\1x"
    assert len(handler.calls) == 1


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    handler = Recorder()
    monkeypatch.setattr("masquerade.services.common.service._DISCARDING_SECONDS", 0.2)
    with plain(handler, limits=Limits(seconds=0.2)) as url:
        assert raw(url, START + b"Content-Length: 9\r\n\r\nabc").startswith(b"HTTP/1.1 503 ")
        monkeypatch.setattr("masquerade.services.common.connections._HEADER_SECONDS", 0.2)
        assert raw(url, START) == b""  # nor are headers
        assert raw(url, b"") == b""
    assert handler.calls == []


def test_no_more_at_once_than_allowed():
    handler = Recorder()
    with plain(handler, limits=Limits(concurrency=3)) as url, ThreadPoolExecutor(2) as pool:
        running = [pool.submit(post, url, "wait", b"x") for _ in range(2)]  # a third place is for west
        while len(handler.calls) < 2:
            time.sleep(0.01)
        busy = post(url, "echo", b"x" * 1_000_000)  # the refusal is seen although the body was on its way
        assert (busy.status_code, busy.json()["error"]) == (503, "busy")
        assert httpx.get(f"{url}/health", trust_env=False, timeout=PATIENCE).status_code == 200
        assert post(url, "echo", b"x", Authorization=f"Bearer {'w' * 20}").status_code == 200
        handler.go.set()
        assert [each.result().status_code for each in running] == [200, 200]
        assert post(url, "echo", b"x").status_code == 200


def test_one_peer_fills_all_places_of_a_node_but_not_the_operators():
    handler = Recorder()
    more = [Peer("party", token_digest=token_digest("o" * 20))]  # the service's own name: its operator
    with plain(handler, limits=Limits(concurrency=1), more=more) as url, ThreadPoolExecutor(1) as pool:
        running = pool.submit(post, url, "wait", b"x")
        assert handler.started.wait(PATIENCE)
        assert post(url, "echo", b"x", Authorization=f"Bearer {'w' * 20}").status_code == 503
        assert post(url, "echo", b"x", Authorization=f"Bearer {'o' * 20}").status_code == 200
        handler.go.set()
        assert running.result().status_code == 200


def test_anybody_stops_a_server_with_slow_bodies():
    """As many callers as there are places send half a body; before, everybody else was told to ask later."""
    handler = Recorder()
    with plain(handler, limits=Limits(concurrency=2)) as url, ExitStack() as stack:
        host, port = url.removeprefix("http://").split(":")
        for _ in range(40):
            slow = stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))
            slow.sendall(START + b"Content-Length: 100\r\n\r\nabc")
        assert post(url, "echo", b"x").status_code == 200


def test_a_body_that_drips_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("masquerade.services.common.service._BODY_SECONDS", 0.2)
    monkeypatch.setattr("masquerade.services.common.service._DISCARDING_SECONDS", 0.2)
    with plain(Recorder()) as url:  # it would have 60 seconds
        assert b"1,024 bytes a second" in raw(url, START + b"Content-Length: 9\r\n\r\nabc")


def test_anybody_stops_a_server_with_silent_connections(world, monkeypatch):
    """Connections that say nothing are ended, and an address has only so many of them."""
    monkeypatch.setattr("masquerade.services.common.connections._MOST_UNFINISHED", 5)
    peers = [Peer("south", fingerprints=(world.pairs["south"].fingerprint,))]
    service = Service("north", peers=peers, limits=Limits(), handler=Recorder())
    pair = world.pairs["north"]
    with (
        background(service, tls=TlsFiles(pair.certificate, pair.key, world.authority)) as url,
        ExitStack() as stack,
    ):
        host, port = url.removeprefix("https://").split(":")

        def silent():
            return stack.enter_context(socket.create_connection((host, int(port)), timeout=PATIENCE))

        first = [silent() for _ in range(5)]
        assert silent().recv(1) == b""  # closed at once
        for one in first:
            one.close()
        monkeypatch.setattr("masquerade.services.common.connections._HANDSHAKE_SECONDS", 0.1)
        until = time.monotonic() + PATIENCE
        while True:  # the five are gone as soon as the server has seen it
            one = silent()
            began = time.monotonic()
            assert one.recv(1) == b""  # nobody waits a minute for it any more
            if time.monotonic() - began > 0.05 or time.monotonic() > until:
                break
        with HttpTransport("south", [world.north(url)], retries=5, **world.tls("south")) as sending:
            assert sending.exchange("north", b"x") == b"\0\1x"


def test_log_lines_that_strangers_cause_are_counted_not_written(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("masquerade.services.common.logs.time.monotonic", lambda: now[0])
    seldom = Seldom(most=2, seconds=10.0)
    assert [seldom.left_out("a") for _ in range(5)] == [0, 0, None, None, None]
    assert seldom.left_out("b") == 0
    now[0] = 11.0
    assert [seldom.left_out("a") for _ in range(2)] == [3, 0]


class Dripping:
    """A server that sends the headers of its reply byte by byte, for ever."""

    def __init__(self):
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._drip)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._socket.close()

    def _drip(self):
        connection, _ = self._socket.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while True:
                connection.sendall(b"x")
                time.sleep(0.05)


def test_a_peer_that_drips_header_bytes_takes_no_longer_than_one_try():
    with (
        Dripping() as server,
        transport(server.url, timeout=1.0) as sending,
        pytest.raises(PartyUnreachable, match="no answer in time"),
    ):
        sending.exchange("north", b"x")


class Flaky:
    """Hands requests on to a server, and closes the connection instead of giving the first replies."""

    def __init__(self, url, lost):
        self.port, self.lost, self.asked = int(url.rsplit(":", 1)[1]), lost, 0
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, socket.create_connection(("127.0.0.1", self.port)) as behind:
                self.asked += 1
                behind.sendall(connection.recv(1 << 20))
                reply = b""
                while not reply.endswith(b"\r\n\r\n\0\1"):
                    reply += behind.recv(1 << 20)
                if self.asked > self.lost:
                    connection.sendall(reply)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()


def test_a_retry_makes_nothing_happen_twice(monkeypatch):
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.01)
    handler = Recorder()
    with plain(handler) as url, Flaky(url, lost=3) as flaky, transport(flaky.url, retries=3) as sending:
        assert sending.exchange("north", b"") == b"\0\1"
        assert flaky.asked == 4
    assert len(handler.calls) == 1
    with (
        plain(Recorder()) as url,
        Flaky(url, lost=3) as flaky,
        transport(flaky.url, retries=1) as sending,
        pytest.raises(PartyUnreachable, match="2 tries"),
    ):
        sending.exchange("north", b"")


def test_pauses_grow_and_differ_and_are_bounded():
    for attempt in range(1, 12):
        longest = min(5.0, 0.1 * 2**attempt)
        pauses = {client._pause(attempt, "") for _ in range(20)}
        assert len(pauses) > 1
        assert all(longest / 2 <= pause <= longest for pause in pauses)
    assert client._pause(1, "2") == 2.0
    assert client._pause(1, "999999") == 5.0
    assert client._pause(1, "Wed, 21 Oct 2015 07:28:00 GMT") <= 0.2


# --- running -----------------------------------------------------------------------------------------------


def test_health_readiness_and_metrics(world):
    ready = threading.Event()
    service = Service(
        "party",
        peers=[Peer("west", token_digest=token_digest(TOKEN))],
        limits=Limits(),
        handler=Recorder(),
        ready=ready.is_set,
    )
    trusting = ssl.create_default_context(cafile=world.authority)
    with (
        background(service, **world.tls("north")) as url,
        httpx.Client(base_url=url, verify=trusting, trust_env=False, timeout=PATIENCE) as web,
    ):
        assert web.get("/health").json() == {"alive": True}
        assert (web.get("/ready").status_code, web.get("/ready").json()) == (503, {"ready": False})
        ready.set()
        assert (web.get("/ready").status_code, web.get("/ready").json()) == (200, {"ready": True})
        service.stop()
        assert web.get("/ready").status_code == 503
        assert web.get("/metrics").status_code == 200
        spoofed = web.get("/metrics", headers={"X-Forwarded-For": "192.0.2.1"})
        assert spoofed.status_code == 200  # nobody speaks for another address, in either direction
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("masquerade.services.common.service.is_loopback", lambda _: False)
            assert web.get("/metrics").status_code == 401
            assert web.get("/metrics", headers={"X-Forwarded-For": "127.0.0.1"}).status_code == 401
            assert web.get("/metrics", headers=headers()).status_code == 200


def test_small_replies_are_not_held_back():
    with listen("127.0.0.1", 0) as listening:
        assert listening.proto == socket.IPPROTO_TCP  # by which asyncio knows to send at once


def test_without_tls_only_this_machine_is_served(world, tmp_path):
    service = Service("party", peers=[], limits=Limits(), handler=Recorder())
    for host in ("0.0.0.0", "::", "192.0.2.1", "hospital.example"):  # noqa: S104
        with pytest.raises(InputError, match="on this machine only"):
            run(service, host=host, port=0)
    with pytest.raises(InputError, match="a certificate and its key"):
        run(service, port=0, tls=TlsFiles(authority=world.authority))
    files = world.tls("north")["tls"]
    with pytest.raises(InputError, match="certificate and key a pair"):
        run(service, port=0, tls=files._replace(key=world.pairs["south"].key))
    with pytest.raises(InputError, match="cannot be used"):
        run(service, port=0, tls=files._replace(authority=tmp_path / "none.pem"))
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(InputError, match="address already in use"),
    ):
        run(service, port=taken.getsockname()[1])


def test_nothing_of_a_body_reaches_the_log(capfd):
    with plain(Recorder()) as url, transport(url) as sending:
        sending.exchange("north", SECRET)
        httpx.post(
            f"{url}/v1/echo?patient=smokes",
            content=SECRET,
            headers=headers(),
            trust_env=False,
            timeout=PATIENCE,
        )
        httpx.get(f"{url}/smokes", trust_env=False, timeout=PATIENCE)
    text = capfd.readouterr().err
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["facts"]["status"] for line in lines] == [200, 200, 404]
    assert set(lines[0]["facts"]) == {
        "request",
        "method",
        "peer",
        "place",
        "status",
        "received",
        "sent",
        "ms",
        "replayed",
    }
    assert lines[0]["facts"]["received"] == len(SECRET)
    assert "smokes" not in text
    assert TOKEN not in text


def test_json_there_and_back():
    def handler(call):
        return json.dumps({"got": json.loads(call.body)}).encode() if call.place == "json" else b"{"

    with plain(handler) as url, transport(url) as sending:
        assert sending.post_json("north", "json", [1, "two"]) == {"got": [1, "two"]}
        with pytest.raises(ServiceFailed, match="not JSON"):
            sending.post_json("north", "other", 1)
        assert httpx.get(f"{url}/ready", trust_env=False, timeout=PATIENCE).json() == {"ready": True}
