"""The collector as a service: the page, reports and tokens for anybody, figures for the fieldwork team."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sized
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from masquerade.core.errors import InputError
from masquerade.core.util.private_file import read_private
from masquerade.crypto import oprf
from masquerade.crypto.keys import token_digest
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.symmetric import same
from masquerade.services.common import logs, problems
from masquerade.services.common.client import json_object
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import PLAIN, Peer
from masquerade.services.common.problems import Busy, NotAdmitted, NotFound
from masquerade.services.common.server import run
from masquerade.services.common.service import VERSION_HEADER, VERSIONS, Service
from masquerade.survey.collector.messages import bytes_of, report_of
from masquerade.survey.collector.publication import Publication
from masquerade.survey.collector.quotas import Quota
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.collector.store import SurveyStore, today
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import PAGE, WORKER, body_size, build, content_policy
from masquerade.survey.page.script_text import asset

TEAM: Final = "team"
EXPORT: Final = "export"
RESPONDENT: Final = Peer("respondent")
TOKEN: Final = re.compile(r"[0-9a-f]{192}")
PLACES: Final = ("token", "withdraw", TEAM, EXPORT)
_FIGURES_SECONDS: Final = 5.0
_HOUSE_SECONDS: Final = 3600.0
_MOST_IDLE: Final = 9  # times as long as its last turn a task rests: a tenth of a processor at most
_MOST_ADDRESSES: Final = 100_000
_MESSAGE_HEADERS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
_FILE_HEADERS: Final = ((b"cache-control", b"no-cache"), (b"cross-origin-resource-policy", b"same-origin"))


class SurveyCollector:
    """Everything behind the address of a survey; `serve` it, or run its `service`, and `close` it."""

    def __init__(self, settings: SurveySettings) -> None:
        self.settings = settings
        self.survey = Survey.load(settings.survey)
        self.built = build(self.survey)
        self.key = None if settings.token_key is None else load_token_key(settings)
        issuer = self.survey.spec.issuer
        if (None if self.key is None else self.key.public.encode().hex()) != issuer:
            raise InputError(
                "token_key and the survey's 'issuer' do not belong together: both are of one key, or neither "
                "is there and anybody may answer."
            )
        self._size = body_size(self.survey)
        self._log = logs.Logger(settings.name)
        self.store = open_store(settings, self.survey)
        self._versions = self.store.versions()
        self._ending = threading.Event()
        try:
            self.keep_promises()
            rows = settings.export_token is not None
            self.publication = Publication(
                self.store, self.survey, settings.place, batch=settings.batch, rows=rows
            )
        except BaseException:
            self.store.close()
            raise
        self._threads = [
            threading.Thread(
                target=self._repeat, args=(seconds, job), name=f"survey {job.__name__}", daemon=True
            )
            for seconds, job in ((_HOUSE_SECONDS, self.keep_promises), (_FIGURES_SECONDS, self.publish))
        ]
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Let go of files."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self.store.close()
        self.publication.close()

    def publish(self) -> None:
        """Show what makes whole batches by now: by the clock, not by requests."""
        self.publication.advance()

    def keep_promises(self) -> None:
        """Delete what is to be deleted by now, and signs of order; at the start, and every hour."""
        day = self.survey.spec.delete_after
        if day is not None and today() > day:
            self.store.end()
            number = self.store.erase()
            if number:
                self._log.info("deleted as the page promises", reports=number, after=day)
        self.store.tidy()

    def _repeat(self, seconds: float, job: Callable[[], object]) -> None:
        pause = seconds
        while not self._ending.wait(pause):
            started = time.monotonic()
            try:
                job()
            except Exception as error:  # noqa: BLE001  (the next turn may succeed; until then nothing changes)
                self._log.warning(f"{job.__name__} failed; it is tried again", error=type(error).__name__)
            pause = max(seconds, _MOST_IDLE * (time.monotonic() - started))

    def service(self) -> Service:
        """Return the service: places for pages, files to look at, and a door that browsers come through."""
        tokens = {TEAM: self.settings.team_token, EXPORT: self.settings.export_token}
        peers = [
            Peer(
                name,
                token_digest=token_digest(read_private(file, "a token").decode("ascii", "replace").strip()),
            )
            for name, file in tokens.items()
            if file is not None
        ]
        service = Service(
            self.settings.name,
            peers=peers,
            limits=self.settings.limits,
            handler=self.handle,
            places=PLACES,
            anonymous=RESPONDENT,
            unlogged=("token", "withdraw"),
        )
        routes = service.app.router.routes
        # behind a proxy everybody is this machine: nobody may watch the counters move
        routes[:] = [route for route in routes if getattr(route, "path", "") != "/metrics"]
        page, worker = self.built.files[PAGE], self.built.files[WORKER]
        shown = {
            "/": (page, "text/html; charset=utf-8"),
            f"/{PAGE}": (page, "text/html; charset=utf-8"),
            f"/{WORKER}": (worker, "text/javascript; charset=utf-8"),
            "/manifest.json": (self.built.files["manifest.json"], "application/json"),
            "/team": (asset("team.html").encode(), "text/html; charset=utf-8"),
        }
        routes.insert(0, Route("/v1/reports", partial(self._report, service), methods=["POST"]))
        for place, (content, kind) in shown.items():
            headers = {"Content-Type": kind, "Content-Security-Policy": "frame-ancestors 'none'"}
            if place == "/team":
                headers["Content-Security-Policy"] += "; " + content_policy(
                    content.decode(), "connect-src 'self'"
                )
            routes.insert(0, Route(place, _file(content, headers), methods=["GET"]))
        service.app.add_middleware(
            BrowserDoor, per_minute=self.settings.limits.per_minute, secured=self.settings.tls is not None
        )
        return service

    def serve(self, announce: Callable[[str], object] = print) -> None:
        """Serve until told to stop."""
        settings = self.settings
        tls = PLAIN if settings.tls is None else settings.tls.files()
        announce(f"sha256 of the page, to be published: {self.built.digest}")
        try:
            run(
                self.service(),
                host=settings.listen.host,
                port=settings.listen.port,
                tls=tls,
                announce=announce,
            )
        finally:
            self.close()

    def handle(self, call: Call) -> bytes:
        """Answer a message."""
        if call.place in (TEAM, EXPORT):
            if call.peer.name != call.place:
                raise NotAdmitted("This is for the fieldwork team, who have its token.")
            return self.publication.figures_json if call.place == TEAM else self.publication.reports_json
        self._check_size(call.body)
        values = json_object(call.body)
        if call.place == "token":
            return self._signed(values)
        self._withdraw(values)
        return b""

    async def _report(self, service: Service, request: Request) -> Response:
        """Take a report, without a thread of its own: all that wait share the next write, unlogged."""
        try:
            service.jobs.check_open()
            values = json_object(await self._body(request))
            found = report_of(values, self._versions, own_chance=self.survey.spec.own_chance)
            await asyncio.wrap_future(self.store.submit(replace(found, token=self._token(values["token"]))))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001  (the page learns of it only what `problems` lets out)
            status, told = problems.encode(error)
            if status >= 500:
                self._log.warning("report failed", error=type(error).__name__)
            return Response(told, status, media_type="application/json")
        return Response()

    async def _body(self, request: Request) -> bytes:
        """Return a body of the one length that all have; a longer one is not read to its end."""
        body = bytearray()
        try:
            async with asyncio.timeout(self.settings.limits.seconds):
                async for part in request.stream():
                    body += part
                    if len(body) > self._size:
                        break
        except TimeoutError:
            raise Busy("The body did not arrive in time.") from None
        self._check_size(body)
        return bytes(body)

    def _check_size(self, body: Sized) -> None:
        if len(body) != self._size:
            raise InputError(f"Messages of this survey have {self._size:,} bytes, all of them.")

    def _token(self, given: object) -> bytes | None:
        """Return the digest of a token that our key signed; None where none is needed."""
        if self.key is None:
            if given is not None:
                raise InputError("This survey has no tokens.")
            return None
        if not isinstance(given, str) or not TOKEN.fullmatch(given):
            raise InputError("A report of this survey comes with a token.")
        token = bytes.fromhex(given)
        if not same(oprf.output_by(self.key, token[:32]), token[32:]):
            raise InputError("The token was not signed by the key of this survey.")
        return blake2b(token[:32], digest_size=16).digest()

    def _signed(self, values: Mapping[str, Any]) -> bytes:
        code = values.get("invitation")
        if self.key is None or set(values) != {"invitation", "blinded"} or not isinstance(code, str):
            raise InputError("A token is asked for with an invitation and a blinded element.")
        element = bytes_of(values["blinded"], oprf.POINT_SIZE, "blinded")
        point = ristretto255.decode(element)
        self.store.exchange(code[:100], element)
        [evaluated], proof = oprf.evaluate(self.key, [point])
        return json.dumps({"evaluated": evaluated.encode().hex(), "proof": proof.hex()}).encode()

    def _withdraw(self, values: Mapping[str, Any]) -> None:
        if set(values) != {"code"} or not self.store.withdraw(bytes_of(values["code"], 10, "code")):
            raise NotFound("There is no report with this code.")


def open_store(settings: SurveySettings, survey: Survey) -> SurveyStore:
    """Return the store that settings name, for this version of the survey, with its quotas."""
    store = SurveyStore(settings.place, settings.invitations, settings.accept)
    try:
        store.register(survey.policy)
        store.limit([Quota(it.variable, it.answer, it.most) for it in settings.quotas])
    except BaseException:
        store.close()
        raise
    return store


def load_token_key(settings: SurveySettings) -> oprf.ServerKey:
    """Return the key in the file that the settings name."""
    assert settings.token_key is not None  # noqa: S101  (asked by the caller)
    text = read_private(settings.token_key, "a token key").decode("ascii", "replace").strip()
    try:
        return oprf.key_of(bytes.fromhex(text))
    except ValueError:
        raise InputError("token_key: is no key of tokens; masquerade survey init makes one.") from None


def _file(content: bytes, headers: Mapping[str, str]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:  # noqa: ARG001
        return Response(content, headers=headers)

    return answer


class BrowserDoor:
    """What browsers need and may not: headers on every answer, and not too many messages from one address.

    Pages from disk have no origin, so any may send: there is no cookie, and nothing is given but to a token.
    Addresses are counted under a key that this process thinks of, and forgotten after a minute.
    """

    def __init__(self, app: ASGIApp, *, per_minute: int, secured: bool) -> None:
        self._app, self._most = app, per_minute
        self._key, self._minute, self._counts = secrets.token_bytes(16), -1, dict[bytes, int]()
        self._headers = [
            (b"x-content-type-options", b"nosniff"),
            (b"x-frame-options", b"DENY"),
            (b"referrer-policy", b"no-referrer"),
            (b"cross-origin-opener-policy", b"same-origin"),
            (b"cross-origin-embedder-policy", b"require-corp"),
            (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
            *([(b"strict-transport-security", b"max-age=63072000")] if secured else []),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        message = scope["path"].startswith("/v1/")
        own = _MESSAGE_HEADERS if message else _FILE_HEADERS

        async def with_headers(part: Message) -> None:
            if part["type"] == "http.response.start":
                part["headers"] = [*part["headers"], *self._headers, *own]
            await send(part)

        if message and scope["method"] == "OPTIONS":
            allow = {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "authorization"}
            await Response(status_code=204, headers=allow)(scope, receive, with_headers)
            return
        if message and self._too_many(scope):
            told = {"Retry-After": "60", "Connection": "close"}
            await Response(status_code=429, headers=told)(scope, receive, with_headers)
            return
        name = VERSION_HEADER.lower().encode()
        # pages do not say it: a header of ours would need a preflight
        if message and all(key != name for key, _ in scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], (name, str(VERSIONS[-1]).encode())]}
        await self._app(scope, receive, with_headers)

    def _too_many(self, scope: Scope) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute or len(self._counts) > _MOST_ADDRESSES:
            self._minute, self._counts = minute, {}
        address = (scope.get("client") or ("",))[0]
        name = blake2b(address.encode(), key=self._key, digest_size=8).digest()
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name] > self._most
