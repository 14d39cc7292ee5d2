"""Settings of the collector of a survey."""

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
        raise ValueError("must not contain a password; put it into ~/.pgpass or PGPASSWORD.")
    return value


def _folder_or_url(value: object, info: ValidationInfo) -> str | Path:
    """Parse an address of PostgreSQL (it contains `://`) or the path of a folder."""
    if isinstance(value, str) and "://" in value:
        return _postgres_url(value)
    return _FOLDER.validate_python(value, context=info.context)


PostgresUrl = Annotated[str, AfterValidator(_postgres_url)]
FolderOrUrl = Annotated[str | Path, PlainValidator(_folder_or_url)]
_FOLDER: TypeAdapter[Path] = TypeAdapter(common.AnyPath)


class SurveyLimits(common.Limits):
    """Limits of a collector that serves browsers."""

    body_bytes: common.Bytes = 64 << 10
    """The longest message that is accepted."""
    concurrency: int = Field(default=256, ge=1, le=1024)
    """The most requests processed at the same time; further callers are asked to retry later."""
    seconds: float = Field(default=30.0, gt=0, le=86_400, allow_inf_nan=False)
    """The most seconds for a message to arrive, and for its caller to wait."""
    per_minute: int = Field(default=600, ge=1)
    """The most messages a minute from one address (or proxy). A random part, at most half, is subtracted."""


class QuotaSettings(common.Strict):
    """At most `most` reports with an answer; later respondents with that answer see a closed survey."""

    variable: str
    """A column of the reports."""
    answer: bool | int | str
    """One of its categories. For a disguised variable, it is the category that was drawn."""
    most: int = Field(ge=1)
    """The number of reports to accept; those that wait for a batch are accepted in addition."""


class SurveySettings(common.Strict):
    """The collector of a survey."""

    masquerade: Literal[1]
    """The version of the format, 1."""
    name: common.Name = "survey"
    """The name of this service."""
    survey: common.PublicFile
    """The survey file, from which the page is built."""
    listen: common.Listen = common.Listen()
    """The address at which pages reach the collector."""
    tls: common.Tls | None = None
    """Its certificate and key. Without them it listens on this machine only, behind a proxy that has them."""
    state: common.AnyPath | None = None
    """A folder for reports and invitations, created if it does not exist. Give either this or `store`."""
    store: PostgresUrl | None = None
    """PostgreSQL for the reports, `postgresql://user@host/database`; the password is in `~/.pgpass`."""
    invitations: FolderOrUrl | None = None
    """A folder, or another PostgreSQL server, for the invitations; required with `store` and `token_key`."""
    accept: tuple[Trace, ...] = ()
    """Settings of a PostgreSQL server to accept although they keep the order in which reports arrived."""
    token_key: common.SecretFile | None = None
    """The key that signs blind tokens (`masquerade survey init` makes it); without it anyone can answer."""
    team_token: common.SecretFile | None = None
    """The token of the fieldwork team, for the page with the figures (`masquerade tls token`)."""
    batch: Annotated[int, AfterValidator(check_batch)] = LEAST_BATCH
    """While the survey is open, every number changes by this many reports or more; at least 10."""
    export_token: common.SecretFile | None = None
    """The token for exports while the survey is open, in batches by combination of clear answers."""
    quotas: tuple[QuotaSettings, ...] = ()
    """Limits by answer: when the published count reaches a limit, no more such reports are accepted."""
    limits: SurveyLimits = SurveyLimits()
    """Limits on messages and load."""

    @property
    def place(self) -> str | Path:
        """Return the folder or the address of the server in which reports are stored."""
        place = self.store or self.state
        assert place is not None  # noqa: S101  (checked below)
        return place

    @model_validator(mode="after")
    def _one_place(self) -> Self:
        if (self.state is None) == (self.store is None):
            raise ValueError("needs either a state (a folder) or a store (postgresql://…).")
        return self

    @model_validator(mode="after")
    def _invitations_apart(self) -> Self:
        if self.store is not None and self.token_key is not None and self.invitations is None:
            raise ValueError(
                "invitations must name a folder or another server: if they are in the same PostgreSQL server "
                "as the reports, its log links them."
            )
        return self

    @model_validator(mode="after")
    def _local_without_tls(self) -> Self:
        if self.tls is None and not common.is_loopback(self.listen.host):
            raise ValueError(
                "listen.host must be an address of this machine, such as 127.0.0.1, without tls."
            )
        return self


KINDS: dict[str, type[BaseModel]] = {"survey": SurveySettings}
