"""HTTP service of the collector: page, tokens and reports for respondents, figures for the fieldwork team."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sized
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.core.util.private_file import read_private
from masquerade.crypto import oprf
from masquerade.crypto.keys import token_digest
from masquerade.crypto.ristretto255 import ristretto255
from masquerade.crypto.symmetric import same
from masquerade.services.common import logs, problems
from masquerade.services.common.client import json_object
from masquerade.services.common.connections import network_of
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import PLAIN, Peer
from masquerade.services.common.problems import Busy, NotAdmitted, NotFound
from masquerade.services.common.server import run
from masquerade.services.common.service import VERSION_HEADER, VERSIONS, Service, body_seconds
from masquerade.survey.collector.publication import Publication
from masquerade.survey.collector.quotas import Quota
from masquerade.survey.collector.settings import SurveySettings
from masquerade.survey.collector.store import MODES, Report, SurveyStore, today
from masquerade.survey.forms.free_text import BYTES_PER_CHARACTER, parse_texts
from masquerade.survey.forms.information import consent_digest
from masquerade.survey.forms.survey_file import Survey
from masquerade.survey.page.page import PAGE, WORKER, body_size, build, content_policy
from masquerade.survey.page.team_words import team_page

TEAM: Final = "team"
EXPORT: Final = "export"
RESPONDENT: Final = Peer("respondent")
TOKEN: Final = re.compile(r"[0-9a-f]{192}")
FIELDS: Final = frozenset({"policy", "id", "mode", "reports", "token"})  # exactly the fields of a report
AGREED: Final = "agreed"  # in addition, if people tick a box: the digest of what they agreed to
TEXTS: Final = "texts"  # in addition, if people write something in their own words
PLACES: Final = ("token", "withdraw", TEAM, EXPORT)
_FIGURES_SECONDS: Final = 5.0
_HOUSE_SECONDS: Final = 3600.0
_MOST_IDLE: Final = 9  # a task pauses nine times as long as it ran, to use at most 10% of a CPU
_MOST_ADDRESSES: Final = 100_000
_MESSAGE_HEADERS: Final = (
    (b"access-control-allow-origin", b"*"),
    (b"cache-control", b"no-store"),
    (b"cross-origin-resource-policy", b"cross-origin"),
)
_FILE_HEADERS: Final = ((b"cache-control", b"no-cache"), (b"cross-origin-resource-policy", b"same-origin"))


class SurveyCollector:
    """The server of a survey: page, store and publication. `serve` it, or run `service` and `close` it."""

    def __init__(self, settings: SurveySettings) -> None:
        self.settings = settings
        self.survey = Survey.load(settings.survey)
        self.built = build(self.survey)
        self.key = None if settings.token_key is None else load_token_key(settings)
        issuer = self.survey.spec.issuer
        if (None if self.key is None else self.key.public.encode().hex()) != issuer:
            raise InputError(
                "token_key and the survey's 'issuer' do not match. Give both, of the same key; or give "
                "neither, and anyone can answer."
            )
        self._size = body_size(self.survey)
        self._longest = {it.name: it.longest for it in self.survey.free_texts}
        self._log = logs.Logger(settings.name)
        self.store = open_store(settings, self.survey)
        self._versions = self.store.versions()
        self._consents = self.store.consents()
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
        """Stop the background tasks and close the store."""
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self.store.close()
        self.publication.close()

    def publish(self) -> None:
        """Publish the next batch. A timer starts this, never a request."""
        self.publication.advance()

    def keep_promises(self) -> None:
        """Delete expired reports, and traces of the order of reports; runs at the start and every hour."""
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
            except Exception as error:  # noqa: BLE001  (the next run may succeed; until then nothing changes)
                self._log.warning(f"{job.__name__} failed; retrying later", error=type(error).__name__)
            pause = max(seconds, _MOST_IDLE * (time.monotonic() - started))

    def service(self) -> Service:
        """Return the service: endpoints of pages, static files, and the middleware for browsers."""
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
        # Behind a proxy every request comes from this machine, so /metrics cannot be protected by a check of
        # the caller's address. Changes of its counters would show when reports arrive.
        routes[:] = [route for route in routes if getattr(route, "path", "") != "/metrics"]
        page, worker = self.built.files[PAGE], self.built.files[WORKER]
        shown = {
            "/": (page, "text/html; charset=utf-8"),
            f"/{PAGE}": (page, "text/html; charset=utf-8"),
            f"/{WORKER}": (worker, "text/javascript; charset=utf-8"),
            "/manifest.json": (self.built.files["manifest.json"], "application/json"),
            "/team": (team_page(self.survey).encode(), "text/html; charset=utf-8"),
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
            BrowserMiddleware,
            per_minute=self.settings.limits.per_minute,
            secured=self.settings.tls is not None,
        )
        return service

    def serve(self, announce: Callable[[str], object] = print) -> None:
        """Serve until the process is stopped."""
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
                probe=settings.listen.probe_address,
            )
        finally:
            self.close()

    def handle(self, call: Call) -> bytes:
        """Return the reply to a message."""
        if call.place in (TEAM, EXPORT):
            if call.peer.name != call.place:
                raise NotAdmitted("Only the fieldwork team may request this, with its token.")
            return self.publication.figures_json if call.place == TEAM else self.publication.reports_json
        self._check_size(call.body)
        values = json_object(call.body)
        if call.place == "token":
            return self._sign_token(values)
        self._withdraw(values)
        return b""

    async def _report(self, service: Service, request: Request) -> Response:
        """Store a report without a log entry. It uses no thread: all waiting reports share one write."""
        try:
            service.jobs.check_open()
            values = json_object(await self._body(request))
            check_consent(values, self._consents)
            report = parse_report(values, self._versions, own_chance=self.survey.spec.own_chance)
            texts = parse_texts(values.get(TEXTS), self._longest)
            token = self._token(values["token"])
            await asyncio.wrap_future(self.store.submit(replace(report, token=token, texts=texts)))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001  (`problems` decides what the page learns of it)
            status, body = problems.encode(error)
            if status >= 500:
                self._log.warning("report failed", error=type(error).__name__)
            return Response(body, status, media_type="application/json")
        return Response()

    async def _body(self, request: Request) -> bytes:
        """Return a body, which must have the fixed length of all bodies; stop reading if it is longer."""
        body = bytearray()
        try:
            async with asyncio.timeout(body_seconds(self._size, self.settings.limits.seconds)):
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
            raise InputError(f"All messages of this survey must have {self._size:,} bytes.")

    def _token(self, text: object) -> bytes | None:
        """Return the digest of a token that the survey's key signed; None if the survey has no tokens."""
        if self.key is None:
            if text is not None:
                raise InputError("This survey has no tokens.")
            return None
        if not isinstance(text, str) or not TOKEN.fullmatch(text):
            raise InputError("A report of this survey needs a token.")
        token = bytes.fromhex(text)
        if not same(oprf.output_by(self.key, token[:32]), token[32:]):
            raise InputError("The token was not signed by the key of this survey.")
        return blake2b(token[:32], digest_size=16).digest()

    def _sign_token(self, values: Mapping[str, Any]) -> bytes:
        """Exchange an invitation for the evaluation of a blinded element (RFC 9497)."""
        code = values.get("invitation")
        if self.key is None or set(values) != {"invitation", "blinded"} or not isinstance(code, str):
            raise InputError("A request for a token must contain an invitation and a blinded element.")
        element = parse_bytes(values["blinded"], oprf.POINT_SIZE, "blinded")
        point = ristretto255.decode(element)
        self.store.exchange(code[:100], element)
        [evaluated], proof = oprf.evaluate(self.key, [point])
        return json.dumps({"evaluated": evaluated.encode().hex(), "proof": proof.hex()}).encode()

    def _withdraw(self, values: Mapping[str, Any]) -> None:
        if set(values) != {"code"} or not self.store.withdraw(parse_bytes(values["code"], 10, "code")):
            raise NotFound("No report has this code.")


def open_store(settings: SurveySettings, survey: Survey) -> SurveyStore:
    """Open the store that the settings name; register this version of the survey, and the quotas."""
    store = SurveyStore(settings.place, settings.invitations, settings.accept)
    try:
        longest = {it.name: BYTES_PER_CHARACTER * it.longest for it in survey.free_texts}
        store.register(survey.policy, longest)
        store.register_consent(consent_digest(survey.spec))
        store.limit([Quota(it.variable, it.answer, it.most) for it in settings.quotas])
    except BaseException:
        store.close()
        raise
    return store


def load_token_key(settings: SurveySettings) -> oprf.ServerKey:
    """Load the key that signs tokens from the file that the settings name."""
    assert settings.token_key is not None  # noqa: S101  (checked by the caller)
    text = read_private(settings.token_key, "a token key").decode("ascii", "replace").strip()
    try:
        return oprf.key_of(bytes.fromhex(text))
    except ValueError:
        raise InputError(
            "token_key: is not a key that signs tokens; masquerade survey init makes one."
        ) from None


def _file(content: bytes, headers: Mapping[str, str]) -> Callable[[Request], Any]:
    async def answer(request: Request) -> Response:  # noqa: ARG001
        return Response(content, headers=headers)

    return answer


class BrowserMiddleware:
    """Security headers for browsers, and a limit on the messages from one address.

    A page that was opened from a file has no origin, so every origin may send messages: there are no cookies,
    and only a token gives access to anything. Addresses are hashed with a key that this process draws, and
    their counts are deleted after a minute. Callers who share an address share its limit, and could infer
    from it how many messages the others sent. So the limit is drawn again every minute, between half of
    `per_minute` and all of it: one message of another caller changes the probability of any reply by at most
    ``2 / per_minute``.
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
        """Pass a request on, or reply to it here."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        message = scope["path"].startswith("/v1/")
        more_headers = _MESSAGE_HEADERS if message else _FILE_HEADERS

        async def with_headers(part: Message) -> None:
            if part["type"] == "http.response.start":
                part["headers"] = [*part["headers"], *self._headers, *more_headers]
            await send(part)

        if message and scope["method"] == "OPTIONS":
            allow = {"Access-Control-Allow-Methods": "POST", "Access-Control-Allow-Headers": "authorization"}
            await Response(status_code=204, headers=allow)(scope, receive, with_headers)
            return
        if message and self._too_many(scope):
            retry = {"Retry-After": "60", "Connection": "close"}
            await Response(status_code=429, headers=retry)(scope, receive, with_headers)
            return
        name = VERSION_HEADER.lower().encode()
        # Pages do not send the protocol version: a custom header would cost a preflight request.
        if message and all(key != name for key, _ in scope["headers"]):
            scope = {**scope, "headers": [*scope["headers"], (name, str(VERSIONS[-1]).encode())]}
        await self._app(scope, receive, with_headers)

    def _too_many(self, scope: Scope) -> bool:
        minute = int(time.monotonic() // 60)
        if minute != self._minute or len(self._counts) > _MOST_ADDRESSES:
            self._minute, self._counts = minute, {}
        address = network_of(scope.get("client") or ("0.0.0.0", 0))  # noqa: S104  (nothing listens there)
        name = blake2b(address.encode(), key=self._key, digest_size=8).digest()
        self._counts[name] = self._counts.get(name, 0) + 1
        return self._counts[name] > self._most - self._draw_reduction(name)

    def _draw_reduction(self, name: bytes) -> int:
        """Draw the reduction of an address's limit in this minute, between 0 and half of the limit."""
        number = blake2b(name + self._minute.to_bytes(8), key=self._key, digest_size=16).digest()
        return int.from_bytes(number) % (self._most // 2 + 1)


def check_consent(values: Mapping[str, Any], consents: Collection[str | None]) -> None:
    """Raise InputError unless a report comes with a consent that this survey asks for, or asked for before.

    The digest is the same for all respondents: it states what was agreed to, not who agreed or when.
    """
    if values.get(AGREED) not in consents:
        raise InputError("A report of this survey must contain the digest of the consent that was given.")


def parse_report(values: Mapping[str, Any], versions: Mapping[str, Policy], *, own_chance: bool) -> Report:
    """Parse a report without its token and texts, and check it against the policies of the survey."""
    if set(values) - {AGREED, TEXTS} != FIELDS:
        raise InputError("A report must contain policy, id, mode, reports and token, and nothing else.")
    policy = versions.get(values["policy"]) if isinstance(values["policy"], str) else None
    if policy is None:
        raise InputError("This report names a policy that does not belong to this survey.")
    mode = values["mode"]
    if type(mode) is not int or not 0 <= mode < (len(MODES) if own_chance else 1):
        raise InputError("This survey does not have the report's mode.")
    return Report(parse_bytes(values["id"], 16, "id"), policy.id, mode, _codes(values["reports"], policy))


def parse_bytes(text: object, size: int, name: str) -> bytes:
    """Parse `size` bytes from hexadecimal digits."""
    if not isinstance(text, str) or not re.fullmatch(f"[0-9a-f]{{{2 * size}}}", text):
        raise InputError(f"{name!r} must be {2 * size} hexadecimal digits.")
    return bytes.fromhex(text)


def _codes(values: object, policy: Policy) -> tuple[int, ...]:
    variables = policy.observed.variables
    if not isinstance(values, list) or len(values) != len(variables):
        raise InputError(f"'reports' must be a list of {len(variables)} codes.")
    for code, variable in zip(values, variables, strict=True):
        if type(code) is not int or not 0 <= code < len(variable):
            raise InputError(f"'reports': a code of {variable.name!r} is not one of its categories.")
    index_of = {variable.name: index for index, variable in enumerate(variables)}
    for group in policy.groups:
        if group.response is not None:
            block, class_ = (values[index_of[name]] for name in group.reports)
            if class_ >= group.response.block_classes[block]:
                raise InputError(f"'reports': {group.reports[1]!r} is not a class of its block.")
    return tuple(values)
