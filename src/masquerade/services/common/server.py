"""Running a service: TLS, one announced address, and an orderly end on SIGTERM or SIGINT."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import signal
import socket
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from ipaddress import IPv6Address, ip_address
from types import FrameType
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto.keys import SigningKey, load_identity
from masquerade.services.common import logs
from masquerade.services.common.client import json_object, peers_of
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import PLAIN, TlsFiles, server_context
from masquerade.services.common.problems import NotAdmitted, NotFound
from masquerade.services.common.release_ledger import in_state
from masquerade.services.common.restores import Restores
from masquerade.services.common.service import CERTIFICATE, Service
from masquerade.services.common.settings import NodeSettings, is_loopback
from masquerade.services.common.state import State

GRACE_SECONDS = 30.0
_HEADER_SECONDS = 15.0  # from a connection, or from the first byte of a request, to the end of its headers
_MOST_CONNECTIONS = 512
_MOST_OF_ADDRESS, _MOST_UNFINISHED = 256, 64  # connections of one address, and those not secured yet
_READING_SECONDS, _LEAST_RATE = 30.0, 1024  # a look at readers, who take so many bytes a second or more
_HANDSHAKE_SECONDS = 10.0
_CLOSING_SECONDS = 5.0  # for transports to hear that their connections ended


def run(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8443,
    tls: TlsFiles = PLAIN,
    grace_seconds: float = GRACE_SECONDS,
    announce: Callable[[str], object] = print,
) -> None:
    """Serve until SIGTERM or SIGINT, finish what runs within `grace_seconds`, and return.

    With an authority, callers show a certificate that it signed; where the service also knows tokens, or
    takes callers without credentials, they may do without one. Where certificates are required, probes of
    ``/health`` and ``/ready`` need one too. Port 0 takes any free port; the one line that is announced ends
    in the real address. A service is run once: after its end it takes nothing new.
    """
    server, listening = _prepared(service, (host, port), tls, grace_seconds, announce)
    with _quiet(service.name):
        server.run(sockets=[listening])


class NodeServer(ABC):
    """Everything behind the address of a node: places for its peers, and operations for its own operator."""

    CALLED: ClassVar[str] = "node"
    RESTORED: ClassVar[str]
    """The command with which an operator agrees to what a restore gives away."""
    AGREEMENT: ClassVar[str]
    """The words in which that is said."""
    operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.identity = load_identity(settings.identity)
        self.peers, self.log = peers_of(settings), logs.Logger(settings.name)
        with ExitStack() as files:
            self.restores = self._opened(settings, self.identity, files)
            self.state, self.ledger = self.restores.state, self.restores.ledger
            self.begin(files)
            self._files = files.pop_all()

    @classmethod
    def _opened(cls, settings: NodeSettings, identity: SigningKey, files: ExitStack) -> Restores:
        """Open the state and its ledger; where they were restored, what that ends is remembered first."""
        state = files.enter_context(State.open(settings.state))
        if state.restored:
            cls.noticed(settings, state)
        ledger = files.enter_context(in_state(state, identity))
        if ledger.restored:
            cls.noticed(settings, state)
        return Restores(state, ledger, cls.CALLED, cls.RESTORED, cls.AGREEMENT)

    @classmethod  # noqa: B027
    def noticed(cls, settings: Any, state: State) -> None:
        """Remember what a restore ends for good; nothing, unless a subclass says so."""

    @classmethod
    def restored(cls, settings: NodeSettings, given: dict[str, Any]) -> dict[str, Any]:
        """Answer the operator about a restore while the service does not run: it may refuse to."""
        if not settings.state.is_dir():
            raise InputError(f"{settings.state}: there is no state here that could have been restored.")
        with ExitStack() as files:
            return cls._opened(settings, load_identity(settings.identity), files).asked(given)

    @abstractmethod
    def begin(self, files: ExitStack) -> None:
        """Make everything that needs the state; what is opened goes among the files, which `close` closes."""

    def handle(self, call: Call) -> bytes:
        """Answer a message."""
        what = call.parameters.get("what")
        if what is None:
            return self.answer(call)
        if call.peer.name != self.settings.name:
            raise NotAdmitted(f"Only this {self.CALLED}'s own operator may do this.")
        operations = self.operations | {"restored": self.restores.asked}
        if what not in operations:
            raise NotFound("There is no such operation here.")
        return json.dumps(operations[what](json_object(call.body))).encode()

    @abstractmethod
    def answer(self, call: Call) -> bytes:
        """Answer a message that is not the operator's."""

    @abstractmethod
    def service(self) -> Service:
        """Return the service that this node is."""

    def service_at(self, places: Iterable[str], **more: Any) -> Service:
        """Return a service with these places, and those of the operator."""
        name, limits, everywhere = self.settings.name, self.settings.limits, (*places, "operate/{what}")
        return Service(name, peers=self.peers, limits=limits, handler=self.handle, places=everywhere, **more)

    def close(self) -> None:
        """Let go of files."""
        self._files.close()

    def described(self) -> str:
        """Return a line for the operator when the service has started, if there is anything to say."""
        return ""

    def serve(self, announce: Callable[[str], object] = print) -> None:
        """Serve until told to stop; the address is left in the state folder, for the operator."""
        settings, address = self.settings, self.settings.address_file

        def listening(line: str) -> None:
            url = line.rsplit(" ", 1)[1]
            for everywhere in ("//0.0.0.0:", "//[::]:"):  # the operator is on this machine
                url = url.replace(everywhere, "//127.0.0.1:")
            write_whole(address, url + "\n", private=True)
            announce(line)
            if self.described():
                announce(self.described())

        host, port, tls = settings.listen.host, settings.listen.port, settings.tls_files()
        with closing(self):
            try:
                run(self.service(), host=host, port=port, tls=tls, announce=listening)
            finally:
                address.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """A server that tells its address, and that takes a signal as a wish to finish and return."""

    config: _Config

    def __init__(
        self, config: _Config, service: Service, grace_seconds: float, started: Callable[[], None]
    ) -> None:
        super().__init__(config)
        self.service, self._grace, self._tell = service, grace_seconds, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._tell()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and wait for requests and then for jobs that nobody waits for any more."""
        deadline = time.monotonic() + self._grace
        self.service.stop()
        self.config.ended = True
        await super().shutdown(sockets)
        await self.service.jobs.finish(deadline - time.monotonic())
        await self._close_all()

    async def _close_all(self) -> None:
        """Close what is open still, so that nothing is left to the garbage collector after the loop.

        The server does not know connections that are not secured yet; the gate does.
        """
        until = time.monotonic() + _CLOSING_SECONDS
        while (self.server_state.connections or self.config.gate.end_all()) and time.monotonic() < until:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # it is lost one turn of the loop later

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Take SIGTERM and SIGINT as a wish to end in order: unlike the base, they are not raised again."""
        self.service.stop()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


class _Gate(socket.socket):
    """Where connections come in: beyond what one address may have open they are closed at once.

    Where all together have too many, a newcomer takes the place of the address that has the most, unless its
    own has as many. Connections that are not secured within some seconds are ended.
    """

    secured = True
    """Whether connections have to be secured first."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self._open: list[tuple[str, Any, socket.socket]] = []  # the oldest first
        self._finished: set[Any] = set()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that may come in."""
        while True:
            connection, address = super().accept()
            self._open = [entry for entry in self._open if entry[2].fileno() >= 0]
            self._finished &= {whose for _, whose, _ in self._open}
            if not self.secured:
                self._finished.add(address)
            network = _network_of(address)
            if self._has_room(network):
                self._open.append((network, address, connection))
                loop = asyncio.get_running_loop()
                loop.call_later(_HANDSHAKE_SECONDS, self._give_up, address, connection)
                return connection, address
            connection.close()

    def finished(self, address: Any) -> None:
        """Take note that the connection from an address is secured."""
        self._finished.add(address)

    def end_all(self) -> bool:
        """End every connection that came in; return True if a transport has one of them still."""
        still_open = [connection for _, _, connection in self._open if connection.fileno() >= 0]
        for connection in still_open:
            _end(connection)
        return bool(still_open)

    def _has_room(self, network: str) -> bool:
        """Return True if a connection from there may come in; if need be, another one ends for it."""
        taken = Counter(whose for whose, _, _ in self._open)
        unfinished = sum(whose == network and it not in self._finished for whose, it, _ in self._open)
        if taken[network] >= _MOST_OF_ADDRESS or unfinished >= _MOST_UNFINISHED:
            return False
        if len(self._open) < _MOST_CONNECTIONS:
            return True
        [(most, number)] = taken.most_common(1)
        if number <= taken[network] + 1:
            return False
        oldest = next(entry for entry in self._open if entry[0] == most)
        self._open.remove(oldest)
        _end(oldest[2])
        return True

    def _give_up(self, address: Any, connection: socket.socket) -> None:
        if address not in self._finished:
            _end(connection)


def _end(connection: socket.socket) -> None:
    """End a connection that a transport has: it hears of it by itself."""
    if connection.fileno() >= 0:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def _network_of(address: Any) -> str:
    """Return the address of one caller, of IPv6 the 64 bits that a network gives out."""
    host = ip_address(str(address[0]).partition("%")[0])
    if isinstance(host, IPv6Address):
        return str(host.ipv4_mapped or int(host) >> 64)
    return str(host)


class _Config(uvicorn.Config):
    """How a server runs, and where its connections come in."""

    gate: _Gate
    most_unread: int
    """How many bytes of replies may wait for their readers."""
    ended = False
    """Whether it closes every connection: from when it was told to stop, new ones too."""


class _Protocol(H11Protocol):
    """HTTP/1.1 that hands on the caller's certificate and waits for headers and for readers only so long."""

    config: _Config
    _waiting: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _answers = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.config.gate.finished(transport.get_extra_info("peername"))
        secured = transport.get_extra_info("ssl_object")
        shown = None if secured is None else secured.getpeercert(binary_form=True)
        self.app_state = {**self.app_state, CERTIFICATE: shown}  # a copy: the given one is all connections'
        self._wait()
        if self.config.ended:
            transport.abort()  # it came in before the end, and its handshake took until now

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._idle() and self.timeout_keep_alive_task is None:
            if self._waiting is None:
                self._wait()
        else:
            self._stop_waiting()

    def shutdown(self) -> None:
        """End the connection; where nothing is under way do not wait for the other side's goodbye."""
        is_read = not self._unread()  # before a goodbye of TLS waits there
        super().shutdown()
        if self._idle() and is_read:
            self.transport.abort()  # half a minute would pass with a peer that has its connection open

    def on_response_complete(self) -> None:
        """Go on with the connection, and see that the caller reads its reply."""
        self._answers += 1
        super().on_response_complete()
        if self._reading is None:
            self._look_at_reader()
        if self._unread() and sum(map(_Protocol._unread, self._all())) > self.config.most_unread:
            max(self._all(), key=_Protocol._unread).transport.abort()

    def _all(self) -> Iterator[_Protocol]:
        return (it for it in self.connections if isinstance(it, _Protocol))

    def _unread(self) -> int:
        """Return the number of bytes that wait here; TLS hands them on at once to the transport below it."""
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        waiting = self.transport.get_write_buffer_size()
        return waiting if below is None else waiting + int(below.get_write_buffer_size())

    def timeout_keep_alive_handler(self) -> None:
        """End the connection, if the caller has its reply; TLS would cut off what is left after a while."""
        if self._unread():
            again = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, again)
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _look_at_reader(self, before: float = math.inf, answers: int = 0) -> None:
        """End the connection where a reply is read at less than a rate: it would be held for ever."""
        self._reading = None
        if not self._unread():
            return
        left = self._unread() + _in_kernel(self.transport)
        if left > before - _LEAST_RATE * _READING_SECONDS and answers == self._answers:
            self.transport.abort()
        else:
            again = self._look_at_reader
            self._reading = self.loop.call_later(_READING_SECONDS, again, left, self._answers)

    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(_HEADER_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _give_up(self) -> None:
        if self._idle() and not self.transport.is_closing():
            self.transport.close()


def _in_kernel(transport: asyncio.Transport) -> int:
    """Return the number of bytes that the system holds for the other side; it takes them in large pieces."""
    if sys.platform != "linux":
        return 0
    import fcntl  # noqa: PLC0415  (not on every system)
    import termios  # noqa: PLC0415

    queue_size = bytearray(4)
    with suppress(OSError):
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queue_size)
    return int.from_bytes(queue_size, sys.byteorder)


def _prepared(
    service: Service,
    at: tuple[str, int],
    tls: TlsFiles,
    grace_seconds: float,
    announce: Callable[[str], object],
) -> tuple[_Server, socket.socket]:
    host, port = at
    secured = server_context(
        tls, certificates_required=not service.takes_tokens, refused=service.refused_handshake
    )
    if secured is None and not is_loopback(host):
        raise InputError(
            f"Without a certificate a service listens on this machine only, such as 127.0.0.1. Got {host!r}."
        )
    config = _Config(
        service.app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nobody may say on another's behalf where a request comes from
        server_header=False,
        timeout_graceful_shutdown=math.ceil(grace_seconds),
    )
    config.load()
    config.ssl = secured
    config.most_unread = service.limits.concurrency * service.limits.reply_bytes
    listening = config.gate = _listening(host, port)
    listening.secured = secured is not None
    shown, real = f"[{host}]" if ":" in host else host, listening.getsockname()[1]
    line = f"masquerade {service.name} listens at http{'' if secured is None else 's'}://{shown}:{real}"

    def started() -> None:
        announce(line)
        sys.stdout.flush()  # whoever waits for the line reads it through a pipe

    return _Server(config, service, grace_seconds, started), listening


def _listening(host: str, port: int) -> _Gate:
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # the protocol is named because asyncio sends small replies at once only where it sees TCP
        listening = _Gate(family, kind, protocol or socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(256)
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"Cannot listen at {host}, port {port}: {reason}.") from None
    return listening


class _Plain(logging.Handler):
    """What the server below says, in our log: its sentence and an error's type, never its text."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.WARNING)
        self._log, self._seldom = logs.Logger(name), logs.Seldom()

    def emit(self, record: logging.LogRecord) -> None:
        left_out = self._seldom.left_out(record.name)
        if left_out is None:
            return
        facts: dict[str, Any] = {"source": record.name} | ({"number": left_out} if left_out else {})
        if record.exc_info and record.exc_info[0] is not None:
            facts["error"] = record.exc_info[0].__name__
        self._log.warning("server", **facts)


_BELOW = (logging.getLogger("uvicorn"), logging.getLogger("asyncio"))
_quieted = 0
_quieting = threading.Lock()


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Turn what uvicorn and asyncio would write to stderr, traces included, into log lines without data."""
    handler = _Plain(name)
    _shift(+1)
    for log in _BELOW:
        log.addHandler(handler)
    try:
        yield
    finally:
        for log in _BELOW:
            log.removeHandler(handler)
        _shift(-1)


def _shift(by: int) -> None:
    """Count services in this process: while there is one, nothing goes on to handlers of others."""
    global _quieted  # noqa: PLW0603  (loggers are the process's, too)
    with _quieting:
        _quieted += by
        for log in _BELOW:
            log.propagate = _quieted == 0
