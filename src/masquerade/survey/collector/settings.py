"""What the collector of a survey is told."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    Field,
    PlainValidator,
    TypeAdapter,
    ValidationInfo,
    model_validator,
)

from masquerade.services.common import settings as common
from masquerade.survey.collector.batches import LEAST_BATCH, check_batch
from masquerade.survey.collector.postgres_checks import Trace


def _postgres_url(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("postgresql", "postgres"):
        raise ValueError("must be an address such as postgresql://user@host/database.")
    if parts.password is not None or "password=" in parts.query:
        raise ValueError("must not hold a password; ~/.pgpass or PGPASSWORD has it.")
    return value


def _folder_or_url(value: object, info: ValidationInfo) -> str | Path:
    """Return an address of PostgreSQL or the path of a folder: which it is, its beginning says."""
    if isinstance(value, str) and "://" in value:
        return _postgres_url(value)
    return _FOLDER.validate_python(value, context=info.context)


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
FolderOrUrl = Annotated[str | Path, PlainValidator(_folder_or_url)]
_FOLDER: TypeAdapter[Path] = TypeAdapter(common.AnyPath)


class SurveyLimits(common.Limits):
    """Limits of a collector that browsers speak to."""

    body_bytes: common.Bytes = 64 << 10
    """The longest message that is taken."""
    concurrency: int = Field(default=256, ge=1, le=1024)
    """The most requests worked on at once; whoever comes then is told to ask later."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """Seconds for a message to arrive, and for its caller to wait."""
    per_minute: int = Field(default=600, ge=1)
    """The most messages a minute from one address, which is never kept; behind a proxy all are one."""


class QuotaSettings(common.Strict):
    """At most so many reports with an answer; whoever comes then is told that the survey is closed."""

    variable: str
    """A column of the reports."""
    answer: bool | int | str
    """One of its categories: of a disguised variable that of the report, which chance drew."""
    most: int = Field(ge=1)
    """How many are taken; those that wait for a batch are taken beyond."""


class SurveySettings(common.Strict):
    """The collector of a survey."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name = "survey"
    """What this service is called."""
    survey: common.PublicFile
    """The survey file; the page is built of it and served."""
    listen: common.Listen = common.Listen()
    """Where pages reach the collector."""
    tls: common.Tls | None = None
    """Its certificate and key; without them it listens on this machine alone, behind a proxy that has one."""
    state: common.AnyPath | None = None
    """A folder for reports and invitations, made if it is not there; or else `store`."""
    store: PostgresUrl | None = None
    """PostgreSQL for the reports, `postgresql://user@host/database`; `~/.pgpass` has the password."""
    invitations: FolderOrUrl | None = None
    """A folder, or another PostgreSQL server, for the invitations; with `store` and `token_key` required."""
    accept: tuple[Trace, ...] = ()
    """What a PostgreSQL server may do although it keeps the order in which people came."""
    token_key: common.SecretFile | None = None
    """The key that signs blind tokens (`masquerade survey init` makes it); without it anybody may answer."""
    team_token: common.SecretFile | None = None
    """The token of the fieldwork team, for the page that shows how far it is (`masquerade tls token`)."""
    batch: Annotated[int, AfterValidator(check_batch)] = LEAST_BATCH
    """While the survey is open every number changes by this many reports or more; at least 10."""
    export_token: common.SecretFile | None = None
    """The token for exports while the survey is open, in batches by combination of clear answers."""
    quotas: tuple[QuotaSettings, ...] = ()
    """Answers of which enough is enough: when the published count is reached, no more are taken."""
    limits: SurveyLimits = SurveyLimits()
    """How much is taken and worked on."""

    @property
    def place(self) -> str | Path:
        """Return where reports and invitations are kept."""
        kept = self.store or self.state
        assert kept is not None  # noqa: S101  (checked below)
        return kept

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.state is None) == (self.store is None):
            raise ValueError("needs a state (a folder) or a store (postgresql://…), one of them.")
        return self

    @model_validator(mode="after")
    def _invitations_apart(self) -> Self:
        if self.store is not None and self.token_key is not None and self.invitations is None:
            raise ValueError(
                "invitations must name a folder or another server: beside the reports in PostgreSQL its log "
                "would join them."
            )
        return self

    @model_validator(mode="after")
    def _local_without_tls(self) -> Self:
        if self.tls is None and not common.is_loopback(self.listen.host):
            raise ValueError("listen.host must be of this machine, such as 127.0.0.1, without tls.")
        return self


KINDS: dict[str, type[BaseModel]] = {"survey": SurveySettings}
