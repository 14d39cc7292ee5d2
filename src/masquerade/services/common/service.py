"""HTTP service: admission, limits, idempotency, metrics and logs.

A request is checked in this order: version, peer, path, size and rate of its body, number of concurrent
requests, idempotency key. Only then does a handler receive it, in a thread.
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
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from masquerade.core.errors import InputError
from masquerade.crypto.certificates import expiry
from masquerade.services.common import logs, problems
from masquerade.services.common.jobs import Call, Handler, JobOutcome, Jobs
from masquerade.services.common.peers import Peer, TlsFiles, by_name, recognise
from masquerade.services.common.problems import Busy, NotAdmitted, NotFound, TooLarge, WrongVersion
from masquerade.services.common.settings import Limits, is_loopback
from masquerade.services.common.state import ReplyStore, State

VERSIONS = (1,)
VERSION_HEADER = "Masquerade-Version"
KEY_HEADER = "Idempotency-Key"
WAIT_HEADER = "Masquerade-Wait"  # seconds after which a caller wants a reply, even if work continues
CERTIFICATE = "peer_certificate"  # key in the ASGI state of a request
_PLACE_FORM = re.compile(r"(?!.*(?:^|/)\.{1,2}(?:/|$))[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*")
_KEY_FORM = re.compile(r"[A-Za-z0-9._~-]{8,128}")
_WAIT_FORM = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_OFFER = re.compile(r"[0-9]{1,4}(, ?[0-9]{1,4}){0,9}")
_LONGEST_PLACE = 200
REQUEST_HEADER = "Masquerade-Request"
_DISCARDING_SECONDS = 5.0
_BODY_SECONDS, _LEAST_RATE = 10.0, 1024  # grace seconds, then least bytes per second
_JSON, _BYTES = "application/json", "application/octet-stream"
EXPIRY_DAYS = 30  # a certificate that expires sooner is logged at the start and every day
_CLOSED = 499  # status in logs: the caller closed the connection
_SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """Prometheus metrics of one service: requests, bytes and seconds by path template and status."""

    def __init__(self, service_name: str) -> None:
        self.registry = CollectorRegistry()
        here: dict[str, Any] = {"registry": self.registry}
        by_place = ["place"]
        Gauge("masquerade_service", "The name of this service.", ["service"], **here).labels(
            service_name
        ).set(1)
        self._requests = Counter("masquerade_requests", "Requests answered.", ["place", "status"], **here)
        self._received = Counter("masquerade_received_bytes", "Bytes of bodies received.", by_place, **here)
        self._sent = Counter("masquerade_sent_bytes", "Bytes of replies sent.", by_place, **here)
        self._replayed = Counter("masquerade_replayed", "Stored replies sent again.", by_place, **here)
        self.handshakes = Counter("masquerade_refused_handshakes", "Connections refused by TLS.", **here)
        about = "Seconds from a request's headers to its reply."
        self._seconds = Histogram("masquerade_request_seconds", about, by_place, buckets=_SECONDS, **here)
        self.running = Gauge("masquerade_running", "Requests being handled.", **here)
        about = "Seconds until a certificate expires, of this service, its authority or a peer that called."
        self._expires = Gauge("masquerade_certificate_expires_seconds", about, ["whose"], **here)
        self._certificates: dict[str, datetime] = {}

    def set_expiry(self, whose: str, when: datetime) -> None:
        """Set the time at which a certificate expires."""
        self._certificates[whose] = when

    def expiring(self) -> dict[str, float]:
        """Return the seconds until each known certificate expires, negative if it has expired."""
        now = datetime.now(UTC)
        return {whose: (when - now).total_seconds() for whose, when in self._certificates.items()}

    def count(
        self, place: str, status: int, *, received: int, sent: int, seconds: float, replayed: bool = False
    ) -> None:
        """Count one request."""
        self._requests.labels(place, str(status)).inc()
        self._received.labels(place).inc(received)
        self._sent.labels(place).inc(sent)
        self._seconds.labels(place).observe(seconds)
        if replayed:
            self._replayed.labels(place).inc()

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        for whose, seconds in self.expiring().items():
            self._expires.labels(whose).set(seconds)
        return generate_latest(self.registry)


@dataclass(slots=True)
class _RequestRecord:
    """Facts about one request for the log; they include the length of the body, never its content."""

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
    """An HTTP service: a handler receives the bytes posted to ``/v1/<place>`` and returns the reply.

    `app` is the ASGI application; `stop` makes it refuse new requests.

    Parameters
    ----------
    name : str
        Name of the service, and of its operator as a peer.
    peers : iterable of Peer
        Callers that are admitted, by pinned certificate or token.
    limits : Limits
        Sizes, times and number of concurrent requests.
    handler : callable
        Returns the reply to a `Call`.
    state : State, optional
        Storage of replies; without it, they are in memory.
    ready : callable, optional
        Returns True if ``/ready`` is to report that requests may be sent.
    places : sequence of str, optional
        Templates of paths, such as ``sessions/{session}/columns``. Other paths are refused before their body
        is read. Metrics are counted by template.
    anonymous : Peer, optional
        The peer as which callers without credentials are admitted; without it they are refused.
    unlogged : collection of str, optional
        Templates whose requests are logged only if the service fails, since the time of a request could
        identify a person.
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
        self._arriving = 0  # bytes of incomplete bodies
        self._seldom = logs.Seldom()
        self.metrics = Metrics(name)
        self._handler, self._ready = handler, ready
        self._log = logs.Logger(name)
        known = [Route(f"/v1/{it}", partial(self._post, it), methods=["POST"]) for it in places]
        self.app = FastAPI(
            title=f"masquerade {name}",
            openapi_url=None,  # no documentation pages: only the routes below are served
            routes=[
                *known,
                Route("/v1/{place:path}", partial(self._post, None), methods=["POST"]),
                Route("/version", self._version, methods=["GET"]),
                Route("/health", self._health, methods=["GET"]),
                Route("/ready", self._readiness, methods=["GET"]),
                Route("/metrics", self._show_metrics, methods=["GET"]),
            ],
            exception_handlers={404: self._nowhere, 405: self._nowhere},
        )
        self.app.router.redirect_slashes = False
        probes = [("/health", self._health), ("/ready", self._readiness)]
        self.probe_app = Starlette(routes=[Route(path, it, methods=["GET"]) for path, it in probes])
        self.probe_app.router.redirect_slashes = False
        self._shown: dict[str, bytes] = {}  # certificates of peers whose expiry is known

    @property
    def takes_tokens(self) -> bool:
        """Return True if callers may connect without a certificate."""
        return self.anonymous is not None or any(peer.token_digest for peer in self.peers.values())

    def stop(self) -> None:
        """Stop accepting requests."""
        self.jobs.stopping = True

    def refused_handshake(self, reason: str) -> None:
        """Count and log a failed TLS handshake."""
        self.metrics.handshakes.inc()
        left_out = self._seldom.left_out("handshake")
        if left_out is not None:
            more = {"number": left_out} if left_out else {}
            self._log.info("handshake refused", code=reason.lower(), **more)

    def note_certificates(self, tls: TlsFiles) -> None:
        """Read the expiry dates of the certificates of the service and its authority."""
        for whose, file in (("service", tls.certificate), ("authority", tls.authority)):
            if file is not None:
                self.metrics.set_expiry(whose, expiry(file))
        self.warn_of_expiry()

    def warn_of_expiry(self) -> None:
        """Log each certificate that expires within `EXPIRY_DAYS` days, or has expired."""
        for whose, seconds in self.metrics.expiring().items():
            days = math.floor(seconds / 86_400)
            if days < EXPIRY_DAYS:
                self._log.warning("certificate expires", whose=whose, days=days)

    def _note_peer(self, peer: Peer, certificate: bytes | None) -> None:
        """Read the expiry date of a peer's certificate, once for each certificate."""
        if certificate is None or self._shown.get(peer.name) == certificate:
            return
        self._shown[peer.name] = certificate
        self.metrics.set_expiry(peer.name, expiry(certificate))

    async def _version(self, request: Request) -> Response:  # noqa: ARG002
        return Response(json.dumps({"service": self.name, "versions": VERSIONS}), media_type=_JSON)

    async def _health(self, request: Request) -> Response:  # noqa: ARG002
        return Response(b'{"alive": true}', media_type=_JSON)

    async def _readiness(self, request: Request) -> Response:  # noqa: ARG002
        """Answer with status 200 if requests may be sent, else 503."""
        try:
            ready = not self.jobs.stopping and bool(self._ready())
        except Exception:  # noqa: BLE001  (a service whose check fails is not ready)
            ready = False
        return Response(json.dumps({"ready": ready}), status_code=200 if ready else 503, media_type=_JSON)

    async def _show_metrics(self, request: Request) -> Response:
        """Answer with metrics, to callers on this machine and to peers only."""
        if request.client is None or not is_loopback(request.client.host):
            try:
                recognise(self.peers.values(), _certificate(request), _bearer(request))
            except NotAdmitted as error:
                return _error_response(error, _certificate(request))
        self.metrics.running.set(self.jobs.running)
        return Response(self.metrics.text(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _nowhere(self, request: Request, error: Exception) -> Response:  # noqa: ARG002
        """Answer a request to an unknown path, or with a wrong method, with an error."""
        refusal = NotFound("This service has no such path.")
        seen, response = _RequestRecord(failure=refusal), _error_response(refusal, None)
        response.headers["Connection"] = "close"  # the body is not read
        self._note(request, seen, response)
        return response

    async def _post(self, template: str | None, request: Request) -> Response:
        """Answer a message; `template` is None if its path is unknown."""
        seen = _RequestRecord()
        try:
            done = await self._answer_message(template, request, seen)
            seen.failure, seen.replayed = done.failure, done.replayed
            response = Response(done.body, done.status, media_type=_BYTES if done.status < 400 else _JSON)
        except ClientDisconnect:
            response = Response(status_code=_CLOSED)
        except asyncio.CancelledError as error:  # end of the grace period: the next process can answer
            seen.failure = error
            response = _error_response(Busy("This service is stopping. Ask again with the same key."), None)
        except Exception as error:  # noqa: BLE001  (`problems` decides which details the caller may see)
            seen.failure = error
            if not seen.whole:
                await self._discard(request)
            response = _error_response(error, _certificate(request))
            if not seen.whole:
                response.headers["Connection"] = "close"
        response.headers[VERSION_HEADER] = str(seen.version)
        response.headers[REQUEST_HEADER] = seen.request
        self._note(request, seen, response)
        return response

    async def _answer_message(
        self, template: str | None, request: Request, seen: _RequestRecord
    ) -> JobOutcome:
        """Check a request in the order that the module states, and return the outcome of its job."""
        seen.version = _agreed_version(request)
        certificate, bearer = _certificate(request), _bearer(request)
        anybody = self.anonymous if certificate is None and bearer is None else None
        peer = anybody or recognise(self.peers.values(), certificate, bearer)
        seen.peer = peer.name
        self._note_peer(peer, certificate)
        place = request.scope["path"].removeprefix("/v1/")
        if template is None or len(place) > _LONGEST_PLACE or not _PLACE_FORM.fullmatch(place):
            raise NotFound("This service has no such path.")
        seen.template, seen.place = template, place
        self.jobs.check_open()
        body = await self._body(request, seen)
        self.jobs.enter(peer.name)  # after the body, so that slow senders take no slot
        try:
            call = Call(peer, place, body, _key(request), request.path_params)
            return await self.jobs.answer(call, self._handler, _wait(request))
        finally:
            self.jobs.leave(peer.name)

    async def _body(self, request: Request, seen: _RequestRecord) -> bytes:
        """Return the body; check its size and rate while it arrives, since headers may be false.

        Incomplete bodies together may take no more memory than the concurrent requests together.
        """
        most = self.limits.body_bytes
        if "content-encoding" in request.headers:
            raise InputError("A body must not be encoded: Content-Encoding is not supported.")
        if int(request.headers.get("content-length", "0")) > most:
            raise _too_large(most)
        body, started = bytearray(), time.monotonic()
        try:
            while not seen.whole:
                patience = body_seconds(len(body), self.limits.seconds)
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
        """Read and discard the body for a short time, so that a caller still sending receives the error."""
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
        """Count a request in the metrics, and log it without data."""
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
            facts["error"] = type(seen.failure).__name__  # its text may contain data
            if status >= 500:
                facts["at"] = _where(seen.failure)
        if seen.peer is None and status >= 400:  # unauthenticated callers can cause these lines
            left_out = self._seldom.left_out("request")
            if left_out is None:
                return
            facts["number"] = left_out or None
        self._log.info("request", **{name: value for name, value in facts.items() if value is not None})


def body_seconds(received: int, limit: float) -> float:
    """Return the seconds that a body may take in all, after `received` bytes have arrived.

    Without this limit, a caller that sends a byte now and then could occupy a connection and memory for
    `limit` seconds.
    """
    return min(limit, _BODY_SECONDS + received / _LEAST_RATE)


def _too_large(most: int) -> TooLarge:
    return TooLarge(f"This service takes bodies of at most {most:,} bytes.")


def _error_response(error: BaseException, certificate: bytes | None) -> Response:
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
    """Return the file and line that raised an error, without its text."""
    frames = traceback.extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else None


def _agreed_version(request: Request) -> int:
    """Return the newest version that both sides support; raise WrongVersion if there is none."""
    given = request.headers.getlist(VERSION_HEADER)
    offered = given[0].split(",") if len(given) == 1 and _OFFER.fullmatch(given[0]) else []
    common = {int(version) for version in offered} & set(VERSIONS)
    if not common:
        spoken = ", ".join(map(str, VERSIONS))
        raise WrongVersion(
            f"This service supports these versions: {spoken}. Offer one, in a single header {VERSION_HEADER}."
        )
    return max(common)


def _bearer(request: Request) -> str | None:
    """Return the token of a request, None without a header, "" (which matches no peer) if it is malformed."""
    given = request.headers.getlist("authorization")
    if not given:
        return None
    scheme, _, token = given[0].partition(" ")
    return token.strip() if len(given) == 1 and scheme.lower() == "bearer" else ""


def _certificate(request: Request) -> bytes | None:
    """Return the client certificate of the connection, None without one."""
    shown = request.scope.get("state", {}).get(CERTIFICATE)
    return shown if isinstance(shown, bytes) else None


def _wait(request: Request) -> float:
    """Return the seconds after which the caller wants a reply, infinite if the header is missing."""
    given = request.headers.getlist(WAIT_HEADER)
    if not given:
        return math.inf
    if len(given) > 1 or not _WAIT_FORM.fullmatch(given[0]):
        raise InputError(f"{WAIT_HEADER} must occur once, with a number of seconds such as 30 or 2.5.")
    return float(given[0])


def _key(request: Request) -> str | None:
    """Return the idempotency key of a request, None without one."""
    given = request.headers.getlist(KEY_HEADER)
    if not given:
        return None
    if len(given) > 1 or not _KEY_FORM.fullmatch(given[0]):
        raise InputError(
            f"{KEY_HEADER} must occur once, with 8 to 128 letters, digits, '.', '_', '~' or '-'."
        )
    return given[0]
