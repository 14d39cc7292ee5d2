"""Settings file of a node in sessions: its identity, records, peers and consents."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError, model_validator

from masquerade.channels.privacy_level import parse_limit
from masquerade.core.errors import InputError
from masquerade.core.schema import Category
from masquerade.protocols.linkage.derived_keys import check_keys
from masquerade.services.common.settings import AnyPath, NodeSettings, PublicFile, SecretFile, Strict
from masquerade.services.common.settings_file import explain, read
from masquerade.services.parties.kinds import find
from masquerade.services.parties.session import SessionSpec, SessionText
from masquerade.sources.control.disclosure_profiles import PROFILES, expand_profile
from masquerade.sources.control.inference_control import Rules


def _check_limit(text: str) -> str:
    """Return the text of a privacy limit unchanged; raise ValueError if it cannot be parsed."""
    try:
        parse_limit(text)
    except InputError as error:
        raise ValueError(str(error)) from None
    return text


Limit = Annotated[str, AfterValidator(_check_limit)]


class DataSettings(Strict):
    """The records of a party, their policy, and their key column."""

    files: tuple[AnyPath, ...] = Field(min_length=1)
    """Parquet, Arrow or CSV files. They form one table, except where any party may hold any cell."""
    policy: PublicFile
    """The policy: the categories of variables, and the channels that disguise them."""
    key: str | None = None
    """The column with a person's key; without it records can be neither linked nor disguised."""
    linking_key: SecretFile | None = None
    """For `linking: keyed`: 32 random bytes that the parties share and the miner does not have."""
    link_fields: dict[str, str] = Field(default_factory=dict)
    """For sessions with `link_by`: the column of each field, as `{first: given_name, born: birth_date}`."""
    link_dates: tuple[str, ...] = ()
    """The fields of `link_fields` that are dates, written as 1970-02-03 or 3.2.1970."""


class DataDependentSettings(Strict):
    """Rules that depend on the counts: a refusal reveals that a set is small."""

    least_people: int = Field(ge=1)
    """No set of fewer people is counted, directly or by adding and subtracting answers."""
    show_empty: bool = False
    """Whether empty sets may be counted."""
    most_overlap: int | None = Field(None, ge=0)
    """The most people that two different cells may have in common."""
    least_width: int = Field(0, ge=0)
    """The least width of the interval that answers leave open for cells of too few people."""


class CategorySettings(Strict):
    """Limit on the number of categories of a counted variable."""

    share: float = Field(1.0, gt=0, le=1)
    """The most categories, as a share of the number of records."""
    most: int | None = Field(None, ge=1)
    """The most categories."""


class RulesSettings(Strict):
    """Cells that the answers of this and all earlier sessions together must not determine."""

    profile: Literal["datashield", "acro", "cms11"] | None = None
    """Rules of another system; they are written out by `config check`, and other keys override them."""
    protect: tuple[tuple[str, ...], ...] = ()
    """Sets of variables, as `[[age, sex, region]]`: no cell that names all of one set may be determined."""
    most_variables: int | None = Field(None, ge=1)
    """The most variables of a cell that may be determined."""
    impossible: tuple[dict[str, Category], ...] = ()
    """Cells that are publicly known to be empty, as `[{sex: male, pregnant: yes}]`."""
    data_dependent: DataDependentSettings | None = None
    """Rules that depend on the party's own counts; only for `pooled-counts` of clear records."""
    least_dof: int | None = Field(None, ge=1)
    """The least degrees of freedom: records less parameters; a table has one parameter fewer than cells."""
    most_parameters: float | None = Field(None, gt=0, le=1)
    """The most parameters, as a share of the number of records."""
    most_categories: CategorySettings | None = None
    """The most categories of a counted variable, as `{share: 0.33, most: 40}`."""

    @model_validator(mode="before")
    @classmethod
    def _expand(cls, values: Any) -> Any:
        """Write out the keys of a profile; raise ValueError for rules of sums, which no session can check."""
        if not isinstance(values, dict):
            return values
        if values.get("dominance") is not None:
            raise ValueError(
                "dominance needs the contributions to sums, and a session has counts only; check sums where "
                "they are held: masquerade output check"
            )
        if values.get("profile") not in PROFILES:  # validation of the field reports the known profiles
            return values
        return {**expand_profile(values, magnitudes=False), "profile": values["profile"]}

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        stated = (self.most_variables, self.data_dependent, self.least_dof, self.most_parameters)
        if not self.protect and not any(it is not None for it in (*stated, self.most_categories)):
            raise ValueError("say what must stay undetermined: protect, most_variables or data_dependent")
        try:
            self.rules()
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def shows(self, sent: Collection[str], seen: Collection[str]) -> bool:
        """Return True if reports of `sent`, combined with all variables `seen`, cover a protected set.

        Reports are treated like true values: the rules do not rely on the noise of the channel.
        """
        combined = {*seen, *sent}
        if self.most_variables is not None and len(combined) > self.most_variables:
            return True
        return any(combined.issuperset(some) and not set(some).isdisjoint(sent) for some in self.protect)

    def rules(self) -> Rules:
        """Return the rules for inference control; without a protected set, every table is allowed."""
        return Rules.from_dict(self.model_dump(exclude={"profile"}, exclude_none=True))


class BudgetSettings(Strict):
    """Limit on the ε and δ of all sessions together; the accountant adds up what each session spends."""

    epsilon: float = Field(gt=0, le=20)
    """ε of all sessions together, for each record."""
    delta: float = Field(1e-6, ge=1e-10, le=0.01)
    """δ of all sessions together."""


class SessionConsent(SessionText):
    """A session that a node participates in; a session that differs in any field is refused."""

    spec: str = Field(pattern=r"^[0-9a-f]{64}$")
    """The digest of the session's whole text, as `masquerade session consent` prints it."""
    variables: tuple[str, ...] = ()
    """The variables of the policy that take part; a party lists at least one, a helper none."""
    least_records: int = Field(20, ge=1)
    """The least number of linked records, and of people in a group that is counted separately."""
    other_people: bool = False
    """Allow exact results about different people than before: differences then reveal single values."""
    openings: int = Field(1, ge=1, le=100)
    """The number of computations on shares that may open a result; a dishonest party learns from each."""
    clear: Literal["accepted"] | None = None
    """`accepted`: participate even if the session reveals more about a person than the node's limit."""
    budget: BudgetSettings | None = None
    """With noise: the most that all sessions with noise about these records may ever spend together."""
    rules: RulesSettings | None = None
    """Counts to refuse; for session types in which a party sees its answers and can refuse them."""

    @model_validator(mode="before")
    @classmethod
    def _check_pinned(cls, values: Any) -> Any:
        """Raise ValueError for a consent without a digest, under which the convener could learn any model."""
        if isinstance(values, dict) and values.get("spec") is None:
            raise ValueError(
                "needs spec, the digest of what is learnt, from what and by whom: masquerade session "
                "consent SESSION.yaml --node FILE prints it"
            )
        return values

    @model_validator(mode="after")
    def _check_openings(self) -> Self:
        if self.openings > 1 and self.clusters is not None and self.clusters.draw_start:
            raise ValueError(
                "openings: each computation draws a different start, so only one may open a result"
            )
        return self

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        if self.budget is not None and self.noise is None:
            raise ValueError("budget: this session adds no noise")
        if self.rules is not None and self.rules.data_dependent is not None and self.noise is not None:
            raise ValueError("rules: data_dependent rules read exact counts, which noise is to hide")
        if self.rules is not None:
            kind = find(self.protocol)
            problem = kind.rules_problem(self)
            if problem is not None:
                raise ValueError(f"rules: {problem}")
            if self.rules.data_dependent is not None and not kind.pooled:
                raise ValueError(
                    "rules: data_dependent rules need the party's own counts, as in pooled-counts"
                )
            if self.rules.rules().limits_models and kind.sends_columns:
                raise ValueError(
                    "rules: least_dof, most_parameters and most_categories limit tables, and this session "
                    "sends reports of columns, from which any table can be counted"
                )
        return self

    def differences(self, spec: SessionSpec) -> list[str]:
        """Return the fields in which a session differs from this consent."""
        different = [
            name
            for name in (
                "protocol",
                "convener",
                "helper",
                "linking",
                "link_by",
                "link_error",
                "hide_order",
                "clusters",
                "noise",
            )
            if getattr(self, name) != getattr(spec, name)
        ]
        if set(self.open_counts) != set(spec.open_counts):
            different.append("open_counts")
        if set(self.parties) != set(spec.parties):
            different.append("parties")
        if self.spec != spec.digest:  # covers every field of the text, also those not compared above
            different.append("spec")
        return different


def consent_values(spec: SessionSpec, variables: Iterable[str] = ()) -> dict[str, Any]:
    """Return the consent to exactly this session as values of a node's file; a helper has no `variables`."""
    values = spec.model_dump(mode="json", include=set(SessionText.model_fields), exclude_defaults=True)
    brought = list(variables)
    return {**values, "spec": spec.digest, **({"variables": brought} if brought else {})}


class SessionNodeSettings(NodeSettings):
    """Settings that all nodes of sessions have."""

    consents: tuple[SessionConsent, ...] = ()
    """The sessions in which this node participates as party or helper; all others are refused."""

    @model_validator(mode="after")
    def _check_peers(self) -> Self:
        for consent in self.consents:
            for name in (*consent.parties, consent.convener, consent.helper or self.name):
                if name != self.name and name not in self.peers:
                    raise ValueError(f"session {consent.session!r} names {name!r}, which is not a peer")
        if len({consent.session for consent in self.consents}) < len(self.consents):
            raise ValueError("a session is consented to twice")
        return self

    def consent(self, session: str) -> SessionConsent | None:
        """Return the consent to a session by its name, None without one."""
        return next((item for item in self.consents if item.session == session), None)


class PartySettings(SessionNodeSettings):
    """A node with records."""

    data: DataSettings
    """The records and their policy."""
    limit: Limit | None = None
    """The limit for one person over all sessions, as `5%:50%` or `gamma=19`; by default the policy's."""

    @model_validator(mode="after")
    def _check_parties(self) -> Self:
        for consent in self.consents:
            if self.name not in consent.parties:
                raise ValueError(f"session {consent.session!r} does not have this party among its parties")
            if not consent.variables:
                raise ValueError(f"session {consent.session!r}: list the variables that may take part")
            if consent.linking is not None and self.data.key is None:
                raise ValueError(f"session {consent.session!r} links records: data.key must name the column")
            if consent.link_by:
                try:
                    check_keys(consent.link_by, self.data.link_fields)
                except InputError as error:
                    raise ValueError(f"session {consent.session!r}: {error} See data.link_fields.") from None
            if consent.linking == "keyed" and self.data.linking_key is None:
                raise ValueError(f"session {consent.session!r} is keyed: data.linking_key must name a file")
        return self


class MinerSettings(SessionNodeSettings):
    """A node without records: a miner, receiver, helper, or convener."""


KINDS: dict[str, type[SessionNodeSettings]] = {"party": PartySettings, "miner": MinerSettings}


def load_before_consent(path: str | Path) -> SessionNodeSettings:
    """Return a node's settings without its consents, which an earlier version may have written."""
    file, values = Path(path), {**read(Path(path)), "consents": []}
    model = PartySettings if "data" in values else MinerSettings
    try:
        return model.model_validate(values, context={"folder": file.absolute().parent})
    except ValidationError as error:
        raise InputError(f"{file}: {explain(error, values, model, {})}") from None
