"""Who is at the other end, by a pinned certificate or a token; and TLS, which shows and checks that."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

from masquerade.core.errors import FileError, InputError
from masquerade.crypto.keys import token_matches
from masquerade.services.common.problems import NotAdmitted


@dataclass(frozen=True)
class Peer:
    """Another party: where it is, and how it is known.

    `fingerprints` are those of its certificate, old and new while it rotates, whether it serves or calls.
    `token_digest` belongs to the token that it shows to us, `token` is the one that we show to it.
    """

    name: str
    url: str | None = None
    fingerprints: tuple[str, ...] = ()
    token_digest: str | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Write fingerprints one way."""
        object.__setattr__(self, "fingerprints", tuple(written(each) for each in self.fingerprints))


def written(fingerprint: str) -> str:
    """Return a fingerprint as we write it, from any usual way of writing it.

    >>> written("AB:" * 31 + "AB")[:15]
    'sha256:abababab'
    """
    digits = fingerprint.strip().lower().removeprefix("sha256:").replace(":", "")
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise InputError(
            f"A fingerprint is 'sha256:' and 64 hexadecimal digits. Got {fingerprint!r} instead."
        )
    return f"sha256:{digits}"


def der_fingerprint(certificate_der: bytes) -> str:
    """Return the fingerprint of a certificate in its binary form."""
    return "sha256:" + sha256(certificate_der).hexdigest()


def by_name(peers: Iterable[Peer]) -> dict[str, Peer]:
    """Return peers by name; no two may share a name, a certificate or a token."""
    known = tuple(peers)
    for what, marks in (
        ("name", [peer.name for peer in known]),
        ("fingerprint", [mark for peer in known for mark in set(peer.fingerprints)]),
        ("token digest", [peer.token_digest for peer in known if peer.token_digest is not None]),
    ):
        twice = sorted({mark for mark in marks if marks.count(mark) > 1})
        if twice:
            raise InputError(f"Two peers have the {what} {twice[0]!r}. Each needs its own.")
    return {peer.name: peer for peer in known}


def recognise(peers: Iterable[Peer], certificate_der: bytes | None, bearer: str | None) -> Peer:
    """Return the peer that a caller is, or raise `NotAdmitted`.

    A certificate that is shown must be pinned for a peer, whoever signed it; a token that is shown must be a
    peer's; where both are shown they must be the same peer's.
    """
    known = tuple(peers)
    if certificate_der is None and bearer is None:
        raise NotAdmitted("Show a certificate or a bearer token: neither came with this request.")
    found: list[Peer] = []
    if certificate_der is not None:
        mark = der_fingerprint(certificate_der)
        found += _only([peer for peer in known if mark in peer.fingerprints], f"The certificate {mark}")
    if bearer is not None:
        # every digest is compared, so the time taken does not tell whose token came close
        matching = [token_matches(bearer, peer.token_digest or "") for peer in known]
        found += _only([peer for peer, same in zip(known, matching, strict=True) if same], "The bearer token")
    if len({peer.name for peer in found}) != 1:
        raise NotAdmitted("The certificate and the bearer token belong to different peers.")
    return found[0]


def _only(found: list[Peer], shown: str) -> list[Peer]:
    if len(found) != 1:
        raise NotAdmitted(f"{shown} is not one of a peer's that this service knows.")
    return found


_PEM = "-----BEGIN CERTIFICATE-----"


class TlsFiles(NamedTuple):
    """The files that make a connection private, or none; a client may have the authority itself as text."""

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
        elif str(tls.authority).startswith(_PEM):
            context.load_verify_locations(cadata=str(tls.authority))
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
