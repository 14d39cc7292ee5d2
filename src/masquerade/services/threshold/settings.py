"""The files of a collection: the form, the two servers, the enrolment office, and what people are given."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, Field, StrictBool, StrictInt, StrictStr, model_validator

from masquerade.core.errors import InputError
from masquerade.core.schema import Schema, Variable
from masquerade.protocols.k_anonymity.threshold.generalisation import GeneralisedForm
from masquerade.protocols.k_anonymity.threshold.messages import MOST_K, Terms
from masquerade.protocols.k_anonymity.threshold.row_schema import Form
from masquerade.services.common import settings as common

Label = StrictStr | StrictInt | StrictBool
Categories = Annotated[tuple[Label, ...], Field(min_length=1)]
Grouping = dict[Label, Categories]
DEFAULT_PORTS = {"http": 80, "https": 443}


class FormSettings(common.Strict):
    """The form that everybody fills in: variables with their categories, in two parts."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    quasi: dict[str, Categories] = Field(min_length=1)
    """By variable, the categories of what makes a class: rows open if at least k people share all of it."""
    sensitive: dict[str, Categories] = Field(min_length=1)
    """By variable, the categories of the rest of a row, which is seen only where its class opens."""
    hierarchies: dict[str, tuple[dict[StrictStr | StrictInt | StrictBool, Categories], ...]] = Field(
        default_factory=dict
    )
    """By quasi-identifier, groupings from fine to coarse: labels of groups with the categories in each."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        self.levels()
        return self

    def levels(self) -> GeneralisedForm | None:
        """Return the form at its levels, None where there is one only; what is wrong is an error here."""
        form = self.form()
        return GeneralisedForm(form, self.hierarchies) if self.hierarchies else None

    def form(self) -> Form:
        """Return the form; what is wrong with it is an error here."""
        parts = (self.quasi, self.sensitive)
        variables = [Variable(name, labels) for part in parts for name, labels in part.items()]
        return Form(Schema(variables), tuple(self.quasi), tuple(self.sensitive))


def load_form(path: str | Path, level: int = 0) -> Form:
    """Return the form in a file, at a level of its hierarchies."""
    levels = load_levels(path)
    most = 0 if levels is None else levels.levels - 1
    if level > most:
        raise InputError(f"{path}: level {level} is asked for, and its hierarchies end at level {most}.")
    return common.load(path, FormSettings, environment={}).form() if levels is None else levels.at(level)


def load_levels(path: str | Path) -> GeneralisedForm | None:
    """Return the form in a file at all levels, None where it has no hierarchies."""
    return common.load(path, FormSettings, environment={}).levels()


class EpochSettings(common.Strict):
    """One round of collecting, the same for both servers and everybody."""

    name: common.Name
    """Its name, which is used once."""
    k: int = Field(ge=2, le=MOST_K)
    """The least number of rows of a class that open."""
    shown: bool = False
    """Whether quasi-identifiers travel in clear, as in the talk; the collector then sees all of them."""
    repeated: bool = False
    """Whether other epochs ask some of the same people: rows then differ by those of whoever came or left."""
    level: int = Field(0, ge=0)
    """Of both servers, where the form has hierarchies: the level that is collected, 0 first, then coarser."""

    def terms(self, form: Form, level: int | None = None) -> Terms:
        """Return the terms that follow for a form at a level, that of the settings if none is named."""
        return form.terms(self.name_at(self.level if level is None else level), self.k, shown=self.shown)

    def name_at(self, level: int) -> str:
        """Return what a level is called: an epoch of its own, with a key and tags of its own."""
        return self.name if level == 0 else f"{self.name}-level-{level}"


class OpenLimits(common.Limits):
    """Limits of a service that takes requests from anybody."""

    body_bytes: common.Bytes = 1 * common.MIB
    """The longest message, taken or sent."""
    concurrency: int = Field(default=32, ge=1, le=1024)
    """The most requests worked on at once; whoever comes then is told to ask later."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds for a message to arrive, and for its caller to wait."""


class CollectSettings(common.NodeSettings):
    """What both servers have; the other server is one of the peers."""

    form: common.PublicFile
    """The form that everybody fills in."""
    epoch: EpochSettings
    """The round of collecting."""
    limits: OpenLimits = OpenLimits()
    """How much is taken, given and worked on."""
    retries: int = Field(1, ge=0, le=20)
    """Of the randomness server alone: how often it tries again to tell the collector of the closing."""

    @model_validator(mode="before")
    @classmethod
    def _no_consents(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("consents"):
            raise ValueError("consents: a server of a collection takes part in no sessions")
        return values

    def _other(self, name: str, role: str) -> common.PeerSettings:
        """Return the other server, which must be somebody else, somewhere else."""
        peer = self.peers.get(name)
        if peer is None or peer.url is None:
            raise ValueError(f"{role} must name a peer that has a url")
        if peer.url.startswith("https://") and not peer.fingerprints:
            raise ValueError(f"{role}: this peer needs the fingerprints of its certificate")
        own = "loopback" if common.is_loopback(self.listen.host) else self.listen.host.lower()
        if self.listen.port != 0 and _place_of(peer.url) == (own, self.listen.port):
            raise ValueError(f"{role}: the two servers must not run at the same address")
        return peer


class RandomnessSettings(CollectSettings):
    """The randomness server: it evaluates once for each person enrolled."""

    STARTED_BY = "masquerade collect randomness serve"
    office: common.Name
    """The office that enrols people, a peer with `fingerprints` or a `token_digest`."""
    collector: common.Name
    """The other server, a peer with a `url` and, for https://, `fingerprints`."""

    sealing: common.SecretFile | None = None
    """A passphrase or random bytes, at least 16: sealed under it, the epoch's key survives a restart."""

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
    """The collector: it takes reports and opens classes that reached k."""

    STARTED_BY = "masquerade collect collector serve"
    randomness: common.Name
    """The other server, a peer with a `url`, an `identity` and, for https://, `fingerprints`."""
    most_reports: int = Field(default=2_000_000, ge=1)
    """The most reports of an epoch; beyond, none is taken."""

    @model_validator(mode="after")
    def _others(self) -> Self:
        if self._other(self.randomness, "randomness").identity is None:
            raise ValueError("randomness: this peer needs its identity, which signs notices and closings")
        return self


class OfficeSettings(common.Strict):
    """The enrolment office: how it shows itself to the randomness server."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """What the office is called in messages about what went wrong."""
    tls: common.Tls | None = None
    """The certificate that the office shows; not needed where it shows a token."""
    authority: common.PublicFile | None = None
    """Without `tls`: who signs the randomness server's certificate (PEM), if not the system's authorities."""
    randomness: common.PeerSettings
    """The randomness server: its `url` and `fingerprints`, and a `token_file` if the office shows a token."""


class ServerSettings(common.Strict):
    """A server as people know it: its address, its certificate and its identity."""

    url: common.Url
    """Where it is reached."""
    fingerprints: tuple[common.Digest, ...] = ()
    """Its certificate is pinned by these (`masquerade tls fingerprint`); for https:// there must be one."""
    identity: common.PublicKey
    """Its public signing key (`masquerade tls identity` prints it)."""


class CollectionSettings(common.Strict):
    """What every person is given, the same file for all."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    form: common.PublicFile
    """The form that everybody fills in."""
    epoch: EpochSettings
    """The round of collecting."""
    randomness: ServerSettings
    """The randomness server."""
    collector: ServerSettings
    """The collector, which must be another server."""
    authority: common.PublicFile | None = None
    """Who signs both servers' certificates (PEM); without it, the system's authorities."""
    notice: common.PublicKey | None = None
    """The digest of the randomness server's notice, as published; the collector's copy is compared, too."""

    @model_validator(mode="after")
    def _two_servers(self) -> Self:
        first, second = self.randomness, self.collector
        if self.epoch.level:
            raise ValueError("epoch.level: what people are given names no level; they are taken through all")
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
    """Return host and port of an address; all names of this machine are one."""
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
