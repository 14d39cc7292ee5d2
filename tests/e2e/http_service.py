"""A service on loopback, with and without TLS, and callers that send it what they like."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import contextmanager

import httpx
from tests.services.background import background

from masquerade.core.errors import QueryRefused, Refusal, RoundAborted
from masquerade.crypto.keys import new_token, token_digest
from masquerade.services.common.client import HttpTransport
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import Peer, TlsFiles
from masquerade.services.common.service import Service
from masquerade.services.common.settings import Limits

SECRET = b"the patient smokes"
TOKEN = new_token()
PATIENCE = 600  # seconds that anything may take on a machine that is busy
VERSION = {"Masquerade-Version": "1"}
START = (
    f"POST /v1/echo HTTP/1.1\r\nHost: x\r\nMasquerade-Version: 1\r\nAuthorization: Bearer {TOKEN}\r\n"
).encode()


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

    def close(self):
        """Let go of whoever waits."""
        self.go.set()


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
