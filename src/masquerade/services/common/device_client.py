"""Client over HTTP and TLS for a person's device; it needs only the standard library.

The module `client` is for services, which authenticate each other. A device knows one address, sends no
credentials, and has little memory. It sends a message again until a reply arrives, so the service must act on
repeated messages only once.
"""

from __future__ import annotations

import secrets
import ssl
import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection, IncompleteRead
from typing import Final, Self
from urllib.parse import urlsplit

from masquerade.core.errors import InputError
from masquerade.services.common import problems
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable, ServiceFailed, TooLarge

VERSION: Final = "1"
LONGEST_REPLY: Final = 1 << 26
RETRIED: Final = problems.RETRIED | {429}
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 3.0
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class DeviceClient:
    """Connection of one device to one service; `close` it, or use it in a with statement.

    Parameters
    ----------
    url : str
        Address of the service; http only on this machine.
    authority : str, optional
        PEM text of the authority (CA) that signed the service's certificate; without it, the system's CAs.
    context : ssl.SSLContext, optional
        TLS context, instead of `authority`.
    timeout : float, optional
        Seconds for one attempt.
    patience : float, optional
        Seconds for all attempts to send one message.
    """

    def __init__(
        self,
        url: str,
        *,
        authority: str | None = None,
        context: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        patience: float = 60.0,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise InputError(f"A service must have an address such as https://host:8443. Got {url!r}.")
        self._url, self.patience = url, patience
        self._connection: HTTPConnection
        if parts.scheme == "https":
            if context is None:
                context = ssl.create_default_context(cadata=authority)
                context.minimum_version = ssl.TLSVersion.TLSv1_2
            self._connection = HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
        elif parts.hostname in LOOPBACK:
            self._connection = HTTPConnection(parts.hostname, parts.port, timeout=timeout)
        else:
            raise InputError(f"{url} is not on this machine: its address must begin with https://.")

    def post(self, place: str, body: bytes) -> bytes:
        """Send text until it is answered, and return the reply; raise the error that the service sends."""
        return self._post(place, body, {"Content-Type": "text/plain"})

    def exchange(self, place: str, body: bytes, *, once: bool = True) -> bytes:
        """Send a message of a protocol until it is answered, and return the reply.

        With `once`, the message has an idempotency key: the service acts on it once, even if repeated.
        """
        headers = {"Masquerade-Version": VERSION, "Content-Type": "application/octet-stream"}
        if once:
            headers["Idempotency-Key"] = secrets.token_urlsafe(24)
        return self._post(place, body, headers)

    def _post(self, place: str, body: bytes, headers: dict[str, str]) -> bytes:
        """Send until a reply arrives or `patience` seconds have passed; raise the error of the service."""
        until, pause = time.monotonic() + self.patience, FIRST_PAUSE
        while True:
            try:
                status, content = self._once(place, body, headers)
            except ssl.SSLCertVerificationError as error:
                raise NotAdmitted(
                    f"The server at {self._url} shows a certificate that its authority did not sign "
                    f"({error.verify_message}). Nothing was sent."
                ) from None
            except (OSError, HTTPException) as error:
                trouble = str(error) or type(error).__name__
            else:
                if status // 100 == 2:
                    return content
                if status not in RETRIED:
                    raise problems.decode(status, content, party=self._url)
                trouble = f"it answered with status {status}"
            if time.monotonic() + pause > until:
                raise PartyUnreachable(
                    f"{self._url} gave no answer in {self.patience:g} seconds; last error: {trouble}. "
                    "Nothing is lost: the same command continues later."
                )
            time.sleep(pause * (0.5 + secrets.randbelow(1000) / 1000))
            pause = min(2 * pause, LONGEST_PAUSE)

    def _once(self, place: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
        """Send once; return status and content, and close the connection if the reply is not complete."""
        try:
            self._connection.request("POST", f"/v1/{place}", body, headers)
            reply = self._connection.getresponse()
            content = reply.read(LONGEST_REPLY + 1)
        except BaseException:
            self._connection.close()
            raise
        if len(content) > LONGEST_REPLY:
            self._connection.close()
            raise TooLarge(f"The reply of {self._url} is longer than {LONGEST_REPLY:,} bytes.")
        if reply.length:  # bytes missing at the end, which read() with a limit does not report
            self._connection.close()
            raise IncompleteRead(content, reply.length)
        version = headers.get("Masquerade-Version")
        if reply.status // 100 == 2 and version not in {None, reply.headers.get("Masquerade-Version")}:
            raise ServiceFailed(f"{self._url} answered in a version that it was not offered.")
        return reply.status, content

    def close(self) -> None:
        """End the connection; the next message opens a new one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
