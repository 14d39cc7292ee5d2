"""What every service is: who may call, how much, how long, how often, and what is logged.

In this order a request meets the version, its peer, the limit of requests at once, the limit of its body, the
time it may take, and its idempotency key; only then a handler sees it, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import secrets
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from masquerade.core.errors import InputError
from masquerade.services.common import logs, problems
from masquerade.services.common.jobs import Call, Handler, Jobs, Outcome
from masquerade.services.common.peers import Peer, by_name, recognise
from masquerade.services.common.problems import Busy, NotAdmitted, NotFound, TooLarge, WrongVersion
from masquerade.services.common.settings import Limits, is_loopback
from masquerade.services.common.state import ReplyStore, State

VERSIONS = (1,)
VERSION_HEADER = "Masquerade-Version"
KEY_HEADER = "Idempotency-Key"
WAIT_HEADER = "Masquerade-Wait"  # seconds after which a caller wants to hear that its message is worked on
CERTIFICATE = "peer_certificate"  # in the state that the server gives a request
_PLACE_FORM = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*")
_KEY_FORM = re.compile(r"[A-Za-z0-9._~-]{8,128}")
_WAIT_FORM = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_OFFER = re.compile(r"[0-9]{1,4}(, ?[0-9]{1,4}){0,9}")
_LONGEST_PLACE = 200
REQUEST_HEADER = "Masquerade-Request"
_DISCARDING_SECONDS = 5.0
_BODY_SECONDS, _LEAST_RATE = 10.0, 1024  # bytes a second that a body comes at, after the first seconds
_JSON, _BYTES = "application/json", "application/octet-stream"
_CLOSED = 499  # in logs: the caller went away
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """What Prometheus may know of one service: requests, bytes and seconds by template and status."""

    def __init__(self, service_name: str) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        by_place = ["place"]
        Gauge("masquerade_service", "Which service this is.", ["service"], **own).labels(service_name).set(1)
        self._requests = Counter("masquerade_requests", "Requests answered.", ["place", "status"], **own)
        self._received = Counter("masquerade_received_bytes", "Bytes of bodies received.", by_place, **own)
        self._sent = Counter("masquerade_sent_bytes", "Bytes of replies sent.", by_place, **own)
        self._replayed = Counter("masquerade_replayed", "Stored replies sent again.", by_place, **own)
        self.handshakes = Counter("masquerade_refused_handshakes", "Connections refused by TLS.", **own)
        told = "Seconds from a request's headers to its reply."
        self._seconds = Histogram("masquerade_request_seconds", told, by_place, buckets=_SECONDS, **own)
        self.running = Gauge("masquerade_running", "Requests being worked on.", **own)

    def count(
        self, place: str, status: int, *, received: int, sent: int, seconds: float, replayed: bool = False
    ) -> None:
        """Take in one request."""
        self._requests.labels(place, str(status)).inc()
        self._received.labels(place).inc(received)
        self._sent.labels(place).inc(sent)
        self._seconds.labels(place).observe(seconds)
        if replayed:
            self._replayed.labels(place).inc()

    def text(self) -> bytes:
        """Return everything as Prometheus reads it."""
        return generate_latest(self.registry)


@dataclass(slots=True)
class _RequestRecord:
    """What is noted of one request: nothing of its body but the length."""

    request: str = field(default_factory=lambda: secrets.token_hex(8))
    started: float = field(default_factory=time.perf_counter)
    peer: str | None = None
    place: str | None = None
    template: str = "other"
    version: int = VERSIONS[-1]
    received: int = 0
    whole: bool = False
    replayed: bool = False
    failure: BaseException | None = None


class Service:
    """A service: bytes posted to ``/v1/<place>`` by a peer go to `handler`, its bytes go back.

    `app` is what a server runs; `stop` makes it refuse new requests. `peers` are admitted, by pinned
    certificate or token; a caller without any credentials is taken for `anonymous`, or refused. Replies are
    kept in the `state`; without one in memory, until the process ends. `ready` tells ``/ready`` whether
    requests should come. `places` are templates such as ``sessions/{session}/columns``: other places are
    refused before their body is read, and metrics are counted by template. Of `unlogged` templates no line is
    written unless the service fails: when somebody called would tell who it was.
    """

    def __init__(
        self,
        name: str,
        *,
        peers: Iterable[Peer],
        limits: Limits,
        handler: Handler,
        state: State | None = None,
        ready: Callable[[], bool] = lambda: True,
        places: Sequence[str] = ("{place:path}",),
        anonymous: Peer | None = None,
        unlogged: Collection[str] = (),
    ) -> None:
        self.name, self.peers, self.limits, self.anonymous = name, by_name(peers), limits, anonymous
        self._unlogged = frozenset(unlogged)
        replies = ReplyStore.in_memory(limits.reply_bytes) if state is None else state.replies
        self.jobs = Jobs(replies, limits, self.peers, operator=name)
        self._arriving = 0  # bytes of bodies that are not whole yet
        self._seldom = logs.Seldom()
        self.metrics = Metrics(name)
        self._handler, self._ready = handler, ready
        self._log = logs.Logger(name)
        known = [Route(f"/v1/{it}", partial(self._post, it), methods=["POST"]) for it in places]
        self.app = FastAPI(
            title=f"masquerade {name}",
            openapi_url=None,  # nothing is served that was not asked for
            routes=[
                *known,
                Route("/v1/{place:path}", partial(self._post, None), methods=["POST"]),
                Route("/version", self._version, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/ready", self._readiness, methods=["GET"]),
                Route("/metrics", self._measured, methods=["GET"]),
            ],
            exception_handlers={404: self._nowhere, 405: self._nowhere},
        )
        self.app.router.redirect_slashes = False

    @property
    def takes_tokens(self) -> bool:
        """Tell whether some caller needs no certificate of its own."""
        return self.anonymous is not None or any(peer.token_digest for peer in self.peers.values())

    def stop(self) -> None:
        """Take nothing new from now on."""
        self.jobs.stopping = True

    def refused_handshake(self, reason: str) -> None:
        """Note a connection that failed before there was a request."""
        self.metrics.handshakes.inc()
        left_out = self._seldom.left_out("handshake")
        if left_out is not None:
            more = {"number": left_out} if left_out else {}
            self._log.info("handshake refused", code=reason.lower(), **more)

    async def _version(self, request: Request) -> Response:  # noqa: ARG002
        return Response(json.dumps({"service": self.name, "versions": VERSIONS}), media_type=_JSON)

    async def _health(self, request: Request) -> Response:  # noqa: ARG002
        return Response(b'{"alive": true}', media_type=_JSON)

    async def _readiness(self, request: Request) -> Response:  # noqa: ARG002
        """Say whether requests should be sent here."""
        try:
            ready = not self.jobs.stopping and bool(self._ready())
        except Exception:  # noqa: BLE001  (a service that cannot tell is not ready)
            ready = False
        return Response(json.dumps({"ready": ready}), status_code=200 if ready else 503, media_type=_JSON)

    async def _measured(self, request: Request) -> Response:
        """Give the counters, to this machine and to peers."""
        if request.client is None or not is_loopback(request.client.host):
            try:
                recognise(self.peers.values(), _certificate(request), _bearer(request))
            except NotAdmitted as error:
                return _refused(error, _certificate(request))
        self.metrics.running.set(self.jobs.running)
        return Response(self.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _nowhere(self, request: Request, error: Exception) -> Response:  # noqa: ARG002
        """Refuse what goes to no place of ours."""
        refusal = NotFound("This service has no such place.")
        seen, response = _RequestRecord(failure=refusal), _refused(refusal, None)
        response.headers["Connection"] = "close"  # whatever else it was going to send
        self._note(request, seen, response)
        return response

    async def _post(self, template: str | None, request: Request) -> Response:
        """Answer a message, to a place of ours if there is a template."""
        seen = _RequestRecord()
        try:
            done = await self._answered(template, request, seen)
            seen.failure, seen.replayed = done.failure, done.replayed
            response = Response(done.body, done.status, media_type=_BYTES if done.status < 400 else _JSON)
        except ClientDisconnect:
            response = Response(status_code=_CLOSED)
        except asyncio.CancelledError as error:  # the grace is over: the caller may ask the next process
            seen.failure = error
            response = _refused(Busy("This service is stopping. Ask again with the same key."), None)
        except Exception as error:  # noqa: BLE001  (the caller learns of it only what `problems` lets out)
            seen.failure = error
            if not seen.whole:
                await self._discard(request)
            response = _refused(error, _certificate(request))
            if not seen.whole:
                response.headers["Connection"] = "close"
        response.headers[VERSION_HEADER] = str(seen.version)
        response.headers[REQUEST_HEADER] = seen.request
        self._note(request, seen, response)
        return response

    async def _answered(self, template: str | None, request: Request, seen: _RequestRecord) -> Outcome:
        seen.version = _agreed_version(request)
        certificate, bearer = _certificate(request), _bearer(request)
        anybody = self.anonymous if certificate is None and bearer is None else None
        peer = anybody or recognise(self.peers.values(), certificate, bearer)
        seen.peer = peer.name
        place = request.scope["path"].removeprefix("/v1/")
        if template is None or len(place) > _LONGEST_PLACE or not _PLACE_FORM.fullmatch(place):
            raise NotFound("This service has no such place.")
        seen.template, seen.place = template, place
        self.jobs.check_open()
        body = await self._body(request, seen)
        self.jobs.enter(peer.name)  # not before: who sends slowly takes no place
        try:
            call = Call(peer, place, body, _key(request), request.path_params)
            return await self.jobs.answer(call, self._handler, _wait(request))
        finally:
            self.jobs.leave(peer.name)

    async def _body(self, request: Request, seen: _RequestRecord) -> bytes:
        """Return the body, counted while it arrives: what a header declares is no promise.

        After a first while it comes at no less than a rate; of all bodies together no more is kept than
        requests are worked on at once.
        """
        most = self.limits.body_bytes
        if "content-encoding" in request.headers:
            raise InputError("A body comes as it is: no Content-Encoding is understood.")
        if int(request.headers.get("content-length", "0")) > most:
            raise _too_large(most)
        body, started = bytearray(), time.monotonic()
        try:
            while not seen.whole:
                patience = min(self.limits.seconds, _BODY_SECONDS + len(body) / _LEAST_RATE)
                async with asyncio.timeout(started + patience - time.monotonic()):
                    message = await request.receive()
                if message["type"] != "http.request":
                    raise ClientDisconnect
                came = message.get("body", b"")
                body += came
                self._arriving += len(came)
                seen.received, seen.whole = len(body), not message.get("more_body", False)
                if len(body) > most:
                    raise _too_large(most)
                if self._arriving > self.limits.concurrency * most:
                    raise Busy("Too many messages are arriving at once. Ask later.")
        except TimeoutError:
            raise Busy(
                f"The body did not arrive within {self.limits.seconds:g} seconds, or came at less than "
                f"{_LEAST_RATE:,} bytes a second."
            ) from None
        finally:
            self._arriving -= len(body)
        return bytes(body)

    async def _discard(self, request: Request) -> None:
        """Read on for a little while, so that a caller who is still sending gets to see the refusal."""
        left = self.limits.body_bytes
        if "expect" in request.headers or int(request.headers.get("content-length", "0")) > 2 * left:
            return
        try:
            async with asyncio.timeout(_DISCARDING_SECONDS):
                while left >= 0:
                    message = await request.receive()
                    left -= len(message.get("body", b""))
                    if message["type"] != "http.request" or not message.get("more_body", False):
                        return
        except TimeoutError:
            return

    def _note(self, request: Request, seen: _RequestRecord, response: Response) -> None:
        seconds = time.perf_counter() - seen.started
        status, sent = response.status_code, len(response.body)
        figures: dict[str, Any] = {"received": seen.received, "sent": sent, "replayed": seen.replayed}
        self.metrics.count(seen.template, status, seconds=seconds, **figures)
        if seen.template in self._unlogged and status < 500:
            return
        facts: dict[str, Any] = {
            "request": seen.request,
            "method": request.method,
            "peer": seen.peer,
            "address": request.client.host if seen.peer is None and request.client else None,
            "place": seen.place,
            "status": status,
            "ms": round(seconds * 1000, 1),
            **figures,
        }
        if seen.failure is not None:
            facts["error"] = type(seen.failure).__name__  # its text may speak of data
            if status >= 500:
                facts["at"] = _where(seen.failure)
        if seen.peer is None and status >= 400:  # anybody can cause these lines
            left_out = self._seldom.left_out("request")
            if left_out is None:
                return
            facts["number"] = left_out or None
        self._log.info("request", **{name: value for name, value in facts.items() if value is not None})


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"This service takes bodies of at most {most:,} bytes.")


def _refused(error: BaseException, certificate: bytes | None) -> Response:
    status, body = problems.encode(error)
    headers = {}
    if isinstance(error, NotAdmitted) and certificate is None:
        status, headers["WWW-Authenticate"] = 401, "Bearer"
    if status == 503:
        headers["Retry-After"] = "1"
    if status == 426:
        headers["Upgrade"] = f"masquerade/{VERSIONS[-1]}"
    return Response(body, status, headers, media_type=_JSON)


def _where(error: BaseException) -> str | None:
    """Return the file and line that raised, without anything they spoke of."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def _agreed_version(request: Request) -> int:
    """Return the newest version that the caller offers and this service speaks; without one, refuse."""
    given = request.headers.getlist(VERSION_HEADER)
    offered = given[0].split(",") if len(given) == 1 and _OFFER.fullmatch(given[0]) else []
    common = {int(version) for version in offered} & set(VERSIONS)
    if not common:
        spoken = ", ".join(map(str, VERSIONS))
        raise WrongVersion(
            f"This service speaks version {spoken}: offer one of them in one header {VERSION_HEADER}."
        )
    return max(common)


def _bearer(request: Request) -> str | None:
    """Return the token that was shown, None if none was; what cannot be read is nobody's token."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""


def _certificate(request: Request) -> bytes | None:
    """Return the certificate that the connection was made with."""
    shown = request.scope.get("state", {}).get(CERTIFICATE)
    return shown if isinstance(shown, bytes) else None


def _wait(request: Request) -> float:
    """Return the seconds after which the caller wants an answer of any kind, none if it says none."""
    given = request.headers.getlist(WAIT_HEADER)
    if not given:
        return math.inf
    if len(given) > 1 or not _WAIT_FORM.fullmatch(given[0]):
        raise InputError(f"{WAIT_HEADER} comes once, and is a number of seconds such as 30 or 2.5.")
    return float(given[0])


def _key(request: Request) -> str | None:
    """Return the idempotency key, None if there is none."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    if len(given) > 1 or not _KEY_FORM.fullmatch(given[0]):
        raise InputError(f"{KEY_HEADER} comes once, and has 8 to 128 letters, digits, '.', '_', '~' or '-'.")
    return given[0]
