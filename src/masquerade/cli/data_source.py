"""Records to count, wherever they lie: files, or a table that `--engine` and `--url` lead to."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import masquerade as mq
from masquerade.cli.output import say
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.cli.options import EngineName
    from masquerade.core.missing_data import Missing
    from masquerade.sources.engine import Engine
    from masquerade.sources.engine_tables import Watch
    from masquerade.sources.records import Records

TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}
ELSEWHERE: Final = ("postgres", "spark")  # engines that DATA are the name of a table of


@dataclass(frozen=True, slots=True)
class Place:
    """Where records are counted, and whether to say so."""

    engine: EngineName = "auto"
    url: str | None = None
    verbose: bool = False

    def check(self, data: list[str]) -> None:
        """Refuse what cannot work before anything is read."""
        if self.url is not None and self.engine not in ELSEWHERE:
            raise InputError("--url says where a table lies: give --engine postgres or --engine spark too.")
        if "-" in data and self.engine in TITLES:
            raise InputError(
                f"{TITLES[self.engine]} cannot count standard input, which is read once only: write it to a "
                "file, or leave --engine out."
            )
        if self.engine == "postgres" and len(data) > 1:
            raise InputError(f"PostgreSQL counts one table at a time. Got {len(data)} names instead.")


@dataclass(frozen=True, slots=True)
class Given:
    """The records to count, and how to read them."""

    data: list[str]
    policy: Policy
    weights: str | None
    person: str | None
    clear: bool
    place: Place = Place()
    accept_incomplete: bool = False

    def source(self) -> Records:
        """Return files as records in memory, as testing a model needs them."""
        records: Records = mq.tally(self._paths, **self._read, engine="memory")
        say_missing(records.missing)
        return records

    @contextmanager
    def opened(self, watch: Watch | None = None) -> Iterator[Records | Engine]:
        """Yield the source of counts; connections live as long as it is used."""
        self.place.check(self.data)
        with ExitStack() as stack:
            if self.place.verbose:
                stack.enter_context(log_said())
            match self.place.engine:
                case "postgres" | "spark":
                    source = mq.tally(self._table(stack), **self._read, watch=watch)
                case in_files:
                    source = mq.tally(self._paths, **self._read, engine=in_files, watch=watch)
            say_missing(source.missing)
            yield source

    def origin_note(self, what: str = "results are") -> str | None:
        """Refuse disguised records as clear ones; tell what to say of those that do not say what they are."""
        self.place.check(self.data)
        if self.place.engine not in ELSEWHERE:
            return origin_note(self.data, what, clear=self.clear)
        if self.place.engine == "spark" and all(Path(name).is_file() for name in self.data):
            return self._note_of_files(what)
        return None if self.clear else unsure(f"the {TITLES[self.place.engine]} table", what)

    def _note_of_files(self, what: str) -> str | None:
        """Return the note about files that an engine will read without a look at what they say."""
        from masquerade.core.tally import raise_refusals  # noqa: PLC0415  (these load Arrow)
        from masquerade.sources.tally import check_origin, missing_from  # noqa: PLC0415

        note = origin_note(self.data, what, clear=self.clear)
        said = check_origin(self.data, None if self.clear else self.policy)
        missing = missing_from(said, accepted=self.accept_incomplete)
        if missing is not None:
            raise_refusals(missing.refusals([None]))
        say_missing(missing)
        return note

    @property
    def _paths(self) -> Any:
        return self.data[0] if len(self.data) == 1 else self.data

    @property
    def _read(self) -> dict[str, Any]:
        rules = {"schema": self.policy} if self.clear else {"policy": self.policy}
        accepted = {"accept_incomplete": self.accept_incomplete}
        return {**rules, "weights": self.weights, "id": self.person, **accepted}

    def _table(self, stack: ExitStack) -> Any:
        from masquerade.core.schema import Field  # noqa: PLC0415  (these load Arrow)
        from masquerade.sources.connections import postgres_table, spark_table, url_of  # noqa: PLC0415

        url = url_of(self.place.url)
        if self.place.engine == "postgres":
            return stack.enter_context(postgres_table(self.data[0], url))
        fields = self.policy.fields if self.clear else list(map(Field, self.policy.observed.variables))
        with quiet(wanted=not self.place.verbose):
            return stack.enter_context(spark_table(self.data, url, fields))


def origin_note(data: list[str], what: str = "results are", *, clear: bool) -> str | None:
    """Refuse disguised files as clear ones; return what to say of files that do not say what they are."""
    if "-" in data:
        return None
    from masquerade.frames.files import open_batches  # noqa: PLC0415  (loads Arrow)

    with open_batches(data, []) as batches:
        origin = batches.metadata.get("policy")
    if clear and origin is not None:
        raise InputError(f"{batches.file}: was disguised under policy {origin[:12]}; leave --clear out.")
    return None if clear or origin is not None else unsure(batches.file, what)


def say_missing(missing: Missing | None) -> None:
    """Say what is missing from records that are counted all the same."""
    if missing is not None and missing.accepted:
        say(f"note: rows are missing, not at random: {missing.what}.")


def unsure(name: str, what: str) -> str:
    """Return the note about records that do not name their policy."""
    return (
        f"note: {name} does not say under which policy it was disguised; the {what} right only if it was "
        "this one."
    )


@contextmanager
def log_said() -> Iterator[None]:
    """Say what sources log about their choices, a line each."""
    log = logging.getLogger("masquerade.sources")
    handler, level = Said(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class Said(logging.Handler):
    """A handler whose lines look like our others."""

    def emit(self, record: logging.LogRecord) -> None:
        """Say a line."""
        say(record.getMessage())


@contextmanager
def quiet(*, wanted: bool) -> Iterator[None]:
    """Let programs that are started meanwhile talk to nobody: Java greets with pages, and may quote data."""
    if not wanted:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
