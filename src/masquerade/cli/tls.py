"""`masquerade tls`: certificates, tokens and identities for a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from masquerade.cli.options import Json, Overwrite, argument, group, option, required_option
from masquerade.cli.output import emit, say
from masquerade.core.util.atomic import write_new

if TYPE_CHECKING:
    from masquerade.crypto.certificates import Pair

tls_app = group("Make certificates, tokens and identities for services.")
Folder = Annotated[Path, argument("The folder of the authority.", "FOLDER")]
Name = Annotated[str, argument("The name by which its peers know the service.", "NAME")]

Hosts = Annotated[list[str] | None, option("A host name or address of the service; may be repeated.")]
Days = Annotated[int, option("Days for which the certificate is valid.")]


@tls_app.command("init")
def init(
    folder: Folder,
    *,
    name: Annotated[str, option("Name of the authority in certificates.")] = "masquerade test authority",
    json: Json = False,
) -> None:
    """Make a private certificate authority: ca.pem for every service, and ca.key, which stays here.

    Example: masquerade tls init tls
    """
    from masquerade.crypto import certificates  # noqa: PLC0415  (loads cryptography)

    made = certificates.init(folder, name=name)
    _show(made, json=json)
    say(f"made an authority in {folder}: give ca.pem to every service, and ca.key to no one.")


@tls_app.command("issue")
def issue(
    folder: Folder,
    name: Name,
    *,
    host: Hosts = None,
    days: Days = 365,
    json: Json = False,
) -> None:
    """Make a key and a certificate for a service, and print the fingerprint that its peers pin.

    Without --host, the certificate is valid only on this machine (localhost).

    Example: masquerade tls issue tls north --host north.example
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    _show(certificates.issue(folder, name, tuple(host) if host else certificates.HOSTS, days), json=json)


@tls_app.command("request")
def request(
    name: Name,
    *,
    host: Hosts = None,
    out: Annotated[Path, option("The folder for both files.", "FOLDER", "--out")] = Path(),
    json: Json = False,
) -> None:
    """Make a key here, where it stays, and a signing request for the authority: NAME.key and NAME.csr.

    Only the request leaves this machine.

    Example: masquerade tls request north --host north.example
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    csr, key = certificates.request(out, name, tuple(host) if host else certificates.HOSTS)
    emit({"request": str(csr), "key": str(key)} if json else f"{csr}\n")
    say(f"made {key}, which stays on this machine: send only {csr.name} to the authority.")


@tls_app.command("sign")
def sign(
    folder: Folder,
    request: Annotated[Path, argument("The signing request of a service (PEM).", "NAME.csr")],
    *,
    host: Annotated[
        list[str],
        required_option("A host name or address of the service; may be repeated.", "--host", metavar="TEXT"),
    ],
    name: Annotated[
        str | None, option("The name of the service.", show_default="the name of the request's file")
    ] = None,
    days: Days = 365,
    overwrite: Overwrite = False,
    json: Json = False,
) -> None:
    """Sign the key in a request, and print the fingerprint that peers pin.

    Only the key is taken from the request, after its signature is checked. Name, hosts and days are given by
    the options.

    Example: masquerade tls sign tls north.csr --host north.example
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    called = request.name.removesuffix(".csr") if name is None else name
    signed = certificates.sign(folder, request, called, tuple(host), days, overwrite=overwrite)
    _show(signed, json=json)
    say(f"signed {signed.certificate}: give it and ca.pem to the service, and the fingerprint to its peers.")


@tls_app.command("rotate")
def rotate(folder: Folder, name: Name, *, json: Json = False) -> None:
    """Replace a service's key and certificate; print the new and the old fingerprint.

    Peers list both fingerprints until the service has been restarted.
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    made = certificates.rotate(folder, name)
    _show(made, json=json)
    say("first the new fingerprint, then the old one: peers list both until the service has been restarted.")


@tls_app.command("fingerprint")
def fingerprint(
    certificate: Annotated[Path, argument("A certificate (PEM).", "CERTIFICATE")],
) -> None:
    """Print the fingerprint of a certificate, as peers pin it."""
    from masquerade.crypto import certificates  # noqa: PLC0415

    emit(certificates.fingerprint(certificate) + "\n")


@tls_app.command("token")
def token(
    file: Annotated[Path, argument("The new file for the token.", "FILE")],
) -> None:
    """Make a token in a new file and print its digest.

    The file goes to the service that presents the token (token_file), the digest to the service that checks
    it (token_digest).

    Example: masquerade tls token north.token
    """
    from masquerade.crypto.keys import new_token, token_digest  # noqa: PLC0415

    made = new_token()
    write_new(file, made + "\n", what="a token")
    emit(token_digest(made) + "\n")


@tls_app.command("identity")
def identity(
    file: Annotated[Path, argument("The new file for the identity.", "FILE")],
) -> None:
    """Make a service's signing key in a new file, and print its public key."""
    from masquerade.crypto.keys import create_identity  # noqa: PLC0415

    emit(create_identity(file).public.hex() + "\n")


def _show(made: Pair, *, json: bool) -> None:
    """Print the fingerprint of a certificate, and the fingerprint of the certificate that it replaced."""
    if json:
        figures = {
            "certificate": str(made.certificate),
            "key": str(made.key),
            "fingerprint": made.fingerprint,
            "old_fingerprint": made.old_fingerprint,
        }
        emit(figures)
        return
    emit("".join(f"{text}\n" for text in (made.fingerprint, made.old_fingerprint) if text is not None))
