"""Services as they run: real TLS on loopback, hostile callers and servers, retries, limits, the end."""

from __future__ import annotations

import json
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest
from tests.services.background import background

from masquerade.core.errors import InputError, QueryRefused, Refusal, RoundAborted
from masquerade.crypto import certificates
from masquerade.crypto.keys import new_token, token_digest
from masquerade.protocols.session import ask
from masquerade.services.common import client
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.jobs import Call
from masquerade.services.common.logs import Seldom
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.problems import (
    KeyReused,
    NotAdmitted,
    NotFound,
    PartyUnreachable,
    ServiceFailed,
    TimedOut,
    TooLarge,
    WrongVersion,
)
from masquerade.services.common.server import _listening, run
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits
from masquerade.services.common.state import State

SECRET = b"the patient smokes"
TOKEN = new_token()
PATIENCE = 600  # seconds that anything may take on a machine that is busy
VERSION = {"Masquerade-Version": "1"}
START = (
    f"POST /v1/echo HTTP/1.1\r\nHost: x\r\nMasquerade-Version: 1\r\nAuthorization: Bearer {TOKEN}\r\n"
).encode()


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Certificates: north serves; south and stranger are of the same authority, impostor of another."""
    folder, other = tmp_path_factory.mktemp("tls"), tmp_path_factory.mktemp("other")
    certificates.init(folder, name="ours")
    certificates.init(other, name="ours")  # the same name, another key
    pairs = {name: certificates.issue(folder, name) for name in ("north", "south", "stranger")}
    pairs["impostor"] = certificates.issue(other, "south")
    return World(folder, other, pairs)


class World:
    def __init__(self, folder, other, pairs):
        self.folder, self.other, self.pairs = folder, other, pairs
        self.authority = folder / "ca.pem"

    def tls(self, name, authority=None):
        pair = self.pairs[name]
        return {"tls": TlsFiles(pair.certificate, pair.key, authority or self.authority)}

    def south(self):
        return Peer("south", fingerprints=(self.pairs["south"].fingerprint,))

    def north(self, url, **more):
        return Peer("north", url, **{"fingerprints": (self.pairs["north"].fingerprint,), **more})


class Recorder:
    """A handler that remembers what reached it; what it does depends on the place."""

    def __init__(self):
        self.calls, self.go, self.started = [], threading.Event(), threading.Event()

    def __call__(self, call: Call):
        self.calls.append(call)
        self.started.set()
        if call.place == "wait":
            assert self.go.wait(PATIENCE)
        if call.place == "fail":
            raise RuntimeError(call.body.decode())
        if call.place == "refuse":
            raise QueryRefused([Refusal("already_spent", "This was asked before.")])
        if call.place == "abort":
            raise RoundAborted("It broke.", spent=True, culprits=("east",))
        if call.place == "long":
            return bytes(5000)
        return len(self.calls).to_bytes(2, "big") + call.body


@contextmanager
def plain(handler, *, limits=None, more=(), **options):
    """Serve with a token on loopback without TLS: for what does not depend on TLS."""
    peers = [
        Peer("south", token_digest=token_digest(TOKEN)),
        Peer("west", token_digest=token_digest("w" * 20)),
        *more,
    ]
    service = Service("party", peers=peers, limits=limits or Limits(), handler=handler, **options)
    with background(service, grace_seconds=5) as url:
        yield url


def headers(token=TOKEN, **more):
    return {**VERSION, "Authorization": f"Bearer {token}", **more}


def post(url, place, body=b"", **more):
    return httpx.post(
        f"{url}/v1/{place}", content=body, headers={**headers(), **more}, trust_env=False, timeout=PATIENCE
    )


def transport(url, token=TOKEN, **more):
    return HttpTransport(
        "south", [Peer("north", url, token=token)], **{"place": "echo", "retries": 0, **more}
    )


def raw(url, data, *, close=False):
    """Send bytes as they are and return what comes back until the other side closes."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
        connection.sendall(data)
        if close:
            return b""
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
        return answer


def logged(capfd, *events):
    """Return the facts of events, of requests if none are named, since the last look."""
    lines = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert all("withheld" not in line for line in lines)
    return [line["facts"] for line in lines if line["event"] in (events or ("request",))]


# --- who is admitted ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mutual(world):
    """A service that only knows certificates."""
    handler = Recorder()
    service = Service("party", peers=[world.south()], limits=Limits(), handler=handler)
    with background(service, **world.tls("north")) as url:
        yield url, handler


def test_pinned_certificates_on_both_sides(world, mutual):
    url, handler = mutual
    with HttpTransport("south", [world.north(url)], place="echo", retries=0, **world.tls("south")) as sending:
        assert sending.exchange("north", SECRET)[2:] == SECRET
    assert handler.calls[-1].peer == world.south()
    assert handler.calls[-1].body == SECRET


def test_a_valid_certificate_that_is_not_pinned_is_refused(world, mutual):
    url, handler = mutual
    before = len(handler.calls)
    with (
        HttpTransport("stranger", [world.north(url)], retries=0, **world.tls("stranger")) as sending,
        pytest.raises(NotAdmitted, match=world.pairs["stranger"].fingerprint),
    ):
        sending.exchange("north", SECRET)
    assert len(handler.calls) == before


@pytest.mark.parametrize("who", ["impostor", None])
def test_a_certificate_of_another_authority_or_none_is_refused_in_the_handshake(world, mutual, who, capfd):
    url, handler = mutual
    before = len(handler.calls)
    files = world.tls(who) if who else {"tls": TlsFiles(authority=world.authority)}
    with (
        HttpTransport("south", [world.north(url)], retries=0, **files) as sending,
        pytest.raises(
            (NotAdmitted, PartyUnreachable), match="certificate"
        ),  # asyncio closes without an alert
    ):
        sending.exchange("north", SECRET)
    assert len(handler.calls) == before
    reason = {"impostor": "certificate_verify_failed", None: "peer_did_not_return_a_certificate"}[who]
    assert logged(capfd, "handshake refused") == [{"code": reason}]


class Listener:
    """A TLS server that only listens: what of a request reaches it before it is found out?"""

    def __init__(self, pair):
        self.heard, self.connections = b"", 0
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pair.certificate, pair.key)
        self._socket = context.wrap_socket(
            socket.create_server(("127.0.0.1", 0)), server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://127.0.0.1:{self._socket.getsockname()[1]}"
        self._thread = threading.Thread(target=self._listen)

    def _listen(self):
        connection, _ = self._socket.accept()
        with connection:
            connection.settimeout(PATIENCE)
            try:
                connection.do_handshake()
                self.connections += 1
                while chunk := connection.recv(65536):
                    self.heard += chunk
            except OSError:
                pass

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._thread.join()
        self._socket.close()


def test_a_server_whose_certificate_is_not_pinned_hears_nothing(world):
    with (
        Listener(world.pairs["stranger"]) as listener,  # signed by the right authority, for the right host
        HttpTransport("south", [world.north(listener.url)], retries=3, **world.tls("south")) as sending,
        pytest.raises(NotAdmitted, match="is not pinned for 'north'"),
    ):
        sending.exchange("north", SECRET)
    assert (listener.connections, listener.heard) == (1, b"")  # the handshake was done, no retry, not a byte


def test_a_pinned_server_of_another_authority_hears_nothing(world):
    impostor = world.pairs["impostor"]
    with (
        Listener(impostor) as listener,
        HttpTransport(
            "south",
            [world.north(listener.url, fingerprints=(impostor.fingerprint,))],
            retries=3,
            **world.tls("south"),
        ) as sending,
        pytest.raises(NotAdmitted, match="is not valid for party 'north'"),
    ):
        sending.exchange("north", SECRET)
    assert listener.heard == b""


def test_the_listener_would_have_heard(world):
    stranger = world.pairs["stranger"]
    with (
        Listener(stranger) as listener,
        HttpTransport(
            "south",
            [world.north(listener.url, fingerprints=(stranger.fingerprint,))],
            retries=0,
            timeout=0.5,
            **world.tls("south"),
        ) as sending,
        pytest.raises(PartyUnreachable),
    ):
        sending.exchange("north", SECRET)
    assert SECRET in listener.heard


def test_both_fingerprints_are_accepted_while_a_party_rotates(tmp_path):
    certificates.init(tmp_path, name="ours")
    first, caller = certificates.issue(tmp_path, "north"), certificates.issue(tmp_path, "south")
    service = Service(
        "party",
        peers=[Peer("south", fingerprints=(caller.fingerprint,))],
        limits=Limits(),
        handler=Recorder(),
    )
    files = {"tls": TlsFiles(caller.certificate, caller.key, tmp_path / "ca.pem")}
    served = {"tls": TlsFiles(first.certificate, first.key, tmp_path / "ca.pem")}
    with background(service, **served) as url:
        second = certificates.rotate(tmp_path, "north")
        both = Peer("north", url, fingerprints=(second.old_fingerprint, second.fingerprint))
        with HttpTransport("south", [both], place="echo", retries=0, **files) as sending:
            assert sending.exchange("north", b"x")[2:] == b"x"
    with background(service, **served, port=int(url.rsplit(":", 1)[1])) as again:
        assert again == url
        with (
            pytest.raises(Exception, match="stopping"),
            HttpTransport("south", [both], retries=0, **files) as sending,
        ):
            sending.exchange("north", b"x")  # one app serves once: after its stop it takes nothing new


def test_tokens_over_tls_beside_certificates(world):
    handler = Recorder()
    peers = [world.south(), Peer("west", token_digest=token_digest(TOKEN))]
    service = Service("party", peers=peers, limits=Limits(), handler=handler)
    with background(service, **world.tls("north")) as url:
        north = world.north(url, token=TOKEN)
        with HttpTransport(
            "west", [north], place="echo", retries=0, tls=TlsFiles(authority=world.authority)
        ) as sending:
            sending.exchange("north", b"x")
        with HttpTransport(
            "south", [world.north(url)], place="echo", retries=0, **world.tls("south")
        ) as sending:
            sending.exchange("north", b"y")
        south = HttpTransport("south", [north], place="echo", retries=0, **world.tls("south"))
        with south, pytest.raises(NotAdmitted, match="different peers"):
            south.exchange("north", b"z")
        stranger = HttpTransport("stranger", [north], place="echo", retries=0, **world.tls("stranger"))
        with stranger, pytest.raises(NotAdmitted, match="is not one of a peer's"):
            stranger.exchange("north", b"z")
    assert [(call.peer.name, call.body) for call in handler.calls] == [("west", b"x"), ("south", b"y")]


def test_old_versions_of_tls_are_refused(mutual, capfd):
    url, _ = mutual
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")  # the caller would
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    host, port = url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as connection, pytest.raises(OSError):
        context.wrap_socket(connection)
    facts, until = [], time.monotonic() + PATIENCE
    while not facts and time.monotonic() < until:
        facts = logged(capfd, "handshake refused")
    assert facts == [{"code": "unsupported_protocol"}]


def test_wrong_tokens_are_refused(capfd):
    handler = Recorder()
    with plain(handler) as url:
        for credentials in (
            {},
            {"Authorization": "Bearer " + new_token()},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": "Bearer"},
            {"Authorization": token_digest(TOKEN)},
        ):
            answer = httpx.post(
                f"{url}/v1/echo", content=SECRET, headers={**VERSION, **credentials}, trust_env=False
            )
            assert (answer.status_code, answer.json()["error"]) == (401, "not_admitted")
            assert answer.headers["WWW-Authenticate"] == "Bearer"
        with transport(url, token=new_token()) as sending, pytest.raises(NotAdmitted):
            sending.exchange("north", SECRET)
        with transport(url) as sending:
            assert sending.exchange("north", SECRET)[2:] == SECRET
    assert len(handler.calls) == 1
    facts = logged(capfd)
    assert [each["status"] for each in facts] == [401] * 6 + [200]
    assert all("peer" not in each and each["address"] == "127.0.0.1" for each in facts[:6])


def test_callers_without_credentials_are_admitted_only_where_that_was_said():
    handler = Recorder()
    with plain(handler, anonymous=Peer("anybody")) as url:
        assert httpx.post(f"{url}/v1/echo", headers=VERSION, trust_env=False).status_code == 200
        wrong = httpx.post(f"{url}/v1/echo", headers=headers("wrong token"), trust_env=False)
        assert wrong.status_code == 401
    assert [call.peer.name for call in handler.calls] == ["anybody"]


# --- what is taken -----------------------------------------------------------------------------------------


def test_other_versions_are_refused():
    handler = Recorder()
    with plain(handler) as url:
        for version in ({}, *({"Masquerade-Version": offer} for offer in ("2", "2, 3", "1 2", "1,", "one"))):
            sent = {"Authorization": f"Bearer {TOKEN}", **version}
            answer = httpx.post(f"{url}/v1/echo", content=b"x", headers=sent, trust_env=False)
            assert (answer.status_code, answer.json()["error"]) == (426, "wrong_version")
            assert "version 1" in answer.json()["message"]
        assert httpx.get(f"{url}/version", trust_env=False).json() == {"service": "party", "versions": [1]}
        with transport(url) as sending, pytest.MonkeyPatch.context() as patch:
            patch.setattr(client, "VERSIONS", ("7", "8"))
            with pytest.raises(WrongVersion):
                sending.exchange("north", b"x")
    assert handler.calls == []


def test_the_newest_version_that_both_speak_is_agreed_on(monkeypatch):
    monkeypatch.setattr("masquerade.services.common.service.VERSIONS", (1, 2, 3))
    handler = Recorder()
    with plain(handler) as url:
        for offer, agreed in (("1", "1"), ("1, 2", "2"), ("2,1,9", "2"), ("4, 3", "3")):
            sent = {"Authorization": f"Bearer {TOKEN}", "Masquerade-Version": offer}
            answer = httpx.post(f"{url}/v1/echo", content=b"x", headers=sent, trust_env=False)
            assert (answer.status_code, answer.headers["Masquerade-Version"]) == (200, agreed)
        monkeypatch.setattr(client, "VERSIONS", ("1", "2"))
        with transport(url) as sending:
            assert sending.exchange("north", b"x")
        monkeypatch.setattr("masquerade.services.common.service.VERSIONS", (1,))
        with transport(url) as sending:
            assert sending.exchange("north", b"y")


def test_a_body_beyond_the_limit_is_refused_declared_or_counted(monkeypatch):
    handler = Recorder()
    with plain(handler, limits=Limits(body_bytes=1000)) as url:
        declared = raw(url, START + b"Content-Length: 1000000000000\r\n\r\n")  # nothing of it has to be sent
        assert declared.startswith(b"HTTP/1.1 413 ")
        chunk = b"1f4\r\n" + b"x" * 500 + b"\r\n"
        streamed = raw(
            url, START + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + 3 * chunk + b"0\r\n\r\n"
        )
        assert streamed.startswith(b"HTTP/1.1 413 ")
        monkeypatch.setattr("masquerade.services.common.service._DISCARDING_SECONDS", 0.1)
        endless = raw(url, START + b"Transfer-Encoding: chunked\r\n\r\n" + 5 * chunk)  # never ends by itself
        assert endless.startswith(b"HTTP/1.1 413 ")
        assert b"connection: close" in endless.lower()
        assert post(url, "echo", b"x" * 1001).status_code == 413
        assert post(url, "echo", b"x" * 1000).status_code == 200
        assert post(url, "echo", b"x", **{"Content-Encoding": "gzip"}).status_code == 422
        with transport(url) as sending, pytest.raises(TooLarge, match="at most 1,000 bytes"):
            sending.exchange("north", b"x" * 1001)
        with (
            transport(url, limits=Limits(body_bytes=10)) as sending,
            pytest.raises(TooLarge, match="at most 10 bytes"),
        ):
            sending.exchange("north", b"x" * 11)  # refused before it is sent
    assert [len(call.body) for call in handler.calls] == [1000]


def test_a_truncated_body_does_nothing(capfd):
    handler = Recorder()
    with plain(handler) as url:
        raw(url, START + b"Content-Length: 100\r\n\r\n" + SECRET, close=True)
        raw(url, START + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\n", close=True)
        facts, until = [], time.monotonic() + PATIENCE
        while len(facts) < 2 and time.monotonic() < until:
            time.sleep(0.02)
            facts += logged(capfd)
    assert [each["status"] for each in facts] == [499, 499]
    assert handler.calls == []


GARBAGE = [
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40),  # TLS where there is none
    b"GET\r\n\r\n",
    b"\x00" * 100 + b"\r\n\r\n",
    b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
    b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    b"POST /v1/echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: rot13\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 1_000_000 + b"\r\n\r\n",
]


def test_garbage_is_refused_and_the_service_goes_on(capfd):
    handler = Recorder()
    with plain(handler) as url:
        for sent in GARBAGE:
            try:
                answer = raw(url, sent)
            except ConnectionError:  # closed before all was read
                continue
            assert answer.split(b" ")[1] in {b"400", b"501"}, sent
        for path in (
            "/v1/",
            "/v1/a//b",
            "/v1/../health",
            "/v1/%2e%2e/x",
            "/v1/a%20b",
            "/v1/" + "a" * 201,
            "/v1/a%0Ab",
        ):
            answer = httpx.post(url + path, content=b"x", headers=headers(), trust_env=False)
            assert answer.status_code == 404, path
        assert (
            httpx.request("DELETE", f"{url}/v1/echo", headers=headers(), trust_env=False).status_code == 404
        )
        assert httpx.get(f"{url}/openapi.json", trust_env=False).status_code == 404
        assert post(url, "echo", b"x", **{"Idempotency-Key": "short"}).status_code == 422
        assert handler.calls == []
        assert post(url, "echo", b"x").status_code == 200
    facts = logged(capfd, "request", "server")  # and nothing of the garbage is in them
    assert len([each for each in facts if "status" in each]) == 11
    assert len([each for each in facts if each.get("source") == "uvicorn.error"]) >= len(GARBAGE)


def test_places_have_templates():
    handler = Recorder()
    with plain(handler, places=["sessions/{session}/columns"]) as url, transport(url) as sending:
        sending.exchange("north", b"x", place="sessions/s1/columns")
        with pytest.raises(NotFound):
            sending.exchange("north", b"x", place="sessions/s1/other")
        got = httpx.get(f"{url}/v1/sessions/s2/columns", headers=headers(), trust_env=False)
        assert got.status_code == 404
        assert httpx.post(f"{url}/v1/sessions/s2/other", headers=VERSION, trust_env=False).status_code == 401
        with pytest.raises(InputError, match="A place consists of"):
            sending.exchange("north", b"x", place="sessions?x=1")
        counted = httpx.get(f"{url}/metrics", trust_env=False).text
    assert handler.calls[0].parameters == {"session": "s1"}
    assert 'masquerade_requests_total{place="sessions/{session}/columns",status="200"} 1.0' in counted
    assert "s1" not in counted
    assert "south" not in counted


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
        named = str(failed.value).split()[-2]
        with pytest.raises(TooLarge):
            sending.exchange("north", b"x", place="long")
        with pytest.raises(InputError, match="no party 'nort'"):
            sending.exchange("nort", b"x")
    text = capfd.readouterr().err
    assert "smokes" not in text
    (line,) = [line for line in text.splitlines() if named in line]
    assert '"error":"RuntimeError","at":"test_serving.py:' in line


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
            PartyUnreachable, match=r"'north' at http.*1 try.*connection refused.*See that it runs"
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


def test_a_body_that_does_not_come_is_not_waited_for(monkeypatch):
    handler = Recorder()
    monkeypatch.setattr("masquerade.services.common.service._DISCARDING_SECONDS", 0.2)
    with plain(handler, limits=Limits(seconds=0.2)) as url:
        assert raw(url, START + b"Content-Length: 9\r\n\r\nabc").startswith(b"HTTP/1.1 503 ")
        monkeypatch.setattr("masquerade.services.common.server._HEADER_SECONDS", 0.2)
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
        assert httpx.get(f"{url}/health", trust_env=False).status_code == 200
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
    monkeypatch.setattr("masquerade.services.common.server._MOST_UNFINISHED", 5)
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
        monkeypatch.setattr("masquerade.services.common.server._HANDSHAKE_SECONDS", 0.1)
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
        httpx.Client(base_url=url, verify=trusting, trust_env=False) as web,
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
    with _listening("127.0.0.1", 0) as listening:
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


SERVER = """
import sys, time
from masquerade.services.common.service import Service
from masquerade.services.common.peers import Peer
from masquerade.services.common.server import run
from masquerade.services.common.settings import Limits

def handler(call):
    print("started", flush=True)
    time.sleep(float(call.body))
    print("finished", flush=True)
    return b"done"

peers = [Peer("south", token_digest=sys.argv[1])]
service = Service("party", peers=peers, limits=Limits(seconds=float(sys.argv[3])), handler=handler)
run(service, port=0, grace_seconds=float(sys.argv[2]))
print("ended", flush=True)
"""


@contextmanager
def process(grace, seconds=60):
    command = [sys.executable, "-c", SERVER, token_digest(TOKEN), str(grace), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:  # noqa: S603
        try:
            line = running.stdout.readline().strip()
            assert line.startswith("masquerade party listens at http://127.0.0.1:")
            yield running, line.rsplit(" ", 1)[1]
        finally:
            running.kill()


def is_served(url):
    try:
        return httpx.get(f"{url}/health", trust_env=False).is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_finish(number):
    with process(10) as (running, url), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, url, "echo", b"1.5")
        assert running.stdout.readline() == "started\n"
        running.send_signal(number)
        while is_served(url):
            assert not answer.done()
        assert answer.result().content == b"done"
        assert running.wait(PATIENCE) == 0
        assert running.stdout.read() == "finished\nended\n"
        assert "Traceback" not in running.stderr.read()


def test_a_peer_that_keeps_its_connection_open_does_not_delay_the_end(world):
    service = Service("party", peers=[world.south()], limits=Limits(), handler=Recorder())
    with ExitStack() as stack:
        url = stack.enter_context(background(service, **world.tls("north")))
        with HttpTransport(
            "south", [world.north(url)], place="echo", retries=0, **world.tls("south")
        ) as sending:
            assert sending.exchange("north", SECRET)[2:] == SECRET
            began = time.monotonic()
            stack.close()
    assert time.monotonic() - began < 25  # the goodbye of TLS is waited for 30 seconds


def test_a_signal_lets_work_finish_that_nobody_waits_for():
    with process(10, seconds=0.3) as (running, url):
        assert post(url, "echo", b"1.5").status_code == 504
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0
        assert running.stdout.read() == "started\nfinished\nended\n"


def test_what_does_not_finish_within_the_grace_is_told_so():
    with process(1) as (running, url), ThreadPoolExecutor(1) as pool:
        answer = pool.submit(post, url, "echo", b"600")
        assert running.stdout.readline() == "started\n"
        started = time.monotonic()
        running.send_signal(signal.SIGTERM)
        assert (answer.result().status_code, answer.result().json()["error"]) == (
            503,
            "busy",
        )  # so: ask again
        assert running.wait(PATIENCE) == 0
        assert time.monotonic() - started < 300  # nobody waited for the work
        assert "Traceback" not in running.stderr.read()


def test_nothing_of_a_body_reaches_the_log(capfd):
    with plain(Recorder()) as url, transport(url) as sending:
        sending.exchange("north", SECRET)
        httpx.post(f"{url}/v1/echo?patient=smokes", content=SECRET, headers=headers(), trust_env=False)
        httpx.get(f"{url}/smokes", trust_env=False)
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
        assert httpx.get(f"{url}/ready", trust_env=False).json() == {"ready": True}
