"""The files of a count: what is counted and how, the miner, the leaders of a mix, the enrolment office."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, Field, model_validator

from masquerade.channels.policy import Policy
from masquerade.core.errors import InputError
from masquerade.protocols.people.report_form import ReportForm
from masquerade.services.common import settings as common
from masquerade.services.counting.messages import CountTerms


class CountDescription(common.Strict):
    """What is counted and how, the same file for the miner, the leaders and the office."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """The name of this count, which is used once."""
    protocol: Literal["frequency", "aggregation", "mix"]
    """How people are counted: by frequency mining, by secure aggregation, or their records through a mix."""
    policy: common.PublicFile
    """The policy file: the variables of a record, and how each is disguised before anything leaves."""
    minimum: int = Field(default=10, ge=3, le=100_000)
    """The fewest people counted together, and the fewest that two counts may differ by."""
    colluders: str = "0.1"
    """For aggregation: the share of people who may collude with the miner."""
    dropouts: str = "0.05"
    """For aggregation: the share of people who may leave in the middle of a round."""
    server: Literal["semi-honest", "malicious"] = "malicious"
    """For aggregation: whether it protects against a miner that keeps to the rules, or against any."""
    miner: common.PublicKey
    """The miner's public signing key (`masquerade tls identity` prints it)."""
    leaders: dict[common.Name, common.PublicKey] = Field(default_factory=dict)
    """For the mix: the leaders' public signing keys, in the order in which they shuffle."""

    @model_validator(mode="after")
    def _leaders_of_a_mix(self) -> Self:
        if (self.protocol == "mix") != bool(self.leaders):
            raise ValueError("leaders: a mix has at least one leader, other protocols have none")
        return self

    def loaded_policy(self) -> Policy:
        """Return the policy."""
        return Policy.load(self.policy)

    def terms(self, members: dict[str, bytes]) -> CountTerms:
        """Return the terms for these people; that the protocol can be run so is checked."""
        policy = self.loaded_policy()
        if len(members) < self.minimum:
            raise InputError(f"At least {self.minimum} people are counted together. Got {len(members)}.")
        terms = CountTerms(
            self.protocol,
            self.name,
            ReportForm.of(policy).encode(),
            self.minimum,
            self.colluders,
            self.dropouts,
            self.server,
            bytes.fromhex(self.miner),
            {name: bytes.fromhex(key) for name, key in self.leaders.items()},
            dict(sorted(members.items())),
        )
        terms.agreed(policy)
        return terms


class CountLimits(common.Limits):
    """Limits of a miner, which takes requests from everybody's device."""

    concurrency: int = Field(default=64, ge=1, le=1024)
    """The most requests worked on at once; half of them may be held until there is something to say."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds for a message to arrive, and for its caller to wait."""


class CountNodeSettings(common.NodeSettings):
    """What the miner and the leaders of a count have; the office is one of the peers."""

    STARTED_BY = "masquerade count serve"
    count: common.PublicFile
    """What is counted and how (the description)."""
    office: common.Name
    """The enrolment office, a peer with `fingerprints` or a `token_digest`: it alone says who is counted."""

    @model_validator(mode="after")
    def _office(self) -> Self:
        peer = self.peers.get(self.office)
        if peer is None or not (peer.fingerprints or peer.token_digest):
            raise ValueError("office must name a peer that has fingerprints or a token_digest")
        return self

    def description(self) -> CountDescription:
        """Return what is counted and how."""
        return common.load(self.count, CountDescription, environment={})


class CountMinerSettings(CountNodeSettings):
    """The miner: it asks, and learns counts or unlinked records."""

    patience: float = Field(default=60.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds after which somebody who does not answer has left the round."""
    limits: CountLimits = CountLimits()
    """How much is taken, given and worked on."""


class CountLeaderSettings(CountNodeSettings):
    """A leader of a mix: it shuffles what people send, so that nobody knows whose record is whose."""

    miner: common.Name
    """The miner, a peer with `fingerprints` or a `token_digest`."""

    @model_validator(mode="after")
    def _miner(self) -> Self:
        peer = self.peers.get(self.miner)
        if peer is None or not (peer.fingerprints or peer.token_digest):
            raise ValueError("miner must name a peer that has fingerprints or a token_digest")
        return self


class CountOfficeSettings(common.Strict):
    """The enrolment office: what is counted, and how it shows itself to the miner and the leaders."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name
    """What the office is called in messages about what went wrong."""
    count: common.PublicFile
    """What is counted and how (the description)."""
    tls: common.Tls
    """The certificate that the office shows; its authority is also who signs the miner's, for people."""
    miner: common.PeerSettings
    """The miner: its `url` and `fingerprints`, which people are given, too."""
    leaders: dict[common.Name, common.PeerSettings] = Field(default_factory=dict)
    """For the mix: each leader's `url` and `fingerprints`."""

    def description(self) -> CountDescription:
        """Return what is counted and how."""
        return common.load(self.count, CountDescription, environment={})


KINDS: dict[str, type[BaseModel]] = {
    "count": CountDescription,
    "count-miner": CountMinerSettings,
    "count-leader": CountLeaderSettings,
    "count-office": CountOfficeSettings,
}
