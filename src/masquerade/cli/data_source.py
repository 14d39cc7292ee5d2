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
from masquerade.cli.output import listed, say
from masquerade.core.errors import InputError

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.core.missing_data import Missing
    from masquerade.frames.file_reader import Batches
    from masquerade.sources.engine_tables import Watch

TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}
ELSEWHERE: Final = ("postgres", "spark")  # engines that DATA are the name of a table of


@dataclass(frozen=True, slots=True)
class Place:
    """Where records are counted, and whether to say so."""

    engine: str = "auto"
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

    @contextmanager
    def opened(
        self, watch: Watch | None = None, what: str = "results are"
    ) -> Iterator[tuple[Any, str | None]]:
        """Yield the source of counts, and what to say of records that do not say what they are.

        Connections and files live as long as it is used.
        """
        self.place.check(self.data)
        engine = self.place.engine
        with ExitStack() as stack:
            if self.place.verbose:
                stack.enter_context(log_said())
            records, note = self._records(stack, what)
            used = "auto" if engine in ELSEWHERE else engine
            source = mq.tally(records, **self._read, engine=used, watch=watch)
            say_missing(getattr(source, "missing", None))
            yield source, note

    def _records(self, stack: ExitStack, what: str) -> tuple[Any, str | None]:
        """Return what is counted: opened files, an engine's table, or what another package opens."""
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (these load Arrow)
        from masquerade.sources.tally import opener_of  # noqa: PLC0415

        engine = self.place.engine
        if engine in ELSEWHERE:
            files = engine == "spark" and all(Path(name).is_file() for name in self.data)
            note = self._note_of_files(what) if files else self._unsure(f"the {TITLES[engine]} table", what)
            return self._table(stack), note
        paths = self.data[0] if len(self.data) == 1 else self.data
        if opener_of(paths, engine) is not None:
            return paths, self._unsure(f"the source {listed(self.data)}", what)
        batches = stack.enter_context(open_batches(self.data, []))
        return batches, origin_note(batches, what, clear=self.clear)

    def _note_of_files(self, what: str) -> str | None:
        """Return the note about files that an engine will read without a look at what they say."""
        from masquerade.core.tally import raise_refusals  # noqa: PLC0415  (these load Arrow)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415
        from masquerade.sources.tally import check_origin, missing_from  # noqa: PLC0415

        with open_batches(self.data, []) as batches:
            note = origin_note(batches, what, clear=self.clear)
            said = check_origin(batches, None if self.clear else self.policy)
        missing = missing_from(said, accepted=self.accept_incomplete)
        if missing is not None:
            raise_refusals(missing.refusals([None]))
        say_missing(missing)
        return note

    def _unsure(self, name: str, what: str) -> str | None:
        return None if self.clear else unsure(name, what)

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


def origin_note(batches: Batches, what: str = "results are", *, clear: bool) -> str | None:
    """Refuse disguised files as clear ones; return what to say of files that do not say what they are."""
    origin = batches.metadata.get("policy")
    if clear and origin is not None:
        raise InputError(f"{batches.file}: was disguised under policy {origin[:12]}; leave --clear out.")
    return None if clear or origin is not None or "-" in batches.paths else unsure(batches.file, what)


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
