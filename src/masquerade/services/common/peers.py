"""Who is at the other end: peers known by a pinned certificate, by the digest of a token, or by both."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from masquerade.core.errors import InputError
from masquerade.crypto.keys import token_matches
from masquerade.services.common.problems import NotAdmitted


@dataclass(frozen=True)
class Peer:
    """Another party: where it is, and how it is known.

    `fingerprints` are those of its certificate, old and new while it rotates, whether it serves or calls.
    `token_digest` belongs to the token that it shows to us, `token` is the one that we show to it.
    `identity` is the public part of the key it signs with, as hex text.
    """

    name: str
    url: str | None = None
    fingerprints: tuple[str, ...] = ()
    token_digest: str | None = None
    token: str | None = field(default=None, repr=False)
    identity: str | None = None

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


def by_name(peers: Iterable[Peer] | Mapping[str, Peer]) -> dict[str, Peer]:
    """Return peers by name; no two may share a name, a certificate or a token."""
    known = tuple(peers.values() if isinstance(peers, Mapping) else peers)
    for what, marks in (
        ("name", [peer.name for peer in known]),
        ("fingerprint", [mark for peer in known for mark in set(peer.fingerprints)]),
        ("token digest", [peer.token_digest for peer in known if peer.token_digest is not None]),
    ):
        twice = sorted({mark for mark in marks if marks.count(mark) > 1})
        if twice:
            raise InputError(f"Two peers have the {what} {twice[0]!r}. Each needs its own.")
    return {peer.name: peer for peer in known}


def recognise(
    peers: Iterable[Peer] | Mapping[str, Peer], certificate_der: bytes | None, bearer: str | None
) -> Peer:
    """Return the peer that a caller is, or raise `NotAdmitted`.

    A certificate that is shown must be pinned for a peer, whoever signed it; a token that is shown must be a
    peer's; where both are shown they must be the same peer's.
    """
    known = tuple(peers.values() if isinstance(peers, Mapping) else peers)
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
