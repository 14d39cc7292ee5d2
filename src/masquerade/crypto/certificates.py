"""A private authority for a test deployment: certificates for parties, made, replaced, fingerprinted.

In production an organisation's own authority takes this place; pinning and the rest stay the same.

A pair is reached through one link that names its folder, so that a rotation replaces certificate and key
in one step: ``hospital.pem`` and ``hospital.key`` point into ``.hospital/current/``.
"""

from __future__ import annotations

import ipaddress
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole

AUTHORITY = "ca"
HOSTS = ("127.0.0.1", "localhost")
DAYS = 365
_AUTHORITY_DAYS = 3650
_EARLIER = timedelta(minutes=5)  # clocks differ
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass(frozen=True)
class Pair:
    """A certificate and its key: where they are, and how others pin them."""

    certificate: Path
    key: Path
    fingerprint: str
    old_fingerprint: str | None = None


def init(folder: str | Path, *, name: str = "masquerade test authority") -> Pair:
    """Make an authority in a folder: ca.pem for everybody, ca.key for its owner alone."""
    place = Path(folder)
    if not 1 <= len(name) <= 64:
        raise InputError(f"The name of an authority has from 1 to 64 characters. Got {len(name)} instead.")
    certificate, key = place / f"{AUTHORITY}.pem", place / f"{AUTHORITY}.key"
    _refuse_to_overwrite(certificate, key)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{place}: cannot be made ({os.strerror(error.errno or 5).lower()}).") from None
    secret = ec.generate_private_key(ec.SECP256R1())
    signed = _signed(name, None, secret, secret, _AUTHORITY_DAYS)
    write_whole(key, _private(secret), private=True)
    write_whole(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return Pair(certificate, key, fingerprint(certificate))


def issue(folder: str | Path, name: str, hosts: Sequence[str] = HOSTS, days: int = DAYS) -> Pair:
    """Make name.pem and name.key for a party that serves at these hosts and calls others."""
    place = Path(folder)
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise InputError(
            f"A certificate is named by letters, digits, '.', '_' and '-', and not {AUTHORITY!r}. "
            f"Got {name!r} instead."
        )
    if not hosts:
        raise InputError("A certificate names at least one host.")
    if not 1 <= days <= _AUTHORITY_DAYS:
        raise InputError(f"A certificate holds from 1 to {_AUTHORITY_DAYS} days. Got {days} instead.")
    certificate, key = place / f"{name}.pem", place / f"{name}.key"
    _refuse_to_overwrite(certificate, key, advice=" (masquerade tls rotate makes a new pair)")
    alternatives = x509.SubjectAlternativeName([_host(host) for host in hosts])
    try:
        _put(place, name, alternatives, days)
        for path, inside in ((key, "key.pem"), (certificate, "certificate.pem")):
            path.symlink_to(Path(f".{name}") / "current" / inside)
    except OSError as error:
        raise FileError(f"{place}: cannot be written ({os.strerror(error.errno or 5).lower()}).") from None
    return Pair(certificate, key, fingerprint(certificate))


def rotate(folder: str | Path, name: str) -> Pair:
    """Replace a party's key and certificate by new ones for the same hosts and as many days, both at once.

    Until the party has started anew, its peers should accept `old_fingerprint` beside `fingerprint`.
    """
    place = Path(folder)
    certificate, key = place / f"{name}.pem", place / f"{name}.key"
    current = place / f".{name}" / "current"
    if not _NAME.fullmatch(name) or not current.is_symlink() or not certificate.is_symlink():
        raise FileError(f"{certificate}: was not issued here; issue it before rotating it.")
    old = _read(certificate)
    hosts = old.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    days = (old.not_valid_after_utc - old.not_valid_before_utc - _EARLIER).days
    before = current.resolve()
    try:
        _put(place, name, hosts, days)
        shutil.rmtree(before)
    except OSError as error:
        raise FileError(f"{place}: cannot be written ({os.strerror(error.errno or 5).lower()}).") from None
    return Pair(certificate, key, fingerprint(certificate), _mark(old))


def fingerprint(pem_or_path: str | bytes | Path) -> str:
    """Return ``sha256:`` and the digest of a certificate, given as PEM or as a file."""
    return _mark(_read(pem_or_path))


def _put(place: Path, name: str, hosts: x509.SubjectAlternativeName, days: int) -> None:
    """Write a new pair into a folder of its own, and then make it the current one."""
    authority = _read(place / f"{AUTHORITY}.pem")
    signing = _read_key(place / f"{AUTHORITY}.key")
    secret = ec.generate_private_key(ec.SECP256R1())
    both_ways = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    signed = _signed(name, authority.subject, secret, signing, days, both_ways, hosts, issued_by)
    home, generation = place / f".{name}", f"{signed.serial_number:x}"
    home.mkdir(mode=0o755, exist_ok=True)
    (home / generation).mkdir()
    write_whole(home / generation / "key.pem", _private(secret), private=True)
    write_whole(home / generation / "certificate.pem", signed.public_bytes(serialization.Encoding.PEM))
    following = home / "following"
    following.unlink(missing_ok=True)
    following.symlink_to(generation)
    following.replace(home / "current")


def _signed(
    name: str,
    issuer: x509.Name | None,
    key: ec.EllipticCurvePrivateKey,
    signing: ec.EllipticCurvePrivateKey,
    days: int,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """Return a certificate of a key, of an authority where nobody issues it, signed."""
    subject, authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), issuer is None
    now = datetime.now(UTC).replace(microsecond=0)
    usage = x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer or subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    for extension in extensions:
        builder = builder.add_extension(extension, critical=False)
    return builder.sign(signing, hashes.SHA256())


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        return x509.DNSName(host)
    except ValueError:
        raise InputError(f"A host is an address or a name in ASCII. Got {host!r} instead.") from None


def _private(secret: ec.EllipticCurvePrivateKey) -> bytes:
    return secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _mark(certificate: x509.Certificate) -> str:
    return "sha256:" + certificate.fingerprint(hashes.SHA256()).hex()


def _read(pem_or_path: str | bytes | Path) -> x509.Certificate:
    text = pem_or_path.encode() if isinstance(pem_or_path, str) else pem_or_path
    if isinstance(text, bytes) and b"-----BEGIN" in text:
        pem, where = text, "The text"
    else:
        path = Path(os.fsdecode(pem_or_path))
        pem, where = _content(path), f"{path}:"
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise FileError(f"{where} is not a certificate in PEM form.") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_content(path), password=None)
    except (ValueError, TypeError):
        raise FileError(f"{path}: is not a private key in PEM form without a password.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FileError(f"{path}: is not the key of an authority made here.")
    return key


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        advice = " Make an authority first." if path.stem == AUTHORITY else ""
        reason = os.strerror(error.errno or 5).lower()
        raise FileError(f"{path}: cannot be read ({reason}).{advice}") from None


def _refuse_to_overwrite(*paths: Path, advice: str = "") -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise FileError(f"{path}: exists already; a key is never overwritten{advice}.")
