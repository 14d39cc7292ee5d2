"""Calling a service from a person's device: HTTPS by the standard library alone, pinned like everywhere.

The other client (`client.HttpTransport`) loads twenty megabytes more; a device has forty.
"""

from __future__ import annotations

import http.client
import secrets
import ssl
import time
from typing import Final, Self
from urllib.parse import urlsplit

from masquerade.core.errors import InputError
from masquerade.services.common import problems
from masquerade.services.common.peers import Peer, TlsFiles, client_context
from masquerade.services.common.problems import NotAdmitted, PartyUnreachable, ServiceFailed

VERSION: Final = "1"
MOST_REPLY: Final = 1 << 26
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0  # seconds


class DeviceTransport:
    """Messages to one service, each sent as often as needed and, by its key, acted on once.

    `timeout` is for one try; there are `retries` after a connection failed or a server was busy.
    """

    def __init__(self, peer: Peer, authority: str, *, timeout: float = 60.0, retries: int = 8) -> None:
        parts = urlsplit(peer.url or "")
        if parts.hostname is None or parts.scheme not in ("http", "https"):
            raise InputError(f"{peer.name} needs an address such as https://host:8443.")
        self._peer, self._retries = peer, retries
        port = parts.port or (443 if parts.scheme == "https" else 80)
        self._connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = client_context(peer, TlsFiles(authority=authority or None))
            self._connection = http.client.HTTPSConnection(
                parts.hostname, port, timeout=timeout, context=context
            )
        elif parts.hostname in _LOOPBACK:
            self._connection = http.client.HTTPConnection(parts.hostname, port, timeout=timeout)
        else:
            raise InputError(f"{peer.name} is not on this machine: its address must begin with https://.")

    def exchange(self, place: str, body: bytes, *, once: bool = True) -> bytes:
        """Deliver a message and return the reply; what changes nothing needs not be acted on `once`."""
        headers = {"Masquerade-Version": VERSION, "Content-Type": "application/octet-stream"}
        if once:
            headers["Idempotency-Key"] = secrets.token_urlsafe(24)
        trouble = ""
        for attempt in range(self._retries + 1):
            if attempt:
                longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0**attempt)
                time.sleep(longest * (0.5 + secrets.randbelow(1000) / 2000))
            try:
                self._connection.request("POST", f"/v1/{place}", body, headers)
                answer = self._connection.getresponse()
                content = answer.read(MOST_REPLY + 1)
            except ssl.SSLCertVerificationError as error:
                self.close()
                raise NotAdmitted(
                    f"The certificate of the server at {self._peer.url} is not valid for {self._peer.name}: "
                    f"{error.verify_message}. Nothing was sent."
                ) from None
            except (OSError, http.client.HTTPException) as error:
                self.close()
                trouble = str(error).lower() or type(error).__name__
                continue
            if len(content) > MOST_REPLY:
                self.close()
                raise problems.TooLarge(
                    f"The reply of {self._peer.name} is longer than {MOST_REPLY:,} bytes."
                )
            if answer.status // 100 == 2:
                if answer.headers.get("Masquerade-Version") != VERSION:
                    raise ServiceFailed(f"{self._peer.name} answered in a version that it was not offered.")
                return content
            problem = problems.decode(answer.status, content, party=self._peer.name)
            if answer.status not in problems.RETRIED:
                raise problem
            trouble = str(problem)
        raise PartyUnreachable(
            f"{self._peer.name} at {self._peer.url} gave no answer in {self._retries + 1} tries; at last: "
            f"{trouble.rstrip('.')}. Try again later: what was sent is remembered."
        )

    def close(self) -> None:
        """Close the connection; the next message opens another one."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
