"""HTTPS client for other services: it retries messages, and servers act on each message only once.

A server's certificate must be signed by the authority and pinned for this peer. Both are checked before
the first byte of a request is sent.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from masquerade.core.errors import InputError, did_you_mean
from masquerade.core.util.json_text import parse_json
from masquerade.crypto.certificates import fingerprint
from masquerade.crypto.keys import token_digest
from masquerade.services.common import problems
from masquerade.services.common.peers import PLAIN, Peer, TlsFiles, by_name, client_context
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable, ServiceFailed, TimedOut
from masquerade.services.common.settings import Limits, NodeSettings, is_loopback

VERSIONS = ("1",)  # protocol versions that this client supports
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds
_PLACE = re.compile(r"[A-Za-z0-9._~-]+(?:/[A-Za-z0-9._~-]+)*")
_CONNECT_SECONDS = 10.0
_SHARE_WAITED = 0.5  # share of the timeout after which a server reports that it is still working
_TRIES_WAITED = 60  # total wait for a peer that is still working, in timeouts
_PIECE = 1 << 16  # bytes per write, so that a write cannot outlast its try
T = TypeVar("T")
_PAUSE = 0.2  # seconds between two tries to reach a service that is starting
_SILENT_SECONDS = 2.0  # seconds of waiting for a service before `tell` is called
_IDLE_SECONDS = 3.0  # a connection is reused for less time than servers keep it open (5)


class HttpTransport:
    """Messages to peers over HTTPS.

    Each exchange has its own idempotency key, which its retries repeat. If the reply to a message was lost,
    the server sends the stored reply again and does not act on the message a second time.

    Parameters
    ----------
    me : str
        Name of this node, for error messages.
    peers : iterable of Peer
        The peers.
    place : str, optional
        Default path of messages below ``/v1/``.
    tls : TlsFiles, optional
        Certificate of this client, and the authority (CA) of servers. Without an authority, the system's
        authorities are used; certificates are pinned in either case.
    timeout : float, optional
        Seconds for one try.
    retries : int, optional
        Number of retries after a connection failed, timed out, or the server was busy.
    patience : float, optional
        Seconds in all to wait for a server that reports that it is still working on the message.
    limits : Limits, optional
        Largest message and reply.
    """

    def __init__(
        self,
        me: str,
        peers: Iterable[Peer],
        *,
        place: str = "messages",
        tls: TlsFiles = PLAIN,
        timeout: float = 60.0,
        retries: int = 5,
        patience: float = 900.0,
        limits: Limits | None = None,
    ) -> None:
        if timeout <= 0 or retries < 0:
            raise InputError(
                f"A timeout is positive and retries are not negative. Got {timeout} and {retries}."
            )
        self._me, self._peers, self._place, self._tls = me, by_name(peers), place, tls
        self._timeout, self._retries, self._limits = timeout, retries, limits or Limits()
        self._patience = patience
        self._clients: dict[str, httpx.Client] = {}
        self._lock, self._try = threading.Lock(), _Try()

    def exchange(
        self, party: str, message: bytes, *, place: str | None = None, key: str | None = None
    ) -> bytes:
        """Deliver a message and return the reply.

        Parameters
        ----------
        party : str
            The peer.
        message : bytes
            The message.
        place : str, optional
            Path below ``/v1/``, instead of the default.
        key : str, optional
            Idempotency key. If it was stored before the call, an exchange that a crash interrupted can be
            repeated with it.

        Returns
        -------
        bytes
            The reply.
        """
        return self._send(party, place or self._place, bytes(message), key or secrets.token_urlsafe(24))

    def post_json(
        self, party: str, place: str, value: Any, *, key: str | None = None, repeatable: bool = False
    ) -> Any:
        """Send JSON and return the JSON reply.

        A `repeatable` message is a query that changes nothing: it has no key, so the server stores no reply.
        """
        body = json.dumps(value, allow_nan=False).encode()
        chosen = None if repeatable else key or secrets.token_urlsafe(24)
        reply = self._send(party, place, body, chosen)
        try:
            return parse_json(reply)
        except InputError:
            raise ServiceFailed(f"Party {party!r} answered with something that is not JSON.") from None

    def close(self) -> None:
        """Close every connection."""
        while self._clients:
            self._clients.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, party: str, place: str, body: bytes, key: str | None) -> bytes:
        """Check a message, add headers, and send it with retries over the connection to its party."""
        if party not in self._peers:
            raise InputError(f"There is no party {party!r}.{did_you_mean(party, self._peers)}")
        peer = self._peers[party]
        with self._lock:
            if party not in self._clients:
                self._clients[party] = self._open_client(peer)
            client = self._clients[party]
        if len(body) > self._limits.body_bytes:
            raise problems.TooLarge(
                f"A message has at most {self._limits.body_bytes:,} bytes. Got {len(body):,} for {party!r}."
            )
        if not _PLACE.fullmatch(place):
            raise InputError(
                f"A path consists of letters, digits, '.', '_', '~', '-' and '/'. Got {place!r}."
            )
        headers = {
            "Masquerade-Version": ", ".join(VERSIONS),
            "Accept-Encoding": "identity",
            "Content-Type": "application/octet-stream",
        }
        if peer.token is not None:
            headers["Authorization"] = f"Bearer {peer.token}"
        if key is not None:
            headers |= {"Idempotency-Key": key, "Masquerade-Wait": f"{_SHARE_WAITED * self._timeout:.6f}"}
        request = client.build_request("POST", f"/v1/{place}", content=body, headers=headers)
        return self._send_with_retries(peer, client, request)

    def _send_with_retries(self, peer: Peer, client: httpx.Client, request: httpx.Request) -> bytes:
        """Send until a reply arrives; raise the error of the peer, or PartyUnreachable after all retries."""
        trouble, retry_after, failed = "", "", 0
        until = time.monotonic() + self._patience
        while failed <= self._retries:
            if failed:
                time.sleep(_pause(failed, retry_after))
            try:
                answer = self._once(peer, client, request)
            except httpx.TransportError as error:
                _raise_if_hopeless(peer, self._me, error)
                trouble = _in_words(error, secured=request.url.scheme == "https")
                retry_after, failed = "", failed + 1
                continue
            if answer.status_code // 100 == 2:
                if answer.headers.get("Masquerade-Version") not in VERSIONS:
                    raise ServiceFailed(f"Party {peer.name!r} answered in a version that it was not offered.")
                return answer.content
            problem = problems.decode(answer.status_code, answer.content, party=peer.name)
            if answer.status_code not in problems.RETRIED:
                request_there = answer.headers.get("Masquerade-Request", "")
                if isinstance(problem, ServiceFailed) and re.fullmatch(r"[0-9a-f]{16}", request_there):
                    # the service's log has the details, which replies never contain
                    raise ServiceFailed(f"{problem} Its log calls this request {request_there}.")
                raise problem
            if not isinstance(problem, TimedOut):
                trouble, retry_after, failed = str(problem), answer.headers.get("Retry-After", ""), failed + 1
            elif time.monotonic() > until:  # "still working" is not a failure, but must not last for ever
                raise TimedOut(f"Party {peer.name!r} is still at work after {self._patience:g} seconds.")
        tries = "1 try" if self._retries == 0 else f"{self._retries + 1} tries"
        raise PartyUnreachable(
            f"Party {peer.name!r} at {peer.url} gave no answer in {tries}; last error: "
            f"{trouble.rstrip('.')}. "
            "Check that it is running and not overloaded, and that the address is right; then try again."
        )

    def _once(self, peer: Peer, client: httpx.Client, request: httpx.Request) -> httpx.Response:
        """Send once and return the reply; raise an error if the reply is too long or too late."""
        deadline = self._try.until = time.monotonic() + self._timeout
        most = self._limits.reply_bytes
        response = client.send(request, stream=True)
        try:
            if "content-encoding" in response.headers:
                raise ServiceFailed(f"Party {peer.name!r} sent an encoded reply, which was not requested.")
            content = bytearray()
            for chunk in response.iter_raw():
                content += chunk
                if len(content) > most:
                    raise problems.TooLarge(
                        f"The reply of party {peer.name!r} is longer than {most:,} bytes."
                    )
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the reply took too long", request=request)
            return httpx.Response(response.status_code, headers=response.headers, content=bytes(content))
        finally:
            response.close()

    def _open_client(self, peer: Peer) -> httpx.Client:
        """Return a client of a peer that pins its certificate and limits every try."""
        try:
            parts = urlsplit(peer.url or "")
            usable = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            usable = False
        if not usable or parts.hostname is None:
            raise InputError(
                f"Party {peer.name!r} needs an address such as https://host:8443. Got {peer.url!r}."
            )
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InputError(
                f"Party {peer.name!r} is not on this machine: its address must begin with https://."
            )
        verify: ssl.SSLContext | bool = False
        if parts.scheme == "https":
            verify = client_context(peer, self._tls)
        limits = httpx.Limits(keepalive_expiry=_IDLE_SECONDS)
        way = httpx.HTTPTransport(verify=verify, trust_env=False, limits=limits)
        # httpx limits only the time between two bytes. To limit a whole attempt, its inner pool is changed.
        pool: Any = way._pool  # noqa: SLF001
        pool._network_backend = _Timed(pool._network_backend, self._try)  # noqa: SLF001
        return httpx.Client(
            base_url=peer.url or "",
            transport=way,
            trust_env=False,  # ignores proxies and .netrc: nothing may come between the two services
            follow_redirects=False,
            timeout=httpx.Timeout(self._timeout, connect=min(self._timeout, _CONNECT_SECONDS)),
        )


class _Try(threading.local):
    """Deadline of the current try of each thread."""

    until = math.inf

    def left(self, seconds: float | None) -> float:
        """Return the seconds that one operation may take; raise ReadTimeout after the deadline."""
        left = self.until - time.monotonic()
        if left <= 0:
            raise httpx.ReadTimeout("the try took too long")
        return left if seconds is None else min(left, seconds)


class _Timed:
    """Network backend and streams of httpcore whose operations end at the deadline of the current try."""

    def __init__(self, inner: Any, until: _Try) -> None:
        self._inner, self._until = inner, until

    def connect_tcp(self, *given: Any, timeout: float | None = None, **named: Any) -> _Timed:
        made = self._inner.connect_tcp(*given, timeout=self._until.left(timeout), **named)
        return _Timed(made, self._until)

    def start_tls(self, *given: Any, timeout: float | None = None, **named: Any) -> _Timed:
        made = self._inner.start_tls(*given, timeout=self._until.left(timeout), **named)
        return _Timed(made, self._until)

    def read(self, most: int, timeout: float | None = None) -> Any:
        return self._inner.read(most, self._until.left(timeout))

    def write(self, data: bytes, timeout: float | None = None) -> None:
        for at in range(0, len(data), _PIECE):
            self._inner.write(data[at : at + _PIECE], self._until.left(timeout))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _pause(attempt: int, retry_after: str) -> float:
    """Return the seconds before a retry: exponential backoff with jitter, at least `retry_after`."""
    longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
    wished = min(_LONGEST_PAUSE, float(retry_after)) if retry_after.isdecimal() else 0.0
    return max(wished, longest * (0.5 + secrets.randbelow(1000) / 2000))


def _raise_if_hopeless(peer: Peer, me: str, error: BaseException) -> None:
    """Raise NotAdmitted for a failed TLS handshake: a retry would fail the same way."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise NotAdmitted(
                f"The certificate of the server at {peer.url} is not valid for party {peer.name!r}: "
                f"{cause.verify_message}. Nothing was sent."
            ) from None
        if isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""):
            raise NotAdmitted(
                f"Party {peer.name!r} does not accept the certificate of {me!r}, or got none "
                f"({(cause.reason or '').lower().replace('_', ' ')})."
            ) from None
        cause = cause.__cause__ or cause.__context__


def _in_words(error: httpx.TransportError, *, secured: bool) -> str:
    if isinstance(error, httpx.TimeoutException):
        return "no answer in time"
    words = re.sub(r"^\[.*?\]\s*", "", str(error)).lower() or type(error).__name__
    if secured and isinstance(error, httpx.ReadError | httpx.WriteError | httpx.RemoteProtocolError):
        return f"{words} (a server that does not accept our certificate closes the connection, too)"
    return words


def _operator_peer(settings: NodeSettings, url: str | None = None) -> Peer:
    """Return the peer that represents a node's own operator in calls to the node."""
    token = None if settings.operator_token is None else settings.operator_token.read_text().strip()
    marks = () if settings.tls is None else (fingerprint(settings.tls.certificate),)
    return Peer(settings.name, url, marks, None if token is None else token_digest(token), token)


def peers_of(settings: NodeSettings) -> list[Peer]:
    """Return the peers that may call a node, including its own operator."""
    return [_operator_peer(settings), *(peer.peer(name) for name, peer in settings.peers.items())]


def peer_transport(settings: NodeSettings, peers: Iterable[Peer], **changed: float) -> HttpTransport:
    """Return the transport of a node to its peers, with its certificate and limits.

    `changed` replaces the `timeout` or `retries` of the settings. If a peer reports that it is still working,
    the transport waits for it up to `_TRIES_WAITED` times as long as one try.
    """
    seconds = changed.get("timeout", settings.limits.seconds)
    given: dict[str, Any] = {"timeout": seconds, "retries": settings.retries, **changed}
    given |= {"patience": _TRIES_WAITED * seconds}
    return HttpTransport(settings.name, peers, tls=settings.tls_files(), limits=settings.limits, **given)


def json_object(data: bytes) -> dict[str, Any]:
    """Return the JSON object in a message, an empty dict if the message is empty.

    Raises InputError if the message is not a JSON object.
    """
    try:
        values = parse_json(data or b"{}")
    except InputError:
        values = None
    if not isinstance(values, dict):
        raise InputError("The message is not a JSON object.")
    return values


class NotRunning(InputError):
    """Raised if a service on this machine has no address file, because it is not running."""


def once_started(
    ask: Callable[[], T],
    name: str,
    wait: float,
    tell: Callable[[str], object] = lambda _: None,
    started_by: str = "",
) -> T:
    """Return the reply of a service, waiting up to `wait` seconds for it to start.

    Parameters
    ----------
    ask : callable
        Sends the message; called again while the service has no address or is unreachable.
    name : str
        Name of the service.
    wait : float
        Seconds to wait.
    tell : callable, optional
        Receives a sentence if the service does not answer within two seconds.
    started_by : str, optional
        The command that starts the service, for that sentence.

    Returns
    -------
    object
        The result of `ask`.
    """
    began, told = time.monotonic(), False
    while True:
        try:
            return ask()
        except (NotRunning, PartyUnreachable):
            waited = time.monotonic() - began
            if waited >= wait:
                raise
            if waited >= _SILENT_SECONDS and not told:
                told = True
                how = f" ({started_by})" if started_by else ""
                tell(f"waiting for {name!r} to start, {wait:g} seconds at most{how}")
            time.sleep(_PAUSE)


class Operator:
    """Client for the operator of a node, on the node's machine and with its credentials.

    The first request waits up to `wait` seconds for the node to start; see `once_started`.
    """

    def __init__(
        self,
        settings: NodeSettings,
        wait: float = 10.0,
        tell: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._settings, self._wait, self._tell = settings, wait, tell
        self._http: HttpTransport | None = None

    def ask(self, what: str, values: dict[str, Any]) -> dict[str, Any]:
        """Run an operation of the node, and return its reply."""
        name, key = self._settings.name, secrets.token_urlsafe(24)

        def send_request() -> dict[str, Any]:
            http, repeatable = self._http or self._connect(), what in {"status", "model"}
            try:
                answer: dict[str, Any] = http.post_json(
                    name, f"operate/{what}", values, key=key, repeatable=repeatable
                )
            except BaseException:
                if self._http is None:
                    http.close()  # the next try reads the address again
                raise
            self._http = http
            return answer

        try:
            wait = self._wait if self._http is None else 0.0
            return once_started(send_request, name, wait, self._tell, self._settings.STARTED_BY)
        except NotAdmitted:
            raise NotAdmitted(
                f"{name!r} does not know the certificate or token in its file: restart it, if they "
                "were replaced since it was started."
            ) from None

    def _connect(self) -> HttpTransport:
        """Return a transport to the address that the node wrote when it started."""
        settings = self._settings
        try:
            url = settings.address_file.read_text(encoding="ascii").strip()
        except OSError:
            raise NotRunning(
                f"{settings.name!r} is not running on this machine (there is no {settings.address_file}): "
                f"start it with {settings.STARTED_BY}."
            ) from None
        return peer_transport(settings, [_operator_peer(settings, url)], timeout=60.0, retries=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._http is not None:
            self._http.close()
