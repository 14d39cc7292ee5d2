"""Records to count, wherever they lie: files, or a table that `--engine` and `--url` lead to."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import masquerade as mq
from masquerade.cli import options
from masquerade.cli.output import Watch, listed, say, warnings_said, watched
from masquerade.core.errors import InputError, did_you_mean
from masquerade.learn.option_types import names_in

if TYPE_CHECKING:
    from masquerade.channels.policy import Policy
    from masquerade.frames.file_reader import Batches
    from masquerade.sources.report_tally import Missing

TITLES: Final = {"duckdb": "DuckDB", "postgres": "PostgreSQL", "spark": "Spark"}
ELSEWHERE: Final = ("postgres", "spark")  # engines that DATA are the name of a table of
READ: Final[dict[str, tuple[Any, Any]]] = {
    "variables": (options.Variables, None),
    "weights": (options.Weights, None),
    "person": (options.Person, None),
    "clear": (options.Clear, False),
    "accept_incomplete": (options.AcceptIncomplete, False),
    "sep": (options.Separator, None),
    "decimal": (options.Decimal, None),
    "encoding": (options.Encoding, None),
    "engine": (options.Engine, "auto"),
    "url": (options.Url, None),
    "verbose": (options.Verbose, False),
    "strata": (options.Strata, None),
    "clusters": (options.Clusters, None),
    "fpc": (options.Fpc, None),
    "replicates": (options.Replicates, None),
    "replicate_method": (options.ReplicateMethod, "bootstrap"),
    "replicate_scale": (options.ReplicateScale, None),
}


def own_option(name: str, annotation: Any, default: Any = Parameter.empty) -> Parameter:
    """Return an option of a command."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def over_records(
    run: Callable[..., None], own: Sequence[Parameter] | None = None, told: str | None = None
) -> Callable[..., None]:
    """Return a command over records: what runs it gets them as `records`, among options of its own.

    In the place of that parameter stand options that say where records are, and how they are read.
    """
    reports = Parameter("data", Parameter.POSITIONAL_OR_KEYWORD, annotation=options.Reports)
    parameters = [reports, own_option("policy", options.CarriedPolicy, None)]
    own = own or list(signature(run, eval_str=True).parameters.values())
    taken = {item.name for item in own}  # what a command calls so itself is its own
    for item in own:
        named = [pair for pair in READ.items() if pair[0] not in taken] if item.name == "records" else ()
        parameters += [own_option(name, *kind) for name, kind in named] or [item]

    def command(data: list[str], policy: str | None, **typed: Any) -> None:
        read: dict[str, Any] = {name: None if name in taken else typed.pop(name) for name in READ}
        run(records=Records(data, policy, **read), **typed)

    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    command.__doc__ = told or run.__doc__
    return command


@dataclass
class Records:
    """The records to count, where they are counted, and how they are read.

    Once they are opened, `unsure` is what to say of records that do not say what they are.
    """

    data: list[str]
    rules: str | None
    variables: str | None
    weights: str | None
    person: str | None
    clear: bool
    accept_incomplete: bool
    sep: str | None
    decimal: str | None
    encoding: str | None
    engine: str
    url: str | None
    verbose: bool
    strata: str | None = None
    clusters: str | None = None
    fpc: str | None = None
    replicates: str | None = None
    replicate_method: Literal["bootstrap", "jackknife", "brr"] = "bootstrap"
    replicate_scale: float | None = None
    unsure: str | None = None
    _watch: Watch | None = None

    @cached_property
    def policy(self) -> Policy:
        """Return the policy that records are read by: the one named, or the one that they carry."""
        if self.rules is not None:
            return mq.Policy.load(self.rules)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415  (these load Arrow)
        from masquerade.sources.tally import carried_policy  # noqa: PLC0415

        carried = None
        if self.engine not in ELSEWHERE and "-" not in self.data:
            with open_batches(self.data, []) as batches:
                carried = carried_policy(batches.metadata)
        if carried is None:
            raise InputError(f"{listed(self.data)}: carries no policy along; give --policy FILE.")
        return carried

    @cached_property
    def chosen(self) -> tuple[str, ...]:
        """Return the variables that were named, none where all are meant."""
        if self.variables is None:
            return ()
        return names_in(self.variables, self.policy.schema, "--variables")

    @property
    def drawn(self) -> bool:
        """Tell whether options say how the people of a complex survey were drawn."""
        return any((self.strata, self.clusters, self.fpc, self.replicates))

    @contextmanager
    def opened(self, doing: str, what: str = "results are") -> Iterator[Any]:
        """Yield the source of counts; a bar shows how far it is, and in the end our warnings are said.

        Connections and files live as long as it is used.
        """
        self._check()
        with warnings_said(), watched(doing) as watch, ExitStack() as stack:
            if self.verbose:
                stack.enter_context(_log_said())
            self._watch = watch
            records, self.unsure = self._opened(stack, what)
            read: dict[str, Any] = {"schema": self.policy} if self.clear else {"policy": self.policy}
            read |= {"weights": self.weights, "id": self.person, "accept_incomplete": self.accept_incomplete}
            read["engine"] = "auto" if self.engine in ELSEWHERE else self.engine
            source = self._survey(records, read) if self.drawn else mq.tally(records, **read, watch=watch)
            say_missing(getattr(source, "missing", None))
            from masquerade.core.tally import Selected  # noqa: PLC0415  (loads numpy)

            yield Selected(source, self.chosen) if self.chosen else source

    def advance(self, done: int, total: int) -> None:
        """Show how many steps of how many are done, where the source shows how far it is."""
        if self._watch is not None:
            self._watch(done / total)

    def _check(self) -> None:
        """Refuse what cannot work before anything is read."""
        if self.url is not None and self.engine not in ELSEWHERE:
            raise InputError("--url says where a table lies: give --engine postgres or --engine spark too.")
        if "-" in self.data and self.engine in TITLES:
            raise InputError(
                f"{TITLES[self.engine]} cannot count standard input, which is read once only: write it to a "
                "file, or leave --engine out."
            )
        if self.drawn and (self.engine not in {"auto", "memory"} or "-" in self.data):
            raise InputError(
                "Strata, clusters, fpc and replicates are of files that are counted in memory: leave "
                "--engine out, and write standard input to a file."
            )
        if self.drawn and (self.person or self.accept_incomplete):
            raise InputError("--id and --accept-incomplete do not go with the design of a complex survey.")
        if self.engine == "postgres" and len(self.data) > 1:
            raise InputError(f"PostgreSQL counts one table at a time. Got {len(self.data)} names instead.")

    def _survey(self, records: Batches, read: Mapping[str, Any]) -> Any:
        """Return the source over records of a complex survey."""
        from fnmatch import fnmatchcase  # noqa: PLC0415  (few commands need it)

        named = [name.strip() for name in (self.replicates or "").split(",") if name.strip()]
        columns: list[str] = []
        for name in named:
            found = [column for column in records.file_names if fnmatchcase(column, name)]
            columns += [name] if name in records.file_names else found
            if not found and name not in records.file_names:
                raise InputError(
                    f"--replicates: no column is called {name!r}.{did_you_mean(name, records.file_names)}"
                )
        return mq.SurveyRecords(
            records,
            read.get("policy"),
            schema=read.get("schema"),
            weights=self.weights,
            strata=self.strata,
            clusters=self.clusters,
            fpc=self.fpc,
            replicates=columns,
            method=self.replicate_method,
            scale=self.replicate_scale,
        )

    def _opened(self, stack: ExitStack, what: str) -> tuple[Any, str | None]:
        """Return what is counted: opened files, an engine's table, or what another package opens."""
        from masquerade.frames.dialect import Dialect  # noqa: PLC0415  (these load Arrow)
        from masquerade.frames.file_reader import open_batches  # noqa: PLC0415
        from masquerade.sources.tally import opener_of  # noqa: PLC0415

        if self.engine in ELSEWHERE:
            files = self.engine == "spark" and all(Path(name).is_file() for name in self.data)
            table = None if self.clear else _unsure(f"the {TITLES[self.engine]} table", what)
            note = self._note_of_files(what) if files else table
            return self._table(stack), note
        paths = self.data[0] if len(self.data) == 1 else self.data
        if opener_of(paths, self.engine) is not None:
            return paths, None if self.clear else _unsure(f"the source {listed(self.data)}", what)
        written = Dialect(self.sep, self.decimal, self.encoding)
        batches = stack.enter_context(open_batches(self.data, [], dialect=written))
        for note in batches.notes:
            say(note)
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

    def _table(self, stack: ExitStack) -> Any:
        from masquerade.core.schema import Field  # noqa: PLC0415  (these load Arrow)
        from masquerade.sources.engines.connections import postgres_table, spark_table, url_of  # noqa: PLC0415

        url = url_of(self.url)
        if self.engine == "postgres":
            return stack.enter_context(postgres_table(self.data[0], url))
        fields = self.policy.fields if self.clear else list(map(Field, self.policy.observed.variables))
        with _quiet(wanted=not self.verbose):
            return stack.enter_context(spark_table(self.data, url, fields))


def origin_note(batches: Batches, what: str = "results are", *, clear: bool) -> str | None:
    """Refuse disguised files as clear ones; return what to say of files that do not say what they are."""
    origin = batches.metadata.get("policy")
    if clear and origin is not None:
        raise InputError(f"{batches.file}: was disguised under policy {origin[:12]}; leave --clear out.")
    return None if clear or origin is not None or "-" in batches.paths else _unsure(batches.file, what)


def say_missing(missing: Missing | None) -> None:
    """Say what is missing from records that are counted all the same."""
    if missing is not None and missing.accepted:
        say(f"note: rows are missing, not at random: {missing.what}.")


def _unsure(name: str, what: str) -> str:
    return (
        f"note: {name} does not say under which policy it was disguised; the {what} right only if it was "
        "this one."
    )


@contextmanager
def _log_said() -> Iterator[None]:
    """Say what sources log about their choices, a line each."""
    log = logging.getLogger("masquerade.sources")
    handler, level = _Said(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)


class _Said(logging.Handler):
    """A handler whose lines look like our others."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def _quiet(*, wanted: bool) -> Iterator[None]:
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
