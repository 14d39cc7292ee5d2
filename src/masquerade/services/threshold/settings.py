"""Settings of a collection: the form, the two servers, the enrolment office, and the file for all people."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, model_validator

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm
from masquerade.protocols.k_anonymity.threshold.messages import MOST_K, ThresholdTerms
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.services.common import settings as common

Label = StrictStr | StrictInt | StrictBool
Categories = Annotated[tuple[Label, ...], Field(min_length=1)]
Grouping = dict[Label, Categories]
DEFAULT_PORTS = {"http": 80, "https": 443}


class FormSettings(common.Strict):
    """The form that all people fill in: variables with their categories, in two parts."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    quasi: dict[str, Categories] = Field(min_length=1)
    """Categories of each quasi-identifier: rows open if at least k people share all quasi-identifiers."""
    sensitive: dict[str, Categories] = Field(min_length=1)
    """Categories of each other variable of a row, which is visible only if its class opens."""
    hierarchies: dict[str, tuple[dict[StrictStr | StrictInt | StrictBool, Categories], ...]] = Field(
        default_factory=dict
    )
    """Groupings of each quasi-identifier, from fine to coarse: labels of groups with their categories."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        self.levels()
        return self

    def levels(self) -> GeneralisedForm | None:
        """Return the form at all levels, None without hierarchies; raise InputError if it is not valid."""
        form = self.form()
        return GeneralisedForm(form, self.hierarchies) if self.hierarchies else None

    def form(self) -> Form:
        """Return the form; raise InputError if it is not valid."""
        parts = (self.quasi, self.sensitive)
        variables = [Variable(name, labels) for part in parts for name, labels in part.items()]
        return Form(Schema(variables), tuple(self.quasi), tuple(self.sensitive))


def load_form(path: str | Path, level: int = 0) -> Form:
    """Load a form from a file, at a level of its hierarchies."""
    levels = load_levels(path)
    most = 0 if levels is None else levels.levels - 1
    if level > most:
        raise InputError(f"{path}: has no level {level}; its hierarchies end at level {most}.")
    return common.load(path, FormSettings, environment={}).form() if levels is None else levels.at(level)


def load_levels(path: str | Path) -> GeneralisedForm | None:
    """Load a form from a file at all levels, None if it has no hierarchies."""
    return common.load(path, FormSettings, environment={}).levels()


class EpochSettings(common.Strict):
    """One round of collecting, the same for both servers and all people."""

    name: common.Name
    """Its name, which can be used only once."""
    k: int = Field(ge=2, le=MOST_K)
    """The least number of rows in a class that opens."""
    shown: bool = False
    """Whether quasi-identifiers are sent in clear; the collector then sees all of them."""
    repeated: bool = False
    """Whether other epochs ask some of the same people. This can reveal rows of those who joined or left."""
    level: int = Field(0, ge=0)
    """For both servers, if the form has hierarchies: the level that is collected, 0 first, then coarser."""

    def terms(self, form: Form, level: int | None = None) -> ThresholdTerms:
        """Return the terms for a form at a level, by default the level of the settings."""
        return form.terms(self.name_at(self.level if level is None else level), self.k, shown=self.shown)

    def name_at(self, level: int) -> str:
        """Return the name of a level, which is a separate epoch with its own key and tags."""
        return self.name if level == 0 else f"{self.name}-level-{level}"


class OpenLimits(common.Limits):
    """Limits of a service that accepts requests from anyone."""

    body_bytes: common.Bytes = 1 * common.MIB
    """The longest message, accepted or sent."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """The most requests processed at the same time; further callers are asked to retry later."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """The most seconds for a message to arrive, and for its caller to wait."""


class CollectSettings(common.NodeSettings):
    """Settings that both servers have; the other server is one of the peers."""

    form: common.PublicFile
    """The form that all people fill in."""
    epoch: EpochSettings
    """The round of collecting."""
    limits: OpenLimits = OpenLimits()
    """Limits on messages and load."""
    retries: int = Field(1, ge=0, le=20)
    """For the randomness server: how often it retries sending the closing to the collector."""

    @model_validator(mode="before")
    @classmethod
    def _no_consents(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("consents"):
            raise ValueError("consents: a server of a collection does not participate in sessions")
        return values

    def _other(self, name: str, role: str) -> common.PeerSettings:
        """Return the peer of the given name, the other server; raise ValueError if it is not a valid one."""
        peer = self.peers.get(name)
        if peer is None or peer.url is None:
            raise ValueError(f"{role} must name a peer that has a url")
        if peer.url.startswith("https://") and not peer.fingerprints:
            raise ValueError(f"{role}: this peer needs the fingerprints of its certificate")
        host = "loopback" if common.is_loopback(self.listen.host) else self.listen.host.lower()
        if self.listen.port != 0 and _place_of(peer.url) == (host, self.listen.port):
            raise ValueError(f"{role}: the two servers must not run at the same address")
        return peer


class RandomnessSettings(CollectSettings):
    """The randomness server: it evaluates once for each enrolled person."""

    STARTED_BY = "masquerade collect randomness serve"
    office: common.Name
    """The office that enrols people, a peer with `fingerprints` or a `token_digest`."""
    collector: common.Name
    """The other server, a peer with a `url` and, for https://, `fingerprints`."""

    sealing: common.SecretFile | None = None
    """A file with at least 16 secret bytes that encrypt the epoch's key, so that it survives a restart."""

    @model_validator(mode="after")
    def _others(self) -> Self:
        self._other(self.collector, "collector")
        office = self.peers.get(self.office)
        if office is None or not (office.fingerprints or office.token_digest):
            raise ValueError("office must name a peer that has fingerprints or a token_digest")
        if self.office == self.collector:
            raise ValueError("office: the collector must not enrol people, or it could open any class")
        return self


class CollectorSettings(CollectSettings):
    """The collector: it accepts reports and opens classes of at least k rows."""

    STARTED_BY = "masquerade collect collector serve"
    randomness: common.Name
    """The other server, a peer with a `url`, an `identity` and, for https://, `fingerprints`."""
    most_reports: int = Field(default=2_000_000, ge=1)
    """The most reports that an epoch accepts."""

    @model_validator(mode="after")
    def _others(self) -> Self:
        if self._other(self.randomness, "randomness").identity is None:
            raise ValueError("randomness: this peer needs its identity, which signs notices and closings")
        return self


class OfficeSettings(common.Strict):
    """The enrolment office: how it authenticates to the randomness server."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """The name of the office in error messages."""
    tls: common.Tls | None = None
    """The certificate of the office; not needed if it uses a token."""
    authority: common.PublicFile | None = None
    """Without `tls`: the authority of the randomness server's certificate (PEM), by default the system's."""
    randomness: common.PeerSettings
    """The randomness server: its `url` and `fingerprints`, and a `token_file` if the office uses a token."""


class ServerSettings(common.Strict):
    """A server for its clients: its address, its certificate and its identity."""

    url: common.Url
    """Its address."""
    fingerprints: tuple[common.Digest, ...] = ()
    """Fingerprints that pin its certificate (`masquerade tls fingerprint`); required for https://."""
    identity: common.PublicKey
    """Its public signing key (`masquerade tls identity` prints it)."""


class CollectionSettings(common.Strict):
    """The file for all people who participate in a collection."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    form: common.PublicFile
    """The form that all people fill in."""
    epoch: EpochSettings
    """The round of collecting."""
    randomness: ServerSettings
    """The randomness server."""
    collector: ServerSettings
    """The collector, which must be another server."""
    authority: common.PublicFile | None = None
    """The authority of both servers' certificates (PEM), by default the system's."""
    notice: common.PublicKey | None = None
    """The published digest of the randomness server's notice; the collector's copy is compared as well."""

    @model_validator(mode="after")
    def _two_servers(self) -> Self:
        first, second = self.randomness, self.collector
        if self.epoch.level:
            raise ValueError("epoch.level: people submit at all levels; omit it in their file")
        if _place_of(first.url) == _place_of(second.url):
            raise ValueError(
                "randomness and collector have the same address: one server would see everything"
            )
        if first.identity == second.identity:
            raise ValueError("randomness and collector have the same identity: one would see everything")
        if set(first.fingerprints) & set(second.fingerprints):
            raise ValueError("randomness and collector have the same certificate: one would see everything")
        return self


def _place_of(url: str) -> tuple[str, int]:
    """Return host and port of an address; all loopback names are equal."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower().rstrip(".")
    return "loopback" if common.is_loopback(host) else host, parts.port or DEFAULT_PORTS.get(parts.scheme, 0)


KINDS: dict[str, type[BaseModel]] = {
    "randomness": RandomnessSettings,
    "collector": CollectorSettings,
    "office": OfficeSettings,
    "collection": CollectionSettings,
    "form": FormSettings,
}
