"""Peers, authenticated by a pinned certificate or a token, and TLS contexts that check certificates."""

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
    """Another party: its address and credentials.

    `fingerprints` are the fingerprints of its certificate as server and client: two while the certificate is
    being replaced. `token_digest` is the digest of the token that the peer sends to this service; `token` is
    the token that this service sends to the peer.
    """

    name: str
    url: str | None = None
    fingerprints: tuple[str, ...] = ()
    token_digest: str | None = None
    token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Normalize fingerprints."""
        object.__setattr__(
            self, "fingerprints", tuple(normalize_fingerprint(each) for each in self.fingerprints)
        )


def normalize_fingerprint(fingerprint: str) -> str:
    """Return a fingerprint in the form `sha256:` and lower-case digits, from any usual form.

    >>> normalize_fingerprint("AB:" * 31 + "AB")[:15]
    'sha256:abababab'
    """
    digits = fingerprint.strip().lower().removeprefix("sha256:").replace(":", "")
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise InputError(
            f"A fingerprint is 'sha256:' and 64 hexadecimal digits. Got {fingerprint!r} instead."
        )
    return f"sha256:{digits}"


def der_fingerprint(certificate_der: bytes) -> str:
    """Return the fingerprint of a certificate in DER form."""
    return "sha256:" + sha256(certificate_der).hexdigest()


def by_name(peers: Iterable[Peer]) -> dict[str, Peer]:
    """Return peers by name; raise InputError if two share a name, a certificate or a token."""
    admitted = tuple(peers)
    for what, marks in (
        ("name", [peer.name for peer in admitted]),
        ("fingerprint", [mark for peer in admitted for mark in set(peer.fingerprints)]),
        ("token digest", [peer.token_digest for peer in admitted if peer.token_digest is not None]),
    ):
        twice = sorted({mark for mark in marks if marks.count(mark) > 1})
        if twice:
            raise InputError(f"Two peers have the {what} {twice[0]!r}. Each needs its own.")
    return {peer.name: peer for peer in admitted}


def recognise(peers: Iterable[Peer], certificate_der: bytes | None, bearer: str | None) -> Peer:
    """Return the peer that a caller authenticates as.

    A certificate must be pinned for a peer, even if the authority signed it. If a caller shows both a
    certificate and a token, both must belong to the same peer.

    Parameters
    ----------
    peers : iterable of Peer
        Peers that are admitted.
    certificate_der : bytes or None
        Certificate of the connection.
    bearer : str or None
        Token of the request.

    Returns
    -------
    Peer
        The caller.

    Raises
    ------
    NotAdmitted
        If the caller shows no credentials, or credentials that do not belong to one peer.
    """
    admitted = tuple(peers)
    if certificate_der is None and bearer is None:
        raise NotAdmitted("Show a certificate or a bearer token: neither came with this request.")
    matches: list[Peer] = []
    if certificate_der is not None:
        mark = der_fingerprint(certificate_der)
        matches += _only([peer for peer in admitted if mark in peer.fingerprints], f"The certificate {mark}")
    if bearer is not None:
        # all digests are compared, so that the time taken does not reveal which token was close
        matching = [token_matches(bearer, peer.token_digest or "") for peer in admitted]
        matches += _only(
            [peer for peer, same in zip(admitted, matching, strict=True) if same], "The bearer token"
        )
    if len({peer.name for peer in matches}) != 1:
        raise NotAdmitted("The certificate and the bearer token belong to different peers.")
    return matches[0]


def _only(matches: list[Peer], shown: str) -> list[Peer]:
    if len(matches) != 1:
        raise NotAdmitted(f"{shown} does not belong to a peer of this service.")
    return matches


_PEM = "-----BEGIN CERTIFICATE-----"


class TlsFiles(NamedTuple):
    """Paths of TLS files, all None without TLS; a client's `authority` may be PEM text instead of a path."""

    certificate: str | Path | None = None
    key: str | Path | None = None
    authority: str | Path | None = None


PLAIN = TlsFiles()


def server_context(
    tls: TlsFiles, *, certificates_required: bool, refused: Callable[[str], None]
) -> ssl.SSLContext | None:
    """Return the TLS context of a server, None without TLS; `refused` is called with handshake errors."""
    certificate, key, authority = tls
    if certificate is None or key is None:
        if any(tls):
            raise InputError("TLS needs a certificate and its key; an authority alone is not enough.")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.num_tickets = 0  # no session resumption: every connection shows its certificate
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
        """A connection whose failed handshake is logged; asyncio drops it silently."""

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
    """TLS context of a client that only connects to servers with a pinned certificate."""

    peer: Peer

    def wrap_socket(self, *given: Any, **named: Any) -> ssl.SSLSocket:
        """Complete the handshake; raise NotAdmitted and close the socket if the certificate is not pinned."""
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
                f"{self.peer.name!r}. Nothing was sent. If it was rotated, ask that party for the new one."
            )

    def wrap_bio(self, *_: Any, **__: Any) -> ssl.SSLObject:
        """Raise InputError: connections without a socket would bypass the check."""
        raise InputError("A pinned connection is made over a socket.")


def client_context(peer: Peer, tls: TlsFiles) -> PinnedContext:
    """Return the TLS context of a client for a peer: it checks the authority and the pinned fingerprint."""
    if not peer.fingerprints:
        raise InputError(f"Party {peer.name!r} has no pinned fingerprint: ask the party for it, and add it.")
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
