"""Servers: run a service with TLS, announce its address, and stop gracefully on SIGTERM or SIGINT."""

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
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from types import FrameType
from typing import Any, ClassVar

import uvicorn

from masquerade.core.errors import InputError
from masquerade.core.util.atomic import write_whole
from masquerade.crypto.keys import SigningKey, load_identity
from masquerade.services.common import logs
from masquerade.services.common.client import json_object, peers_of
from masquerade.services.common.connections import GateConfig, GateProtocol, listen
from masquerade.services.common.jobs import Call
from masquerade.services.common.peers import PLAIN, TlsFiles, server_context
from masquerade.services.common.problems import NotAdmitted, NotFound
from masquerade.services.common.release_ledger import in_state
from masquerade.services.common.restores import Restores
from masquerade.services.common.service import Service
from masquerade.services.common.settings import NodeSettings, is_loopback
from masquerade.services.common.state import State

GRACE_SECONDS = 30.0
_DAY = 86_400.0
_PROBE_BYTES = 1 << 20  # most bytes of replies to probes that wait for their readers
_CLOSING_SECONDS = 5.0  # time for transports to notice that their connections ended


def run(
    service: Service,
    *,
    host: str = "127.0.0.1",
    port: int = 8443,
    tls: TlsFiles = PLAIN,
    grace_seconds: float = GRACE_SECONDS,
    announce: Callable[[str], object] = print,
    probe: tuple[str, int] | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, finish running requests, and return.

    With an authority, callers must show a certificate that it signed, including probes of ``/health`` and
    ``/ready`` that do not use the address in `probe`. A certificate is optional if the service also admits
    tokens or callers without credentials. A service can be run only once.

    Parameters
    ----------
    service : Service
        The service.
    host : str, optional
        Address to listen at. Without TLS it must be an address of this machine.
    port : int, optional
        Port; 0 for any free port.
    tls : TlsFiles, optional
        Certificate, key and authority.
    grace_seconds : float, optional
        Seconds for running requests and jobs to finish.
    announce : callable, optional
        Called with one line that ends in the actual address.
    probe : tuple of str and int, optional
        A second address, where plain HTTP answers ``/health`` and ``/ready`` and nothing else.
    """
    server, listening = _prepare(service, (host, port), tls, grace_seconds, announce, probe=probe)
    with _quiet(service.name):
        server.run(sockets=[listening])


class NodeServer(ABC):
    """Base of all servers: paths for peers, and operations for the node's own operator."""

    CALLED: ClassVar[str] = "node"
    RESTORED: ClassVar[str]
    """The command with which an operator agrees to the consequences of a restore."""
    AGREEMENT: ClassVar[str]
    """The sentence that the operator types to agree. It is stored in ledgers: never change it."""
    operations: dict[str, Callable[[dict[str, Any]], dict[str, Any]]]

    def __init__(self, settings: NodeSettings) -> None:
        self.settings = settings
        self.identity = load_identity(settings.identity)
        self.peers, self.log = peers_of(settings), logs.Logger(settings.name)
        with ExitStack() as files:
            self.restores = self._open_state(settings, self.identity, files)
            self.state, self.ledger = self.restores.state, self.restores.ledger
            self.begin(files)
            self._files = files.pop_all()

    @classmethod
    def _open_state(cls, settings: NodeSettings, identity: SigningKey, files: ExitStack) -> Restores:
        """Open the state and its ledger; after a restore, first persist that running counts or epochs end."""
        state = files.enter_context(State.open(settings.state))
        if state.restored:
            cls.persist_restore(settings, state)
        ledger = files.enter_context(in_state(state, identity))
        if ledger.restored:
            cls.persist_restore(settings, state)
        return Restores(state, ledger, cls.CALLED, cls.RESTORED, cls.AGREEMENT)

    @classmethod  # noqa: B027
    def persist_restore(cls, settings: Any, state: State) -> None:
        """Persist that running counts or epochs end with a restore; does nothing unless overridden."""

    @classmethod
    def answer_restore(cls, settings: NodeSettings, given: dict[str, Any]) -> dict[str, Any]:
        """Answer the operator about a restore from the state alone, since the service may refuse to start."""
        if not settings.state.is_dir():
            raise InputError(f"{settings.state}: there is no state here that could have been restored.")
        with ExitStack() as files:
            return cls._open_state(settings, load_identity(settings.identity), files).answer(given)

    @abstractmethod
    def begin(self, files: ExitStack) -> None:
        """Create the parts of the server that need the state; files they open are registered in `files`."""

    def handle(self, call: Call) -> bytes:
        """Answer a message."""
        what = call.parameters.get("what")
        if what is None:
            return self.answer(call)
        if call.peer.name != self.settings.name:
            raise NotAdmitted(f"Only this {self.CALLED}'s own operator may do this.")
        operations = self.operations | {"restored": self.restores.answer}
        if what not in operations:
            raise NotFound("There is no such operation here.")
        return json.dumps(operations[what](json_object(call.body))).encode()

    @abstractmethod
    def answer(self, call: Call) -> bytes:
        """Answer a message that is not an operation of the operator."""

    @abstractmethod
    def service(self) -> Service:
        """Return the HTTP service of this node."""

    def service_at(self, places: Iterable[str], **more: Any) -> Service:
        """Return a service with the given paths and the path of the operator's operations."""
        name, limits, everywhere = self.settings.name, self.settings.limits, (*places, "operate/{what}")
        return Service(name, peers=self.peers, limits=limits, handler=self.handle, places=everywhere, **more)

    def close(self) -> None:
        """Close files."""
        self._files.close()

    def describe(self) -> str:
        """Return a line to print for the operator after the start; empty prints nothing."""
        return ""

    def serve(self, announce: Callable[[str], object] = print) -> None:
        """Serve until a signal to stop; the address file in the state folder is for the operator."""
        settings, address = self.settings, self.settings.address_file

        def listening(line: str) -> None:
            url = line.rsplit(" ", 1)[1]
            for everywhere in ("//0.0.0.0:", "//[::]:"):  # the operator connects from this machine
                url = url.replace(everywhere, "//127.0.0.1:")
            write_whole(address, url + "\n", private=True)
            announce(line)
            if self.describe():
                announce(self.describe())

        host, port, tls = settings.listen.host, settings.listen.port, settings.tls_files()
        probe = settings.listen.probe_address
        with closing(self):
            try:
                run(self.service(), host=host, port=port, tls=tls, announce=listening, probe=probe)
            finally:
                address.unlink(missing_ok=True)


class _Server(uvicorn.Server):
    """A server that reports its start, and that finishes and returns on a signal."""

    config: GateConfig

    def __init__(
        self,
        config: GateConfig,
        service: Service,
        grace_seconds: float,
        started: Callable[[], None],
        probe: GateConfig | None = None,
    ) -> None:
        super().__init__(config)
        self.service, self._grace, self._tell, self._probe = service, grace_seconds, started, probe
        self._daily: asyncio.TimerHandle | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._probe is not None and self.started:
            self.servers.append(await self._listen_for_probes(self._probe))
        self._look_at_certificates()
        self._tell()

    async def _listen_for_probes(self, config: GateConfig) -> asyncio.Server:
        """Accept connections of probes; they are closed together with the service's connections."""

        def protocol() -> asyncio.Protocol:
            return GateProtocol(config, self.server_state, self.lifespan.state)

        return await asyncio.get_running_loop().create_server(protocol, sock=config.gate)

    def _look_at_certificates(self) -> None:
        if self._daily is not None:  # not at the start, when `note_certificates` has already logged them
            self.service.warn_of_expiry()
        self._daily = asyncio.get_running_loop().call_later(_DAY, self._look_at_certificates)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and wait for requests and then for jobs whose callers have gone."""
        if self._daily is not None:
            self._daily.cancel()
        deadline = time.monotonic() + self._grace
        self.service.stop()
        for config in self._configs():
            config.ended = True
        await super().shutdown(sockets)
        await self.service.jobs.finish(deadline - time.monotonic())
        await self._close_all()

    async def _close_all(self) -> None:
        """Close remaining connections, so that none is left to the garbage collector after the loop ends.

        Connections whose handshake is not complete are unknown to the server, but known to the gate.
        """
        until = time.monotonic() + _CLOSING_SECONDS
        while (self.server_state.connections or self._end_all()) and time.monotonic() < until:
            for connection in list(self.server_state.connections):
                connection.transport.abort()
            await asyncio.sleep(0)  # a transport closes in the next iteration of the event loop

    def _configs(self) -> list[GateConfig]:
        return [self.config, *([] if self._probe is None else [self._probe])]

    def _end_all(self) -> bool:
        """End all connections of both addresses; return True if one is still open."""
        return sum(config.gate.end_all() for config in self._configs()) > 0

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Stop gracefully on SIGTERM and SIGINT; unlike the base class, do not raise them again."""
        self.service.stop()
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


def _prepare(
    service: Service,
    at: tuple[str, int],
    tls: TlsFiles,
    grace_seconds: float,
    announce: Callable[[str], object],
    *,
    probe: tuple[str, int] | None = None,
) -> tuple[_Server, socket.socket]:
    """Return a server and its listening socket; raise InputError for a public address without TLS."""
    host, port = at
    secured = server_context(
        tls, certificates_required=not service.takes_tokens, refused=service.refused_handshake
    )
    if secured is None and not is_loopback(host):
        raise InputError(
            f"Without a certificate a service listens on this machine only, such as 127.0.0.1. Got {host!r}."
        )
    service.note_certificates(tls)
    listening = listen(host, port)
    listening.secured = secured is not None
    config = GateConfig(
        service.app,
        listening,
        service.limits.concurrency * service.limits.reply_bytes,
        lifespan="on",
        log_config=None,
        timeout_graceful_shutdown=math.ceil(grace_seconds),
    )
    config.load()
    config.ssl = secured
    probes = None if probe is None else _probe_config(service, probe)
    shown, real = f"[{host}]" if ":" in host else host, listening.getsockname()[1]
    line = f"masquerade {service.name} listens at http{'' if secured is None else 's'}://{shown}:{real}"

    def started() -> None:
        announce(line)
        sys.stdout.flush()  # another process may wait for this line on a pipe

    return _Server(config, service, grace_seconds, started, probes), listening


def _probe_config(service: Service, at: tuple[str, int]) -> GateConfig:
    """Return the configuration of the address for probes."""
    gate = listen(*at)
    gate.secured, gate.is_local = False, is_loopback(at[0])
    config = GateConfig(service.probe_app, gate, _PROBE_BYTES, lifespan="off", log_config=None)
    config.load()
    return config


class _Plain(logging.Handler):
    """Forwards warnings of uvicorn and asyncio to the service's log: source and error type, without text."""

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
    """Replace tracebacks and the output of uvicorn and asyncio on stderr with log lines without data."""
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
    """Count services in this process; while there is one, logs do not propagate to other handlers."""
    global _quieted  # noqa: PLW0603  (loggers are global, too)
    with _quieting:
        _quieted += by
        for log in _BELOW:
            log.propagate = _quieted == 0
