"""Callers who send slowly, do not read, or take every place: others are served all the same."""

from __future__ import annotations

import select
import socket
import ssl
import sys
import time
from contextlib import ExitStack, suppress
from types import ModuleType

import httpx
import pytest
from tests.e2e.http_service import PATIENCE, START, TOKEN, Recorder, plain, post
from tests.services.background import background

from masquerade.crypto.keys import token_digest
from masquerade.services.common import connections
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits

LARGE = 16 << 20  # more than the system keeps for a connection
ASKING = START.replace(b"/v1/echo", b"/v1/large") + b"Content-Length: 0\r\n\r\n"


class Large(Recorder):
    """A handler with a long reply."""

    def __call__(self, call):
        return bytes(LARGE) if call.place == "large" else super().__call__(call)


def caller(stack, url, address="127.0.0.1", room=None):
    """Return a connection from one of the addresses of this machine."""
    made = stack.enter_context(socket.socket())
    made.settimeout(PATIENCE)
    if room is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
    try:
        made.bind((address, 0))
    except OSError:
        pytest.skip(f"this machine has no address {address}")
    made.connect(("127.0.0.1", int(url.rsplit(":", 1)[1])))
    return made


def is_over(connection):
    """Tell whether the other side has ended a connection that it had sent nothing on."""
    readable, _, _ = select.select([connection], [], [], 0)
    with suppress(ConnectionResetError):
        return bool(readable) and connection.recv(1) == b""
    return True


def wait_for_a_place(url):
    """Ask until there is a place for one more connection of this address."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with suppress(httpx.TransportError):
            return post(url, "echo", b"x").status_code
        time.sleep(0.02)
    return None


@pytest.mark.parametrize("sent", [b"", START, START + b"Content-Length: 99\r\n\r\nabc"])
def test_two_addresses_do_not_take_every_place(monkeypatch, sent):
    """Silent connections, half headers, half bodies: whoever comes next takes a place of those with most."""
    monkeypatch.setattr(connections, "_MOST_OF_ADDRESS", 8)
    monkeypatch.setattr(connections, "_MOST_CONNECTIONS", 16)
    with plain(Recorder()) as url, ExitStack() as stack:
        held = [caller(stack, url, address) for _ in range(8) for address in ("127.0.0.2", "127.0.0.3")]
        for one in held:
            one.sendall(sent)
        ninth = caller(stack, url, "127.0.0.2")
        with suppress(ConnectionResetError):
            assert ninth.recv(1) == b""
        for _ in range(5):
            assert post(url, "echo", b"x").status_code == 200
        assert 1 <= sum(map(is_over, held)) <= 5  # each newcomer ended at most one


def test_many_of_one_address_may_come_in_the_same_moment():
    """A proxy has one address: connections that need no handshake are not counted as unfinished ones."""
    with plain(Recorder(), limits=Limits(concurrency=64)) as url, ExitStack() as stack:
        together = [caller(stack, url) for _ in range(200)]
        for one in together:
            one.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert [one.recv(12) for one in together] == [b"HTTP/1.1 200"] * 200


def test_addresses_of_one_network_are_one_caller():
    network = connections.network_of
    assert network(("2001:db8::1", 1, 0, 0)) == network(("2001:db8::ffff:2", 2, 0, 0))
    assert network(("2001:db8::1", 1, 0, 0)) != network(("2001:db8:0:1::1", 1, 0, 0))
    assert network(("::ffff:10.0.0.1", 1, 0, 0)) == network(("10.0.0.1", 1))
    assert network(("10.0.0.1", 1)) != network(("10.0.0.2", 1))


def test_a_reply_that_nobody_reads_is_let_go(monkeypatch):
    """Before, such a connection and its reply were held as long as the caller liked."""
    monkeypatch.setattr(connections, "_MOST_OF_ADDRESS", 4)
    monkeypatch.setattr(connections, "_READING_SECONDS", 0.5)
    with plain(Large()) as url, ExitStack() as stack:
        for _ in range(4):
            caller(stack, url, room=2048).sendall(ASKING)
        assert wait_for_a_place(url) == 200


def test_replies_that_wait_for_readers_take_no_more_than_places_do(monkeypatch):
    """One peer asks for a long reply on many connections, and reads none of them."""
    monkeypatch.setattr(connections, "_MOST_OF_ADDRESS", 6)
    monkeypatch.setattr(connections, "_READING_SECONDS", PATIENCE)
    with plain(Large(), limits=Limits(concurrency=4, reply_bytes=LARGE)) as url, ExitStack() as stack:
        for _ in range(6):  # six replies, less what the system takes of each: more than four
            caller(stack, url, room=2048).sendall(ASKING)
        assert wait_for_a_place(url) == 200


def test_a_slow_reader_gets_the_whole_reply(world, monkeypatch):
    """A connection is kept until its reply was read: TLS cuts off what is left some seconds after a close."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 0.2)
    monkeypatch.setattr("asyncio.sslproto.constants.SSL_SHUTDOWN_TIMEOUT", 0.2)
    peers = [Peer("south", token_digest=token_digest(TOKEN))]
    service = Service("north", peers=peers, limits=Limits(), handler=Large())
    pair = world.pairs["north"]
    with (
        background(service, tls=TlsFiles(pair.certificate, pair.key)) as url,
        ExitStack() as stack,
    ):
        trusting = ssl.create_default_context(cafile=world.authority)
        trusting.check_hostname = False
        reader = stack.enter_context(trusting.wrap_socket(caller(stack, url, room=1 << 16)))
        reader.sendall(ASKING)
        count = len(reader.recv(1000))
        time.sleep(6)  # longer than a connection without a request is kept
        while count < LARGE and (part := reader.recv(1 << 16)):
            count += len(part)
        assert count >= LARGE


def test_connections_come_through_the_gate_where_another_loop_is_installed(monkeypatch):
    """Before, uvicorn took uvloop wherever it was found; it accepts connections past the gate."""
    pretended = ModuleType("uvloop")  # with any use of it the server does not start
    monkeypatch.setitem(sys.modules, "uvloop", pretended)
    monkeypatch.setattr(connections, "_MOST_OF_ADDRESS", 2)
    with plain(Recorder()) as url, ExitStack() as stack:
        assert post(url, "echo", b"x").status_code == 200
        for _ in range(2):
            caller(stack, url, "127.0.0.2")
        third = caller(stack, url, "127.0.0.2")
        with suppress(ConnectionResetError):
            assert third.recv(1) == b""
