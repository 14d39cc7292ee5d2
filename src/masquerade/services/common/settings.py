"""Models of the settings that all services share, and loading of settings files.

A settings file is YAML. It contains no secrets: keys and tokens are in separate files, which only the owner
may read, or are represented by a digest. A relative path is relative to the folder of the settings file.

::

    listen: {host: 0.0.0.0, port: 8443}
    tls: {certificate: tls/north.pem, key: tls/north.key, authority: tls/ca.pem}
    limits: {body_bytes: 64 MiB, seconds: 60}
    peers:
      miner: {url: "https://miner.example:8443", fingerprints: ["sha256:…"]}

`MASQUERADE_LISTEN__PORT=9000` in the environment overrides `listen.port`.
"""

from __future__ import annotations

import ipaddress
import os
import re
import ssl
import stat
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from masquerade.core.errors import FileError, InputError
from masquerade.services.common.peers import PLAIN, Peer, TlsFiles
from masquerade.services.common.settings_file import explain, override, read

M = TypeVar("M", bound=BaseModel)
UNITS: Final = {"": 1, "B": 1} | {
    f"{prefix}{end}": base**power
    for power, prefix in enumerate("KMGT", start=1)
    for end, base in (("B", 1000), ("IB", 1024))
}
MIB: Final = 1 << 20
HAS_MODES: Final = os.name == "posix"
DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


class Strict(BaseModel):
    """Base model of a section of a settings file: immutable, and unknown keys are refused.

    The string below a field is its description, which docs/settings.md shows.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )


def size(value: object) -> object:
    """Return a number of bytes, written plainly or with a unit.

    >>> size("64 MiB"), size("1.5 kB"), size(10)
    (67108864, 1500, 10)
    """
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*([0-9][0-9_]*(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].upper() not in UNITS:
        raise ValueError("must be a number of bytes, such as 1048576, 64 MiB or 2 GB.")
    try:
        exact = Decimal(match[1].replace("_", "")) * UNITS[match[2].upper()]
    except InvalidOperation:
        exact = Decimal("0.5")
    if exact != int(exact):
        raise ValueError("must be a whole number of bytes.")
    return int(exact)


def _file_name(value: object) -> object:
    """Raise ValueError for text that cannot be a file name, such as a secret written in its place."""
    if isinstance(value, (str, Path)) and (
        not str(value) or len(str(value)) > 1024 or not str(value).isprintable()
    ):
        raise ValueError("must be the name of a file; keys and tokens are never written into the settings.")
    return value


def _from_its_folder(value: Path, info: ValidationInfo) -> Path:
    """Resolve a path against the folder of the settings file that is loaded."""
    folder = (info.context or {}).get("folder")
    return value if folder is None else Path(os.path.normpath(folder / value.expanduser()))


def _digest(value: str) -> str:
    kind, _, digits = value.strip().lower().partition(":")
    text = f"{kind}:{digits.replace(':', '')}"
    if not DIGEST.fullmatch(text):
        raise ValueError("must be 'sha256:' and 64 hexadecimal digits, as masquerade tls prints it.")
    return text


def _public_key(value: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", value.strip().lower()):
        raise ValueError("must be 64 hexadecimal digits, as masquerade tls identity prints it.")
    return value.strip().lower()


def _url(value: str) -> str:
    text = value.strip().rstrip("/")
    try:
        parts = urlsplit(text)
        host, _ = parts.hostname, parts.port
    except ValueError:
        host, parts = None, urlsplit("")
    if not host or parts.scheme not in ("http", "https") or parts.query or parts.fragment:
        raise ValueError("must be an address such as https://north.example:8443.")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold a user or password; give token_file instead.")
    if parts.scheme == "http" and not is_loopback(host):
        raise ValueError("must begin with https://; only this machine may be called without encryption.")
    return text


def is_loopback(host: str) -> bool:
    """Return True if a host name or address is this machine itself, without a lookup."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class _MustExist:
    """Marks a path whose file must exist; see `check_files`."""


class _OwnerOnly(_MustExist):
    """Marks the path of a secret: only its owner may read that file."""


Bytes = Annotated[int, BeforeValidator(size), Field(ge=1)]
Digest = Annotated[str, AfterValidator(_digest)]
PublicKey = Annotated[str, AfterValidator(_public_key)]
Url = Annotated[str, AfterValidator(_url)]
AnyPath = Annotated[Path, BeforeValidator(_file_name), AfterValidator(_from_its_folder)]
PublicFile = Annotated[AnyPath, _MustExist()]
SecretFile = Annotated[AnyPath, _OwnerOnly()]
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]


class Limits(Strict):
    """Limits on sizes, times and concurrent requests of a service; anything beyond is refused."""

    body_bytes: Bytes = 64 * MIB
    """The longest message, received or sent."""
    reply_bytes: Bytes = 64 * MIB
    """The longest reply, sent or received."""
    rows: int = Field(default=20_000_000, ge=1)
    """In sessions: the most records that a party links, and that a node accepts from one party."""
    cells: int = Field(default=2**24, ge=1)
    """In sessions of pooled counts: the most cells of all tables in one batch of queries."""
    concurrency: int = Field(default=8, ge=1, le=1024)
    """The most concurrent requests; further callers are asked to try again later."""
    arrow_bytes: Bytes = 256 * MIB
    """In sessions: the most bytes of a decompressed Arrow body, in which records of a party are sent."""
    seconds: float = Field(default=60.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds for a message to arrive, for its caller to wait, and in sessions for one call to a peer."""


class Probe(Strict):
    """A second address for probes: plain HTTP without certificates, `/health` and `/ready` only."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address or name to listen at."""
    port: int = Field(ge=1, le=65_535)
    """The port."""


class Listen(Strict):
    """The address of a service."""

    host: str = Field(default="127.0.0.1", min_length=1)
    """The address or name to listen at. Without `tls` it must be an address of this machine."""
    port: int = Field(default=8443, ge=0, le=65_535)
    """The port; 0 for any free port."""
    probe: Probe | None = None
    """The address for probes without a certificate. Without it, probes need one, like all other callers."""

    @property
    def probe_address(self) -> tuple[str, int] | None:
        """Return the host and port for probes, None without them."""
        return None if self.probe is None else (self.probe.host, self.probe.port)


class Tls(Strict):
    """The certificate and key of the service, and the authority of its peers' certificates."""

    certificate: PublicFile
    """The certificate of this service (PEM), as server and as client."""
    key: SecretFile
    """The private key of that certificate (PEM)."""
    authority: PublicFile | None = None
    """Authority of peers' certificates (PEM). By default the system's; callers then show no certificate."""

    def files(self) -> TlsFiles:
        """Return the files for servers and clients."""
        return TlsFiles(self.certificate, self.key, self.authority)


class PeerSettings(Strict):
    """Another service: its address and credentials."""

    url: Url | None = None
    """The address of the peer; not needed for a peer that only calls this service."""
    fingerprints: tuple[Digest, ...] = ()
    """Pinned fingerprints of the peer's certificate (`masquerade tls fingerprint`); two while it changes."""
    token_digest: Digest | None = None
    """The digest of the token that the peer sends to this service (`masquerade tls token` prints it)."""
    token_file: SecretFile | None = None
    """The token that this service sends to the peer."""
    identity: PublicKey | None = None
    """The peer's public signing key (`masquerade tls identity`); parties and helpers of sessions need one."""

    def peer(self, name: str) -> Peer:
        """Return the peer for servers and clients, with the token read from `token_file`."""
        token = None if self.token_file is None else self.token_file.read_text().strip()
        return Peer(name, self.url, self.fingerprints, self.token_digest, token)

    @model_validator(mode="after")
    def _recognisable(self) -> Self:
        if not (self.url or self.fingerprints or self.token_digest or self.identity):
            raise ValueError("needs a url to reach it, or fingerprints or a token_digest to recognise it by.")
        return self


class NodeSettings(Strict):
    """Settings that all nodes have."""

    STARTED_BY: ClassVar[str] = "masquerade party serve or masquerade miner serve"
    masquerade: Literal[1]
    """The version of the format, 1."""
    name: Name
    """The name of this service; in sessions all nodes use it."""
    listen: Listen = Listen()
    """The address of this service."""
    tls: Tls | None = None
    """Its certificate and key. Without them, it listens only on this machine, and needs `operator_token`."""
    identity: SecretFile
    """The signing key of this service (`masquerade tls identity` creates it)."""
    operator_token: SecretFile | None = None
    """The token that authenticates commands of the service's operator (`masquerade tls token` creates it)."""
    state: AnyPath
    """A folder for durable state, created if it does not exist; one process can use it at a time."""
    peers: dict[Name, PeerSettings] = Field(default_factory=dict)
    """The other services by name: those that may call this service, and those that it calls."""
    limits: Limits = Limits()
    """Limits on sizes, times and concurrent requests."""
    retries: int = Field(5, ge=0, le=20)
    """The number of retries if a peer does not answer in time or is busy."""

    @model_validator(mode="after")
    def _recognisable(self) -> Self:
        if self.tls is None and self.operator_token is None:
            raise ValueError("a node needs tls, or an operator_token and tokens of its peers")
        if self.name in self.peers:
            raise ValueError("a node must not be its own peer")
        return self

    @property
    def address_file(self) -> Path:
        """Return the path of the file with the service's address, which exists while it runs."""
        return self.state / "address"

    def tls_files(self) -> TlsFiles:
        """Return the TLS files for servers and clients."""
        return PLAIN if self.tls is None else self.tls.files()


def load(path: str | Path, model: type[M], *, environment: Mapping[str, str] | None = None) -> M:
    """Return the settings in a YAML file, with overrides from the environment.

    Parameters
    ----------
    path : str or Path
        The file.
    model : type
        Model of the settings.
    environment : mapping, optional
        Environment variables; by default, of this process.

    Returns
    -------
    BaseModel
        The settings, an instance of `model`.

    Raises
    ------
    InputError
        One line with the file or variable, the key and what is expected; never the value.
    """
    file, values = Path(path), read(Path(path))
    sources = override(values, model, os.environ if environment is None else environment)
    try:
        return model.model_validate(values, context={"folder": file.absolute().parent})
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error, values, model, sources)}") from None


def overrides(path: str | Path, model: type[BaseModel]) -> dict[str, str]:
    """Return the variables that override keys of a settings file, by key."""
    found = override(read(Path(path)), model, os.environ)
    return {".".join(key): variable for key, variable in found.items()}


def check_files(settings: BaseModel, source: str | Path = "settings") -> None:
    """Raise FileError if a file is missing or cannot be read, or if others may read a secret."""
    for name, path, secret in named_files(settings):
        where = f"{source}: {name}"
        try:
            found = path.stat()
            with path.open("rb"):
                pass
        except OSError as error:
            reason = (error.strerror or "input/output error").lower()
            # the path of a secret is not shown: it may be the secret itself, written in the wrong place
            raise FileError(f"{where}: {'the file' if secret else path} cannot be read ({reason}).") from None
        if not stat.S_ISREG(found.st_mode):
            raise FileError(f"{where}: {path} must be a file.")
        if secret:
            check_private(path, where)
    if isinstance(settings, NodeSettings):
        _check_tls(settings)


def _check_tls(settings: NodeSettings) -> None:
    """Raise an error if certificate and key do not match, or a peer would be called without TLS."""
    if settings.tls is None:
        return
    certificate, key = settings.tls.certificate, settings.tls.key
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError:
        raise FileError(f"tls: {certificate} and {key} are not a certificate and its key.") from None
    for name, peer in settings.peers.items():
        if peer.url is not None and not peer.url.startswith("https:"):
            raise InputError(f"peers.{name}.url: must begin with https://, as this node speaks TLS.")


def check_private(path: Path, where: str = "") -> None:
    """Raise FileError if other users may read or write a secret file, on systems with file modes."""
    mode = stat.S_IMODE(path.stat().st_mode)
    if HAS_MODES and mode & 0o077:
        prefix = f"{where}: " if where else ""
        raise FileError(
            f"{prefix}{path} may be read by others (mode {mode:03o}); to fix this, run chmod 600 {path}."
        )


def named_files(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Path, bool]]:
    """Yield the files that settings name: dotted key, path, and whether it is a secret."""
    for name, field in type(settings).model_fields.items():
        marks = [mark for mark in _metadata(field.annotation, field.metadata) if isinstance(mark, _MustExist)]
        secret = any(isinstance(mark, _OwnerOnly) for mark in marks)
        for key, value in _leaves(getattr(settings, name), f"{prefix}{name}"):
            if isinstance(value, BaseModel):
                yield from named_files(value, f"{key}.")
            elif isinstance(value, Path) and marks:
                yield key, value, secret


def _metadata(annotation: Any, found: Sequence[object] = ()) -> Iterator[object]:
    yield from found
    yield from getattr(annotation, "__metadata__", ())
    for inner in getattr(annotation, "__args__", ()):
        yield from _metadata(inner)


def _leaves(value: Any, key: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(item, f"{key}.{name}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{key}.{i}")
    else:
        yield key, value
