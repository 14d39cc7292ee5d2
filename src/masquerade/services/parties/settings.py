"""The one file of a node: who it is, what it holds, whom it knows, and what it consents to."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError, model_validator

from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.services.common.settings import AnyPath, NodeSettings, PublicFile, SecretFile, Strict
from masquerade.services.common.settings_file import explain, read
from masquerade.services.parties.kinds import find
from masquerade.services.parties.session import SessionSpec, SessionText
from masquerade.sources.control.data_dependent_rules import DataDependentRules
from masquerade.sources.control.inference_control import Rules

UNLIMITED = 1000  # variables: more than any table has


class DataSettings(Strict):
    """The records of a party, the policy they leave under, and the column that names a person."""

    files: tuple[AnyPath, ...] = Field(min_length=1)
    """The records, in Parquet, Arrow or CSV; all files are one table, unless any cell may be anywhere."""
    policy: PublicFile
    """The policy: the categories of variables, and the channels through which they leave."""
    key: str | None = None
    """The column that names a person; without it records are neither linked nor disguised."""
    linking_key: SecretFile | None = None
    """For `linking: keyed`: 32 random bytes that the parties share, and a miner does not have."""


class DataDependentSettings(Strict):
    """Rules that look at the counts: a refusal tells that a set is small."""

    least_people: int = Field(ge=1)
    """No set of fewer people is counted, directly or by adding and subtracting answers."""
    show_empty: bool = False
    """Whether sets of nobody may be counted."""
    most_overlap: int | None = Field(None, ge=0)
    """How many people two different cells may have in common at most."""
    least_width: int = Field(0, ge=0)
    """How wide an interval answers leave open at least for cells of too few people."""


class RulesSettings(Strict):
    """What must stay undetermined whatever is asked, in this session and in all that were before."""

    protect: tuple[tuple[str, ...], ...] = ()
    """Sets of variables, as `[[age, sex, region]]`: no cell that names all of one set may be determined."""
    most_variables: int | None = Field(None, ge=1)
    """No cell of more variables may be determined."""
    impossible: tuple[dict[str, Category], ...] = ()
    """Cells that everybody knows do not occur, as `[{sex: male, pregnant: yes}]`."""
    data_dependent: DataDependentSettings | None = None
    """Rules that look at own counts; for `pooled-counts` of clear records only."""

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.protect and self.most_variables is None and self.data_dependent is None:
            raise ValueError("say what must stay undetermined: protect, most_variables or data_dependent")
        try:
            self.rules()
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def shows(self, sent: Collection[str], seen: Collection[str]) -> bool:
        """Return True if reports of `sent`, with all that is `seen` beside them, show what is protected.

        Reports count as what they are reports of: what they leave open does not protect here.
        """
        combined = {*seen, *sent}
        if self.most_variables is not None and len(combined) > self.most_variables:
            return True
        return any(combined.issuperset(some) and not set(some).isdisjoint(sent) for some in self.protect)

    def rules(self) -> Rules:
        """Return them as a source takes them; without anything protected, every table may be asked for."""
        data = self.data_dependent
        most = self.most_variables
        if not self.protect and most is None:
            most = UNLIMITED
        telling = None if data is None else DataDependentRules(**data.model_dump())
        return Rules(self.protect, most, self.impossible, telling)


class Consent(SessionText):
    """A session that a node takes part in; any difference to what is proposed is a refusal."""

    spec: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of the session's whole text: what is learnt, from what, by whom (`session consent`)."""
    variables: tuple[str, ...] = ()
    """The variables of its policy that take part; a party lists at least one, a helper needs none."""
    least_records: int = Field(20, ge=1)
    """Fewer linked records are refused (who links says which are common), nor are so few counted apart."""
    other_people: bool = False
    """Let exact results be about other people than those of earlier sessions: they differ by these people."""
    rules: RulesSettings | None = None
    """Which counts are refused; for kinds whose parties see what they answer, and can refuse it."""

    @model_validator(mode="before")
    @classmethod
    def _check_pinned(cls, values: Any) -> Any:
        """Raise ValueError for a consent to a name alone: the convener would say what is learnt under it."""
        if isinstance(values, dict) and values.get("spec") is None:
            raise ValueError(
                "needs spec, the digest of what is learnt, from what and by whom: masquerade session "
                "consent SESSION.yaml --node FILE prints it"
            )
        return values

    @model_validator(mode="after")
    def _ruled(self) -> Self:
        if self.rules is not None:
            kind = find(self.protocol)
            problem = kind.rules_problem(self)
            if problem is not None:
                raise ValueError(f"rules: {problem}")
            if self.rules.data_dependent is not None and not kind.pooled:
                raise ValueError("rules: data_dependent rules need own counts, those of pooled-counts")
        return self

    def differences(self, spec: SessionSpec) -> list[str]:
        """Return what of a proposed session was not consented to."""
        found = [
            name
            for name in ("protocol", "convener", "helper", "linking", "hide_order", "clusters")
            if getattr(self, name) != getattr(spec, name)
        ]
        if set(self.open_counts) != set(spec.open_counts):
            found.append("open_counts")
        if set(self.parties) != set(spec.parties):
            found.append("parties")
        if self.spec != spec.digest:
            found.append("spec")
        return found


def consent_values(spec: SessionSpec, variables: Iterable[str] = ()) -> dict[str, Any]:
    """Return the consent to exactly this session, as it is written in a node's file.

    `variables` are those that a party brings; a helper brings none.
    """
    values = spec.model_dump(mode="json", include=set(SessionText.model_fields), exclude_defaults=True)
    brought = list(variables)
    return {**values, "spec": spec.digest, **({"variables": brought} if brought else {})}


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


def load_before_consent(path: str | Path) -> SessionNodeSettings:
    """Return the settings in a node's file without its consents, which may be of an earlier version."""
    file, values = Path(path), {**read(Path(path)), "consents": []}
    model = PartySettings if "data" in values else MinerSettings
    try:
        return model.model_validate(values, context={"folder": file.absolute().parent})
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error, values, model, {})}") from None
