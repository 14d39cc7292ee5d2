"""The application that every service is: who may call, how much, how long, how often, and what is logged.

In this order a request meets the version, its peer, the limit of requests at once, the limit of its body, the
time it may take, and its idempotency key; only then a handler sees it, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fastapi import FastAPI
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from masquerade.core.errors import InputError
from masquerade.services.common import logs, problems, request_head
from masquerade.services.common.exactly_once import (
    Answering,
    Call,
    Done,
    Handler,
    MemoryReplies,
    Replies,
    Reply,
)
from masquerade.services.common.metrics import MEDIA, Metrics
from masquerade.services.common.peers import Peer, by_name, recognise
from masquerade.services.common.problems import Busy, NotAdmitted, NotFound, TooLarge
from masquerade.services.common.request_head import VERSION_HEADER, VERSIONS, Place
from masquerade.services.common.settings import Limits, is_loopback

__all__ = ["Call", "Handler", "Reply", "Service", "make_app"]

REQUEST_HEADER = "Masquerade-Request"
_DISCARDING_SECONDS = 5.0
_JSON, _BYTES = "application/json", "application/octet-stream"
_CLOSED = 499  # in logs: the caller went away


class HasReplies(Protocol):
    """What the application needs of a node's state."""

    @property
    def replies(self) -> Replies:
        """Return where replies are kept."""


@dataclass(slots=True)
class Seen:
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


def make_app(
    service_name: str,
    *,
    peers: Sequence[Peer] | Mapping[str, Peer],
    limits: Limits,
    state: HasReplies | None = None,
    handler: Handler,
    ready: Callable[[], bool] = lambda: True,
    places: Sequence[str] = ("{place:path}",),
    extra_routes: Mapping[str, Handler] | None = None,
    anonymous: Peer | None = None,
) -> FastAPI:
    """Return a service: bytes posted to ``/v1/<place>`` by a peer go to `handler`, its bytes go back.

    Parameters
    ----------
    peers
        Who is admitted, by pinned certificate or token.
    state
        Where replies are kept; without one they are kept in memory until the process ends.
    ready
        Whether the service may be sent requests, asked by ``/ready``.
    places
        Templates of the places that exist, such as ``sessions/{session}/columns``; other places are refused
        before their body is read, and metrics are counted by template.
    extra_routes
        What may be got by whoever may post: templates of places, and handlers that return JSON as bytes.
    anonymous
        Who a caller without any credentials is taken for; without it such callers are refused.
    """
    service = Service(
        service_name,
        peers=by_name(peers),
        limits=limits,
        replies=MemoryReplies() if state is None else state.replies,
        ready=ready,
        posted=dict.fromkeys(places, handler),
        gotten=dict(extra_routes or {}),
        anonymous=anonymous,
    )
    app = FastAPI(
        title=f"masquerade {service_name}",
        openapi_url=None,  # nothing is served that was not asked for
        routes=[
            Route("/v1/{place:path}", service.post, methods=["POST"]),
            Route("/v1/{place:path}", service.get, methods=["GET"]),
            Route("/version", service.version, methods=["GET"]),
            Route("/health", service.health, methods=["GET"]),
            Route("/ready", service.readiness, methods=["GET"]),
            Route("/metrics", service.measured, methods=["GET"]),
        ],
        exception_handlers={404: service.nowhere, 405: service.nowhere},
    )
    app.router.redirect_slashes = False
    app.state.service = service
    return app


class Service:
    """What answers requests; `stop` makes it refuse new ones."""

    def __init__(
        self,
        name: str,
        *,
        peers: Mapping[str, Peer],
        limits: Limits,
        replies: Replies,
        ready: Callable[[], bool],
        posted: Mapping[str, Handler],
        gotten: Mapping[str, Handler],
        anonymous: Peer | None,
    ) -> None:
        self.name, self.peers, self.limits, self.anonymous = name, peers, limits, anonymous
        self.answering = Answering(replies, limits)
        self.metrics = Metrics(name)
        self._ready = ready
        self._posted, self._gotten = request_head.compiled(posted), request_head.compiled(gotten)
        self._log = logs.logger(name)

    @property
    def takes_tokens(self) -> bool:
        """Tell whether some caller needs no certificate of its own."""
        return self.anonymous is not None or any(peer.token_digest for peer in self.peers.values())

    def stop(self) -> None:
        """Take nothing new from now on."""
        self.answering.stopping = True

    def refused_handshake(self, reason: str) -> None:
        """Note a connection that failed before there was a request."""
        self.metrics.refused_handshake()
        self._log.info("handshake refused", code=reason.lower())

    async def post(self, request: Request) -> Response:
        """Answer a message."""
        return await self._met(request, self._posted, _BYTES)

    async def get(self, request: Request) -> Response:
        """Answer a question about the service that only its peers may ask."""
        return await self._met(request, self._gotten, _JSON)

    async def version(self, request: Request) -> Response:  # noqa: ARG002
        """Say which versions are spoken."""
        return Response(json.dumps({"service": self.name, "versions": VERSIONS}), media_type=_JSON)

    async def health(self, request: Request) -> Response:  # noqa: ARG002
        """Say that the process is alive."""
        return Response(b'{"alive": true}', media_type=_JSON)

    async def readiness(self, request: Request) -> Response:  # noqa: ARG002
        """Say whether requests should be sent here."""
        try:
            ready = not self.answering.stopping and bool(self._ready())
        except Exception:  # noqa: BLE001  (a service that cannot tell is not ready)
            ready = False
        return Response(json.dumps({"ready": ready}), status_code=200 if ready else 503, media_type=_JSON)

    async def measured(self, request: Request) -> Response:
        """Give the counters, to this machine and to peers."""
        if request.client is None or not is_loopback(request.client.host):
            try:
                recognise(self.peers, request_head.certificate(request), request_head.bearer(request))
            except NotAdmitted as error:
                return _refused(error, request_head.certificate(request))
        self.metrics.running.set(self.answering.running)
        return Response(self.metrics.text(), headers={"Content-Type": MEDIA})

    async def nowhere(self, request: Request, error: Exception) -> Response:  # noqa: ARG002
        """Refuse what goes to no place of ours."""
        seen, refusal = Seen(), NotFound("This service has no such place.")
        seen.failure = refusal
        response = _refused(refusal, None)
        response.headers["Connection"] = "close"  # whatever else it was going to send
        self._note(request, seen, response)
        return response

    async def _met(self, request: Request, places: Sequence[Place], media: str) -> Response:
        seen = Seen()
        try:
            done = await self._answered(request, places, seen)
            seen.failure, seen.replayed = done.failure, done.replayed
            response = Response(done.body, done.status, media_type=media if done.status < 400 else _JSON)
        except ClientDisconnect:
            response = Response(status_code=_CLOSED)
        except asyncio.CancelledError as error:  # the grace is over: the caller may ask the next process
            seen.failure = error
            response = _refused(Busy("This service is stopping. Ask again with the same key."), None)
        except Exception as error:  # noqa: BLE001  (the caller learns of it only what `problems` lets out)
            seen.failure = error
            if not seen.whole:
                await self._discard(request)
            response = _refused(error, request_head.certificate(request))
            if not seen.whole:
                response.headers["Connection"] = "close"
        response.headers[VERSION_HEADER] = str(seen.version)
        response.headers[REQUEST_HEADER] = seen.request
        self._note(request, seen, response)
        return response

    async def _answered(self, request: Request, places: Sequence[Place], seen: Seen) -> Done:
        seen.version = request_head.agreed_version(request)
        peer = self._admitted(request)
        seen.peer = peer.name
        place, handler, template, parameters = request_head.found(places, request.path_params["place"])
        seen.place, seen.template = place, template
        self.answering.enter()
        try:
            body = await self._body(request, seen)
            key = request_head.key(request) if request.method == "POST" else None
            call = Call(peer, place, body, key, parameters)
            return await self.answering.answer(call, handler)
        finally:
            self.answering.leave()

    def _admitted(self, request: Request) -> Peer:
        certificate, bearer = request_head.certificate(request), request_head.bearer(request)
        if certificate is None and bearer is None and self.anonymous is not None:
            return self.anonymous
        return recognise(self.peers, certificate, bearer)

    async def _body(self, request: Request, seen: Seen) -> bytes:
        """Return the body, counted while it arrives: what a header declares is no promise."""
        most = self.limits.body_bytes
        if "content-encoding" in request.headers:
            raise InputError("A body comes as it is: no Content-Encoding is understood.")
        if int(request.headers.get("content-length", "0")) > most:
            raise _too_large(most)
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.seconds):
                while not seen.whole:
                    message = await request.receive()
                    if message["type"] != "http.request":
                        raise ClientDisconnect
                    body += message.get("body", b"")
                    seen.received, seen.whole = len(body), not message.get("more_body", False)
                    if len(body) > most:
                        raise _too_large(most)
        except TimeoutError:
            raise Busy(f"The body did not arrive within {self.limits.seconds:g} seconds.") from None
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

    def _note(self, request: Request, seen: Seen, response: Response) -> None:
        seconds = time.perf_counter() - seen.started
        status, sent = response.status_code, len(response.body)
        self.metrics.count(seen.template, status, received=seen.received, sent=sent, seconds=seconds)
        if seen.replayed:
            self.metrics.replayed(seen.template)
        facts: dict[str, Any] = {
            "request": seen.request,
            "method": request.method,
            "peer": seen.peer,
            "address": request.client.host if seen.peer is None and request.client else None,
            "place": seen.place,
            "status": status,
            "received": seen.received,
            "sent": sent,
            "ms": round(seconds * 1000, 1),
            "replayed": seen.replayed,
        }
        if seen.failure is not None:
            facts["error"] = type(seen.failure).__name__  # its text may speak of data
            if status >= 500:
                facts["at"] = _where(seen.failure)
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
