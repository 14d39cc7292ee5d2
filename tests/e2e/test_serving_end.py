"""How services end: on a signal, in order, with nothing left open."""

from __future__ import annotations

import gc
import signal
import socket
import ssl
import subprocess
import sys
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress

import httpx
import pytest
from tests.e2e.http_service import (
    PATIENCE,
    SECRET,
    TOKEN,
    Recorder,
    post,
)
from tests.services.background import background

from masquerade.crypto.keys import token_digest
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits

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


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
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


def test_a_connection_that_is_secured_only_at_the_end_is_closed(world):
    """Whoever is in the middle of a handshake when a service stops is not left to the garbage collector."""
    handler = Recorder()
    service = Service("party", peers=[world.south()], limits=Limits(seconds=PATIENCE), handler=handler)
    come, go = ssl.MemoryBIO(), ssl.MemoryBIO()
    with warnings.catch_warnings(record=True) as told, ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        warnings.simplefilter("always")
        url = stack.enter_context(background(service, grace_seconds=PATIENCE, **world.tls("north")))
        at = ("127.0.0.1", int(url.rsplit(":", 1)[1]))
        context = ssl.create_default_context(cafile=world.authority)
        context.load_cert_chain(world.pairs["south"].certificate, world.pairs["south"].key)
        sending = HttpTransport("south", [world.north(url)], place="wait", retries=0, **world.tls("south"))
        with closing(handler), sending, socket.create_connection(at, timeout=PATIENCE) as half:
            answer = pool.submit(sending.exchange, "north", SECRET)
            assert handler.started.wait(PATIENCE)
            secured = context.wrap_bio(come, go, server_hostname="127.0.0.1")
            while True:
                try:
                    secured.do_handshake()
                    break  # our side is done, and the server has not heard of it
                except ssl.SSLWantReadError:
                    half.sendall(go.read())
                    come.write(half.recv(65536))
            ending = pool.submit(stack.close)
            while listens(at):
                time.sleep(0.01)
            half.sendall(go.read())
            with suppress(ConnectionResetError):
                while half.recv(65536):
                    pass
            assert not ending.done()  # nobody waited for the work to see the connection closed
            handler.go.set()
            assert answer.result()[2:] == SECRET
            ending.result()
        gc.collect()
    assert not [str(each.message) for each in told if issubclass(each.category, ResourceWarning)]


def listens(at):
    try:
        socket.create_connection(at, timeout=PATIENCE).close()
    except OSError:
        return False
    return True


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
