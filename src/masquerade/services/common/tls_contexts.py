"""TLS on both sides: what a server shows and asks for, and which server a client goes on talking to."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from masquerade.core.errors import FileError, InputError
from masquerade.services.common.peers import Peer, der_fingerprint
from masquerade.services.common.problems import NotAdmitted


class TlsFiles(NamedTuple):
    """The files that make a connection private, or none."""

    certificate: str | Path | None = None
    key: str | Path | None = None
    authority: str | Path | None = None


PLAIN = TlsFiles()


def server_context(
    tls: TlsFiles, *, certificates_required: bool, refused: Callable[[str], None]
) -> ssl.SSLContext | None:
    """Return how a server secures connections, None without TLS; `refused` hears of failed handshakes."""
    certificate, key, authority = tls
    if certificate is None or key is None:
        if any(tls):
            raise InputError("TLS needs a certificate and its key; an authority alone is not enough.")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0  # every connection shows its certificate anew
    context.sslobject_class = _logged_connection(refused)
    try:
        context.load_cert_chain(certificate, key)
        if authority is not None:
            context.load_verify_locations(authority)
            context.verify_mode = ssl.CERT_REQUIRED if certificates_required else ssl.CERT_OPTIONAL
    except (OSError, ssl.SSLError):
        raise _unusable(tls) from None
    return context


def _logged_connection(refused: Callable[[str], None]) -> type[ssl.SSLObject]:
    class LoggedConnection(ssl.SSLObject):
        """A connection whose failed handshake is logged: asyncio drops it without a word."""

        def do_handshake(self) -> None:
            try:
                super().do_handshake()
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                raise
            except ssl.SSLError as error:
                refused(error.reason or type(error).__name__)
                raise

    return LoggedConnection


class PinnedContext(ssl.SSLContext):
    """TLS to one peer: a connection exists only after its certificate was found among the pinned ones."""

    peer: Peer

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Do the handshake, and close the connection unless the certificate is pinned."""
        wrapped = super().wrap_socket(*given, **named)
        try:
            self._check(wrapped.getpeercert(binary_form=True))
        except BaseException:
            wrapped.close()
            raise
        return wrapped

    def _check(self, shown: bytes | None) -> None:
        mark = "nothing" if shown is None else der_fingerprint(shown)
        if mark not in self.peer.fingerprints:
            raise NotAdmitted(
                f"The server at {self.peer.url} shows the certificate {mark}, which is not pinned for "
                f"{self.peer.name!r}. Nothing was sent. If it was rotated, get the new fingerprint from them."
            )

    def wrap_bio(self, *_: Any, **__: Any) -> ssl.SSLObject:
        """Refuse the other way to connect: it would go around the check."""
        raise InputError("A pinned connection is made over a socket.")


def client_context(peer: Peer, tls: TlsFiles) -> PinnedContext:
    """Return how a client secures connections to a peer: by the authority and by the pinned fingerprint."""
    if not peer.fingerprints:
        raise InputError(f"Party {peer.name!r} has no pinned fingerprint: get it from them, and add it.")
    context = PinnedContext(ssl.PROTOCOL_TLS_CLIENT)  # checks the chain and the host's name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.peer = peer
    try:
        if tls.authority is None:
            context.load_default_certs()
        else:
            context.load_verify_locations(tls.authority)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except (OSError, ssl.SSLError):
        raise _unusable(tls) from None
    return context


def _unusable(tls: TlsFiles) -> FileError:
    return FileError(
        f"The certificate {tls.certificate}, the key {tls.key} or the authority {tls.authority} cannot be "
        "used: they must be readable PEM files, and certificate and key a pair."
    )
