"""Whom services admit and what they take from them: real TLS on loopback, hostile callers and servers."""

from __future__ import annotations

import socket
import ssl
import threading
import time

import httpx
import pytest
from tests.e2e.http_service import (
    PATIENCE,
    SECRET,
    START,
    TOKEN,
    VERSION,
    Recorder,
    headers,
    logged,
    plain,
    post,
    raw,
    transport,
)
from tests.services.background import background

from masquerade.core.errors import InputError
from masquerade.crypto import certificates
from masquerade.crypto.keys import new_token, token_digest
from masquerade.services.common import client
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.problems import (
    NotAdmitted,
    NotFound,
    PartyUnreachable,
    TooLarge,
    WrongVersion,
)
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits

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

    def __init__(self, pair, enough=None):
        self.heard, self.connections, self.enough = b"", 0, enough  # it hangs up when it has heard enough
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
                while (self.enough is None or self.enough not in self.heard) and (
                    chunk := connection.recv(65536)
                ):
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
        Listener(stranger, enough=SECRET) as listener,
        HttpTransport(
            "south",
            [world.north(listener.url, fingerprints=(stranger.fingerprint,))],
            retries=0,
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
        with stranger, pytest.raises(NotAdmitted, match="does not belong to a peer"):
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
                f"{url}/v1/echo",
                content=SECRET,
                headers={**VERSION, **credentials},
                trust_env=False,
                timeout=PATIENCE,
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
        assert (
            httpx.post(f"{url}/v1/echo", headers=VERSION, trust_env=False, timeout=PATIENCE).status_code
            == 200
        )
        wrong = httpx.post(
            f"{url}/v1/echo", headers=headers("wrong token"), trust_env=False, timeout=PATIENCE
        )
        assert wrong.status_code == 401
    assert [call.peer.name for call in handler.calls] == ["anybody"]


# --- what is taken -----------------------------------------------------------------------------------------


def test_other_versions_are_refused():
    handler = Recorder()
    with plain(handler) as url:
        for version in ({}, *({"Masquerade-Version": offer} for offer in ("2", "2, 3", "1 2", "1,", "one"))):
            sent = {"Authorization": f"Bearer {TOKEN}", **version}
            answer = httpx.post(
                f"{url}/v1/echo", content=b"x", headers=sent, trust_env=False, timeout=PATIENCE
            )
            assert (answer.status_code, answer.json()["error"]) == (426, "wrong_version")
            assert "these versions: 1" in answer.json()["message"]
        assert httpx.get(f"{url}/version", trust_env=False, timeout=PATIENCE).json() == {
            "service": "party",
            "versions": [1],
        }
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
            answer = httpx.post(
                f"{url}/v1/echo", content=b"x", headers=sent, trust_env=False, timeout=PATIENCE
            )
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
            answer = httpx.post(
                url + path, content=b"x", headers=headers(), trust_env=False, timeout=PATIENCE
            )
            assert answer.status_code == 404, path
        assert (
            httpx.request(
                "DELETE", f"{url}/v1/echo", headers=headers(), trust_env=False, timeout=PATIENCE
            ).status_code
            == 404
        )
        assert httpx.get(f"{url}/openapi.json", trust_env=False, timeout=PATIENCE).status_code == 404
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
        got = httpx.get(f"{url}/v1/sessions/s2/columns", headers=headers(), trust_env=False, timeout=PATIENCE)
        assert got.status_code == 404
        assert (
            httpx.post(
                f"{url}/v1/sessions/s2/other", headers=VERSION, trust_env=False, timeout=PATIENCE
            ).status_code
            == 401
        )
        with pytest.raises(InputError, match="A path consists of"):
            sending.exchange("north", b"x", place="sessions?x=1")
        counted = httpx.get(f"{url}/metrics", trust_env=False, timeout=PATIENCE).text
    assert handler.calls[0].parameters == {"session": "s1"}
    assert 'masquerade_requests_total{place="sessions/{session}/columns",status="200"} 1.0' in counted
    assert "s1" not in counted
    assert "south" not in counted
