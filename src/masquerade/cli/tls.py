"""`masquerade tls`: certificates, tokens and identities for a deployment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from masquerade.cli.options import Json, argument, group, option
from masquerade.cli.output import emit, say
from masquerade.core.util.atomic import write_new

if TYPE_CHECKING:
    from masquerade.crypto.certificates import Pair

tls_app = group("Make certificates, tokens and identities for services.")
Folder = Annotated[Path, argument("The folder of the authority.", "FOLDER")]
Name = Annotated[str, argument("The name of the service, as its peers call it.", "NAME")]


@tls_app.command("init")
def init(
    folder: Folder,
    *,
    name: Annotated[
        str, option("What the authority is called in certificates.")
    ] = "masquerade test authority",
    json: Json = False,
) -> None:
    """Make a private authority: ca.pem, which every service gets, and ca.key, which stays here.

    Example: masquerade tls init tls
    """
    from masquerade.crypto import certificates  # noqa: PLC0415  (loads cryptography)

    made = certificates.init(folder, name=name)
    _show(made, json=json)
    say(f"made an authority in {folder}: ca.pem is for every service, ca.key for nobody else.")


@tls_app.command("issue")
def issue(
    folder: Folder,
    name: Name,
    *,
    host: Annotated[
        list[str] | None,
        option("A name or address it is reached at; may be given several times."),
    ] = None,
    days: Annotated[int, option("How long the certificate holds.")] = 365,
    json: Json = False,
) -> None:
    """Make a key and a certificate for a service, and print the fingerprint that its peers pin.

    Without --host it is for this machine alone. Example: masquerade tls issue tls north --host north.example
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    _show(certificates.issue(folder, name, tuple(host) if host else certificates.HOSTS, days), json=json)


@tls_app.command("rotate")
def rotate(folder: Folder, name: Name, *, json: Json = False) -> None:
    """Replace a service's key and certificate; print the new fingerprint and the old one.

    Peers list both fingerprints until the service has been started again.
    """
    from masquerade.crypto import certificates  # noqa: PLC0415

    made = certificates.rotate(folder, name)
    _show(made, json=json)
    say("first the new fingerprint, then the old one: peers list both until the service was restarted.")


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
    """Make a token in a file of its own and print its digest.

    The file goes to the service that shows the token (token_file), the digest to the one that is shown it
    (token_digest). Example: masquerade tls token north.token
    """
    from masquerade.crypto.keys import new_token, token_digest  # noqa: PLC0415

    made = new_token()
    write_new(file, made + "\n", what="a token")
    emit(token_digest(made) + "\n")


@tls_app.command("identity")
def identity(
    file: Annotated[Path, argument("The new file for the identity.", "FILE")],
) -> None:
    """Make the key that a service signs with, in a file of its own, and print its public part."""
    from masquerade.crypto.keys import create_identity  # noqa: PLC0415

    emit(create_identity(file).public.hex() + "\n")


def _show(made: Pair, *, json: bool) -> None:
    """Print the fingerprint of a certificate, and of the one it replaced."""
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
