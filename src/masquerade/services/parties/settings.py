"""The one file of a node: who it is, what it holds, whom it knows, and what it consents to."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from masquerade.services.common.settings import AnyPath, NodeSettings, PublicFile, SecretFile, Strict
from masquerade.services.parties.session import SessionSpec, SessionText


class DataSettings(Strict):
    """The records of a party, the policy they leave under, and the column that names a person."""

    files: tuple[AnyPath, ...] = Field(min_length=1)
    """The records, in Parquet, Arrow or CSV; all files are one table, but for `arbitrary-with-miner`."""
    policy: PublicFile
    """The policy: the categories of variables, and the channels through which they leave."""
    key: str | None = None
    """The column that names a person; without it records are neither linked nor disguised."""
    linking_key: SecretFile | None = None
    """For `linking: keyed`: 32 random bytes that the parties share, and a miner does not have."""


class Consent(SessionText):
    """A session that a node takes part in; any difference to what is proposed is a refusal."""

    variables: tuple[str, ...] = ()
    """The variables of its policy that take part; a party lists at least one, a helper needs none."""
    spec: str | None = Field(None, pattern=r"^[0-9a-f]{64}$")
    """The digest of the whole session (`masquerade session create` prints it); with it nothing may differ."""
    least_records: int = Field(20, ge=1)
    """Fewer linked records are refused: whoever links chooses which records it calls common."""
    other_people: bool = False
    """Let exact results be about other people than those of earlier sessions: they differ by these people."""

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


class SessionNodeSettings(NodeSettings):
    """What every node of sessions has."""

    consents: tuple[Consent, ...] = ()
    """The sessions that this node takes part in as party or helper; others are refused."""

    @model_validator(mode="after")
    def _known(self) -> Self:
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


class PartySettings(SessionNodeSettings):
    """A party: it holds records."""

    data: DataSettings
    """The records and their policy."""

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


class MinerSettings(SessionNodeSettings):
    """A node without records: a miner, a receiver, a helper, or whoever only convenes."""


KINDS: dict[str, type[SessionNodeSettings]] = {"party": PartySettings, "miner": MinerSettings}
