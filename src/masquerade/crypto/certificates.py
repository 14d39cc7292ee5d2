"""A private certificate authority for test deployments: issues, rotates and fingerprints certificates.

In production use your organisation's authority; pinning and everything else stay the same.

Both files of a pair are reached through one symbolic link to a folder, so that a rotation replaces
certificate and key in one step: ``hospital.pem`` and ``hospital.key`` point into ``.hospital/current/``.
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
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from masquerade.core.errors import FileError, InputError
from masquerade.core.util.atomic import write_whole

AUTHORITY = "ca"
HOSTS = ("127.0.0.1", "localhost")
DAYS = 365
MOST_REQUEST = 1 << 16  # bytes of a signing request
_AUTHORITY_DAYS = 3650
_EARLIER = timedelta(minutes=5)  # tolerance for clock differences
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_CURVES, _RSA_BITS = ("secp256r1", "secp384r1", "secp521r1"), 2048  # what TLS peers support
_NEVER = "a key is never overwritten"
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


@dataclass(frozen=True)
class Pair:
    """Paths of a certificate and its key, and the fingerprint that peers pin."""

    certificate: Path
    key: Path
    fingerprint: str
    old_fingerprint: str | None = None


def init(folder: str | Path, *, name: str = "masquerade test authority") -> Pair:
    """Create an authority in a folder: ca.pem for all parties, ca.key for its owner only."""
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
    signed = _sign_certificate(name, None, secret.public_key(), secret, _AUTHORITY_DAYS)
    write_whole(key, _private_pem(secret), private=True)
    write_whole(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return Pair(certificate, key, fingerprint(certificate))


def issue(folder: str | Path, name: str, hosts: Sequence[str] = HOSTS, days: int = DAYS) -> Pair:
    """Create name.pem and name.key for a party that serves at these hosts and calls others."""
    place, alternatives = Path(folder), _hosts(name, hosts)
    _check_days(days)
    certificate, key = place / f"{name}.pem", place / f"{name}.key"
    _refuse_to_overwrite(certificate, key, advice=f"{_NEVER} (masquerade tls rotate makes a new pair)")
    try:
        _write_pair(place, name, alternatives, days)
        for path, inside in ((key, "key.pem"), (certificate, "certificate.pem")):
            path.symlink_to(Path(f".{name}") / "current" / inside)
    except OSError as error:
        raise FileError(f"{place}: cannot be written ({os.strerror(error.errno or 5).lower()}).") from None
    return Pair(certificate, key, fingerprint(certificate))


def rotate(folder: str | Path, name: str) -> Pair:
    """Replace a party's key and certificate, in one step, by a new pair for the same hosts and lifetime.

    Until the party has restarted, its peers should accept `old_fingerprint` in addition to `fingerprint`.
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
        _write_pair(place, name, hosts, days)
        shutil.rmtree(before)
    except OSError as error:
        raise FileError(f"{place}: cannot be written ({os.strerror(error.errno or 5).lower()}).") from None
    return Pair(certificate, key, fingerprint(certificate), _fingerprint_of(old))


def request(folder: str | Path, name: str, hosts: Sequence[str] = HOSTS) -> tuple[Path, Path]:
    """Create name.key, which stays where it was made, and name.csr, which goes to the authority.

    Parameters
    ----------
    folder : str or Path
        Folder of the service; it is created if it does not exist.
    name : str
        Name of the service.
    hosts : sequence of str
        Hosts that the request states. The authority itself decides which hosts it signs for.

    Returns
    -------
    tuple of Path
        The request and the key. Only the owner may read the key.

    Raises
    ------
    FileError
        If one of the files exists.
    """
    place, alternatives = Path(folder), _hosts(name, hosts)
    csr, key = place / f"{name}.csr", place / f"{name}.key"
    _refuse_to_overwrite(csr, key)
    secret = ec.generate_private_key(ec.SECP256R1())
    signed = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(_subject(name))
        .add_extension(alternatives, critical=False)
        .sign(secret, hashes.SHA256())
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{place}: cannot be made ({os.strerror(error.errno or 5).lower()}).") from None
    write_whole(key, _private_pem(secret), private=True)
    write_whole(csr, signed.public_bytes(serialization.Encoding.PEM))
    return csr, key


def sign(
    folder: str | Path,
    csr: str | Path,
    name: str,
    hosts: Sequence[str],
    days: int = DAYS,
    *,
    overwrite: bool = False,
) -> Pair:
    """Create name.pem for the public key of a signing request.

    Only the public key is taken from the request. Name, hosts and lifetime of the certificate are the
    arguments of this function: different hosts in the request, or a request to be an authority, have no
    effect.

    Parameters
    ----------
    folder : str or Path
        Folder of the authority.
    csr : str or Path
        The request (PEM).
    name : str
        Name of the service.
    hosts : sequence of str
        Hosts of the service, as the authority knows them.
    days : int, optional
        Days for which the certificate is valid.
    overwrite : bool, optional
        Replace a certificate that was signed earlier for this name.

    Returns
    -------
    Pair
        The certificate. `key` is a path without a file: only the service has the key.

    Raises
    ------
    FileError
        If the file is not a request, or its signature does not fit its key.
    InputError
        If the key is of an unsupported or weak type.
    """
    place, path, alternatives = Path(folder), Path(csr), _hosts(name, hosts)
    _check_days(days)
    certificate, key = place / f"{name}.pem", place / f"{name}.key"
    if certificate.is_symlink() or key.exists() or key.is_symlink():
        raise FileError(f"{certificate}: was issued here with its key; masquerade tls rotate replaces it.")
    if not overwrite:
        _refuse_to_overwrite(certificate, advice="--overwrite replaces it")
    public = _requested_key(path)
    old = _fingerprint_of(_read(certificate)) if certificate.exists() else None
    signed = _certify(place, name, public, alternatives, days)
    write_whole(certificate, signed.public_bytes(serialization.Encoding.PEM))
    return Pair(certificate, key, _fingerprint_of(signed), old)


def expiry(pem_or_path: str | bytes | Path) -> datetime:
    """Return the time at which a certificate expires; of several certificates in a file, the earliest time.

    Parameters
    ----------
    pem_or_path : str, bytes or Path
        One or more certificates as PEM or as a file, or one certificate in DER form.
    """
    if isinstance(pem_or_path, bytes) and b"-----BEGIN" not in pem_or_path:
        try:
            return x509.load_der_x509_certificate(pem_or_path).not_valid_after_utc
        except ValueError:
            raise FileError("The bytes are not a certificate in DER form.") from None
    pem, where = _pem(pem_or_path)
    try:
        return min(one.not_valid_after_utc for one in x509.load_pem_x509_certificates(pem))
    except ValueError:
        raise FileError(f"{where} is not a certificate in PEM form.") from None


def fingerprint(pem_or_path: str | bytes | Path) -> str:
    """Return ``sha256:`` and the digest of a certificate, given as PEM or as a file."""
    return _fingerprint_of(_read(pem_or_path))


def _write_pair(place: Path, name: str, hosts: x509.SubjectAlternativeName, days: int) -> None:
    """Write a new pair into a folder of its own, then let the link `current` point to that folder."""
    secret = ec.generate_private_key(ec.SECP256R1())
    signed = _certify(place, name, secret.public_key(), hosts, days)
    home, generation = place / f".{name}", f"{signed.serial_number:x}"
    home.mkdir(mode=0o755, exist_ok=True)
    (home / generation).mkdir()
    write_whole(home / generation / "key.pem", _private_pem(secret), private=True)
    write_whole(home / generation / "certificate.pem", signed.public_bytes(serialization.Encoding.PEM))
    following = home / "following"
    following.unlink(missing_ok=True)
    following.symlink_to(generation)
    following.replace(home / "current")


def _certify(
    place: Path, name: str, public: PublicKey, hosts: x509.SubjectAlternativeName, days: int
) -> x509.Certificate:
    """Return the certificate of a service's key, signed by the authority in a folder."""
    authority = _read(place / f"{AUTHORITY}.pem")
    signing = _read_key(place / f"{AUTHORITY}.key")
    both_ways = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
    issued_by = x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key())
    return _sign_certificate(name, authority.subject, public, signing, days, both_ways, hosts, issued_by)


def _requested_key(path: Path) -> PublicKey:
    """Return the public key of a signing request after checking the signature and the key's strength."""
    content = _read_bytes(path, MOST_REQUEST)
    try:
        parsed = x509.load_pem_x509_csr(content)
        public = parsed.public_key()
        valid = parsed.is_signature_valid
    except (ValueError, UnsupportedAlgorithm):
        raise FileError(f"{path}: is not a signing request in PEM form.") from None
    if not valid:
        raise FileError(f"{path}: its signature does not fit its key; it was changed, or cut off.")
    if isinstance(public, ec.EllipticCurvePublicKey) and public.curve.name in _CURVES:
        return public
    if isinstance(public, rsa.RSAPublicKey) and public.key_size >= _RSA_BITS:
        return public
    raise InputError(
        f"{path}: has a key of an unsupported type or size; use an elliptic curve ({', '.join(_CURVES)}), "
        f"or RSA with at least {_RSA_BITS} bits."
    )


def _hosts(name: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    """Return the hosts of a certificate after checking its name."""
    if not _NAME.fullmatch(name) or name == AUTHORITY:
        raise InputError(
            f"A certificate is named by letters, digits, '.', '_' and '-', and not {AUTHORITY!r}. "
            f"Got {name!r} instead."
        )
    if not hosts:
        raise InputError("A certificate names at least one host.")
    return x509.SubjectAlternativeName([_host(host) for host in hosts])


def _check_days(days: int) -> None:
    if not 1 <= days <= _AUTHORITY_DAYS:
        raise InputError(f"A certificate is valid for 1 to {_AUTHORITY_DAYS} days. Got {days} instead.")


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _sign_certificate(
    name: str,
    issuer: x509.Name | None,
    key: PublicKey,
    signing: ec.EllipticCurvePrivateKey,
    days: int,
    *extensions: x509.ExtensionType,
) -> x509.Certificate:
    """Return a signed certificate of a key; without an issuer, the certificate of an authority."""
    subject, authority = _subject(name), issuer is None
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
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(authority, 0 if authority else None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
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


def _private_pem(secret: ec.EllipticCurvePrivateKey) -> bytes:
    return secret.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _fingerprint_of(certificate: x509.Certificate) -> str:
    return "sha256:" + certificate.fingerprint(hashes.SHA256()).hex()


def _pem(pem_or_path: str | bytes | Path) -> tuple[bytes, str]:
    """Return PEM text, given directly or as a file, and its name for errors."""
    text = pem_or_path.encode() if isinstance(pem_or_path, str) else pem_or_path
    if isinstance(text, bytes) and b"-----BEGIN" in text:
        return text, "The text"
    path = Path(os.fsdecode(pem_or_path))
    return _read_bytes(path), f"{path}:"


def _read(pem_or_path: str | bytes | Path) -> x509.Certificate:
    pem, where = _pem(pem_or_path)
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError:
        raise FileError(f"{where} is not a certificate in PEM form.") from None


def _read_key(path: Path) -> ec.EllipticCurvePrivateKey:
    try:
        key = serialization.load_pem_private_key(_read_bytes(path), password=None)
    except (ValueError, TypeError):
        raise FileError(f"{path}: is not a private key in PEM form without a password.") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise FileError(f"{path}: is not the key of an authority made here.")
    return key


def _read_bytes(path: Path, most: int | None = None) -> bytes:
    """Return the content of a file; raise FileError if it has more than `most` bytes."""
    try:
        with path.open("rb") as stream:
            data = stream.read(-1 if most is None else most + 1)
    except OSError as error:
        advice = " Make an authority first." if path.stem == AUTHORITY else ""
        reason = os.strerror(error.errno or 5).lower()
        raise FileError(f"{path}: cannot be read ({reason}).{advice}") from None
    if most is not None and len(data) > most:
        raise FileError(f"{path}: is too long: at most {most:,} bytes are read.")
    return data


def _refuse_to_overwrite(*paths: Path, advice: str = _NEVER) -> None:
    for path in paths:
        if path.exists() or path.is_symlink():
            raise FileError(f"{path}: exists already; {advice}.")
