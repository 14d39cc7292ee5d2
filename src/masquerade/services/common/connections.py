"""Incoming connections: limits per address, and timeouts for callers that send or read too slowly."""

from __future__ import annotations

import asyncio
import math
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from ipaddress import IPv6Address, ip_address
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from masquerade.core.errors import InputError
from masquerade.services.common.service import CERTIFICATE

_HEADER_SECONDS = 15.0  # limit from a connection, or from a request's first byte, to the end of the headers
_MOST_CONNECTIONS = 512
_MOST_OF_ADDRESS, _MOST_UNFINISHED = 256, 64  # connections per address: all, and before the TLS handshake
_MOST_OF_MACHINE = 64  # connections if all callers are on this machine
_MOST_AT_ONCE = 8  # connections accepted per iteration of the event loop, so that closed files are freed
_READING_SECONDS, _LEAST_RATE = 30.0, 1024  # interval at which reading is checked, least bytes per second
_HANDSHAKE_SECONDS = 10.0


class Gate(socket.socket):
    """Listening socket that limits connections, so that no caller can exhaust the service.

    - A connection beyond the limit of its address is closed immediately.
    - Beyond the limit for all addresses together, a new connection replaces one from the address with the
      most connections, unless its own address would then have as many.
    - A connection whose TLS handshake takes too long is closed.
    - If all callers are on this machine, and so have one address, a new connection beyond the limit replaces
      the oldest one without a request.
    """

    secured = True
    """Whether connections use TLS."""
    is_local = False
    """Whether all callers are on this machine."""

    def __init__(self, *options: Any) -> None:
        super().__init__(*options)
        self._open: list[tuple[str, Any, socket.socket]] = []  # the oldest first
        self._finished: set[Any] = set()
        self._requested: set[Any] = set()
        self._came_in = 0  # connections accepted in this iteration of the event loop

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection that is admitted.

        Raises
        ------
        BlockingIOError
            If no connection is waiting, or enough were accepted in this iteration of the event loop.
            Accepting more could exhaust the file descriptors before ended connections are closed.
        """
        loop = asyncio.get_running_loop()
        while True:
            if self._came_in >= _MOST_AT_ONCE:
                raise BlockingIOError
            connection, address = super().accept()
            self._open = [entry for entry in self._open if entry[2].fileno() >= 0]
            addresses = {whose for _, whose, _ in self._open}
            self._finished &= addresses
            self._requested &= addresses
            if not self.secured:
                self._finished.add(address)
            network = network_of(address)
            if self._has_room(network):
                self._open.append((network, address, connection))
                if not self._came_in:
                    loop.call_soon(self._begin_turn)
                self._came_in += 1
                loop.call_later(_HANDSHAKE_SECONDS, self._give_up, address, connection)
                return connection, address
            connection.close()

    def _begin_turn(self) -> None:
        self._came_in = 0

    def mark_secured(self, address: Any) -> None:
        """Record that the TLS handshake of the connection from an address is complete."""
        self._finished.add(address)

    def mark_request(self, address: Any) -> None:
        """Record a request on the connection from an address."""
        self._requested.add(address)

    def end_all(self) -> bool:
        """End all connections; return True if a transport still has one open."""
        still_open = [connection for _, _, connection in self._open if connection.fileno() >= 0]
        for connection in still_open:
            _end(connection)
        return bool(still_open)

    def _has_room(self, network: str) -> bool:
        """Return True if a connection from a network is admitted; if necessary, end another one for it."""
        if self.is_local:
            if len(self._open) >= _MOST_OF_MACHINE:
                silent = (entry for entry in self._open if entry[1] not in self._requested)
                self._replace(next(silent, self._open[0]))
            return True
        taken = Counter(whose for whose, _, _ in self._open)
        unfinished = sum(whose == network and it not in self._finished for whose, it, _ in self._open)
        if taken[network] >= _MOST_OF_ADDRESS or unfinished >= _MOST_UNFINISHED:
            return False
        if len(self._open) < _MOST_CONNECTIONS:
            return True
        [(most, number)] = taken.most_common(1)
        if number <= taken[network] + 1:
            return False
        self._replace(next(entry for entry in self._open if entry[0] == most))
        return True

    def _replace(self, entry: tuple[str, Any, socket.socket]) -> None:
        """End a connection, and stop counting it."""
        self._open.remove(entry)
        _end(entry[2])

    def _give_up(self, address: Any, connection: socket.socket) -> None:
        if address not in self._finished:
            _end(connection)


def _end(connection: socket.socket) -> None:
    """Shut a connection down; its transport notices and closes it."""
    if connection.fileno() >= 0:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def network_of(address: Any) -> str:
    """Return the address of a caller; for IPv6 its /64 network, which one caller can use as a whole."""
    host = ip_address(str(address[0]).partition("%")[0])
    if isinstance(host, IPv6Address):
        return str(host.ipv4_mapped or int(host) >> 64)
    return str(host)


class GateConfig(uvicorn.Config):
    """Configuration of uvicorn with a gate.

    Parameters
    ----------
    app : callable
        ASGI application.
    gate : Gate
        Listening socket.
    most_unread : int
        Largest number of bytes of replies, over all connections, that may wait for their readers.
    **more
        Options of `uvicorn.Config`.
    """

    ended = False
    """Whether all connections are closed, including new ones: True from the signal to stop onwards."""

    def __init__(self, app: Any, gate: Gate, most_unread: int, **more: Any) -> None:
        super().__init__(
            app,
            http=GateProtocol,
            ws="none",
            loop="asyncio",  # uvloop, if installed, would accept connections without the gate
            access_log=False,
            proxy_headers=False,  # a caller must not be able to forge its address
            server_header=False,
            **more,
        )
        self.gate, self.most_unread = gate, most_unread


class GateProtocol(H11Protocol):
    """HTTP/1.1 that passes on the caller's certificate, with timeouts for headers and for readers."""

    config: GateConfig
    _waiting: asyncio.TimerHandle | None = None
    _reading: asyncio.TimerHandle | None = None
    _answers = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Record the completed handshake, and start the timeout of the first request."""
        super().connection_made(transport)
        self.config.gate.mark_secured(transport.get_extra_info("peername"))
        secured = transport.get_extra_info("ssl_object")
        certificate = None if secured is None else secured.getpeercert(binary_form=True)
        self.app_state = {
            **self.app_state,
            CERTIFICATE: certificate,
        }  # a copy: all connections share the original
        self._wait()
        if self.config.ended:
            transport.abort()  # accepted before the service ended, but its handshake took until now

    def data_received(self, data: bytes) -> None:
        """Parse data, and start or stop the timeout of a request's headers."""
        super().data_received(data)
        if self.cycle is not None:
            self.config.gate.mark_request(self.transport.get_extra_info("peername"))
        if self._idle() and self.timeout_keep_alive_task is None:
            if self._waiting is None:
                self._wait()
        else:
            self._stop_waiting()

    def shutdown(self) -> None:
        """End the connection; if it is idle, do not wait for the other side to close TLS."""
        is_read = not self._unread()  # before TLS's closing message is in the buffer
        super().shutdown()
        if self._idle() and is_read:
            self.transport.abort()  # a peer that keeps its connection open would delay the end by 30 seconds

    def on_response_complete(self) -> None:
        """Continue with the connection, and check that the caller reads its reply."""
        self._answers += 1
        super().on_response_complete()
        if self._reading is None:
            self._look_at_reader()
        if self._unread() and sum(map(GateProtocol._unread, self._all())) > self.config.most_unread:
            max(self._all(), key=GateProtocol._unread).transport.abort()

    def _all(self) -> Iterator[GateProtocol]:
        return (it for it in self.connections if isinstance(it, GateProtocol))

    def _unread(self) -> int:
        """Return the number of bytes not yet sent, including encrypted bytes in the socket's transport."""
        below = getattr(getattr(self.transport, "_ssl_protocol", None), "_transport", None)
        waiting = self.transport.get_write_buffer_size()
        return waiting if below is None else waiting + int(below.get_write_buffer_size())

    def timeout_keep_alive_handler(self) -> None:
        """End the idle connection once the caller has its reply; closing TLS earlier would truncate it."""
        if self._unread():
            again = self.timeout_keep_alive_handler
            self.timeout_keep_alive_task = self.loop.call_later(self.timeout_keep_alive, again)
        else:
            super().timeout_keep_alive_handler()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel timeouts."""
        self._stop_waiting()
        if self._reading is not None:
            self._reading.cancel()
        super().connection_lost(exc)

    def _look_at_reader(self, before: float = math.inf, answers: int = 0) -> None:
        """End the connection if its reply is read too slowly: its buffer would stay in memory for ever."""
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
    """Return the number of unsent bytes in the kernel's buffer, which can be large; 0 if unknown."""
    if sys.platform != "linux":
        return 0
    import fcntl  # noqa: PLC0415  (not on every system)
    import termios  # noqa: PLC0415

    queue_size = bytearray(4)
    with suppress(OSError):
        fcntl.ioctl(transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queue_size)
    return int.from_bytes(queue_size, sys.byteorder)


def listen(host: str, port: int) -> Gate:
    """Return a listening gate.

    Parameters
    ----------
    host : str
        Name or address.
    port : int
        Port; 0 for any free port.

    Returns
    -------
    Gate
        The socket.

    Raises
    ------
    InputError
        If the address is in use or is not an address of this machine.
    """
    listening = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # the protocol is named because asyncio sets TCP_NODELAY only if it is
        listening = Gate(family, kind, protocol or socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(256)
    except OSError as error:
        if listening is not None:
            listening.close()
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"Cannot listen at {host}, port {port}: {reason}.") from None
    return listening
