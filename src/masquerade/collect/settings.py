"""The files of a collection: the form, the two servers, the enrolment office, and what people are given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, model_validator

from masquerade.core.schema import Schema, Variable
from masquerade.parties.settings import NodeSettings
from masquerade.parties.spec import Name
from masquerade.protocols.threshold.form import Form
from masquerade.protocols.threshold.terms import MOST_K, Terms
from masquerade.serving.settings import (
    MIB,
    Bytes,
    Digest,
    Limits,
    Listen,
    PeerSettings,
    PublicFile,
    PublicKey,
    Strict,
    Tls,
    Url,
    is_loopback,
    load,
)

Categories = Annotated[tuple[StrictStr | StrictInt | StrictBool, ...], Field(min_length=1)]
DEFAULT_PORTS = {"http": 80, "https": 443}


class FormSettings(Strict):
    """The form that everybody fills in: variables with their categories, in two parts."""

    masquerade: Literal[1]
    quasi: dict[str, Categories] = Field(min_length=1)
    sensitive: dict[str, Categories] = Field(min_length=1)

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        self.form()
        return self

    def form(self) -> Form:
        """Return the form; what is wrong with it is an error here."""
        parts = (self.quasi, self.sensitive)
        variables = [Variable(name, labels) for part in parts for name, labels in part.items()]
        return Form(Schema(variables), tuple(self.quasi), tuple(self.sensitive))


def load_form(path: str | Path) -> Form:
    """Return the form in a file."""
    return load(path, FormSettings, environment={}).form()


class EpochSettings(Strict):
    """One round of collecting: its name, which is used once, and the least number of rows that open."""

    name: Name
    k: int = Field(ge=2, le=MOST_K)
    shown: bool = Field(default=False, description="quasi-identifiers travel in clear, as in the talk")

    def terms(self, form: Form) -> Terms:
        """Return the terms that follow for a form."""
        return form.terms(self.name, self.k, shown=self.shown)


class OpenLimits(Limits):
    """Limits of a service that takes requests from anybody."""

    body_bytes: Bytes = 1 * MIB
    concurrency: int = Field(default=32, ge=1, le=1024)
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)


class CollectSettings(NodeSettings):
    """What both servers have; the other server is one of the peers."""

    form: PublicFile
    epoch: EpochSettings
    limits: OpenLimits = OpenLimits()
    retries: int = Field(1, ge=0, le=20)

    @model_validator(mode="after")
    def _no_consents(self) -> Self:
        if self.consents:
            raise ValueError("consents: a server of a collection takes part in no sessions")
        return self

    def _other(self, name: str, role: str) -> PeerSettings:
        """Return the other server, which must be somebody else, somewhere else."""
        peer = self.peers.get(name)
        if peer is None or peer.url is None:
            raise ValueError(f"{role} must name a peer that has a url")
        if peer.url.startswith("https://") and not peer.fingerprints:
            raise ValueError(f"{role}: this peer needs the fingerprints of its certificate")
        if same_place(peer.url, self.listen):
            raise ValueError(f"{role}: the two servers must not run at the same address")
        return peer


class RandomnessSettings(CollectSettings):
    """The randomness server: `office` is the peer that enrols people, `collector` the other server."""

    office: Name
    collector: Name

    @model_validator(mode="after")
    def _others(self) -> Self:
        self._other(self.collector, "collector")
        office = self.peers.get(self.office)
        if office is None or not (office.fingerprints or office.token_digest):
            raise ValueError("office must name a peer that is known by fingerprints or a token_digest")
        if self.office == self.collector:
            raise ValueError("office: the collector must not enrol people, or it opens any class it can name")
        return self


class CollectorSettings(CollectSettings):
    """The collector: `randomness` is the other server, whose signatures it checks."""

    randomness: Name
    most_reports: int = Field(default=2_000_000, ge=1, description="of an epoch; beyond, none is taken")

    @model_validator(mode="after")
    def _others(self) -> Self:
        if self._other(self.randomness, "randomness").identity is None:
            raise ValueError("randomness: this peer needs its identity, which signs notices and closings")
        return self


class OfficeSettings(Strict):
    """The enrolment office: how it shows itself to the randomness server."""

    masquerade: Literal[1]
    name: Name
    tls: Tls | None = None
    authority: PublicFile | None = None
    randomness: PeerSettings


class ServerSettings(Strict):
    """A server as people know it: its address, its certificate and its identity."""

    url: Url
    fingerprints: tuple[Digest, ...] = ()
    identity: PublicKey


class CollectionSettings(Strict):
    """What every person is given, the same file for all.

    `notice` is the digest of the randomness server's notice, as it stands in a public place; without it the
    one that the collector was shown is compared. `authority` signs both servers' certificates.
    """

    masquerade: Literal[1]
    form: PublicFile
    epoch: EpochSettings
    randomness: ServerSettings
    collector: ServerSettings
    authority: PublicFile | None = None
    notice: PublicKey | None = None

    @model_validator(mode="after")
    def _two_servers(self) -> Self:
        first, second = self.randomness, self.collector
        if place_of(first.url) == place_of(second.url):
            raise ValueError(
                "randomness and collector have the same address: one server would see everything"
            )
        if first.identity == second.identity:
            raise ValueError("randomness and collector have the same identity: one would see everything")
        if set(first.fingerprints) & set(second.fingerprints):
            raise ValueError("randomness and collector have the same certificate: one would see everything")
        return self


def place_of(url: str) -> tuple[str, int]:
    """Return host and port of an address; all names of this machine are one."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    return "loopback" if is_loopback(host) else host, parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


def same_place(url: str, listen: Listen) -> bool:
    """Tell whether an address is certainly this service's own."""
    host = "loopback" if is_loopback(listen.host) else listen.host.lower()
    return listen.port != 0 and place_of(url) == (host, listen.port)


KINDS: dict[str, type[BaseModel]] = {
    "randomness": RandomnessSettings,
    "collector": CollectorSettings,
    "office": OfficeSettings,
    "collection": CollectionSettings,
    "form": FormSettings,
}
