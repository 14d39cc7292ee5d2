"""Settings of a count: its description, the miner, the leaders of a mix, and the enrolment office."""

from __future__ import annotations

from math import ceil
from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.protocols.people.report_form import ReportForm
from masquerade.protocols.secure_aggregation.agreement import share
from masquerade.services.common import settings as common
from masquerade.services.counting.messages import (
    SUPPRESSION,
    CountTerms,
    NoisyCountTerms,
    SuppressionCountTerms,
)


class CountNoiseSettings(common.Strict):
    """Noise of a count, by which all people change their votes: ε and δ for each record over all tables."""

    epsilon: float = Field(gt=0, le=20, allow_inf_nan=False)
    """ε of all tables together, for each record."""
    delta: float = Field(default=1e-6, ge=0, le=0.01, allow_inf_nan=False)
    """δ of all tables together; at least 1e-10, for aggregation also 0."""
    tables: int = Field(ge=1, le=100_000)
    """The total number of tables that will be counted."""
    enrolment: Literal["verified"]
    """`verified`: the office has checked that each name is a different person; no other value is accepted."""


class CountDescription(common.Strict):
    """Description of a count, the same file for the miner, the leaders and the office."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """The name of this count, which can be used only once."""
    protocol: Literal["frequency", "aggregation", "mix", "suppression"]
    """By frequency mining, secure aggregation, records through a mix, or one table with suppressed values."""
    policy: common.PublicFile
    """The policy file: the variables of a record, and how each is disguised before it leaves the device."""
    minimum: int = Field(default=10, ge=3, le=100_000)
    """The least number of people counted together, and the least by which two counts may differ."""
    colluders: str = "0.1"
    """For aggregation and for noise: the share of people who may collude with the miner."""
    dropouts: str = "0.05"
    """For aggregation: the share of people who may leave during a round. For noise: during all rounds."""
    server: Literal["semi-honest", "malicious"] = "malicious"
    """For aggregation: the miner that it protects against. A semi-honest miner follows the protocol."""
    miner: common.PublicKey
    """The miner's public signing key (`masquerade tls identity` prints it)."""
    leaders: dict[common.Name, common.PublicKey] = Field(default_factory=dict)
    """For the mix, and a suppression (key holders): public signing keys of the leaders, in their order."""
    k: int | None = Field(default=None, ge=2, le=1000)
    """For a suppression: the least number of people in a group."""
    randomness: common.PublicKey | None = None
    """For a suppression: the public signing key of the randomness server, which the miner must not run."""
    noise: CountNoiseSettings | None = None
    """Noise that nobody knows: `minimum` is by default all people less the dropouts. Not for a mix."""

    @model_validator(mode="after")
    def _noise_of_votes(self) -> Self:
        if self.noise is not None and self.protocol in ("mix", SUPPRESSION):
            raise ValueError(f"noise: a {self.protocol} opens records, which have no noise")
        return self

    @model_validator(mode="after")
    def _leaders_of_a_mix(self) -> Self:
        if (self.protocol in ("mix", SUPPRESSION)) != bool(self.leaders):
            raise ValueError(
                "leaders: a mix has at least one leader and a suppression two, other protocols have none"
            )
        return self

    @model_validator(mode="after")
    def _servers_of_a_suppression(self) -> Self:
        for name in ("k", "randomness"):
            if (self.protocol == SUPPRESSION) != (getattr(self, name) is not None):
                raise ValueError(f"{name}: a suppression has it, other protocols do not")
        return self

    def load_policy(self) -> Policy:
        """Load the policy."""
        return Policy.load(self.policy)

    def terms(self, members: dict[str, bytes], boxes: tuple[bytes, bytes] | None = None) -> CountTerms:
        """Return the terms for these people; raise InputError if the protocol cannot run under them.

        `boxes` are the keys for which reports of a suppression are sealed: the miner's and the relay's.
        """
        policy = self.load_policy()
        if len(members) < self.minimum:
            raise InputError(f"At least {self.minimum} people are counted together. Got {len(members)}.")
        minimum = self.minimum
        if self.noise is not None and "minimum" not in self.model_fields_set:
            minimum = len(members) - ceil(share(self.dropouts, "dropouts") * len(members))
        common_terms = (
            self.protocol,
            self.name,
            ReportForm.of(policy).encode(),
            minimum,
            self.colluders,
            self.dropouts,
            self.server,
            bytes.fromhex(self.miner),
            {name: bytes.fromhex(key) for name, key in self.leaders.items()},
            dict(sorted(members.items())),
        )
        terms: CountTerms
        if self.k is not None and self.randomness is not None:
            if boxes is None:
                raise InputError("The terms of a suppression need the keys for which reports are sealed.")
            terms = SuppressionCountTerms(*common_terms, self.k, *boxes, bytes.fromhex(self.randomness))
        elif self.noise is None:
            terms = CountTerms(*common_terms)
        else:
            noise = (repr(self.noise.epsilon), repr(self.noise.delta), self.noise.tables)
            terms = NoisyCountTerms(*common_terms, *noise)
        terms.protocol_terms(policy)
        return terms


class CountLimits(common.Limits):
    """Limits of a miner, which accepts requests from all people's devices."""

    concurrency: int = Field(default=64, ge=1, le=1024)
    """The most requests processed at the same time; half of them may be held until there is a message."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """The most seconds for a message to arrive, and for its caller to wait."""


class CountNodeSettings(common.NodeSettings):
    """Settings of the miner and the leaders of a count; the office is one of the peers."""

    STARTED_BY = "masquerade count serve"
    count: common.PublicFile
    """The description of the count."""
    office: common.Name
    """The enrolment office, a peer with `fingerprints` or a `token_digest`; it decides who is counted."""

    @model_validator(mode="after")
    def _office(self) -> Self:
        peer = self.peers.get(self.office)
        if peer is None or not (peer.fingerprints or peer.token_digest):
            raise ValueError("office must name a peer that has fingerprints or a token_digest")
        return self

    def description(self) -> CountDescription:
        """Load the description of the count."""
        return common.load(self.count, CountDescription, environment={})


class CountMinerSettings(CountNodeSettings):
    """The miner: it asks questions, and learns counts or unlinked records."""

    randomness: common.Name | None = None
    """For a suppression: the randomness server, a peer with a `url` and `fingerprints`."""
    patience: float = Field(default=60.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds after which a person without a reply has left the round."""
    limits: CountLimits = CountLimits()
    """Limits on messages and load."""


class CountLeaderSettings(CountNodeSettings):
    """A leader of a mix (mix server): it shuffles submissions, so that records have no names."""

    miner: common.Name
    """The miner, a peer with `fingerprints` or a `token_digest`."""

    @model_validator(mode="after")
    def _miner(self) -> Self:
        peer = self.peers.get(self.miner)
        if peer is None or not (peer.fingerprints or peer.token_digest):
            raise ValueError("miner must name a peer that has fingerprints or a token_digest")
        return self


class CountRandomnessSettings(CountNodeSettings):
    """The randomness server of a suppression: it evaluates blinded values, once for each person."""

    evaluates_for: common.Name
    """The miner, a peer with `fingerprints` or a `token_digest`."""

    @model_validator(mode="after")
    def _miner(self) -> Self:
        peer = self.peers.get(self.evaluates_for)
        if peer is None or not (peer.fingerprints or peer.token_digest):
            raise ValueError("evaluates_for must name a peer that has fingerprints or a token_digest")
        return self


class CountOfficeSettings(common.Strict):
    """The enrolment office: the count, and how it authenticates to the miner and the leaders."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """The name of the office in error messages."""
    count: common.PublicFile
    """The description of the count."""
    tls: common.Tls
    """The certificate of the office; people's devices use its authority for the miner's certificate."""
    miner: common.PeerSettings
    """The miner: its `url` and `fingerprints`, which people's devices get as well."""
    leaders: dict[common.Name, common.PeerSettings] = Field(default_factory=dict)
    """For the mix and a suppression: each leader's `url` and `fingerprints`."""
    randomness: common.PeerSettings | None = None
    """For a suppression: the `url` and `fingerprints` of the randomness server."""

    def description(self) -> CountDescription:
        """Load the description of the count."""
        return common.load(self.count, CountDescription, environment={})


KINDS: dict[str, type[BaseModel]] = {
    "count": CountDescription,
    "count-miner": CountMinerSettings,
    "count-leader": CountLeaderSettings,
    "count-randomness": CountRandomnessSettings,
    "count-office": CountOfficeSettings,
}
