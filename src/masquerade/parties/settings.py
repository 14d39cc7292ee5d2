"""The one file of a node: who it is, what it holds, whom it knows, and what it consents to."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from masquerade.parties.spec import Linking, Name, Protocol, SessionSpec
from masquerade.serving.settings import (
    AnyPath,
    Limits,
    Listen,
    PeerSettings,
    PublicFile,
    SecretFile,
    Strict,
    Tls,
)


class DataSettings(Strict):
    """The records: files, the policy they leave under, and the column that names a person.

    `linking_key` is a file with the secret that parties share, and a miner does not, for `linking: keyed`.
    """

    files: tuple[AnyPath, ...] = Field(min_length=1)
    policy: PublicFile
    key: str | None = None
    linking_key: SecretFile | None = None


class Consent(Strict):
    """A session that a node takes part in; any difference to what is proposed is a refusal.

    `spec` pins the whole text of the session by its digest. Fewer than `least_records` common records are
    refused: whoever links chooses which records it calls common.
    """

    session: Name
    protocol: Protocol
    parties: tuple[Name, ...]
    convener: Name
    helper: Name | None = None
    linking: Linking | None = None
    variables: tuple[str, ...] = ()
    spec: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    least_records: int = Field(20, ge=1)

    def differences(self, spec: SessionSpec) -> list[str]:
        """Return what of a proposed session was not consented to."""
        found = [
            name
            for name in ("protocol", "convener", "helper", "linking")
            if getattr(self, name) != getattr(spec, name)
        ]
        if set(self.parties) != set(spec.parties):
            found.append("parties")
        if self.spec is not None and self.spec != spec.digest:
            found.append("spec")
        return found


class NodeSettings(Strict):
    """What every node has."""

    masquerade: Literal[1]
    name: Name
    listen: Listen = Listen()
    tls: Tls | None = None
    identity: SecretFile
    operator_token: SecretFile | None = None
    state: AnyPath
    peers: dict[Name, PeerSettings] = Field(default_factory=dict)
    consents: tuple[Consent, ...] = ()
    limits: Limits = Limits()
    retries: int = Field(5, ge=0, le=20)

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.tls is None and self.operator_token is None:
            raise ValueError("a node needs tls, or an operator_token and tokens of its peers")
        if self.name in self.peers:
            raise ValueError("a node is not its own peer")
        for consent in self.consents:
            for name in (*consent.parties, consent.convener, consent.helper or self.name):
                if name != self.name and name not in self.peers:
                    raise ValueError(f"session {consent.session!r} names {name!r}, which is not a peer")
        if len({consent.session for consent in self.consents}) < len(self.consents):
            raise ValueError("a session is consented to twice")
        return self

    def consent(self, session: str) -> Consent | None:
        """Return what is consented to under the name of a session."""
        return next((item for item in self.consents if item.session == session), None)


class PartySettings(NodeSettings):
    """A party: it holds records."""

    data: DataSettings

    @model_validator(mode="after")
    def _named(self) -> Self:
        for consent in self.consents:
            if self.name not in consent.parties:
                raise ValueError(f"session {consent.session!r} does not have this party among its parties")
            if not consent.variables:
                raise ValueError(f"session {consent.session!r}: list the variables that may take part")
            if consent.linking is not None and self.data.key is None:
                raise ValueError(f"session {consent.session!r} links records: data.key must name the column")
            if consent.linking == "keyed" and self.data.linking_key is None:
                raise ValueError(f"session {consent.session!r} is keyed: data.linking_key must name a file")
        return self


class MinerSettings(NodeSettings):
    """A node without records: a miner, a receiver, a helper, or whoever only convenes."""


KINDS: dict[str, type[NodeSettings]] = {"party": PartySettings, "miner": MinerSettings}
